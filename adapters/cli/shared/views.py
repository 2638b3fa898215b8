"""Records and views of a run as commands print them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import msgspec

from turnledger.ledger import Ledger, Record, RecordNotFoundError
from turnledger.ledger.clock import moment_text

if TYPE_CHECKING:  # slow to import, and `log` and `append` need no view
    from turnledger.projections import Projection, ToolCallView
    from turnledger.projections.views.tools import ToolsState

S = TypeVar("S")


class RecordView(msgspec.Struct, frozen=True):
    """A record as JSON, as `log`, `tail` and `show` print it."""

    run_id: str
    version: int
    position: int
    type: str
    event_id: str
    recorded_at: str
    digest: str
    data: msgspec.Raw


def view_of(record: Record) -> RecordView:
    """A record as commands print it."""
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
    """A run's records up to version `at`, by default all; RecordNotFoundError beyond its last."""
    head = ledger.head(run)
    if at is not None and head and at > head:
        raise RecordNotFoundError(str(run), at, head)
    return ledger.read(run, until=at)


def view_at(ledger: Ledger, run: UUID, at: int | None, view: Projection[S]) -> S:
    """One view of a run at a version; other views are not folded."""
    from turnledger.projections import fold

    return fold(records_until(ledger, run, at), view)


def arguments_text(call: ToolCallView) -> str:
    """A call's arguments; of a step with long ones, which are not recorded, their digest."""
    return call.given_arguments or (f"digest {call.digest[:12]}" if call.digest else "")


def without_performed(calls: Iterable[ToolCallView], tools: ToolsState) -> list[ToolCallView]:
    """Calls of a run without those that a step performed: its key is the id of such a call.

    The tools of a framework or of a loop with a wrapped client are such steps.

    Args:
        calls: Some of the run's calls.
        tools: All of them.
    """
    steps = (call.call_id for call in tools.calls if call.is_step)
    keys = {call_id.rpartition("/")[2].partition(":")[2] for call_id in steps}
    return [call for call in calls if call.is_step or call.attempts or call.call_id not in keys]
