"""The ledger: append and read. Everything else in the project writes or folds this.

Thread-safe. What `append` has acknowledged is on disk; what it refused was not
written; what it could not tell (StoreUnavailableError) is settled by appending the
same drafts again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Event as Flag
from types import TracebackType
from typing import Literal, Self
from uuid import UUID, uuid5

from turnledger.ledger.clock import Clock, SystemClock, to_micros
from turnledger.ledger.errors import (
    BlobNotFoundError,
    IntegrityFailureError,
    InvalidEventError,
    InvalidInputError,
    RecordNotFoundError,
    RunNotFoundError,
    StoreUnavailableError,
)
from turnledger.ledger.events.limits import Limits
from turnledger.ledger.events.types import Event, RunStarted
from turnledger.ledger.integrity import verify as verifying
from turnledger.ledger.integrity.verify import Report
from turnledger.ledger.redaction.redactor import STANDARD, Redactor
from turnledger.ledger.runs import claims as claiming
from turnledger.ledger.runs.append import AppendRequest, Entry, Outcome, append
from turnledger.ledger.runs.append_request import (
    NEW,
    Appendable,
    Expected,
    RunId,
    build_request,
    canonical_id,
    prepare,
)
from turnledger.ledger.runs.claims import Claim
from turnledger.ledger.runs.codec import Codec
from turnledger.ledger.runs.index import RunInfo, RunStatus, describe, fold_index
from turnledger.ledger.runs.lineage import Segment, lineage
from turnledger.ledger.runs.record import Draft, Record, as_row
from turnledger.ledger.runs.transaction import Lease, Transaction
from turnledger.ledger.stores import open_store
from turnledger.ledger.stores.base import PAGE, RunQuery, Store
from turnledger.ledger.stores.derived_data import DerivedData, is_storable

DEFAULT_TTL = timedelta(seconds=60)
# How long a follower sleeps between looks, at first and at most.
SHORTEST_NAP, LONGEST_NAP = 0.001, 0.1
# Stores count in 64 bits.
LAST_POSITION = 2**63 - 1


class Appended:
    """The result of `Ledger.append`: the records, and whether an earlier append wrote them."""

    __slots__ = ("_codec", "_entries", "_outcome")

    def __init__(self, outcome: Outcome, entries: Sequence[Entry], codec: Codec) -> None:
        self._outcome = outcome
        self._entries = entries
        self._codec = codec

    @property
    def duplicate(self) -> bool:
        """True if exactly these events had been recorded by an earlier append."""
        return self._outcome.duplicate

    @property
    def version(self) -> int:
        """The run's version with these events."""
        return self._outcome.version

    @property
    def position(self) -> int:
        """The last event's place in the whole ledger."""
        return self._outcome.positions[-1]

    @property
    def digest(self) -> str:
        """The last event's digest, in hexadecimal: it stands for the whole run up to here."""
        return self._outcome.digest.hex()

    @property
    def records(self) -> tuple[Record, ...]:
        """The events as recorded."""
        pairs = zip(self._outcome.rows, self._entries, strict=True)
        return tuple(Record(row, self._codec, entry.event) for row, entry in pairs)

    def __repr__(self) -> str:
        rows = self._outcome.new_rows
        run_id, *_ = rows[0]
        return f"<Appended to {run_id}: {len(rows)} events>"


class Ledger:
    """The book that holds runs. `Ledger.open` gives one; it is a context manager."""

    def __init__(self, store: Store, *, codec: Codec, clock: Clock) -> None:
        self._store = store
        self._codec = codec
        self._clock = clock
        self._lineages: dict[str, list[Segment]] = {}
        # By what another process opens this ledger, "" if nothing; may hold a password.
        self.url = ""
        self.worker = f"{os.uname().nodename}:{os.getpid()}:{clock.new_id()[-6:]}"

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        wait: float = 30.0,
        create: bool = True,
        redactor: Redactor | None = STANDARD,
    ) -> Self:
        """Open a ledger: a path or `sqlite:///file`, `postgresql://...`, or `memory://`.

        `wait` is how many seconds to wait for other writers before StoreBusyError.
        With `create=False` a ledger that is not there is an error. What the `redactor` takes
        for a secret is marked and never stored: by default all known formats, and with None
        nothing.
        """
        store = open_store(url, wait=wait, create=create)
        try:
            codec = Codec(limits, written=store.written_catalogue(), redactor=redactor)
        except BaseException:
            store.close()
            raise
        ledger = cls(store, codec=codec, clock=clock or SystemClock())
        ledger.url = _lasting(os.fspath(url))
        return ledger

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store; leases held through this ledger are void at once."""
        self._store.close()

    @property
    def store(self) -> Store:
        """The store underneath."""
        return self._store

    @property
    def codec(self) -> Codec:
        """Encodes and decodes the ledger's events, within its limits."""
        return self._codec

    @property
    def limits(self) -> Limits:
        """How large events, batches and blobs may be."""
        return self._codec.limits

    @property
    def clock(self) -> Clock:
        """The source of times and ids."""
        return self._clock

    # --- secrets ---

    @property
    def redactor(self) -> Redactor | None:
        """What takes secrets out of all that is appended; None if nothing does."""
        return self._codec.redactor

    def redact(self, event: Event) -> Event:
        """The event as it would be recorded: checked, and without secrets."""
        return self._codec.encode_checked(event)[2]

    def redact_text(self, text: str) -> str:
        """Text without secrets."""
        return text if self.redactor is None else self.redactor.text(text)

    # --- writing ---

    def prepare(self, event: Event | Draft) -> Entry:
        """Encode and check an event once, to append it to this ledger later.

        `Entry.event` is the event as it will be read: checked, and without secrets.
        """
        return prepare(event, self._codec, self._clock)

    def append(
        self,
        run_id: RunId,
        events: Appendable | Iterable[Appendable],
        expected_version: int | Expected,
        epoch: int | None = None,
        *,
        blobs: Iterable[bytes] = (),
    ) -> Appended:
        """Append events to a run, all or none, durable when this returns.

        `expected_version` is the version that the run must have, NEW if it must not
        exist yet, or ANY. A claimed run takes its worker's `epoch`. `blobs` are bytes
        that the events name by `blob_name`.
        """
        clock = self._clock
        request = build_request(run_id, events, expected_version, epoch, blobs, self._codec, clock)
        try:
            outcome = self._store.write(lambda tx: append(tx, request, clock))
        except StoreUnavailableError as error:
            error.drafts = _drafts(request)
            raise
        return Appended(outcome, request.entries, self._codec)

    def fork(
        self,
        run_id: RunId,
        at: int,
        *,
        child: RunId | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> UUID:
        """Begin a run that shares this one's events up to version `at`: a "what if".

        With `child`, the id that it shall have, the call may be repeated.
        """
        return self._descend(run_id, at, "fork", child, tags)

    def continuation(
        self,
        run_id: RunId,
        *,
        at: int | None = None,
        child: RunId | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> UUID:
        """Begin a run that goes on with this one's session state, from `at` or its end."""
        at = self.head(run_id) if at is None else at
        return self._descend(run_id, at, "continuation", child, tags)

    def _descend(
        self,
        run_id: RunId,
        at: int,
        kind: Literal["fork", "continuation"],
        child: RunId | None,
        tags: Mapping[str, str] | None,
    ) -> UUID:
        parent = self.run(run_id).run_id
        child_id = UUID(canonical_id(child) if child is not None else self._clock.new_id())
        try:
            started = RunStarted(parent=parent, at=at, kind=kind, tags=dict(tags or {}))
        except ValueError as error:
            raise InvalidEventError(f"at={at}: {error}") from error
        # An id that follows from the child's: forking again with the same child is a retry.
        draft = Draft(started, uuid5(child_id, RunStarted.tag))
        self.append(child_id, [draft], expected_version=NEW)
        return child_id

    # --- reading ---

    def read(
        self,
        run_id: RunId,
        after: int = 0,
        until: int | None = None,
        *,
        backwards: bool = False,
        page_size: int = PAGE,
    ) -> Iterator[Record]:
        """A run's records with after < version <= until, its lineage included, in pages."""
        segments = self._lineage(canonical_id(run_id))
        end = until if until is not None else segments[-1].until
        _check_page(page_size)
        return self._read(segments, after, end, backwards, page_size)

    def _read(
        self, segments: list[Segment], after: int, until: int, backwards: bool, page: int
    ) -> Iterator[Record]:
        codec = self._codec
        for run, start, end in reversed(segments) if backwards else segments:
            low, high = max(after, start), min(until, end)
            while low < high:
                rows = self._store.rows(run, low, high, backwards=backwards, limit=page)
                for row in rows:
                    yield Record(row, codec)
                if len(rows) < page:
                    break
                reached = as_row(rows[-1]).version
                if not low < reached <= high:
                    raise _out_of_order(f"the versions of run {run}")
                if backwards:
                    high = reached - 1
                else:
                    low = reached

    def record(self, run_id: RunId, version: int) -> Record:
        """One record of a run."""
        for record in self.read(run_id, version - 1, version):
            return record
        raise RecordNotFoundError(canonical_id(run_id), version, self.head(run_id))

    def head(self, run_id: RunId) -> int:
        """The version of a run's last event; 0 if there is no such run."""
        row = self._store.run(canonical_id(run_id))
        return row.version if row is not None else 0

    def run(self, run_id: RunId) -> RunInfo:
        """What the index knows of a run."""
        run = canonical_id(run_id)
        row = self._store.run(run)
        if row is None:
            raise RunNotFoundError(run)
        return describe(row)

    def runs(
        self,
        *,
        status: RunStatus | None = None,
        tags: Mapping[str, str | None] | None = None,
        prompt: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: RunInfo | None = None,
        limit: int | None = None,
        page_size: int = PAGE,
    ) -> Iterator[RunInfo]:
        """Runs, newest first. `tags` maps to a value or, for any value, to None;
        `prompt` is "ns/key"; `since <= started < until`; `before` goes on after a run."""
        _check_page(page_size)
        _check_text(status, prompt, *(tags or {}), *(tags or {}).values())
        left = limit
        key = (to_micros(before.started_at), str(before.run_id)) if before is not None else None
        while left is None or left > 0:
            page = page_size if left is None else min(page_size, left)
            rows = self._store.list_runs(
                RunQuery(
                    status=status,
                    prompt=prompt,
                    tags=tuple((tags or {}).items()),
                    since=to_micros(since) if since is not None else None,
                    until=to_micros(until) if until is not None else None,
                    before=key,
                    limit=page,
                )
            )
            yield from map(describe, rows)
            if len(rows) < page:
                return
            reached = (rows[-1].started_at, rows[-1].run_id)
            if key is not None and reached >= key:
                raise _out_of_order("the index of runs")
            key = reached
            left = None if left is None else left - page

    def tail(
        self,
        after: int = 0,
        *,
        follow: bool = False,
        stop: Flag | None = None,
        page_size: int = PAGE,
    ) -> Iterator[Record]:
        """All records of the ledger after a position, in order, none missed, none twice.

        With `follow` it goes on waiting for more, from whatever process, until `stop`; on
        PostgreSQL a synchronous standby then has what is shown.
        """
        _check_page(page_size)
        rows_after = self._store.confirmed_rows_after if follow else self._store.rows_after
        nap = SHORTEST_NAP
        after = min(max(after, -1), LAST_POSITION)
        while stop is None or not stop.is_set():
            rows = rows_after(after, page_size)
            for row in rows:
                yield Record(row, self._codec)
            if rows:
                reached = as_row(rows[-1]).position
                if not isinstance(reached, int) or reached <= after:
                    raise _out_of_order("positions")
                after, nap = reached, SHORTEST_NAP
                continue
            if not follow:
                return
            self._store.wait_for_more(after, nap)
            nap = min(nap * 2, LONGEST_NAP)

    def blob(self, name: str) -> bytes:
        """The bytes that a blob's name means."""
        content = self._store.blob(name)
        if content is None:
            raise BlobNotFoundError(name)
        return content

    def derived_data(self, name: str) -> DerivedData:
        """Rows stored beside the events under a name, which can be rebuilt from them."""
        return DerivedData(self._store.derived, self._store.write, name)

    # --- claims ---

    def claim(
        self, run_id: RunId, *, worker: str | None = None, ttl: timedelta = DEFAULT_TTL
    ) -> Claim:
        """Become the one worker of a run; RunClaimedError if a living one has it.

        Claiming again through the same ledger and worker prolongs the claim.
        """
        run = canonical_id(run_id)
        name, holder = self.redact_text(worker or self.worker), self._store.holder()
        micros = max(ttl // timedelta(microseconds=1), 0)
        clock, codec = self._clock, self._codec
        lease, version = self._store.write(
            lambda tx: claiming.claim(tx, run, name, holder, micros, clock, codec)
        )
        return Claim(self, lease, version, micros)

    def begin(
        self,
        run_id: RunId,
        started: RunStarted | Draft | Entry,
        *,
        worker: str | None = None,
        ttl: timedelta = DEFAULT_TTL,
    ) -> Claim:
        """Begin a run and become its worker, in one transaction: nobody finds it unclaimed.

        AppendRefusedError (ConcurrentAppendError, or RunClaimedError) if it is there already.
        """
        clock, codec = self._clock, self._codec
        request = build_request(run_id, started, NEW, None, (), codec, clock)
        name, holder = self.redact_text(worker or self.worker), self._store.holder()
        micros = max(ttl // timedelta(microseconds=1), 0)

        def work(tx: Transaction) -> tuple[Lease, int]:
            append(tx, request, clock)
            return claiming.claim(tx, request.run_id, name, holder, micros, clock, codec)

        try:
            lease, version = self._store.write(work)
        except StoreUnavailableError as error:
            error.drafts = _drafts(request)
            raise
        return Claim(self, lease, version, micros)

    def worker_of(self, run_id: RunId) -> str | None:
        """Who works on a run at this moment; None if nobody has a lease that still counts."""
        run = canonical_id(run_id)
        lease = self._store.lease(run)
        if lease is None:
            return None
        alive = self._store.write(lambda tx: tx.leases.is_live(lease))
        return lease.worker if alive else None

    def heartbeat(self, claim: Claim) -> None:
        """Prolong a claim by its ttl; StaleEpochError if another worker has the run."""
        self._store.write(lambda tx: claiming.prolong(tx, claim))

    def release(self, claim: Claim) -> None:
        """Give a claim back; harmless if it is lost already."""
        self._store.write(lambda tx: claiming.give_back(tx, claim))

    # --- keeping ---

    def verify(self, run_id: RunId) -> Report:
        """Recompute the chain of a run and of what it descends from."""
        verifier = verifying.Verifier(self._store, self._codec)
        run = canonical_id(run_id)
        try:
            segments = lineage(run, self._store.run)
        except (RunNotFoundError, IntegrityFailureError):
            if not any(True for _ in self._store.raw_rows(run.encode())):
                raise
            verifier.check_run(run.encode())
        else:
            for segment in segments:
                verifier.check_run(segment.run_id.encode())
        return verifier.report()

    def verify_all(self, progress: Callable[[int], None] | None = None) -> Report:
        """Recompute every chain in the ledger, and every blob's name."""
        return verifying.verify_all(self._store, self._codec, progress)

    def rebuild_index(self) -> int:
        """Fold the run index again from the events; how many runs it lists."""
        decode = self._codec.decode
        self._store.write(lambda tx: tx.rebuild_index(lambda rows: fold_index(rows, decode)))
        return sum(1 for _ in verifying.every_run(self._store))

    def rebase(self) -> bool:
        """After a PostgreSQL dump was restored: make appending possible again.

        Says whether there was anything to do; on other stores there never is.
        """
        return self._store.rebase()

    def _lineage(self, run: str) -> list[Segment]:
        segments = self._lineages.get(run)
        if segments is None:
            segments = lineage(run, self._store.run)
            if len(self._lineages) > 8192:
                self._lineages.clear()
            self._lineages[run] = segments
        return segments


def _check_text(*wanted: str | None) -> None:
    """Refuse to look for text that no store can hold; what a shell makes of odd bytes, say."""
    for text in wanted:
        if text is not None and not is_storable(text):
            raise InvalidInputError(f"{text!r:.100} is no text that a ledger could hold.")


def _drafts(request: AppendRequest) -> tuple[Draft, ...]:
    """What to append again, whatever became of it."""
    return tuple(Draft(entry.event, UUID(entry.event_id)) for entry in request.entries)


def _out_of_order(what: str) -> IntegrityFailureError:
    """What is read page by page would be read again and again."""
    return IntegrityFailureError(
        f"The ledger is damaged: {what} are not in their order. `turnledger verify` says more."
    )


def _check_page(size: int) -> None:
    if size < 1:
        raise InvalidInputError("page_size is 1 or more.")


def _lasting(url: str) -> str:
    """The URL of the same ledger in whatever folder it is opened."""
    path = url.removeprefix("sqlite://").removeprefix("/") if url.startswith("sqlite:") else url
    return url if "://" in path else os.path.abspath(path)
