"""Transcript import: transcripts become runs; all are checked before the first is written.

A run is one append. One that is longer than the ledger takes at once is several, and importing
it again goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from turnledger.adapters.transcripts.files import transcripts_in
from turnledger.adapters.transcripts.plan import Plan, plan_of
from turnledger.adapters.transcripts.readers.registry import reader_of
from turnledger.adapters.transcripts.transcript import Note, TranscriptError
from turnledger.ledger import (
    NEW,
    ConcurrentAppendError,
    Draft,
    EventIdConflictError,
    InvalidInputError,
    Ledger,
    RunStarted,
)
from turnledger.ledger.clock import Clock, SystemClock, to_datetime
from turnledger.ledger.events.blobs import blobs_named
from turnledger.ledger.runs.append import Entry
from turnledger.projections import Repair

# How often a concurrent import of the same run may interfere before it is an error.
_TRIES = 3


class ImportedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one transcript."""

    run_id: UUID
    place: str
    outcome: Literal["imported", "already there"]
    turns: int
    ended: bool
    events: int
    blobs: int
    repairs: tuple[Repair, ...]
    notes: tuple[Note, ...]


def read_transcripts(content: bytes, wire: str, *, source: str = "") -> list[Plan]:
    """The runs that a file's transcripts are to become; TranscriptError says what is wrong."""
    read = reader_of(wire)
    plans: list[Plan] = []
    for place, data in transcripts_in(content, source):
        try:
            transcript = read(data)
        except TranscriptError as error:
            raise error.found_in(source, place) from None
        plans.append(plan_of(transcript, source=source, place=place))
    return plans


def import_transcripts(
    ledger: Ledger, plans: Iterable[Plan], *, clock: Clock | None = None
) -> list[ImportedRun]:
    """Record runs; those that are there are left as they are. Nothing is written if one can't be.

    The moment of all that is said is that of the import: transcripts have none.
    """
    moment = to_datetime((clock or SystemClock()).micros())
    wanted = list(plans)
    for plan in wanted:
        _check(ledger, plan, moment)
    return [_imported(ledger, plan, moment) for plan in wanted]


def _check(ledger: Ledger, plan: Plan, moment: datetime) -> None:
    """Refuse what the ledger would refuse, before anything is written."""
    try:
        for _ in _batches(ledger, plan.drafts(moment)):
            pass
        limit = ledger.limits.max_blob_bytes
        for content in plan.blobs.values():
            if len(content) > limit:
                raise InvalidInputError(
                    f"media of {len(content)} bytes exceed the ledger's limit of {limit}."
                )
    except TranscriptError:
        raise
    except InvalidInputError as error:
        raise TranscriptError(str(error), source=plan.source, place=plan.place) from error


def _imported(ledger: Ledger, plan: Plan, moment: datetime) -> ImportedRun:
    events, new = _written(ledger, plan, moment)
    return ImportedRun(
        run_id=plan.run_id,
        place=plan.place,
        outcome="imported" if new else "already there",
        turns=len(plan.history) - plan.history.has_synthetic_lead,
        ended=plan.ended,
        events=events,
        blobs=len(plan.blobs),
        repairs=plan.repairs,
        notes=plan.notes,
    )


def _written(ledger: Ledger, plan: Plan, moment: datetime) -> tuple[int, bool]:
    """How many events the run has by its plan, and whether any of them was new."""
    for attempt in range(1, _TRIES + 1):
        drafts = plan.drafts(_first_moment(ledger, plan.run_id) or moment)
        head = ledger.head(plan.run_id)
        if head and not _is_beginning(ledger, plan.run_id, drafts, head):
            return len(drafts), False
        try:
            for batch in _batches(ledger, drafts[head:]):
                named = {name for entry in batch for name in blobs_named(entry.event)}
                ledger.append(
                    plan.run_id,
                    batch,
                    head or NEW,
                    blobs=[plan.blobs[name] for name in sorted(named)],
                )
                head += len(batch)
        except (ConcurrentAppendError, EventIdConflictError):
            # Another process imports the same at this moment.
            if attempt == _TRIES:
                raise
            continue
        break
    return len(drafts), True


def _first_moment(ledger: Ledger, run_id: UUID) -> datetime | None:
    """The moment that the run was imported at, if it was."""
    if not ledger.head(run_id):
        return None
    started = ledger.record(run_id, 1).event
    return started.requested_at if isinstance(started, RunStarted) else None


def _is_beginning(ledger: Ledger, run_id: UUID, drafts: Sequence[Draft], head: int) -> bool:
    """Whether an import stopped there: what is recorded is the plan's, and not all of it."""
    if head >= len(drafts):
        return False
    return ledger.record(run_id, head).event_id == drafts[head - 1].event_id


def _batches(ledger: Ledger, drafts: Sequence[Draft]) -> Iterator[list[Entry]]:
    """As much in one append as the ledger takes."""
    limits = ledger.limits
    batch: list[Entry] = []
    size = 0
    for draft in drafts:
        entry = ledger.prepare(draft)
        length = len(entry.data)
        full = len(batch) >= limits.max_batch_events or size + length > limits.max_batch_bytes
        if batch and full:
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += length
    if batch:
        yield batch
