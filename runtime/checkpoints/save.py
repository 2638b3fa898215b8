"""Makes the `Checkpoint` of a run, from which it can be recovered without a ledger.

Besides the session it holds what the ledger would know: attempts, tokens and time used, limits,
and which tool calls were started and have no outcome.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from turnledger.ledger import EvaluationStarted, RunStarted
from turnledger.ledger.events.types import OnInterruptName
from turnledger.projections.views.usage import Tokens
from turnledger.runtime.checkpoints.checkpoint import Checkpoint, CheckpointPhase
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.errors import CheckpointCorruptedError
from turnledger.runtime.journal.known import Known
from turnledger.runtime.journal.loop_progress import EvaluationProgress
from turnledger.runtime.session.snapshot import Snapshot
from turnledger.runtime.session.types import MESSAGES

# Marks an `adapter_state` that this module wrote: callers may save their own.
_OURS = b'"turnledger.run"'


class StartedCall(msgspec.Struct, frozen=True):
    """A call whose handler was started."""

    evaluation_id: str
    call_id: str
    name: str
    attempt: int
    on_interrupt: OnInterruptName = ""


class Saved(msgspec.Struct, frozen=True, tag="turnledger.run"):
    """What a checkpoint's `adapter_state` holds."""

    attempts: int = 0
    usage: Tokens | None = None
    turns: int = 0
    started: RunStarted | None = None
    seconds: float = 0.0
    under_way: tuple[StartedCall, ...] = ()
    # The evaluation that goes on; or the id of the one that is to be evaluated again.
    evaluation: EvaluationStarted | None = None
    superseded: str = ""
    # The session state in which that evaluation began, if it is another now: the prompt may show
    # it.
    began_in: Any = None


def checkpoint_of(
    state: ExecutionState,
    known: Known,
    *,
    run_id: UUID,
    started: RunStarted,
    before: Saved,
    seconds: float,
    created_at: datetime,
) -> Checkpoint:
    """The run as it is on disk now.

    Args:
        state: The session and resources to snapshot.
        known: What is folded from the committed events.
        run_id: The run.
        started: Its first event: the request and the limits.
        before: What the checkpoint held that this attempt goes on from.
        seconds: How long the run was worked on, in all attempts.
        created_at: Now.
    """
    last = next(iter(reversed(known.run.checkpoints.entries)), None)
    used = known.run.usage.total
    if before.usage is not None:
        used = Tokens(
            *(getattr(used, n) + getattr(before.usage, n) for n in used.__struct_fields__)
        )
    found = known.progress.evaluation
    saved = Saved(
        # Only attempts without progress count.
        attempts=before.attempts if not known.progress.steps else 0,
        usage=used,
        turns=before.turns + known.progress.replies,
        started=started,
        seconds=seconds,
        under_way=tuple(
            StartedCall(
                call.evaluation_id, call.call_id, call.name, call.attempts, call.on_interrupt
            )
            for call in known.run.tools.pending()
            if call.status in ("started", "in_doubt")
        ),
        evaluation=None if found is None or found.superseded else _begun(found),
        superseded=found.evaluation_id if found is not None and found.superseded else "",
        began_in=_began_in(state, known),
    )
    assert started.request_id is not None
    return Checkpoint(
        run_id=run_id,
        request_id=started.request_id,
        created_at=created_at,
        composite_snapshot=state.snapshot(),
        request_payload=msgspec.json.encode(started.request),
        request_type=started.request_type,
        tool_calls_completed=known.progress.tool_calls_completed,
        phase=CheckpointPhase(last.phase if last is not None else "initialized"),
        adapter_state=msgspec.json.encode(saved),
    )


def _began_in(state: ExecutionState, known: Known) -> Any:
    """The snapshot of the state in which the evaluation began; None if no slice was changed."""
    base = known.evaluation_base
    if base is None:
        return None
    then, now = base.run.slices, known.run.slices
    names = {*then.slices, *now.slices} - {MESSAGES}  # messages are never taken back
    if all(then.slices.get(name) is now.slices.get(name) for name in names):
        return None
    snapshot = Snapshot.of_slices(then, state.session.declarations)
    return Snapshot(tuple(s for s in snapshot.slices if s.declared_name in names)).to_plain()


def _begun(found: EvaluationProgress) -> EvaluationStarted:
    return EvaluationStarted(
        evaluation_id=found.evaluation_id,
        prompt_ns=found.prompt_ns,
        prompt_key=found.prompt_key,
        prompt_digest=found.prompt_digest,
        tools_digest=found.tools_digest,
        adapter=found.adapter,
        overrides=found.started.overrides if found.started is not None else None,
        after=found.started.after if found.started is not None else "",
    )


def saved_in(checkpoint: Checkpoint) -> Saved:
    """What a checkpoint holds besides the session; empty if another program wrote it."""
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
            f"The request in the checkpoint of run {checkpoint.run_id} is not JSON: {error}",
            run_id=str(checkpoint.run_id),
        ) from error
