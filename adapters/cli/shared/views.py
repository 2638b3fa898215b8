"""What commands show of a run: its records on the outside, and views of it at a version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar
from uuid import UUID

import msgspec

from turnledger.ledger import Ledger, Record, RecordNotFoundError
from turnledger.ledger.clock import moment_text
from turnledger.projections import Projection, fold

S = TypeVar("S")


class RecordView(msgspec.Struct, frozen=True):
    """A record on the outside."""

    run_id: str
    version: int
    position: int
    type: str
    event_id: str
    recorded_at: str
    digest: str
    data: msgspec.Raw


def view_of(record: Record) -> RecordView:
    position, run_id, version, tag, event_id, recorded_at, digest, data = record.row
    return RecordView(
        run_id,
        version,
        position,
        tag,
        event_id,
        moment_text(recorded_at),
        digest.hex(),
        msgspec.Raw(data.encode()),
    )


def records_until(ledger: Ledger, run: UUID, at: int | None) -> Iterator[Record]:
    """A run's records up to a version, which it must have; by default all."""
    head = ledger.head(run)
    if at is not None and head and at > head:
        raise RecordNotFoundError(str(run), at, head)
    return ledger.read(run, until=at)


def view_at(ledger: Ledger, run: UUID, at: int | None, view: Projection[S]) -> S:
    """What one view knows of a run after a version: nothing else is folded."""
    return fold(records_until(ledger, run, at), view)
