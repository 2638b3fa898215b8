"""The Ledger class: append events to runs, read them, claim runs, verify.

Thread-safe. An append that returned is on disk. One that was refused was not written. One whose
outcome is unknown (StoreUnavailableError) is settled by appending the same drafts again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, repeat
from threading import Event as Flag
from typing import Any, Literal, Self, TypeAlias
from uuid import UUID

import msgspec

from turnledger.ledger.arguments import check_methods
from turnledger.ledger.clock import Clock, SystemClock, monotonic, to_datetime, to_micros
from turnledger.ledger.errors import (
    BlobNotFoundError,
    ConcurrentAppendError,
    EventDecodeError,
    IntegrityFailureError,
    InvalidInputError,
    LostRecordsError,
    RecordNotFoundError,
    RunClaimedError,
    RunNotFoundError,
    StoreUnavailableError,
    short_repr,
)
from turnledger.ledger.events.blobs import blob_name
from turnledger.ledger.events.limits import Limits
from turnledger.ledger.events.types import AGENT_TAG, CATALOGUE, Event, RunStarted
from turnledger.ledger.integrity import verify as verifying
from turnledger.ledger.integrity.run_check import CheckedReader, unreadable
from turnledger.ledger.integrity.verify import Report
from turnledger.ledger.redaction import STANDARD, Redactor
from turnledger.ledger.redaction.events import RedactedPart
from turnledger.ledger.runs import claims as claiming
from turnledger.ledger.runs.append import AppendRequest, Entry, Outcome, append
from turnledger.ledger.runs.append_request import (
    NEW,
    Appendable,
    Expected,
    Known,
    RunId,
    build_request,
    canonical_id,
    id_ends,
    prepare,
)
from turnledger.ledger.runs.claims import Claim, key_holder
from turnledger.ledger.runs.codec import Codec
from turnledger.ledger.runs.index import (
    PROMPT,
    RebuiltIndex,
    RunInfo,
    RunStatus,
    check_types,
    describe,
    list_key,
    place_of,
    rebuilt_index,
)
from turnledger.ledger.runs.lineage import Segment, first_of_child, lineage
from turnledger.ledger.runs.record import Columns, Draft, Record, as_row
from turnledger.ledger.runs.transaction import Lease, Transaction
from turnledger.ledger.stores import open_store
from turnledger.ledger.stores.base import PAGE, RunQuery, Store
from turnledger.ledger.stores.derived_data import DerivedData, is_storable
from turnledger.ledger.stores.open import served_ledger, split_sqlite

# Called with the id of a damaged run and what is wrong with it.
OnDamage: TypeAlias = Callable[[str, Exception], None]
DEFAULT_TTL = timedelta(seconds=60)
# Far below what stores count in 64 bits.
LONGEST_TTL = timedelta(days=36_525)
# Seconds that a follower sleeps between reads, at first and at most.
SHORTEST_NAP, LONGEST_NAP = 0.001, 0.1
# The same for a worker that waits for a run: it takes the write lock each time.
LONGEST_QUEUE_NAP = 0.5
# Seconds that a worker may wait for a run in one call.
LONGEST_WAIT = 3600.0
MOST_AGENTS, MOST_EXCLUDED = 100, 1000
# Stores count in 64 bits.
LAST_POSITION = 2**63 - 1


class Appended:
    """The result of `Ledger.append`: the records, and which of them it wrote."""

    __slots__ = ("_codec", "_entries", "_outcome")

    def __init__(self, outcome: Outcome, entries: Sequence[Entry], codec: Codec) -> None:
        self._outcome = outcome
        self._entries = entries
        self._codec = codec

    @property
    def duplicate(self) -> bool:
        """True if nothing was written: all of these events had been recorded before."""
        return self._outcome.duplicate

    @property
    def is_partial(self) -> bool:
        """True if a part of these events had been recorded before, and the others were written."""
        return bool(self._outcome.left_out)

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
        """The events as recorded, in the order in which they were given."""
        outcome, codec = self._outcome, self._codec
        if not (outcome.duplicate or outcome.left_out):
            pairs = zip(outcome.rows, self._entries, strict=True)
            return tuple(Record(row, codec, entry.event) for row, entry in pairs)
        rows = {as_row(row).event_id: row for row in (*outcome.left_out, *outcome.rows)}
        return tuple(Record(rows[e.event_id], codec, e.event) for e in self._entries)

    @property
    def redacted(self) -> Mapping[int, tuple[RedactedPart, ...]]:
        """What the redactor changed, by version: each part's path, and the formats found there."""
        if not any(entry.redacted for entry in self._entries):
            return {}
        pairs = zip(self.records, self._entries, strict=True)
        return {record.version: entry.redacted for record, entry in pairs if entry.redacted}

    @property
    def rows(self) -> Sequence[Columns]:
        """The stored columns of the records that this append wrote: cheaper than `new`."""
        return () if self._outcome.duplicate else self._outcome.rows

    @property
    def new(self) -> tuple[Record, ...]:
        """The records that this append wrote: all, none, or with known="skip" a part of them."""
        if self.duplicate:
            return ()
        before = {row.version for row in self._outcome.left_out}
        return tuple(record for record in self.records if record.version not in before)

    def __repr__(self) -> str:
        run_id, *_ = self._outcome.new_rows[0]
        return f"<Appended to {run_id}: {len(self._entries)} events, {len(self.new)} new>"


@check_methods(skip=("append", "prepare", "redact"))
class Ledger:
    """An append-only ledger of runs. `Ledger.open` opens one; it is a context manager."""

    def __init__(self, store: Store, *, codec: Codec, clock: Clock) -> None:
        self._store = store
        self._codec = codec
        self._clock = clock
        self._lineages: dict[str, list[Segment]] = {}
        # The URL by which another process opens this ledger, or ""; it may hold a password.
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

        With `https://host:port` it is a `LedgerClient` of a server (`turnledger serve`), with the
        token of TURNLEDGER_TOKEN.

        Args:
            url: Where the ledger is. With `sqlite:///FILE?check_file=off`, commits are not
                checked for a file that was removed or replaced meanwhile (for file systems
                without stable inodes). With `private=off`, other users may read a new file, as
                far as the umask allows.
            limits: How large events, batches and blobs may be.
            clock: The source of times and ids, the system's by default.
            wait: Seconds to wait for other writers before StoreBusyError.
            create: Make the ledger if there is none; otherwise that is an error.
            redactor: What it takes for a secret is marked and never stored. By default that is
                all known formats; None stores everything.
        """
        connect = served_ledger(url)
        if connect is not None:
            made: Self = connect(url, limits=limits, clock=clock, wait=wait, redactor=redactor)
            return made
        store = open_store(url, wait=wait, create=create)
        try:
            codec = Codec(limits, written=store.written_catalogue(), redactor=redactor)
        except BaseException:
            store.close()
            raise
        ledger = cls(store, codec=codec, clock=clock or SystemClock())
        ledger.url = absolute_url(os.fspath(url))
        return ledger

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store; leases held through this ledger, without a key, are void at once."""
        self._store.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or belongs to the process that this one was forked from."""
        return self._store.is_closed

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
        """Removes secrets from all that is appended; None if nothing is removed."""
        return self._codec.redactor

    def redact(self, event: Event) -> Event:
        """The event as it would be recorded: checked, and without secrets."""
        return self._codec.encode_checked(event)[2]

    def redact_text(self, text: str) -> str:
        """Text without secrets."""
        return text if self.redactor is None else self.redactor.text(text)

    # --- writing ---

    def prepare(
        self,
        event: Event | Draft,
        *,
        exact: Collection[str] = (),
        takes: Callable[[Any], object] | None = None,
    ) -> Entry:
        """Encode and check an event once, to append later; `Entry.event` is as it will be read.

        Args:
            event: An event, or a draft with an id of the caller's.
            exact: Fields that are read back as state. If the redactor would replace a part of one,
                its `on_redacted` decides: RedactedStateError, or a warning when it is appended.
            takes: Called with an event of which such a part was replaced: what it raises for one
                that its reader can't take is a RedactedStateError.
        """
        return prepare(event, self._codec, self._clock, exact, takes)

    def append(
        self,
        run_id: RunId,
        events: Appendable | Iterable[Appendable],
        expected_version: int | Expected,
        epoch: int | None = None,
        *,
        blobs: Iterable[bytes] = (),
        known: Known = "refuse",
    ) -> Appended:
        """Append events to a run, all or none, durable when this returns.

        Args:
            run_id: The run.
            events: One or several: events, drafts with ids of the caller's, prepared entries.
            expected_version: The version that the run must have, NEW if it must not exist yet,
                or ANY.
            epoch: The epoch of the worker's claim, if the run is claimed.
            blobs: Bytes that the events name by `blob_name`.
            known: What becomes of events whose ids are recorded already. By default a batch that
                is recorded as a whole gives the first result, and one that is recorded in part is
                refused. With "skip", for mirrors, events that are recorded in this run are left
                out, and the others appended in their order; `expected_version` and `epoch` are
                checked only if there are others. An id that another event has, or an event of
                another run, is an EventIdConflictError either way.
        """
        clock, codec = self._clock, self._codec
        request = build_request(run_id, events, expected_version, epoch, blobs, codec, clock, known)
        try:
            return self._append(request)
        except StoreUnavailableError as error:
            error.drafts = drafts_of(request)
            raise

    def _append(self, request: AppendRequest) -> Appended:
        outcome = self._store.write(partial(append, request=request, clock=self._clock))
        return Appended(outcome, request.entries, self._codec)

    def fork(
        self,
        run_id: RunId,
        at: int,
        *,
        child: RunId | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> UUID:
        """Start a fork: a run that shares this one's events up to a version.

        Args:
            run_id: The parent.
            at: The parent's version to fork from, the last event of a commit.
            child: The id that the fork shall have. With it, the call may be repeated.
            tags: Tags of the fork.
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
        """Start a continuation: a run that begins with this one's session state.

        Args:
            run_id: The parent.
            at: The parent's version to continue from; None is its end.
            child: The id that the continuation shall have. With it, the call may be repeated.
            tags: Tags of the continuation.
        """
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
        parent = self.run(run_id)
        child_id = UUID(canonical_id(child) if child is not None else self._clock.new_id())
        draft = first_of_child(parent, at, kind, child_id, tags or {})
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
        """A run's records by version, with those that it shares with its ancestors.

        Args:
            run_id: The run.
            after: Records with a higher version than this.
            until: Records with this version at most; None is the run's end.
            backwards: From the highest version down.
            page_size: How many records are read from the store at a time.
        """
        run = canonical_id(run_id)
        segments = self._lineage(run)
        _check_page(page_size)
        # Read before the records, so that others may append meanwhile.
        row = self._store.run(run)
        if row is None:
            raise RunNotFoundError(run)
        check_types(row, "version")
        end = until if until is not None else segments[-1].until
        least = min(end, row.version) - max(after, 0)
        # Records are made and handed on a page at a time, in C: no generator runs for each.
        return chain.from_iterable(self._pages(segments, after, end, backwards, page_size, least))

    def checked(self, run_id: RunId) -> CheckedReader:
        """A reader that checks a run's digests, versions and index row while it reads."""
        return CheckedReader(self._store, self._codec, canonical_id(run_id))

    def read_known(self, run_id: RunId, after: int) -> list[Record]:
        """A run's records after a version, all decoded; EventDecodeError if one can't be."""
        records = list(self.read(run_id, after))
        for record in records:
            try:
                record.event  # noqa: B018
            except EventDecodeError as error:
                row = record.row
                raise unreadable(error, self._store, self._codec, row.run_id, row) from None
        return records

    def _pages(
        self,
        segments: list[Segment],
        after: int,
        until: int,
        backwards: bool,
        page: int,
        least: int,
    ) -> Iterator[Iterable[Record]]:
        """Pages of records; IntegrityFailureError at the end if there were fewer than `least`."""
        codec, found = repeat(self._codec), 0
        for run, start, end in reversed(segments) if backwards else segments:
            low, high = max(after, start), min(until, end)
            while low < high:
                rows = self._store.rows(run, low, high, backwards=backwards, limit=page)
                found += len(rows)
                yield map(Record, rows, codec)
                if len(rows) < page:
                    break
                reached = as_row(rows[-1]).version
                if not low < reached <= high:
                    raise _out_of_order(f"the versions of run {run}")
                if backwards:
                    high = reached - 1
                else:
                    low = reached
        if found < least:
            run = segments[-1].run_id
            raise IntegrityFailureError(
                f"Run {run} is damaged: {least - found} of {least} records that the index has are "
                f"missing. Run `turnledger verify {run}`; go on from a backup or an export."
            )

    def record(self, run_id: RunId, version: int) -> Record:
        """One record of a run."""
        records = list(self.read(run_id, version - 1, version))
        if records:
            return records[0]
        raise RecordNotFoundError(canonical_id(run_id), version, self.head(run_id))

    def head(self, run_id: RunId) -> int:
        """The version of a run's last event; 0 if there is no such run."""
        row = self._store.run(canonical_id(run_id))
        return row.version if row is not None else 0

    def run(self, run_id: RunId) -> RunInfo:
        """A run's entry in the index: status, version, tags, times."""
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
        agent: str | None = None,
        id_part: str | None = None,
        parent: RunId | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: RunInfo | None = None,
        limit: int | None = None,
        page_size: int = PAGE,
        kind: Literal["run", "prompt"] = "run",
        on_damage: OnDamage | None = None,
    ) -> Iterator[RunInfo]:
        """List runs, newest first.

        Args:
            status: Only runs with this status.
            tags: Only runs with these tags; a value of None is any value.
            prompt: Only runs whose last evaluation was of this prompt, as "ns/key".
            agent: Only runs that belong to the agent of this name.
            id_part: Only runs whose id begins or ends with this, with or without its hyphens.
                Ids begin with their time: the end of one tells runs apart with fewer characters.
            parent: Only forks and continuations of this run.
            since: Only runs that started then or later.
            until: Only runs that started before.
            before: Only runs after this one in the list, to go on with a page.
            limit: How many runs at most.
            page_size: How many runs are read from the store at a time.
            kind: "prompt" lists the streams of prompts' overrides instead of runs.
            on_damage: Called with the id and the error of a run whose row in the index is
                damaged, which is then skipped. Without it, that is an IntegrityFailureError.
        """
        _check_page(page_size)
        wanted = {**(tags or {}), AGENT_TAG: agent} if agent is not None else tags or {}
        _check_text(status, prompt, *wanted, *wanted.values())
        ends = id_ends(id_part) if id_part is not None else None
        of = canonical_id(parent) if parent is not None else None
        left = limit
        key = (to_micros(before.started_at), str(before.run_id)) if before is not None else None
        last = (list_key(key[0]), list_key(key[1])) if key is not None else None
        while left is None or left > 0:
            page = page_size if left is None else min(page_size, left)
            rows = self._store.list_runs(
                RunQuery(
                    status=status,
                    prompt=prompt,
                    prompts=kind == PROMPT,
                    tags=tuple(wanted.items()),
                    since=to_micros(since) if since is not None else None,
                    until=to_micros(until) if until is not None else None,
                    before=key,
                    ends=ends,
                    parent=of,
                    limit=page,
                )
            )
            for row in rows:
                try:
                    info = describe(row)
                except IntegrityFailureError as error:
                    if on_damage is None:
                        raise
                    on_damage(f"{row.run_id!s:.80}", error)
                else:
                    yield info
            if len(rows) < page:
                return
            reached = place_of(rows[-1])
            if last is not None and reached >= last:
                raise _out_of_order("the index of runs")
            key, last = (rows[-1].started_at, rows[-1].run_id), reached
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

        Args:
            after: Records with a higher position than this.
            follow: Wait for more, from any process. On PostgreSQL with a synchronous standby,
                only records that the standby has confirmed are given then.
            stop: Ends a follower when it is set.
            page_size: How many records are read from the store at a time.
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
        """A blob's bytes."""
        content = self._store.blob(name)
        if content is None:
            raise BlobNotFoundError(name)
        if not isinstance(content, bytes) or blob_name(content) != name:
            raise IntegrityFailureError(
                f"Blob {name} is damaged: its bytes do not have that hash. Run `turnledger "
                "verify`; go on from a backup or an export."
            )
        return content

    def derived_data(self, name: str) -> DerivedData:
        """Rows stored beside the events under a name, which can be rebuilt from them."""
        return DerivedData(self._store.derived, self._store.write, name)

    # --- claims ---

    def claim(
        self,
        run_id: RunId,
        *,
        worker: str | None = None,
        ttl: timedelta = DEFAULT_TTL,
        key: str | None = None,
    ) -> Claim:
        """Claim a run: become its only worker. RunClaimedError if a living worker has it.

        Claiming again through the same ledger with the same worker prolongs the claim; with a key,
        so does claiming again with the same worker and key through any ledger.

        Args:
            run_id: The run.
            worker: The worker's name; one for this open ledger by default.
            ttl: How long the claim lasts without a heartbeat.
            key: For a worker that this process only speaks for (over HTTP, say): a secret of that
                worker, 16 to 200 characters. The claim is then the key's and not this ledger's:
                it ends when its time is up or it is released, and not when this process dies or
                closes the ledger. Only a hash is stored.
        """
        return self._claim(canonical_id(run_id), worker, ttl, key)

    def begin(
        self,
        run_id: RunId,
        started: RunStarted | Draft | Entry,
        *,
        worker: str | None = None,
        ttl: timedelta = DEFAULT_TTL,
        key: str | None = None,
        blobs: Iterable[bytes] = (),
    ) -> Claim:
        """Start a run and claim it in one transaction: no other worker can claim it in between.

        Args:
            run_id: The new run.
            started: Its first event.
            worker: The worker's name; one for this open ledger by default.
            ttl: How long the claim lasts without a heartbeat.
            key: A secret of the worker, as for `claim`.
            blobs: Bytes that the request names by `blob_name`.

        Raises:
            AppendRefusedError: If the run exists (ConcurrentAppendError, RunClaimedError).
        """
        request = build_request(run_id, started, NEW, None, blobs, self._codec, self._clock)
        try:
            return self._claim(request.run_id, worker, ttl, key, request)
        except StoreUnavailableError as error:
            error.drafts = drafts_of(request)
            raise

    def resume_claim(
        self,
        run_id: RunId,
        *,
        worker: str,
        epoch: int,
        key: str,
        ttl: timedelta = DEFAULT_TTL,
    ) -> Claim:
        """A claim that was taken with a key, by any process: to prolong it and to release it.

        The lease is not looked at: `heartbeat` says whether it still is this one.

        Args:
            run_id: The run.
            worker: The worker's name, as it was claimed with.
            epoch: The claim's epoch.
            key: The key that it was claimed with.
            ttl: By how much a heartbeat prolongs it.
        """
        run = canonical_id(run_id)
        row = self._store.run(run)
        if row is None:
            raise RunNotFoundError(run)
        name = self.redact_text(worker)
        lease = Lease(run, name, epoch, key_holder(run, name, key), 0)
        return Claim(self, lease, row.version, _micros(ttl))

    def _claim(
        self,
        run: str,
        worker: str | None,
        ttl: timedelta,
        key: str | None,
        first: AppendRequest | None = None,
    ) -> Claim:
        """Claim a run, after the `first` append if there is one, in one transaction."""
        clock, codec, micros = self._clock, self._codec, _micros(ttl)
        name = self.redact_text(worker or self.worker)
        holder = self._store.holder() if key is None else key_holder(run, name, key)

        def work(tx: Transaction) -> tuple[Lease, int]:
            if first is not None:
                append(tx, first, clock)
            return claiming.claim(tx, run, name, holder, micros, clock, codec)

        return Claim(self, *self._store.write(work), micros)

    # --- the queue ---

    def enqueue(
        self,
        agent: str,
        input: Any,  # noqa: A002 - the word that everybody looks for
        *,
        run_id: RunId | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> UUID:
        """Request a run by the name of its agent or workflow, without its code; the run's id.

        A worker of that name takes it (`turnledger worker`). What is asked is checked there: an
        input that the agent does not take fails the run. `Agent.enqueue` checks it at once.

        Args:
            agent: The name of the agent or workflow.
            input: Its input, as JSON data.
            run_id: The id of the run; by default a new one. The same request under the same id
                may be sent again, and is recorded once.
            tags: Text by text, recorded with the run.

        Raises:
            AppendRefusedError: There is another run of this id.
        """
        if not agent:
            raise InvalidInputError("Invalid agent '': expected the name of an agent or workflow.")
        run = canonical_id(run_id) if run_id is not None else self._clock.new_id()
        started = RunStarted(
            agent=agent,
            request=input,
            request_id=UUID(self._clock.new_id()),
            requested_at=to_datetime(self._clock.micros()),
            tags=dict(tags or {}),
            catalogue=CATALOGUE,
        )
        try:
            self.append(run, started, NEW)
        except (ConcurrentAppendError, RunClaimedError):
            if not self._is_requested(run, started):
                raise
        return UUID(run)

    def _is_requested(self, run: str, wanted: RunStarted) -> bool:
        """Whether a run began with the same request."""
        found = next(self.read(run, until=1), None)
        if found is None or not isinstance(found.event, RunStarted):
            return False
        entry = self.prepare(wanted)
        assert isinstance(entry.event, RunStarted)
        return _what_is_asked(found.event) == _what_is_asked(entry.event)

    def claim_next(
        self,
        agents: Sequence[str],
        *,
        worker: str | None = None,
        ttl: timedelta = DEFAULT_TTL,
        key: str | None = None,
        wait: float = 0.0,
        exclude: Collection[RunId] = (),
        on_damage: OnDamage | None = None,
    ) -> Claim | None:
        """Claim the oldest run of these agents that is left to be worked on; None without one.

        That is a run that was requested (`enqueue`) and not begun, or one that is running and
        whose worker is gone. Runs that wait for a person, have ended, or were parked are never
        taken, nor forks that were never run. Finding and claiming is one transaction.

        Args:
            agents: The names of agents and workflows, 1 to 100.
            worker: The worker's name; one for this open ledger by default.
            ttl: How long the claim lasts without a heartbeat.
            key: A secret of the worker, as for `claim`. A worker that asks again with the same
                name and key is given the run that it holds already, if there is one.
            wait: Seconds to wait for such a run.
            exclude: Runs that are not taken, at most 1,000.
            on_damage: Called with the id and the error of each damaged run, which is passed over.
        """
        names, left_out = _picked_from(agents, exclude)
        _check_wait(wait)
        deadline, nap, left = monotonic() + wait, SHORTEST_NAP, wait
        while True:
            found = self._claim_next(names, worker, ttl, key, left_out, on_damage, left)
            left = deadline - monotonic()
            if found is not None or left <= 0:
                return found
            self._store.wait_for_more(LAST_POSITION, min(nap, left))
            nap = min(nap * 2, LONGEST_QUEUE_NAP)

    def _claim_next(
        self,
        agents: tuple[str, ...],
        worker: str | None,
        ttl: timedelta,
        key: str | None,
        exclude: tuple[str, ...],
        on_damage: OnDamage | None,
        wait: float,
    ) -> Claim | None:
        """Claim the next run; a ledger whose store is a server's waits for one there."""
        name, micros = self.redact_text(worker or self.worker), _micros(ttl)
        own = self._store.holder() if key is None else ""
        asked = claiming.Picking(
            agents,
            name,
            (lambda run: own) if key is None else (lambda run: key_holder(run, name, key)),
            micros,
            exclude,
            again=key is not None,
            on_damage=on_damage or (lambda run, error: None),
        )
        if key is not None:
            key_holder("", name, key)  # refuses an invalid one, whatever there is to do
        taken = self._store.write(
            lambda tx: claiming.claim_next(tx, asked, self._clock, self._codec)
        )
        return Claim(self, *taken, micros) if taken is not None else None

    def worker_of(self, run_id: RunId) -> str | None:
        """The worker that holds a run's claim now; None if there is none alive."""
        run = canonical_id(run_id)
        lease = self._store.lease(run)
        if lease is None:
            return None
        alive = self._store.write(lambda tx: tx.leases.is_live(lease))
        return lease.worker if alive else None

    def heartbeat(self, claim: Claim) -> None:
        """Prolong a claim by its ttl; StaleEpochError if another worker has the run.

        RunClaimedError for a claim that was resumed with another key than it was taken with.
        """
        self._store.write(lambda tx: claiming.prolong(tx, claim))

    def release(self, claim: Claim) -> None:
        """Give a claim back; no error if it is lost already."""
        self._store.write(lambda tx: claiming.release(tx, claim))

    # --- maintenance ---

    def verify(self, run_id: RunId) -> Report:
        """Recompute the digests of a run, and of its ancestors up to where it starts from them."""
        *_, report = verifying.verifying_run(self._store, self._codec, canonical_id(run_id))
        assert isinstance(report, Report)
        return report

    def verify_all(self, progress: Callable[[int], None] | None = None) -> Report:
        """Recompute the digests of all runs and the names of all blobs."""
        return verifying.verify_all(self._store, self._codec, progress)

    def rebuild_index(self, accept_loss: Iterable[RunId] = ()) -> int:
        """Rebuild the run index from the events; how many runs it lists.

        A row that names later records than there are shows that records were lost. It is left
        as it is, unless the loss is accepted: then the row is lowered to the records that there
        are, and the run is parked (RunParked says what is missing), in the same transaction.

        Args:
            accept_loss: Runs whose loss is accepted.

        Raises:
            LostRecordsError: Rows were left as they are; all others were rebuilt.
            RunClaimedError: A living worker has a run whose loss is accepted; nothing was written.
        """
        accept = {
            canonical_id(run): (self._clock.new_id(), self._clock.new_id()) for run in accept_loss
        }
        decode = self._codec.decode

        def work(tx: Transaction) -> RebuiltIndex:
            before = {run: tx.run(run) for run in accept}
            rebuilt = tx.rebuild_index(
                lambda rows, heads: rebuilt_index(rows, decode, heads, accept)
            )
            accepted = {loss.run_id: loss for loss in rebuilt.accepted}
            for run, ids in accept.items():
                if run not in accepted:
                    raise InvalidInputError(
                        f"Run {run} has lost no records that the index names. Nothing was written."
                    )
                row = before[run]
                if row is not None and row.kind == PROMPT:
                    continue  # nothing recovers it, and RunParked does not belong into it
                claiming.park_after_loss(tx, accepted[run], ids, self._clock, self._codec)
            return rebuilt

        rebuilt = self._store.write(work)
        if rebuilt.kept:
            raise LostRecordsError(rebuilt.lost, rebuilt.unreadable)
        return sum(1 for _ in verifying.every_run(self._store))

    def rebase(self) -> bool:
        """After a PostgreSQL dump was restored: make positions follow; whether that was due."""
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
    """Refuse to look for text that no store can hold (a shell makes such text of odd bytes)."""
    for text in wanted:
        if text is not None and not is_storable(text):
            raise InvalidInputError(
                f"Invalid text {short_repr(text)}: it has NUL or characters that are not Unicode."
            )


def _micros(ttl: timedelta) -> int:
    if ttl > LONGEST_TTL:
        raise InvalidInputError(f"Invalid ttl {ttl}: expected at most {LONGEST_TTL.days} days.")
    return max(ttl // timedelta(microseconds=1), 0)


def _picked_from(
    agents: Sequence[str], exclude: Collection[RunId]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and ids that a worker chooses by, checked."""
    if isinstance(agents, str) or not 1 <= len(agents) <= MOST_AGENTS or not all(agents):
        raise InvalidInputError(
            f"Invalid agents {short_repr(agents)}: expected 1 to {MOST_AGENTS} names in a list."
        )
    _check_text(*agents)
    if len(exclude) > MOST_EXCLUDED:
        raise InvalidInputError(
            f"Invalid exclude: got {len(exclude)} runs, expected at most {MOST_EXCLUDED}."
        )
    return tuple(agents), tuple(map(canonical_id, exclude))


def _check_wait(wait: float) -> None:
    if not 0 <= wait <= LONGEST_WAIT:
        raise InvalidInputError(f"Invalid wait {wait}: expected 0 to {LONGEST_WAIT:.0f} seconds.")


def _what_is_asked(started: RunStarted) -> tuple[Any, ...]:
    return started.agent, started.kind, started.tags, msgspec.json.encode(started.request)


def drafts_of(request: AppendRequest) -> tuple[Draft, ...]:
    """The events with their ids, to be appended again."""
    return tuple(Draft(entry.event, UUID(entry.event_id)) for entry in request.entries)


def _out_of_order(what: str) -> IntegrityFailureError:
    # Without this check, a reader would read the same page again and again.
    return IntegrityFailureError(
        f"The ledger is damaged: {what} are not in order. Run `turnledger verify`."
    )


def _check_page(size: int) -> None:
    if size < 1:
        raise InvalidInputError(f"Invalid page_size {size}: expected 1 or more.")


def absolute_url(url: str) -> str:
    """The URL with an absolute path: it names the same ledger in any working directory."""
    path, query = split_sqlite(url)
    if "://" in path:
        return url
    path = os.path.abspath(path)
    return f"sqlite:///{path}?{query}" if query else path
