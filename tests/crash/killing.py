"""Scenario: eight workers append to one ledger and are SIGKILLed, again and again.

After each round a fresh process that knows all acknowledgements checks the ledger. Kills come
at any moment, at the moments that are hard to meet by chance, after a standstill, and for all
workers at once; some workers are interrupted as by Ctrl-C, and live on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.attempts import new_id
from tests.crash.book import Book, Slot, problems
from tests.crash.processes import Child, Crew, Message, Voice
from tests.crash.quiet import wait_until_alone
from tests.crash.worker import Worker
from turnledger.ledger.stores.sqlite import store as sqlite

WORKERS = 8
# Every fourth worker has threads, whose appends share commits.
CROWD = 4
# The first opening of a ledger makes its tables. That many are killed at it.
FIRST_KILLS = 6
# After how many pages a worker moves the WAL: 4000 is the default, and a kill seldom meets it.
PAGES = (30, 200, 4000)
# A transaction of many events, which takes a while.
LARGE, MANY = "a large transaction", 20
# What a victim has just said when it is killed on purpose, and how soon after it, in seconds.
OCCASIONS: dict[str, float] = {
    "trying": 0.003,
    "forking": 0.003,
    "claiming": 0.003,
    "claimed": 0.001,
    "opening": 0.02,
    "a transaction": 0.001,
    LARGE: 0.005,
    "moving the WAL": 0.004,
}
# How many messages to wait for an occasion that may not come.
PATIENCE = 150


def run(
    crew: Crew,
    *,
    url: str,
    seed: int,
    kills: int,
    events: int = 0,
    kills_a_round: int = 25,
    interrupts: int = 0,
) -> dict[str, Any]:
    """Rounds until so many were killed and so many events acknowledged; the figures.

    Before each kill up to so many others are interrupted.
    """
    random = Random(seed)
    runs = [[new_id(random) for _ in range(WORKERS)] for _ in range(3)]
    slots = [Slot(n, threads=CROWD if n % 4 == 3 else 1) for n in range(WORKERS)]
    book = Book()
    found: list[str] = []
    while not found and (book.figures["kills"] < kills or book.figures["acknowledged"] < events):
        _Round(crew, url, f"{seed}", runs, slots, book, random).play(kills_a_round, interrupts)
        began = time.monotonic()
        checker = crew.start("checker", _check, url, book)
        [(_, [_, found])] = crew.join(checker)
        book.figures["checks of the whole ledger"] += 1
        book.figures["milliseconds of checking"] += int((time.monotonic() - began) * 1000)
    return {"problems": found, **book.figures}


class _Round:
    def __init__(
        self,
        crew: Crew,
        url: str,
        seed: str,
        runs: list[list[str]],
        slots: list[Slot],
        book: Book,
        random: Random,
    ) -> None:
        self._crew = crew
        self._url = url
        self._seed = seed
        self._runs = runs
        self._book = book
        self._random = random
        self._at_work = {self._begin(slot): slot for slot in slots}

    def play(self, kills: int, interrupts: int) -> None:
        """Kill and replace; then let all finish their work, or kill all at once."""
        figures = self._book.figures
        last = figures["kills"] + kills
        if figures["opened"] == 0:
            self._kill_at_first_opening()
        manners: list[Callable[[], list[Child]]] = [
            *(self._at_any_moment,) * 5,
            *(self._on_an_occasion,) * 7,
            *(self._after_a_standstill,) * 2,
            self._all_at_once,
        ]
        while figures["kills"] < last:
            self._listen_to_appends(self._random.randint(0, 16))
            for _ in range(interrupts):
                self._listen(self._random.uniform(0, 0.002))
                self._interrupt()
            victims = self._random.choice(manners)()
            self._replace(victims)
        if self._random.random() < 0.5:
            self._kill(self._all_at_once())
            return
        self._let_all_finish()

    # --- whom to kill, and when ---

    def _at_any_moment(self) -> list[Child]:
        self._listen(self._random.uniform(0, 0.003))
        number = self._random.choice((1, 1, 1, 1, 2, 3))
        return self._random.sample(list(self._at_work), number)

    def _on_an_occasion(self) -> list[Child]:
        """Somebody who has just said what it is doing."""
        wanted = self._random.choice(list(OCCASIONS))
        if wanted == "opening":
            # Somebody has to open: let it be the successor of one who is killed for it.
            self._replace(self._random.sample(list(self._at_work), 1))
        for _ in range(PATIENCE):
            for worker, message in self._listen(1.0):
                if wanted in message[:2] or (wanted == LARGE and self._is_large(worker, message)):
                    self._listen(self._random.uniform(0, OCCASIONS[wanted]))
                    return [worker]
        return []

    def _is_large(self, worker: Child, message: Message) -> bool:
        if message != ["amid", "a transaction"]:
            return False
        attempts = self._at_work[worker].on_their_way
        return any(attempt[0] == "trying" and attempt[4] >= MANY for attempt in attempts)

    def _after_a_standstill(self) -> list[Child]:
        """SIGSTOP, in a transaction if it can be; the others wait in line; then SIGKILL."""
        [victim] = self._random.sample(list(self._at_work), 1)
        for _ in range(PATIENCE):
            inside = [w for w, m in self._listen(1.0) if m == ["amid", "a transaction"]]
            if inside:
                victim = inside[-1]
                break
        self._crew.stop(victim)
        self._listen(self._random.uniform(0.002, 0.05))
        self._book.figures["stopped, then killed"] += 1
        held, in_line = _locks(self._url, victim.pid)
        self._book.figures["killed holding the file's lock"] += held
        self._book.figures["killed while others stood in line for it"] += held and in_line
        return [victim]

    def _all_at_once(self) -> list[Child]:
        self._listen(self._random.uniform(0, 0.003))
        self._book.figures["all killed at once"] += 1
        return list(self._at_work)

    def _kill_at_first_opening(self) -> None:
        last = self._book.figures["kills"] + FIRST_KILLS
        while self._book.figures["opened"] == 0 and self._book.figures["kills"] < last:
            self._listen(self._random.uniform(0, 0.03))
            victims = self._random.sample(list(self._at_work), self._random.choice((1, 2, 3)))
            self._book.figures["killed at the first opening"] += sum(
                self._at_work[victim].amid == "opening" for victim in victims
            )
            self._replace(victims)

    def _interrupt(self) -> None:
        """Ctrl-C for one that has opened the ledger and has one thread: it tries again."""
        able = [w for w, slot in self._at_work.items() if slot.attempts and slot.threads == 1]
        able = [worker for worker in able if self._at_work[worker].amid != "opening"]
        if able:
            os.kill(self._random.choice(able).pid, signal.SIGINT)

    # --- how ---

    def _begin(self, slot: Slot) -> Child:
        slot.generation += 1
        slot.inherited = set(slot.attempts)
        slot.amid = "opening"
        pages = self._random.choice(PAGES)
        seed = f"{self._seed}/{slot.worker}"
        return self._crew.start(
            slot.worker, _work, self._url, seed, self._runs, slot, self._book.dead, pages
        )

    def _replace(self, victims: list[Child]) -> None:
        slots = self._kill(victims)
        self._at_work |= {self._begin(slot): slot for slot in slots}

    def _kill(self, victims: list[Child]) -> list[Slot]:
        self._crew.strike(*victims)
        return [self._bury(victim) for victim in victims]

    def _bury(self, worker: Child) -> Slot:
        slot = self._at_work.pop(worker)
        for message in self._crew.kill(worker):
            self._book.note(slot, message)
        self._book.dead.add(slot.worker)
        self._count(slot)
        return slot

    def _count(self, slot: Slot) -> None:
        figures = self._book.figures
        cut_off = slot.on_their_way
        kinds = {attempt[1] if attempt[0] == "trying" else "fork" for attempt in cut_off}
        figures["kills"] += 1
        figures["killed in an append"] += bool(cut_off)
        figures["killed in several appends at once"] += len(cut_off) > 1
        figures["killed in a large append"] += any(
            attempt[0] == "trying" and attempt[4] >= MANY for attempt in cut_off
        )
        figures["killed in an import"] += "import" in kinds
        figures["killed in an append with blobs"] += "files" in kinds
        figures["killed in a fork"] += "fork" in kinds
        figures["killed with a claim"] += bool(slot.claims)
        if slot.amid:
            figures[f"killed amid {slot.amid}"] += 1

    def _let_all_finish(self) -> None:
        for worker in self._at_work:
            worker.order("f")
        for worker, message in self._crew.join(*self._at_work):
            self._book.note(self._at_work[worker], message)
        for slot in self._at_work.values():
            assert not slot.attempts, "a worker that ended well left an attempt open"
            self._book.dead.add(slot.worker)
            slot.claims.clear()

    def _listen_to_appends(self, number: int) -> None:
        wanted = self._book.figures["appends"] + number
        while self._book.figures["appends"] < wanted:
            self._listen(None)

    def _listen(self, at_most: float | None) -> list[tuple[Child, Message]]:
        said = self._crew.listen(at_most)
        for worker, message in said:
            self._book.note(self._at_work[worker], message)
        return said


def _locks(url: str, pid: int) -> tuple[bool, bool]:
    """Whether this process has the lock of a ledger's file, and whether others wait for it."""
    held = in_line = False
    with suppress(FileNotFoundError):
        inode = Path(f"{url}-locks", "write").stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if not line.rpartition(f":{inode} ")[1]:
                continue
            if fields[1] == "->":
                in_line = True
            elif int(fields[4]) == pid:
                held = True
    return held, in_line


def _work(
    voice: Voice,
    url: str,
    seed: str,
    runs: list[list[str]],
    slot: Slot,
    dead: set[str],
    pages: int,
) -> None:
    voice.say("amid", "opening")
    sqlite.CHECKPOINT_PAGES = pages
    worker = Worker(voice, url, Random(seed), runs, slot, dead)
    voice.say("counted", "opened")
    worker.work()


def _check(voice: Voice, url: str, book: Book) -> None:
    wait_until_alone(url)
    voice.say("found", problems(url, book)[:20])
