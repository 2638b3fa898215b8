"""Eight writers and a follower on a ledger whose server fails under them, and the book of it.

They retry with the same ids until they know what became of an append. In the end everything
that they were told is compared with what is there, and so is what the follower saw.
"""

from __future__ import annotations

from random import Random
from threading import Event
from typing import Any

from tests.crash.book import Book, Slot, problems
from tests.crash.processes import Child, Crew, Message, Voice
from tests.crash.quiet import wait_until_alone
from tests.crash.worker import Worker, new_id
from turnledger.ledger import Ledger, StoreUnavailableError

WRITERS = 8
# Seconds; half of the writers let the ledger find out what became of an append, and half
# give up sooner, are told that the outcome is unknown, and try again.
PATIENT, IMPATIENT = 30.0, 1.5


class Writers:
    """All who use the ledger at `url`, from `begin` to `end`."""

    def __init__(self, crew: Crew, url: str, seed: int) -> None:
        self._crew = crew
        self._url = url
        self._seed = seed
        self._random = Random(seed)
        self._at_work: dict[Child, Slot] = {}
        self._follower: Child
        self.book = Book()

    def begin(self) -> None:
        """Until each writer has said something: opening while the server is down would fail."""
        own, shared = self._new_ids(WRITERS), self._new_ids(3)
        self._crew.join(self._crew.start("opener", _open, self._url))
        for number in range(WRITERS):
            # The impatient keep to themselves: they would not wait for each other's locks either.
            runs = [own, self._new_ids(3) if _is_impatient(number) else shared, []]
            # Two of them with threads, which commit in groups.
            slot = Slot(number, threads=3 if number >= WRITERS - 2 else 1)
            child = self._crew.start(slot.worker, _write, self._url, self._seed, runs, slot)
            self._at_work[child] = slot
        self._follower = self._crew.start("follower", _follow, self._url)
        silent = {*self._at_work, self._follower}
        while silent:
            silent -= {child for child, _ in self._listen()}

    def _new_ids(self, count: int) -> list[str]:
        return [new_id(self._random) for _ in range(count)]

    def let_work(self, at_least: int) -> None:
        """Until so many more appends were acknowledged, and each writer had one of them."""
        wanted = self.book.figures["appends"] + at_least
        waiting = set(self._at_work)
        while waiting or self.book.figures["appends"] < wanted:
            for child, message in self._listen():
                if message[0] == "recorded":
                    waiting.discard(child)

    def count_caught(self) -> None:
        """Right after the server died: how many were in the middle of an append."""
        for _ in range(20):
            self._listen(0)
        caught = sum(bool(slot.attempts) for slot in self._at_work.values())
        self.book.figures["caught in an append"] += caught

    def let_despair(self) -> None:
        """Until one was told that the outcome of its append is unknown."""
        before = self.book.figures["outcome unknown"]
        while self.book.figures["outcome unknown"] == before:
            self._listen()

    def end(self) -> list[str]:
        """Let all finish what they are doing; what is wrong then."""
        for writer in self._at_work:
            writer.order("f")
        for child, message in self._crew.join(*self._at_work):
            self.book.note(self._at_work[child], message)
        self._follower.order("f")
        said = self._crew.join(self._follower)
        seen = [position for _, [word, *rest] in said if word == "saw" for position in rest[0]]
        checker = self._crew.start("checker", _check, self._url, self.book, seen)
        [(_, [_, found])] = self._crew.join(checker)
        return list(found)

    def _listen(self, at_most: float | None = None) -> list[tuple[Child, Message]]:
        said = self._crew.listen(at_most)
        for child, message in said:
            if child is self._follower:
                self.book.figures["followed again"] += message == ["lost"]
            else:
                self.book.note(self._at_work[child], message)
        return said


def _is_impatient(number: int) -> bool:
    return number % 2 == 1


class _Order(Event):
    """Set when the driver has given an order."""

    def __init__(self, voice: Voice) -> None:
        super().__init__()
        self._voice = voice

    def is_set(self) -> bool:
        return self._voice.has_order()


def _open(voice: Voice, url: str) -> None:
    Ledger.open(url).close()


def _write(voice: Voice, url: str, seed: int, runs: list[list[str]], slot: Slot) -> None:
    wait = IMPATIENT if _is_impatient(slot.number) else PATIENT
    Worker(voice, url, Random(f"{seed}/{slot.number}"), runs, slot, set(), wait).work()


def _follow(voice: Voice, url: str) -> None:
    """Follow until told to stop, then to the end; an outage must not lose the place."""
    stop, seen = _Order(voice), [0]
    with Ledger.open(url, wait=0.5) as ledger:
        voice.say("following")
        following = True
        while following:
            following = not stop.is_set()
            try:
                for record in ledger.tail(seen[-1], follow=following, stop=stop):
                    seen.append(record.position)
                for record in ledger.tail(seen[-1]):
                    seen.append(record.position)
            except StoreUnavailableError:
                voice.say("lost")
                following = True
    voice.say("saw", seen[1:])


def _check(voice: Voice, url: str, book: Book, seen: list[int]) -> None:
    wait_until_alone(url)
    found = problems(url, book)
    with Ledger.open(url) as ledger:
        there = [record.position for record in ledger.tail()]
    if seen != there:
        missed, extra = sorted({*there} - {*seen}), sorted({*seen} - {*there})
        found.append(f"the follower missed {missed[:5]}, saw {extra[:5]} that are not there")
        if len(seen) != len(set(seen)) or seen != sorted(seen):
            found.append("the follower saw events twice, or out of order")
    voice.say("found", found[:20])


def summary(writers: Writers, found: list[str], **more: Any) -> dict[str, Any]:
    """What a scenario has to say."""
    return {"problems": found, **more, **writers.book.figures}
