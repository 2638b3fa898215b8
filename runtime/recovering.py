"""Recovering runs: which there are, and going on with one.

In this order: load, age, request, claim, a fresh session, its state, resources, the prompt, and
then the same loop as ever. From a ledger the state is folded from the run's events; from a
checkpoint alone it is what the checkpoint holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ledger import Ledger, RunParked, RunResumed, RunStarted, ToolCallStarted
from ledger.clock import to_datetime
from projections import RunState, standing
from runtime.bus_events import (
    CheckpointPhase,
    RecoveryCompleted,
    RecoveryFailed,
    RecoveryStarted,
)
from runtime.checkpoints import Checkpoint, RecoverableRun
from runtime.driving import Assignment, drive
from runtime.errors import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    DecisionRequiredError,
    RecoveryError,
)
from runtime.execution_state import ExecutionState
from runtime.journal import Journal
from runtime.limits import Deadline
from runtime.request_types import request_from, type_name
from runtime.response import PromptResponse
from runtime.saving import Saved, payload_of, saved_in
from runtime.session import Session

if TYPE_CHECKING:
    from runtime.main_loop import MainLoop


# --- from the ledger -----------------------------------------------------------------


def recover_from_ledger(
    loop: MainLoop[Any, Any], run_id: UUID, deadline: Deadline | timedelta | None
) -> tuple[PromptResponse[Any], Session]:
    """Go on with a run from its events."""
    ledger = loop._ledger
    assert ledger is not None
    if not ledger.head(run_id):
        raise CheckpointNotFoundError(str(run_id))
    _check_state(loop, run_id, standing(ledger, run_id))
    session = loop._session()
    with loop.claimed(run_id, session) as journal:
        started = journal.progress.started
        if started is None:
            raise CheckpointNotFoundError(str(run_id))
        # Between the first look and the claim others may have gone on with it.
        _check_state(loop, run_id, journal.state)
        request = request_from(
            str(run_id), loop.request_type, started.request_type, started.request
        )
        _count_attempt(loop, run_id, journal)
        session.attach(journal)
        state = ExecutionState(session=session, resources=loop._build_resources() or {})
        state.restore_recorded(journal.known, journal.blob)
        work = Assignment(
            loop=loop,
            run_id=run_id,
            journal=journal,
            session=session,
            request=request,
            started=started,
            used=time_used(ledger, run_id),
            deadline=deadline,
            state=state,
        )
        return _recovered(work), session


def _check_state(loop: MainLoop[Any, Any], run_id: UUID, state: RunState) -> None:
    """Whether there is something to recover, and nothing that speaks against it."""
    status, latest = state.summary.status, state.checkpoints.latest
    if status == "completed":
        raise RecoveryError(
            f"Run {run_id} is completed: there is nothing to recover.", run_id=str(run_id)
        )
    if status == "abandoned" or (latest is None and len(state.checkpoints.entries)):
        raise CheckpointNotFoundError(str(run_id))
    if status == "parked":
        raise RecoveryError(
            f"Run {run_id} was parked after {state.summary.attempts} attempts that got nowhere. "
            "Look at it, then abandon it or fork it before the trouble.",
            run_id=str(run_id),
        )
    created = latest.created_at if latest is not None else state.summary.started_at
    if created is not None:
        _check_age(loop, run_id, created)
    waiting = set(state.summary.waiting_for)
    undecided = [
        call.call_id
        for call in state.tools.pending()
        if call.call_id in waiting and call.decision is None
    ]
    if status == "waiting" and undecided:
        raise DecisionRequiredError(str(run_id), undecided)


def _check_age(loop: MainLoop[Any, Any], run_id: UUID, created: Any) -> None:
    assert loop._recovery is not None
    age = to_datetime(loop._clock.micros()) - created
    if age > loop._recovery.max_resume_age:
        raise CheckpointExpiredError(str(run_id), age=age, limit=loop._recovery.max_resume_age)


def _count_attempt(loop: MainLoop[Any, Any], run_id: UUID, journal: Journal) -> None:
    """Note the attempt; park the run instead if too many came to nothing."""
    assert loop._recovery is not None
    attempt = journal.progress.next_attempt
    if attempt > loop._recovery.max_attempts:
        journal.add(RunParked(reason="it got nowhere", attempts=attempt - 1))
        journal.commit()
        raise RecoveryError(
            f"Run {run_id} was tried {attempt - 1} times and got nowhere: it is parked now.",
            run_id=str(run_id),
        )
    journal.add(RunResumed(attempt=attempt, from_version=journal.committed.version))


def time_used(ledger: Ledger, run_id: UUID) -> timedelta:
    """How long the run was worked on so far: pauses between attempts do not count."""
    used, began, last = timedelta(0), None, None
    for record in ledger.read(run_id):
        if record.tag in (RunStarted.tag, RunResumed.tag):
            if began is not None and last is not None and record.tag == RunResumed.tag:
                used += last - began
            elif record.tag == RunStarted.tag:
                used = timedelta(0)
            began = record.recorded_at
        last = record.recorded_at
    if began is not None and last is not None:
        used += last - began
    return used


# --- from a checkpoint ---------------------------------------------------------------


def recover_from_checkpoint(
    loop: MainLoop[Any, Any], run_id: UUID, deadline: Deadline | timedelta | None
) -> tuple[PromptResponse[Any], Session]:
    """Go on with a run from what its backend holds."""
    backend = loop.backend
    checkpoint = backend.load(run_id) if backend is not None else None
    if checkpoint is None or backend is None:
        raise CheckpointNotFoundError(str(run_id))
    _check_age(loop, run_id, checkpoint.created_at)
    request = request_from(
        str(run_id), loop.request_type, checkpoint.request_type, payload_of(checkpoint)
    )
    saved = saved_in(checkpoint)
    assert loop._recovery is not None
    if saved.attempts >= loop._recovery.max_attempts:
        raise RecoveryError(
            f"Run {run_id} was tried {saved.attempts} times and got nowhere.", run_id=str(run_id)
        )
    session = loop._session()
    state = ExecutionState(session=session, resources=loop._build_resources() or {})
    state.restore(checkpoint.composite_snapshot)
    journal = session.journal
    for call in saved.under_way:
        # It was started: what became of it nobody knows, and `decide` will see that.
        journal.add(
            ToolCallStarted(
                evaluation_id=call.evaluation_id,
                call_id=call.call_id,
                name=call.name,
                attempt=call.attempt,
            )
        )
    work = Assignment(
        loop=loop,
        run_id=run_id,
        journal=journal,
        session=session,
        request=request,
        started=saved.started or _started_by(checkpoint),
        used=timedelta(seconds=saved.seconds),
        deadline=deadline,
        saved=Saved(attempts=saved.attempts + 1, usage=saved.usage),
        state=state,
    )
    return _recovered(work), session


def _started_by(checkpoint: Checkpoint) -> RunStarted:
    return RunStarted(
        request_id=checkpoint.request_id,
        request_type=checkpoint.request_type,
        request=payload_of(checkpoint),
    )


def _recovered(work: Assignment) -> PromptResponse[Any]:
    """The same loop as ever, and who listens is told that it is a recovery."""
    bus, latest = work.loop._bus, work.journal.state.checkpoints.latest
    now = to_datetime(work.journal.clock.micros())
    bus.publish(
        RecoveryStarted(
            run_id=work.run_id,
            checkpoint_created_at=latest.created_at if latest is not None else now,
            tool_calls_completed=work.journal.progress.tool_calls_completed,
        )
    )
    try:
        response = drive(work)
    except Exception as error:
        bus.publish(RecoveryFailed(run_id=work.run_id, error=error))
        raise
    bus.publish(RecoveryCompleted(run_id=work.run_id))
    return response


# --- which there are -----------------------------------------------------------------


def recoverable(loop: MainLoop[Any, Any]) -> Sequence[RecoverableRun]:
    """The interrupted runs of this loop's kind that nobody is at, oldest first."""
    if loop._ledger is None:
        return _saved_ones(loop)
    ledger, wanted = loop._ledger, type_name(loop.request_type)
    found: list[RecoverableRun] = []
    for status in ("running", "failed"):
        for info in ledger.runs(status=status):
            state = standing(ledger, info.run_id)
            if state.summary.request_id is None or state.summary.request_type != wanted:
                continue
            latest = state.checkpoints.latest
            if latest is None and len(state.checkpoints.entries):
                continue
            if ledger.worker_of(info.run_id) is not None:
                continue
            found.append(
                RecoverableRun(
                    run_id=info.run_id,
                    request_id=UUID(state.summary.request_id),
                    phase=CheckpointPhase(latest.phase if latest else "initialized"),
                    tool_calls_completed=latest.tool_calls_completed if latest else 0,
                    created_at=latest.created_at if latest else info.started_at,
                )
            )
    return sorted(found, key=lambda run: (run.created_at, run.run_id))


def _saved_ones(loop: MainLoop[Any, Any]) -> Sequence[RecoverableRun]:
    backend, recovery = loop.backend, loop._recovery
    if backend is None or recovery is None:
        return []
    wanted, found = type_name(loop.request_type), []
    for run_id in backend.list_incomplete():
        checkpoint = backend.load(run_id)
        if checkpoint is None or (wanted and checkpoint.request_type != wanted):
            continue
        if saved_in(checkpoint).attempts >= recovery.max_attempts:
            continue
        found.append(
            RecoverableRun(
                run_id=run_id,
                request_id=checkpoint.request_id,
                phase=checkpoint.phase,
                tool_calls_completed=checkpoint.tool_calls_completed,
                created_at=checkpoint.created_at,
            )
        )
    return sorted(found, key=lambda run: (run.created_at, run.run_id))
