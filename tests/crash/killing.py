"""Scenario: eight workers append to one ledger and are SIGKILLed, again and again.

After each round a process that knows all acknowledgements checks the ledger.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any

from tests.crash.book import Book, Slot, problems
from tests.crash.processes import Child, Crew, Voice
from tests.crash.quiet import wait_until_alone
from tests.crash.worker import Worker, new_id

WORKERS = 8


def run(
    crew: Crew,
    *,
    url: str,
    seed: int,
    kills_a_round: int,
    rounds: int | None = None,
    at_least: float | None = None,
) -> dict[str, Any]:
    """So many rounds, or as many as begin within `at_least` seconds; the figures."""
    random = Random(seed)
    runs = [[new_id(random) for _ in range(WORKERS)] for _ in range(3)]
    slots = [Slot(number) for number in range(WORKERS)]
    book = Book()
    began = time.monotonic()
    finished = 0
    while finished < rounds if rounds is not None else time.monotonic() - began < (at_least or 0):
        _Round(crew, url, seed, runs, slots, book).play(random, kills_a_round)
        finished += 1
        checker = crew.start("checker", _check, url, book)
        [(_, [_, found])] = crew.join(checker)
        if found:
            return {"problems": found, **book.figures}
    return {"problems": [], "rounds": finished, **book.figures}


class _Round:
    def __init__(
        self,
        crew: Crew,
        url: str,
        seed: int,
        runs: list[list[str]],
        slots: list[Slot],
        book: Book,
    ) -> None:
        self._crew = crew
        self._url = url
        self._seed = seed
        self._runs = runs
        self._book = book
        self._at_work = {self._begin(slot): slot for slot in slots}

    def play(self, random: Random, kills: int) -> None:
        """Kill and replace; then let all finish their work, or kill all at once."""
        while kills > 0:
            wanted = self._book.figures["appends"] + random.randint(0, 24)
            while self._book.figures["appends"] < wanted:
                self._listen(None)
            self._listen(random.uniform(0, 0.003))
            victims = random.sample(list(self._at_work), random.choice((1, 1, 1, 1, 2, 3)))
            kills -= len(victims)
            slots = [self._kill(victim) for victim in victims]
            self._at_work |= {self._begin(slot): slot for slot in slots}
        if random.random() < 0.5:
            for worker in list(self._at_work):
                self._kill(worker)
            return
        for worker in self._at_work:
            worker.order("f")
        for worker, message in self._crew.join(*self._at_work):
            self._book.note(self._at_work[worker], message)
        for slot in self._at_work.values():
            assert slot.attempt is None, "a worker that ended well left an attempt open"
            self._leave(slot)
            slot.claims.clear()

    def _begin(self, slot: Slot) -> Child:
        slot.generation += 1
        return self._crew.start(
            slot.worker, _work, self._url, self._seed, self._runs, slot, self._book.dead
        )

    def _listen(self, at_most: float | None) -> None:
        for worker, message in self._crew.listen(at_most):
            self._book.note(self._at_work[worker], message)

    def _kill(self, worker: Child) -> Slot:
        slot = self._at_work.pop(worker)
        for message in self._crew.kill(worker):
            self._book.note(slot, message)
        self._leave(slot)
        self._book.figures["kills"] += 1
        self._book.figures["killed in an append"] += slot.attempt is not None
        self._book.figures["killed with a claim"] += bool(slot.claims)
        return slot

    def _leave(self, slot: Slot) -> None:
        self._book.dead.add(slot.worker)


def _work(
    voice: Voice, url: str, seed: int, runs: list[list[str]], slot: Slot, dead: set[str]
) -> None:
    Worker(voice, url, Random(f"{seed}/{slot.worker}"), runs, slot, dead).work()


def _check(voice: Voice, url: str, book: Book) -> None:
    wait_until_alone(url)
    voice.say("found", problems(url, book)[:20])
