"""View of checkpoints, the loop's and a user's: all of a run's, and the latest not cleared."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, final

import msgspec

from turnledger.ledger import (
    CheckpointCleared,
    CheckpointReached,
    CheckpointStored,
    Record,
    RunStarted,
)
from turnledger.ledger.arguments import explain_methods
from turnledger.projections.digests import combine
from turnledger.projections.persistent.hashed import HashedList
from turnledger.projections.persistent.lazy_json import lazy_list, plain_json
from turnledger.projections.projection import BulkProjection, Folding, Takes, as_json


class CheckpointEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One checkpoint, by its event's id; `stored` is what a user saved, if `is_users`."""

    checkpoint_id: str
    version: int
    phase: str
    tool_calls_completed: int
    created_at: datetime
    state_digest: str = ""
    outcome_digest: str = ""
    is_users: bool = False
    stored: str | None = None


@final
class CheckpointsState(msgspec.Struct, frozen=True):
    """All checkpoints, and the latest that was not cleared."""

    entries: HashedList[CheckpointEntry] = HashedList("checkpoints")
    latest: CheckpointEntry | None = None


@explain_methods(skip=("apply", "apply_all", "begin"))
class CheckpointView(BulkProjection[CheckpointsState]):
    """Folds checkpoints reached, saved and cleared."""

    name = "checkpoints"
    reads = (RunStarted, CheckpointReached, CheckpointStored, CheckpointCleared)

    def initial(self) -> CheckpointsState:
        return CheckpointsState()

    def begin(self, state: CheckpointsState) -> _Folding:
        return _Folding(state)

    def to_json(self, state: CheckpointsState) -> Any:
        return plain_json(self.lazy_json(state))

    def lazy_json(self, state: CheckpointsState) -> Any:
        return {
            "latest": as_json(state.latest),
            "entries": lazy_list(state.entries, as_json),
        }

    def digest(self, state: CheckpointsState) -> bytes:
        latest = 0 if state.latest is None else state.latest.version
        return combine("checkpoints", state.entries.digest, b"%d" % latest)


class _Folding(Folding[CheckpointsState]):
    """Checkpoints while records are folded."""

    def __init__(self, state: CheckpointsState) -> None:
        self._before = state.entries
        self._entries: list[CheckpointEntry] = []
        self._latest = state.latest

    def _run_started(self, event: RunStarted, record: Record) -> None:
        self.__init__(CheckpointsState())  # type: ignore[misc]

    def _reached(self, event: CheckpointReached, record: Record) -> None:
        self._add(event, record, event.state_digest, event.outcome_digest)

    def _stored(self, event: CheckpointStored, record: Record) -> None:
        self._add(event, record, "", "", True, event.checkpoint)

    def _add(
        self, event: CheckpointReached | CheckpointStored, record: Record, *more: str | bool
    ) -> None:
        counted = (event.phase, event.tool_calls_completed, event.created_at)
        entry = CheckpointEntry(record.event_key, record.version, *counted, *more)  # type: ignore[arg-type]
        self._entries.append(entry)
        self._latest = entry

    def _cleared(self, event: CheckpointCleared, record: Record) -> None:
        self._latest = None

    def done(self) -> CheckpointsState:
        return CheckpointsState(self._before.extend(self._entries), self._latest)

    takes: ClassVar[Takes] = {
        RunStarted: _run_started,
        CheckpointReached: _reached,
        CheckpointStored: _stored,
        CheckpointCleared: _cleared,
    }
