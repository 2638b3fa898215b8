"""A run as a `Checkpoint` that can be recovered from without a ledger.

Beside the session it holds what the ledger would have known: how often the run was tried, what
it used, its limits, and which calls were started and not heard of since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from turnledger.ledger import EvaluationStarted, RunStarted
from turnledger.ledger.clock import to_datetime
from turnledger.projections.views.usage import Tokens
from turnledger.runtime.checkpoints.checkpoint import Checkpoint, CheckpointPhase
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.errors import CheckpointCorruptedError
from turnledger.runtime.journal.journal import Known
from turnledger.runtime.journal.loop_progress import EvaluationProgress

if TYPE_CHECKING:
    from turnledger.runtime.loop.run import Assignment


# What the state that this module writes is known by: others may save what they like.
_OURS = b'"turnledger.run"'


class StartedCall(msgspec.Struct, frozen=True):
    """A call whose handler was started."""

    evaluation_id: str
    call_id: str
    name: str
    attempt: int


class Saved(msgspec.Struct, frozen=True, tag="turnledger.run"):
    """What a checkpoint's `adapter_state` holds."""

    attempts: int = 0
    usage: Tokens | None = None
    started: RunStarted | None = None
    seconds: float = 0.0
    under_way: tuple[StartedCall, ...] = ()
    # The evaluation that goes on; or the one that another is to take the place of.
    evaluation: EvaluationStarted | None = None
    superseded: str = ""


def checkpoint_of(work: Assignment, state: ExecutionState, known: Known) -> Checkpoint:
    """The run as it is on disk now."""
    last = next(iter(known.run.checkpoints.entries.backwards()), None)
    used = known.run.usage.total
    before = work.saved.usage
    if before is not None:
        used = Tokens(*(getattr(used, n) + getattr(before, n) for n in used.__struct_fields__))
    found = known.progress.evaluation
    saved = Saved(
        # An attempt that got somewhere does not count.
        attempts=work.saved.attempts if not known.progress.steps else 0,
        usage=used,
        started=work.started,
        seconds=work.seconds,
        under_way=tuple(
            StartedCall(call.evaluation_id, call.call_id, call.name, call.attempts)
            for call in known.run.tools.pending()
            if call.status in ("started", "in_doubt")
        ),
        evaluation=None if found is None or found.superseded else _begun(found),
        superseded=found.evaluation_id if found is not None and found.superseded else "",
    )
    started = work.started
    assert started.request_id is not None
    return Checkpoint(
        run_id=work.run_id,
        request_id=started.request_id,
        created_at=to_datetime(work.loop._clock.micros()),
        composite_snapshot=state.snapshot(),
        request_payload=msgspec.json.encode(started.request),
        request_type=started.request_type,
        tool_calls_completed=known.progress.tool_calls_completed,
        phase=CheckpointPhase(last.phase if last is not None else "initialized"),
        adapter_state=msgspec.json.encode(saved),
    )


def _begun(found: EvaluationProgress) -> EvaluationStarted:
    return EvaluationStarted(
        evaluation_id=found.evaluation_id,
        prompt_ns=found.prompt_ns,
        prompt_key=found.prompt_key,
        prompt_digest=found.prompt_digest,
        tools_digest=found.tools_digest,
        adapter=found.adapter,
    )


def saved_in(checkpoint: Checkpoint) -> Saved:
    """What a checkpoint says beside the session; nothing if it is not one of ours."""
    if _OURS not in (checkpoint.adapter_state or b""):
        return Saved()
    assert checkpoint.adapter_state is not None
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
