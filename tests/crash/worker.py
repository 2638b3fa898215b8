"""A worker that writes to a ledger in every way there is, until it is killed or told to finish.

It announces each attempt before making it. A replacement begins with the attempt of
which its predecessor had not said what became of it, and with its predecessor's claims.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

from ledger import (
    ANY,
    NEW,
    Claim,
    ConcurrentAppendError,
    CustomEvent,
    Draft,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    RunClaimedError,
    RunCompleted,
    RunNotFoundError,
    RunStarted,
    StaleEpochError,
    StoreBusyError,
    StoreUnavailableError,
)
from tests.crash.book import Slot
from tests.crash.processes import Message, Voice

# An expectation in a message: a version, 0 for a new run, ANYWHERE for any.
ANYWHERE = -1
# How long PostgreSQL may take to notice that a client is dead; the ttl is a minute.
NOTICED = 10.0


def new_id(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))


def drafts(kind: str, ids: list[str]) -> list[Draft]:
    """The events of an attempt, which follow from their ids, so that they can be made again."""
    events: list[Event] = [_event(kind, event_id) for event_id in ids]
    if kind == "whole run":
        events[0] = RunStarted(tags={"crash": ids[0][:2]})
        events[-1] = RunCompleted(output=ids[-1])
    return [Draft(event, event_id) for event, event_id in zip(events, ids, strict=True)]


def _event(kind: str, event_id: str) -> Event:
    text = event_id * (1 + int(event_id[:2], 16) // 16)
    if kind != "guarded":
        return CustomEvent(kind="crash.fact", data={"text": text})
    message = InnerMessage(
        role="user",
        content=text,
        evaluation_id="",
        sequence=0,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        message_id=UUID(event_id),
    )
    return MessageAppended(message=message)


class Worker:
    """One generation of a slot."""

    def __init__(
        self,
        voice: Voice,
        url: str,
        random: Random,
        runs: list[list[str]],
        slot: Slot,
        dead: set[str],
    ) -> None:
        self._voice = voice
        self._random = random
        own, self._shared, self._guarded = runs
        self._own = own[slot.number]
        self._slot = slot
        self._name = slot.worker
        self._dead = dead
        self._claims: dict[str, Claim] = {}
        self._ledger = Ledger.open(url)
        self._notices_death_at_once = "://" not in url

    def work(self) -> None:
        with self._ledger:
            self._inherit()
            self._own_version = self._head(self._own)
            actions = [
                *(self.append_to_own,) * 3,
                *(self.append_anywhere,) * 3,
                *(self.append_as_expected,) * 3,
                self.record_whole_run,
                self.fork,
            ]
            if self._guarded:
                actions += [*(self.work_on_claimed,) * 3, self.comment_on_claimed]
            while not self._voice.has_order():
                self._random.choice(actions)()
            for run in list(self._claims):
                self._release(run)

    # --- what it does ---

    def append_to_own(self) -> None:
        """Nobody else writes there, so that a conflict would be the ledger's mistake."""
        expected = self._own_version or 0
        version = self._record("fact", self._own, self._ids(1, 6), expected, alone=True)
        self._own_version = version or expected

    def append_anywhere(self) -> None:
        ids = self._ids(1, self._random.choice((1, 2, 40)))
        self._record("fact", self._random.choice(self._shared), ids, ANYWHERE)

    def append_as_expected(self) -> None:
        run = self._random.choice(self._shared[:2])
        self._record("fact", run, self._ids(1, 3), self._head(run))

    def _head(self, run: str) -> int:
        """Look again while the store is away: a look changes nothing."""
        while True:
            try:
                return self._ledger.head(run)
            except StoreUnavailableError:
                continue

    def record_whole_run(self) -> None:
        self._record("whole run", new_id(self._random), self._ids(2, 5), 0)

    def comment_on_claimed(self) -> None:
        self._record("fact", self._random.choice(self._guarded), self._ids(1, 1), ANYWHERE)

    def fork(self) -> None:
        parent = self._random.choice(self._shared)
        at = self._record("fact", parent, self._ids(1, 4), ANYWHERE)
        assert at is not None
        child = new_id(self._random)
        self._fork(child, parent, at)
        self._record("fact", child, self._ids(1, 3), at + 1)

    def work_on_claimed(self) -> None:
        run = self._random.choice(self._guarded)
        claim = self._claims.get(run) or self._claim(run)
        if claim is None:
            return
        for _ in range(self._random.randint(1, 3)):
            ids = self._ids(1, 2)
            assert self._record("guarded", run, ids, ANYWHERE, claim.epoch) is not None
        if self._random.random() < 0.3:
            claim.heartbeat()
        if self._random.random() < 0.4:
            self._release(run)

    # --- how it does it ---

    def _inherit(self) -> None:
        """Settle what the predecessor left open, and take its runs over at once."""
        steps: list[Callable[[], None]] = []
        if self._slot.attempt is not None:
            steps.append(lambda: self._settle(self._slot.attempt))
        if self._slot.claims:
            steps.append(lambda: self._take_over(self._slot.claims))
        self._random.shuffle(steps)
        for step in steps:
            step()

    def _settle(self, attempt: Message | None) -> None:
        assert attempt is not None
        self._voice.say("counted", "settled")
        if attempt[0] == "fork":
            self._fork(*attempt[1:])
        else:
            kind, run, ids, expected, epoch = attempt
            self._record(kind, run, ids, expected, epoch, alone=run == self._own)

    def _take_over(self, runs: list[str]) -> None:
        for run in list(dict.fromkeys(runs)):
            if self._claim(run) is not None:
                self._voice.say("counted", "taken over")
        for run in runs:
            self._voice.say("released", run)

    def _record(
        self,
        kind: str,
        run: str,
        ids: list[str],
        expected: int,
        epoch: int | None = None,
        *,
        alone: bool = False,
    ) -> int | None:
        """Append until it is known what became of it; the run's version, or None if refused."""
        self._voice.say("trying", kind, run, ids, expected, epoch)
        batch = drafts(kind, ids)
        while True:
            try:
                appended = self._ledger.append(run, batch, _expectation(expected), epoch)
            except ConcurrentAppendError as conflict:
                _must(conflict.expected == expected != conflict.found, conflict)
                _must(not alone, conflict)
                self._voice.say("counted", "conflicts")
                expected = conflict.found
            except StaleEpochError:
                self._voice.say("refused", ids)
                return None
            except StoreBusyError:
                raise
            except StoreUnavailableError:
                self._voice.say("counted", "outcome unknown")
            else:
                break
        versions = [record.version for record in appended.records]
        first = appended.version - len(ids) + 1
        assert [str(record.event_id) for record in appended.records] == ids
        assert versions == list(range(first, first + len(ids))), versions
        assert appended.duplicate or expected in (ANYWHERE, first - 1), (expected, versions)
        self._voice.say("recorded", run, ids, first, appended.duplicate)
        return appended.version

    def _fork(self, child: str, parent: str, at: int) -> None:
        self._voice.say("forking", child, parent, at)
        while True:
            try:
                self._ledger.fork(parent, at, child=child)
            except ConcurrentAppendError as conflict:
                # The predecessor's fork was recorded after all, and is found now.
                _must((conflict.expected, conflict.found) == (0, at + 1), conflict)
            except StoreBusyError:
                raise
            except StoreUnavailableError:
                self._voice.say("counted", "outcome unknown")
                continue
            break
        self._voice.say("forked", child, at)

    def _claim(self, run: str) -> Claim | None:
        self._voice.say("claiming", run)
        noticed_by = time.monotonic() + NOTICED
        while True:
            try:
                claim = self._ledger.claim(run, worker=self._name)
            except RunNotFoundError:
                self._voice.say("unclaimed", run)
                return None
            except RunClaimedError as error:
                if error.worker not in self._dead:
                    self._voice.say("unclaimed", run)
                    return None
                # It is dead, and yet has the run.
                _must(not self._notices_death_at_once, error)
                _must(time.monotonic() < noticed_by, error)
                self._voice.say("counted", "asked again for a dead worker's run")
            except StoreBusyError:
                raise
            except StoreUnavailableError:
                self._voice.say("counted", "outcome unknown")
            else:
                break
        self._claims[run] = claim
        self._voice.say("claimed", run)
        return claim

    def _release(self, run: str) -> None:
        self._claims.pop(run).release()
        self._voice.say("released", run)

    def _ids(self, fewest: int, most: int) -> list[str]:
        return [new_id(self._random) for _ in range(self._random.randint(fewest, most))]


def _must(holds: bool, error: Exception) -> None:
    if not holds:
        raise AssertionError(f"The ledger should not have said this: {error}") from error


def _expectation(expected: int) -> Any:
    return {ANYWHERE: ANY, 0: NEW}.get(expected, expected)
