"""Decides whether events may be appended, and makes the rows that they become.

Written once over `Transaction`, so that every store refuses and accepts the same. The checks go
in this order: ids, epoch, version. Ids that are already recorded answer first, so that a retry is
safe whatever happened in between. They are looked up only when something else would refuse, or
when the store meets one on insert: most appends need no such query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Protocol

import msgspec

from turnledger.ledger.clock import LAST_MOMENT, Clock
from turnledger.ledger.errors import (
    AppendRefusedError,
    BlobNotFoundError,
    ConcurrentAppendError,
    EventIdConflictError,
    ForkPointError,
    IntegrityFailureError,
    InvalidEventError,
    InvalidInputError,
    RedactedStateError,
    RunClaimedError,
    RunNotFoundError,
    StaleEpochError,
    StreamKindError,
    TurnledgerError,
    short_repr,
)
from turnledger.ledger.events.blobs import NAMING_BLOBS, blobs_named
from turnledger.ledger.events.chain import linker
from turnledger.ledger.events.types import (
    PROMPT_TAGS,
    CustomEvent,
    Event,
    PromptEvent,
    PromptTagMoved,
    RunStarted,
    ToolCallDecided,
    prompt_stream_id,
)
from turnledger.ledger.redaction.events import RedactedPart
from turnledger.ledger.runs.index import INDEXED_TAGS, PROMPT, RunRow, advance, child_of
from turnledger.ledger.runs.record import Columns, NewColumns, Row
from turnledger.ledger.runs.transaction import Transaction

# What may be appended without an epoch to a run that a living worker has claimed. Not approvals:
# the worker acts by what it has read, and would run a call that is denied on record before it.
FREE_EVENTS = (CustomEvent, ToolCallDecided)
ANY_VERSION = -1
_STARTED = RunStarted.tag


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An event, encoded and checked, with the id that it will have, and what was redacted.

    `exact` are the fields that are read back as state.
    """

    event_id: str
    tag: str
    data: bytes
    event: Event
    redacted: tuple[RedactedPart, ...] = ()
    exact: tuple[str, ...] = ()

    @property
    def redacted_state(self) -> tuple[RedactedPart, ...]:
        """What was redacted of the fields that are read back as state."""
        if not self.exact or not self.redacted:
            return ()
        return tuple(one for one in self.redacted if one.field in self.exact)

    def refused(self, why: str = "") -> RedactedStateError:
        """The error that refuses its redacted state.

        Args:
            why: Why `on_redacted="warn"` does not apply; empty if it would.
        """
        parts = self.redacted_state
        paths = [f"{type(self.event).__name__}.{part.path}"[:200] for part in parts]
        marker = ", ".join(f"[redacted: {name}]" for name in parts[0].formats)
        return RedactedStateError(paths, marker=marker, refused_because=why)


class AppendRequest(msgspec.Struct, frozen=True, gc=False):
    """What an append asks for. `expected` is a version, 0 for a new run, -1 for any.

    With `skip`, events that are recorded already are left out, and the others appended.
    """

    run_id: str
    entries: Sequence[Entry]
    expected: int
    epoch: int | None
    blobs: Mapping[str, bytes]
    skip: bool = False


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The rows as recorded, their positions, and whether they had been recorded before.

    `left_out` are rows of the request that had been, while the others are new. The positions of
    new rows may come only with the commit.
    """

    new_rows: Sequence[NewColumns]
    positions: Sequence[int]
    duplicate: bool
    left_out: Sequence[Row] = ()

    @property
    def version(self) -> int:
        _, version, *_ = self.new_rows[-1]
        return version

    @property
    def digest(self) -> bytes:
        *_, digest, _ = self.new_rows[-1]
        return digest

    @property
    def rows(self) -> list[Columns]:
        return [(p, *row) for p, row in zip(self.positions, self.new_rows, strict=True)]


def append(tx: Transaction, request: AppendRequest, clock: Clock) -> Outcome:
    """Append the events of a request, or raise why not."""
    if request.skip:
        return _append_unknown(tx, request, clock)
    if tx.careful and (known := recorded_before(tx, request)):
        return known
    row, fresh = tx.head(request.run_id)
    while True:
        refusal = refuse(tx, request, row)
        if refusal is None:
            outcome = _write(tx, request, row, clock)
            if outcome is not None:
                return outcome
        elif fresh:
            if known := recorded_before(tx, request):
                return known
            raise refusal
        row, fresh = tx.run(request.run_id), True


def _append_unknown(tx: Transaction, request: AppendRequest, clock: Clock) -> Outcome:
    """Append those events of a request that are not recorded yet, or raise why not.

    The ids are looked up again whenever the run turns out to have moved on: another mirror may
    just have recorded some of them. None can come in between the last lookup and the write,
    since the write goes through only while the run is where the decision saw it.
    """
    row, fresh = tx.head(request.run_id)
    while True:
        known = {found.event_id: found for found in _recorded(tx, request)}
        if len(known) == len(request.entries):
            rows = sorted(known.values(), key=lambda one: one.version)
            return Outcome([one[1:] for one in rows], [one.position for one in rows], True)
        new = [entry for entry in request.entries if entry.event_id not in known]
        asked = msgspec.structs.replace(request, entries=new)
        refusal = refuse(tx, asked, row)
        if refusal is None:
            outcome = _write(tx, asked, row, clock)
            if outcome is not None:
                return msgspec.structs.replace(outcome, left_out=tuple(known.values()))
        elif fresh:
            raise refusal
        row, fresh = tx.run(request.run_id), True


def refuse(tx: Transaction, request: AppendRequest, row: RunRow | None) -> TurnledgerError | None:
    """The error for which a run with this row in the index refuses the events, or None."""
    run_id, epoch, version = request.run_id, 0, 0
    if row is not None:
        epoch, version = row.epoch, row.version
    if request.epoch is not None:
        if request.epoch != epoch:
            return StaleEpochError(run_id, epoch=request.epoch, found=epoch)
    elif epoch > 0 and not all(isinstance(entry.event, FREE_EVENTS) for entry in request.entries):
        lease = tx.leases.get(run_id)
        if lease is not None and lease.epoch == epoch and tx.leases.is_live(lease):
            return RunClaimedError(run_id, worker=lease.worker, epoch=epoch)
    if request.expected not in (ANY_VERSION, version):
        return ConcurrentAppendError(run_id, expected=request.expected, found=version)
    if row is not None and row.kind == PROMPT:
        return _wrong_for_prompt(request, row)
    for entry in request.entries:
        if entry.tag in INDEXED_TAGS:  # most are not, and may stand anywhere
            return _wrong_place(request, row)
    return None


def _wrong_place(request: AppendRequest, row: RunRow | None) -> TurnledgerError | None:
    """The error of events that may not be here: of prompts in a run, or a second RunStarted."""
    tags = [entry.tag for entry in request.entries]
    if not PROMPT_TAGS.isdisjoint(tags):
        return _wrong_for_prompt(request, row)
    if _STARTED in (tags if row is not None else tags[1:]):
        return InvalidEventError(
            f"RunStarted can only be the first event of a run, and run {request.run_id} "
            f"{'exists already' if row is not None else 'would have it later'}."
        )
    return None


def _wrong_for_prompt(request: AppendRequest, row: RunRow | None) -> TurnledgerError | None:
    """The error of events that a prompt stream, or a run with prompt events, would not have."""
    run_id = request.run_id
    if row is not None and row.kind != PROMPT:
        why = f"prompt events belong into streams of their own, got {request.entries[0].tag}"
        return StreamKindError(run_id, kind=row.kind, why=why)
    first = row.version + 1 if row is not None else 1
    for version, entry in enumerate(request.entries, first):
        event = entry.event
        if not isinstance(event, PromptEvent):
            why = f"only {', '.join(sorted(PROMPT_TAGS))} belong into it, got {entry.tag}"
            return StreamKindError(run_id, kind=PROMPT, why=why)
        stream = str(prompt_stream_id(event.prompt_ns, event.prompt_key))
        if stream != run_id:
            return InvalidEventError(
                f"The stream of prompt {event.prompt_ns}/{event.prompt_key} is {stream}, got "
                f"{run_id}. prompt_stream_id(ns, key) gives it."
            )
        if isinstance(event, PromptTagMoved) and event.version >= version:
            return InvalidEventError(
                f"Invalid version {event.version} for tag {short_repr(event.tag_name)}: the last "
                f"version of prompt {event.prompt_ns}/{event.prompt_key} before it is "
                f"{version - 1}."
            )
    return None


def recorded_before(tx: Transaction, request: AppendRequest) -> Outcome | None:
    """The outcome of an earlier append of exactly these events; None if none is recorded.

    Raises:
        EventIdConflictError: If an id is taken by another event.
    """
    rows = _recorded(tx, request)
    if not rows:
        return None
    if len(rows) < len(request.entries):
        raise _conflict(rows[0], "the batch holds new events too")
    for before, row in pairwise(rows):
        if row.version != before.version + 1:
            raise _conflict(row, "was recorded in another batch")
    return Outcome([row[1:] for row in rows], [row.position for row in rows], duplicate=True)


def _recorded(tx: Transaction, request: AppendRequest) -> list[Row]:
    """The rows of those events of a request that are recorded in its run, in the request's order.

    Raises:
        EventIdConflictError: If an id is taken by another event.
    """
    found = {row.event_id: row for row in tx.rows_by_id([e.event_id for e in request.entries])}
    rows = []
    for entry in request.entries if found else ():
        row = found.get(entry.event_id)
        if row is None:
            continue
        if row.run_id != request.run_id:
            raise _conflict(row, f"belongs to another run than {request.run_id}")
        if row.tag != entry.tag or row.data.encode() != entry.data:
            raise _conflict(row, "has other content")
        rows.append(row)
    return rows


def _conflict(row: Row, why: str) -> EventIdConflictError:
    return EventIdConflictError(row.event_id, run_id=row.run_id, version=row.version, why=why)


def _write(
    tx: Transaction, request: AppendRequest, row: RunRow | None, clock: Clock
) -> Outcome | None:
    start = row or _origin(tx, request)
    now = clock.micros()
    if type(now) is not int:
        raise InvalidInputError(
            f"Invalid time {short_repr(now)} of the clock: expected microseconds, an integer. "
            "Nothing was written."
        )
    # Strictly later than the commit before: equal times mean "the same commit".
    recorded_at = now if now > start.recorded_at else start.recorded_at + 1
    run_id = request.run_id
    if recorded_at > LAST_MOMENT:
        raise AppendRefusedError(
            f"Nothing can be recorded after the year 9000, and run {run_id} or the clock is there. "
            "Correct the clock, or run `turnledger verify`."
        )
    link = linker(run_id, recorded_at)
    version, digest = start.version, start.digest
    rows: list[NewColumns] = []
    indexed: list[Event] = []
    for entry in request.entries:
        version += 1
        event_id, tag, data = entry.event_id, entry.tag, entry.data
        if tag in NAMING_BLOBS:
            _check_blobs(tx, entry.event, request.blobs)
        if tag in INDEXED_TAGS:
            indexed.append(entry.event)
        digest = link(digest, version, event_id, tag, data)
        rows.append((run_id, version, tag, event_id, recorded_at, digest, data.decode()))
    after = advance(start, indexed, version, digest, recorded_at)
    positions = tx.advance(row, after, rows, request.blobs)
    if positions is None:
        return None
    return Outcome(rows, positions, duplicate=False)


def _check_blobs(tx: Transaction, event: Event, given: Mapping[str, bytes]) -> None:
    for name in blobs_named(event):
        if name not in given and not tx.has_blob(name):
            raise BlobNotFoundError(name)


def _origin(tx: Transaction, request: AppendRequest) -> RunRow:
    """A new run's row before its first event: version 0, or its parent's at the fork point."""
    started = request.entries[0].event
    if not isinstance(started, RunStarted) or started.parent is None:
        return RunRow(request.run_id)
    point = fork_point(tx, str(started.parent), started.at)
    return child_of(request.run_id, point.digest, point.recorded_at, started)


class Recorded(Protocol):
    """Reads runs and their records: a transaction, or a store."""

    def run(self, run_id: str) -> RunRow | None:
        """A run's row in the index."""

    def row_at(self, run_id: str, version: int) -> Row | None:
        """The row of one of a run's own events."""


def fork_point(tx: Recorded, parent: str, at: int) -> Row:
    """The record that a new run goes on from: of this version of its parent.

    Raises:
        ForkPointError: A run can't go on from there.
        RunNotFoundError: The parent does not exist.
        StreamKindError: The parent is the stream of a prompt.
    """
    owner = tx.run(parent)
    if owner is None:
        raise RunNotFoundError(parent)
    if owner.kind == PROMPT:
        raise StreamKindError(parent, kind=PROMPT, why="only a run can be forked or continued")
    if at > owner.version:
        raise ForkPointError(
            f"Run {parent} is at version {owner.version}: it has no event {at} to go on from.",
            nearest=(owner.version,),
        )
    while at <= owner.parent_version:
        owner = tx.run(owner.parent) if owner.parent is not None else None
        if owner is None:
            raise _damaged(parent, at)
    point = tx.row_at(owner.run_id, at)
    if point is None:
        raise _damaged(parent, at)
    following = tx.row_at(owner.run_id, at + 1)
    if following is not None and following.recorded_at == point.recorded_at:
        nearest = _commit_ends(tx, owner, point)
        raise ForkPointError(
            f"Version {at} of run {parent} is in the middle of a commit: a run goes on from "
            f"the end of one. The nearest: version {' or '.join(map(str, nearest))}.",
            nearest=nearest,
        )
    return point


def _commit_ends(tx: Recorded, owner: RunRow, point: Row) -> tuple[int, ...]:
    """The last versions of the commit that a record is in, and of the one before, if any."""

    def is_one(version: int) -> bool:
        row = tx.row_at(owner.run_id, version)
        return row is not None and row.recorded_at == point.recorded_at

    first = last = point.version
    while first - 1 > owner.parent_version and is_one(first - 1):
        first -= 1
    while is_one(last + 1):
        last += 1
    return (first - 1, last) if first > 1 else (last,)


def _damaged(run: str, version: int) -> IntegrityFailureError:
    return IntegrityFailureError(
        f"The ledger is damaged: run {run} has no event {version}, though its index says so. "
        "Run `turnledger verify`."
    )
