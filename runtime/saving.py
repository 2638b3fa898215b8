"""A run as a `Checkpoint` that can be recovered from without a ledger.

Beside the session it holds what the ledger would have known: how often the run was tried, what
it used, its limits, and which calls were started and not heard of since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ledger import RunStarted
from ledger.clock import to_datetime
from projections.usage import Tokens
from runtime.bus_events import CheckpointPhase
from runtime.checkpoints import Checkpoint
from runtime.errors import CheckpointCorruptedError
from runtime.execution_state import ExecutionState
from runtime.journal import Known

if TYPE_CHECKING:
    from runtime.driving import Assignment


class StartedCall(msgspec.Struct, frozen=True):
    """A call whose handler was started."""

    evaluation_id: str
    call_id: str
    name: str
    attempt: int


class Saved(msgspec.Struct, frozen=True):
    """What a checkpoint's `adapter_state` holds."""

    attempts: int = 0
    usage: Tokens | None = None
    started: RunStarted | None = None
    seconds: float = 0.0
    under_way: tuple[StartedCall, ...] = ()


def checkpoint_of(work: Assignment, state: ExecutionState, known: Known) -> Checkpoint:
    """The run as it is on disk now."""
    latest = known.run.checkpoints.latest
    used = known.run.usage.total
    before = work.saved.usage
    if before is not None:
        used = Tokens(*(getattr(used, n) + getattr(before, n) for n in used.__struct_fields__))
    saved = Saved(
        attempts=work.saved.attempts,
        usage=used,
        started=work.started,
        seconds=work.used.total_seconds(),
        under_way=tuple(
            StartedCall(call.evaluation_id, call.call_id, call.name, call.attempts)
            for call in known.run.tools.pending()
            if call.status in ("started", "in_doubt")
        ),
    )
    started = work.started
    assert started.request_id is not None
    return Checkpoint(
        run_id=work.run_id,
        request_id=started.request_id,
        created_at=to_datetime(work.journal.clock.micros()),
        composite_snapshot=state.snapshot(),
        request_payload=msgspec.json.encode(started.request),
        request_type=started.request_type,
        tool_calls_completed=known.progress.tool_calls_completed,
        phase=CheckpointPhase(latest.phase) if latest is not None else CheckpointPhase.INITIALIZED,
        adapter_state=msgspec.json.encode(saved),
    )


def saved_in(checkpoint: Checkpoint) -> Saved:
    """What a checkpoint says beside the session; nothing if it is not one of ours."""
    if checkpoint.adapter_state is None:
        return Saved()
    try:
        return msgspec.json.decode(checkpoint.adapter_state, type=Saved)
    except ValueError as error:
        raise CheckpointCorruptedError(
            f"The checkpoint of run {checkpoint.run_id} is damaged: {error}",
            run_id=str(checkpoint.run_id),
        ) from error


def payload_of(checkpoint: Checkpoint) -> Any:
    """The request's JSON."""
    try:
        return msgspec.json.decode(checkpoint.request_payload)
    except ValueError as error:
        raise CheckpointCorruptedError(
            f"The request in the checkpoint of run {checkpoint.run_id} is no JSON: {error}",
            run_id=str(checkpoint.run_id),
        ) from error
