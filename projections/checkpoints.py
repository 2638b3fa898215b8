"""The checkpoints of a run: its transaction boundaries, and which of them still counts.

The loop's own checkpoints and those that a user saved stand in one line. Clearing is a
fact too: the latest checkpoint is then none, and the history stays.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, final

import msgspec

from ledger import (
    CheckpointCleared,
    CheckpointReached,
    CheckpointStored,
    Record,
    RunStarted,
)
from projections.persistent import HashedList
from projections.projection import Projection, as_json
from projections.running_hash import canonical, combine


class CheckpointEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One checkpoint. `checkpoint_id` is its event's id; `stored` is what a user saved."""

    checkpoint_id: str
    version: int
    phase: str
    tool_calls_completed: int
    created_at: datetime
    state_digest: str = ""
    outcome_digest: str = ""
    stored: str | None = None


@final
class CheckpointsState(msgspec.Struct, frozen=True):
    """All checkpoints, and the latest that was not cleared."""

    entries: HashedList[CheckpointEntry] = HashedList("checkpoints")
    latest: CheckpointEntry | None = None


class CheckpointView(Projection[CheckpointsState]):
    """Folds checkpoints reached, saved and cleared."""

    name = "checkpoints"
    reads = (RunStarted, CheckpointReached, CheckpointStored, CheckpointCleared)

    def initial(self) -> CheckpointsState:
        return CheckpointsState()

    def apply(self, state: CheckpointsState, record: Record) -> CheckpointsState:
        event = record.event
        if isinstance(event, CheckpointReached):
            entry = CheckpointEntry(
                str(record.event_id),
                record.version,
                event.phase,
                event.tool_calls_completed,
                event.created_at,
                event.state_digest,
                event.outcome_digest,
            )
        elif isinstance(event, CheckpointStored):
            entry = CheckpointEntry(
                str(record.event_id),
                record.version,
                event.phase,
                event.tool_calls_completed,
                event.created_at,
                stored=event.checkpoint,
            )
        elif isinstance(event, CheckpointCleared):
            return CheckpointsState(state.entries, None)
        else:
            return self.initial()
        return CheckpointsState(state.entries.append(entry), entry)

    def to_json(self, state: CheckpointsState) -> Any:
        return {
            "latest": as_json(state.latest),
            "entries": [as_json(entry) for entry in state.entries],
        }

    def digest(self, state: CheckpointsState) -> bytes:
        return combine("checkpoints", state.entries.digest, canonical(state.latest))
