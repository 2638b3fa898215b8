"""A worker that writes to a ledger in every way there is, until it is killed or told to finish.

It announces each attempt before making it. A replacement begins with the attempts of
which its predecessor had not said what became of them, and with its predecessor's claims.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from random import Random
from threading import Thread
from typing import Any

from tests.crash.attempts import first_id, new_id
from tests.crash.book import Slot
from tests.crash.processes import Message, Voice
from tests.crash.recording import ANYWHERE, Recording
from turnledger.ledger import Ledger, StoreUnavailableError, SystemClock

__all__ = ["ANYWHERE", "Worker", "new_id"]

# Half of all appends are of one event; a few are as large as a long turn with its tools.
SIZES = (1, 1, 1, 1, 1, 1, 2, 3, 6, 20, 60, 200)


class TellingClock(SystemClock):
    """Says when the ledger asks for the time: it holds its lock then, and has not committed."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice

    def micros(self) -> int:
        self._voice.say("amid", "a transaction")
        return super().micros()


class Worker:
    """One generation of a slot: a process with a ledger of its own, and one hand or several."""

    def __init__(
        self,
        voice: Voice,
        url: str,
        random: Random,
        runs: list[list[str]],
        slot: Slot,
        dead: set[str],
        wait: float = 30.0,
    ) -> None:
        self._voice = voice
        self._random = random
        self._runs = runs
        self._slot = slot
        self._ledger = Ledger.open(url, clock=TellingClock(voice), wait=wait)
        if "://" not in url:
            _tell_of_moves(self._ledger.store, voice)
        self._recording = Recording(voice, self._ledger, slot.worker, dead)

    def work(self) -> None:
        with self._ledger:
            self._inherit()
            hand = self._hand(self._random)
            if self._slot.threads == 1:
                hand.work()
                return
            threads = [
                Thread(target=self._work_beside, args=(Random(self._random.random()),))
                for _ in range(self._slot.threads)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _hand(self, random: Random) -> Hand:
        return Hand(self._voice, self._recording, random, self._runs, self._slot)

    def _work_beside(self, random: Random) -> None:
        """In a thread: nobody would hear of its errors."""
        try:
            self._hand(random).work()
        except BaseException:
            self._voice.say("error", traceback.format_exc()[-3000:])
            os._exit(1)

    def _inherit(self) -> None:
        """Settle what the predecessor left open, and take its runs over at once."""
        steps: list[Callable[[], None]] = [
            lambda attempt=attempt: self._settle(attempt)  # type: ignore[misc]
            for attempt in self._slot.attempts.values()
        ]
        if self._slot.claims:
            steps.append(lambda: self._take_over(self._slot.claims))
        self._random.shuffle(steps)
        for step in steps:
            step()

    def _settle(self, attempt: Message) -> None:
        self._voice.say("counted", "settled")
        if attempt[0] == "forking":
            self._recording.fork(*attempt[1:])
            return
        _, kind, run, first, count, expected, epoch = attempt
        alone = run == self._runs[0][self._slot.number]
        self._recording.record(kind, run, first, count, expected, epoch, alone=alone)

    def _take_over(self, runs: list[str]) -> None:
        for run in list(dict.fromkeys(runs)):
            if self._recording.claim(run) is not None:
                self._voice.say("counted", "taken over")
        for run in runs:
            self._voice.say("released", run)


class Hand:
    """One thread of a worker: what it does next is drawn by lot."""

    def __init__(
        self, voice: Voice, recording: Recording, random: Random, runs: list[list[str]], slot: Slot
    ) -> None:
        self._voice = voice
        self._recording = recording
        self._ledger = recording.ledger
        self._random = random
        own, self._shared, self._guarded = runs
        self._own = own[slot.number]
        self._own_version: int | None = None
        self._last: tuple[str, str, str, int] | None = None
        # Claims and the worker's own run are for one thread alone.
        self._is_alone = slot.threads == 1

    def work(self) -> None:
        actions = [
            *(self.append_anywhere,) * 6,
            *(self.append_as_expected,) * 3,
            self.record_whole_run,
            self.append_files,
            self.repeat,
            self.fork,
        ]
        if self._is_alone:
            actions += [*(self.append_to_own,) * 5, self.import_run]
            if self._guarded:
                actions += [*(self.work_on_claimed,) * 4, self.comment_on_claimed]
        while not self._voice.has_order():
            self._random.choice(actions)()
        for run in list(self._recording.claims):
            self._recording.release(run)

    def append_to_own(self) -> None:
        """Nobody else writes there, so that a conflict would be the ledger's mistake."""
        expected = self._own_version
        if expected is None:
            expected = self._head(self._own)
        version = self._record("fact", self._own, self._size(), expected, alone=True)
        self._own_version = version or expected

    def append_anywhere(self) -> None:
        self._record("fact", self._random.choice(self._shared), self._size(), ANYWHERE)

    def append_as_expected(self) -> None:
        run = self._random.choice(self._shared[:2])
        self._record("fact", run, self._random.randint(1, 3), self._head(run))

    def append_files(self) -> None:
        run = self._random.choice(self._shared)
        self._record("files", run, self._random.randint(1, 3), ANYWHERE)

    def record_whole_run(self) -> None:
        self._record("whole run", new_id(self._random), self._random.randint(2, 5), 0)

    def import_run(self) -> None:
        run, first = new_id(self._random), first_id(self._random)
        self._recording.record("import", run, first, self._size(), 0)

    def repeat(self) -> None:
        """Append again what is recorded: it is found, not doubled. The book compares versions."""
        if self._last is not None:
            self._recording.record(*self._last, ANYWHERE)

    def comment_on_claimed(self) -> None:
        self._record("fact", self._random.choice(self._guarded), 1, ANYWHERE)

    def fork(self) -> None:
        parent = self._random.choice(self._shared)
        at = self._record("fact", parent, self._random.randint(1, 4), ANYWHERE)
        assert at is not None
        child = new_id(self._random)
        self._recording.fork(child, parent, at)
        self._record("fact", child, self._random.randint(1, 3), at + 1)

    def work_on_claimed(self) -> None:
        run = self._random.choice(self._guarded)
        claim = self._recording.claims.get(run) or self._recording.claim(run)
        if claim is None:
            return
        for _ in range(self._random.randint(1, 3)):
            count = self._random.choice((1, 1, 1, 2, 12))
            assert self._record("guarded", run, count, ANYWHERE, claim.epoch) is not None
        if self._random.random() < 0.3:
            claim.heartbeat()
        if self._random.random() < 0.4:
            self._recording.release(run)

    def _record(
        self,
        kind: str,
        run: str,
        count: int,
        expected: int,
        epoch: int | None = None,
        *,
        alone: bool = False,
    ) -> int | None:
        first = first_id(self._random)
        version = self._recording.record(kind, run, first, count, expected, epoch, alone=alone)
        if epoch is None and version is not None:
            self._last = kind, run, first, count
        return version

    def _head(self, run: str) -> int:
        """Look again while the store is away: a look changes nothing."""
        while True:
            try:
                return self._ledger.head(run)
            except StoreUnavailableError:
                continue

    def _size(self) -> int:
        return self._random.choice(SIZES)


def _tell_of_moves(store: Any, voice: Voice) -> None:
    """Say when a file's WAL is moved into it."""
    move = store._checkpoint

    def told(db: Any) -> None:
        voice.say("amid", "moving the WAL")
        move(db)
        voice.say("counted", "WAL moved")

    store._checkpoint = told
