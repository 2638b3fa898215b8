"""Somebody who uses a ledger on a disk that fails, and writes down what they were told.

Every trouble has to be a StoreUnavailableError. What was acknowledged must be readable at
once, and stay so; with the disk well again the same ledger has to go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import msgspec

from tests.faults.lying_disk import FOREVER, SYNCS, LyingDisk, Plan
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Draft,
    Ledger,
    ResourceSnapshotted,
    RunStarted,
    StoreUnavailableError,
    blob_name,
    new_run_id,
)

T = TypeVar("T")
FOR_SURE = "othing was written"


def fact_of(size: int, number: int) -> CustomEvent:
    return CustomEvent(kind="fault.fact", data=["x" * size, number])


class Account:
    """What the ledger promised: batches of ids that are there, are not, or may be."""

    def __init__(self) -> None:
        self.acknowledged: list[list[str]] = []
        self.unwritten: list[list[str]] = []
        self.unknown: list[list[str]] = []
        # The unknown ones once more, to be appended again by somebody else: run, events.
        self.open_ends: list[tuple[str, list[tuple[str, str]]]] = []
        self.derived: dict[str, str] = {}
        self.wrong: list[str] = []
        self.figures: Counter[str] = Counter()

    def told(self) -> dict[str, Any]:
        return dict(vars(self))


class Client:
    """One thread's work on a ledger, drawn by a seed."""

    def __init__(
        self,
        open_ledger: Callable[[], Ledger],
        disk: LyingDisk,
        random: Random,
        largest: int = 3_000_000,
    ) -> None:
        self._open = open_ledger
        self._disk = disk
        self._random = random
        self._largest = largest
        self._runs: list[Any] = []
        self.account = Account()
        self.ledger = self.surely(self._open_aloud)

    def _open_aloud(self) -> Ledger:
        """Making a ledger moves no WAL: a sync that fails then is an error, never passed over."""
        before = self._disk.failed
        ledger = self._open()
        if self._disk.failed > before and self._disk.plan.fault in SYNCS:
            self.account.wrong.append("a failed sync was passed over when the ledger was made")
        return ledger

    def surely(self, do: Callable[[], T]) -> T:
        """Until it is done: with the fault as it is a few times, then with a disk that is well."""
        trouble: StoreUnavailableError | None = None
        try:
            for attempt in range(6):
                try:
                    return do()
                except StoreUnavailableError as error:
                    trouble = error
                    self._hear(error)
                if attempt >= self._random.randrange(3):
                    self._disk.keep_well()
            raise AssertionError("The disk is well, and still it does not work") from trouble
        finally:
            self._disk.let_be()

    def _hear(self, error: StoreUnavailableError) -> None:
        self.account.figures["errors"] += 1
        self.account.figures["for sure"] += FOR_SURE in str(error)
        if hasattr(self, "ledger"):
            self._read_on()

    def work(self, steps: int) -> None:
        deeds = [self._append] * 6 + [self._append_blob, self._fork, self._claim, self._begin]
        deeds += [self._put_derived_data, self._rebuild]
        for _ in range(steps):
            self._disk.next_step()
            self._random.choice(deeds)()
        self._disk.heal()
        self._read_on()

    def reopen(self) -> None:
        """Close it, on whatever disk, and open it again."""
        self.ledger.close()
        self.ledger = self.surely(self._open)

    def fail_last(self, die: Callable[[], None] | None = None) -> None:
        """An append that the disk did not confirm, and after it nothing; or dead at once."""
        self._disk.heal()
        self._append()  # so that it is not a new WAL's header that fails
        self._disk.plan = Plan("sync error", times=FOREVER)
        self._disk.calls = 0
        run, events = new_run_id(), [fact_of(10, 0), fact_of(10, 1)]
        drafts = [Draft(event, new_run_id()) for event in events]
        self._leave_open(run, [str(draft.event_id) for draft in drafts], events)
        self._disk.die = die
        try:
            self.ledger.append(run, drafts, NEW)
        except StoreUnavailableError as error:
            if FOR_SURE in str(error):
                self.account.wrong.append(f"that is not known: {error}")
        else:
            self.account.wrong.append("acknowledged without a sync")

    def _leave_open(self, run: Any, ids: list[str], events: list[Any]) -> None:
        texts = [msgspec.json.encode(event).decode() for event in events]
        self.account.unknown.append(ids)
        self.account.open_ends.append((str(run), list(zip(ids, texts, strict=True))))

    def _append(self) -> None:
        random = self._random
        size = random.choice((10, 10, 500, 9000))
        events = [fact_of(size, number) for number in range(random.choice((1, 1, 2, 25)))]
        if not self._runs or random.random() < 0.3:
            run = new_run_id()
            if self._write(run, [RunStarted(), *events], NEW):
                self._runs.append(run)
            return
        self._write(random.choice(self._runs), events, ANY)

    def _append_blob(self) -> None:
        content = self._random.randbytes(self._random.choice((100, 100, 30_000, self._largest)))
        event = ResourceSnapshotted(resource="r", files={"f": blob_name(content)})
        self._write(new_run_id(), [RunStarted(), event], NEW, content)

    def _write(self, run: Any, events: list[Any], expected: Any, *blobs: bytes) -> bool:
        """Append; whether it was acknowledged, for one may also give up after an error."""
        drafts = [Draft(event, new_run_id()) for event in events]
        ids = [str(draft.event_id) for draft in drafts]
        book = self.account
        claims = []
        for _ in range(6):
            try:
                done = self.ledger.append(run, drafts, expected, blobs=blobs)
            except StoreUnavailableError as error:
                self._hear(error)
                if tuple(d.event_id for d in error.drafts) != tuple(d.event_id for d in drafts):
                    book.wrong.append(f"the error holds other drafts: {error.drafts}")
                claims.append(FOR_SURE in str(error))
                if self._random.random() < 0.2:
                    break
                if self._random.random() < 0.6:
                    self._disk.heal()
                continue
            if [str(record.event_id) for record in done.records] != ids:
                book.wrong.append("the append gave other records")
            if done.duplicate and (not claims or all(claims)):
                book.wrong.append("written, and the error said that nothing was")
            self._disk.note("acknowledged", ids)
            book.acknowledged.append(ids)
            book.figures["acknowledged"] += 1
            book.figures["settled"] += bool(claims)
            book.figures["found stored"] += done.duplicate
            self._settle_older()
            return True
        if all(claims):
            book.unwritten.append(ids)
        elif blobs:
            book.unknown.append(ids)
        else:
            self._leave_open(run, ids, events)
        return False

    def _settle_older(self) -> None:
        """After a later commit, what is not shown of the unknown appends will never be."""
        book = self.account
        if not book.unknown:
            return
        there = self.surely(lambda: {str(record.event_id) for record in self.ledger.tail()})
        for ids in book.unknown:
            (book.acknowledged if ids[0] in there else book.unwritten).append(ids)
        book.figures["settled by others"] += len(book.unknown)
        book.unknown, book.open_ends = [], []

    def _fork(self) -> None:
        if self._runs:
            run, child = self._random.choice(self._runs), new_run_id()
            at = self.surely(lambda: self.ledger.head(run))
            self.surely(lambda: self.ledger.fork(run, at, child=child))
            self._runs.append(child)

    def _claim(self) -> None:
        if not self._runs:
            return
        run = self._random.choice(self._runs)
        claim = self.surely(lambda: self.ledger.claim(run))
        self.surely(claim.heartbeat)
        self.surely(claim.release)

    def _begin(self) -> None:
        run, started = new_run_id(), Draft(RunStarted(), new_run_id())
        claim = self.surely(lambda: self.ledger.begin(run, started))
        self._disk.note("acknowledged", [str(started.event_id)])
        self.account.acknowledged.append([str(started.event_id)])
        self.surely(claim.release)

    def _put_derived_data(self) -> None:
        data = self.ledger.derived_data("fault.rows")
        rows = {str(new_run_id()): "y" * self._random.choice((5, 5000)) for _ in range(3)}
        self.surely(lambda: data.put(rows))
        self.account.derived |= rows

    def _rebuild(self) -> None:
        self.surely(self.ledger.rebuild_index)

    def _read_on(self) -> None:
        """What was acknowledged is there, in the middle of the trouble too."""
        book, failed = self.account, self._disk.unreadable
        try:
            there = {str(record.event_id) for record in self.ledger.tail()}
        except StoreUnavailableError as error:
            book.figures["unreadable"] += 1
            # Other threads' steps have other plans: it counts what failed meanwhile.
            if self._disk.unreadable == failed:
                book.wrong.append(f"reading failed: {error}")
            return
        book.figures["read on"] += 1
        lost = [i for ids in book.acknowledged for i in ids if i not in there]
        found = [i for ids in book.unwritten for i in ids if i in there]
        if lost or found:
            book.wrong.append(f"at once: {len(lost)} lost, {len(found)} there against the word")
