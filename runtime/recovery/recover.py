"""Recovering runs: going on with one that was interrupted.

In this order: load, age, request, claim, a fresh session, its state, resources, the prompt, and
then the same loop as ever. From a ledger the state is folded from the run's events; from a
checkpoint alone it is what the checkpoint holds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from turnledger.ledger import (
    CheckpointStored,
    EvaluationSuperseded,
    Ledger,
    RunParked,
    RunResumed,
    RunStarted,
    ToolCallStarted,
)
from turnledger.ledger.clock import to_datetime
from turnledger.ledger.events.types import CATALOGUE
from turnledger.projections import RunState
from turnledger.projections.views.checkpoints import CheckpointEntry
from turnledger.runtime.agent.models.limits import Deadline
from turnledger.runtime.checkpoints.checkpoint import Checkpoint
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.checkpoints.ledger_backend import LedgerCheckpointBackend
from turnledger.runtime.checkpoints.save import Saved, payload_of, saved_in
from turnledger.runtime.errors import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    DecisionRequiredError,
    RecoveryError,
)
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.loop.events import (
    PromptResponse,
    RecoveryCompleted,
    RecoveryStarted,
)
from turnledger.runtime.loop.host import LoopHost
from turnledger.runtime.loop.perform.record_result import checkpoint as checkpoint_event
from turnledger.runtime.loop.run import RunWork, run_to_end
from turnledger.runtime.recovery.heartbeat import claimed
from turnledger.runtime.recovery.request_types import request_from
from turnledger.runtime.recovery.run_reader import RunReader
from turnledger.runtime.session.session import Session

# --- from the ledger -----------------------------------------------------------------


def recover_from_ledger(
    host: LoopHost, run_id: UUID, deadline: Deadline | timedelta | None
) -> tuple[PromptResponse[Any], Session]:
    """Go on with a run from its events."""
    ledger = host.ledger
    assert ledger is not None
    if not ledger.head(run_id):
        _take_over(host, ledger, run_id)
    reader = RunReader(ledger, run_id)
    _check_state(host, run_id, reader.known.run)
    if ledger.worker_of(run_id) is None:
        _check_doubts(run_id, reader)
    _check_request(host, run_id, reader.known.progress.started)
    session = host.create_session()
    with claimed(host, run_id, session, reader=reader) as journal:
        started = journal.progress.started
        if started is None:
            raise CheckpointNotFoundError(str(run_id))
        # Between the first look and the claim another worker may have gone on with it.
        _check_state(host, run_id, journal.state)
        _check_doubts(run_id, reader)
        request = request_from(
            str(run_id), host.request_type, started.request_type, started.request
        )
        used = reader.time_used
        latest = journal.state.checkpoints.latest
        _count_attempt(host, run_id, journal)
        opening = session.attach(journal)
        if started.kind == "fork" and not has_begun(journal):
            journal.add(*opening)
        session.session_id = started.session_id or session.session_id
        state = ExecutionState(session=session, resources=host.resources())
        if latest is not None and latest.stored is not None:
            checkpoint = Checkpoint.from_json(latest.stored)
            _go_back_to(checkpoint, state, journal)
            # From here on the run's own events say how it stands.
            journal.add(checkpoint_event(journal, checkpoint.phase.value))
        else:
            state.restore_recorded(journal.known, journal.blob)
        work = RunWork(
            host=host,
            run_id=run_id,
            journal=journal,
            session=session,
            request=request,
            started=started,
            used=used,
            deadline=deadline,
            state=state,
        )
        return _recovered(work, latest), session


def has_begun(journal: Journal) -> bool:
    """Whether a fork has a beginning of its parent's: state, messages, or a prompt."""
    known = journal.committed
    return known.progress.prompted_at is not None or bool(
        known.session.names or known.session.resources or known.session.messages.size
    )


def _take_over(host: LoopHost, ledger: Ledger, run_id: UUID) -> None:
    """Begin a run in the ledger with what is kept of it elsewhere."""
    checkpoint = host.backend.load(run_id) if host.backend is not None else None
    if checkpoint is None:
        raise CheckpointNotFoundError(str(run_id))
    _check_age(host, run_id, checkpoint.created_at)
    LedgerCheckpointBackend(ledger).save(run_id, checkpoint)


def _check_request(host: LoopHost, run_id: UUID, started: RunStarted | None) -> None:
    """Before a session is made for it: a request of another loop's type is refused."""
    if started is not None and started.request_id is not None:
        request_from(str(run_id), host.request_type, started.request_type, started.request)


def _go_back_to(checkpoint: Checkpoint, state: ExecutionState, journal: Journal) -> None:
    """Bring back what a checkpoint holds."""
    saved = saved_in(checkpoint)
    if saved.evaluation is not None:
        journal.add(saved.evaluation)  # its prompt is made from the state before it
    state.restore(checkpoint.composite_snapshot)
    if saved.evaluation is not None:
        journal.add(saved.evaluation)  # and it is the one that goes on
    if saved.superseded:
        journal.add(EvaluationSuperseded(evaluation_id=saved.superseded, reason="restored"))
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
    state.record(journal)


def _check_state(host: LoopHost, run_id: UUID, state: RunState) -> None:
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
        _check_age(host, run_id, created)
    waiting = set(state.summary.waiting_for)
    open_calls = [
        call.call_id
        for call in state.tools.pending()
        if call.call_id in waiting and call.decision is None
    ]
    if status == "waiting" and open_calls:
        raise DecisionRequiredError(str(run_id), open_calls)


def _check_doubts(run_id: UUID, reader: RunReader) -> None:
    """A fork's open calls may have happened in its parent: only a person can have them repeated."""
    calls = reader.in_doubt() if reader.known.run.summary.kind == "fork" else ()
    if calls:
        raise DecisionRequiredError(str(run_id), [call.call_id for call in calls])


def _check_age(host: LoopHost, run_id: UUID, created: Any) -> None:
    assert host.recovery is not None
    age = to_datetime(host.clock.micros()) - created
    if age > host.recovery.max_resume_age:
        raise CheckpointExpiredError(str(run_id), age=age, limit=host.recovery.max_resume_age)


def _count_attempt(host: LoopHost, run_id: UUID, journal: Journal) -> None:
    """Note the attempt; park the run instead if too many came to nothing."""
    assert host.recovery is not None
    # A fork does not answer for the attempts of its parent.
    attempt = journal.progress.next_attempt if journal.state.summary.attempts else 1
    if attempt > host.recovery.max_attempts:
        journal.add(RunParked(reason="it got nowhere", attempts=attempt - 1))
        journal.commit()
        raise RecoveryError(
            f"Run {run_id} was tried {attempt - 1} times and got nowhere: it is parked now.",
            run_id=str(run_id),
        )
    journal.add(
        RunResumed(attempt=attempt, from_version=journal.committed.version, catalogue=CATALOGUE)
    )


# --- from a checkpoint ---------------------------------------------------------------


def recover_from_checkpoint(
    host: LoopHost, run_id: UUID, deadline: Deadline | timedelta | None
) -> tuple[PromptResponse[Any], Session]:
    """Go on with a run from what its backend holds."""
    backend = host.backend
    checkpoint = backend.load(run_id) if backend is not None else None
    if checkpoint is None or backend is None:
        raise CheckpointNotFoundError(str(run_id))
    _check_age(host, run_id, checkpoint.created_at)
    request = request_from(
        str(run_id), host.request_type, checkpoint.request_type, payload_of(checkpoint)
    )
    saved = saved_in(checkpoint)
    assert host.recovery is not None
    if saved.attempts >= host.recovery.max_attempts:
        raise RecoveryError(
            f"Run {run_id} was tried {saved.attempts} times and got nowhere.", run_id=str(run_id)
        )
    session = host.create_session()
    started = _started_by(checkpoint, saved)
    journal = session.begin_run(started)
    # What the run did before is in no ledger; where it stands is.
    journal.add(
        CheckpointStored(
            checkpoint="",
            phase=checkpoint.phase.value,
            tool_calls_completed=checkpoint.tool_calls_completed,
            created_at=checkpoint.created_at,
        )
    )
    state = ExecutionState(session=session, resources=host.resources())
    _go_back_to(checkpoint, state, journal)
    journal.commit()
    work = RunWork(
        host=host,
        run_id=run_id,
        journal=journal,
        session=session,
        request=request,
        started=started,
        used=timedelta(seconds=saved.seconds),
        deadline=deadline,
        saved=Saved(attempts=saved.attempts + 1, usage=saved.usage),
        state=state,
    )
    return _recovered(work, journal.state.checkpoints.latest), session


def _started_by(checkpoint: Checkpoint, saved: Saved) -> RunStarted:
    """The beginning of a run whose events are elsewhere, if anywhere: it has no parent here."""
    if saved.started is not None:
        # What follows is this program's, whichever program saved the checkpoint.
        return msgspec.structs.replace(
            saved.started, parent=None, at=0, kind="run", catalogue=CATALOGUE
        )
    return RunStarted(
        request_id=checkpoint.request_id,
        request_type=checkpoint.request_type,
        request=payload_of(checkpoint),
        catalogue=CATALOGUE,
    )


def _recovered(work: RunWork, latest: CheckpointEntry | None) -> PromptResponse[Any]:
    """The same loop as ever, and who listens is told that it is a recovery."""
    bus = work.host.bus
    now = to_datetime(work.journal.clock.micros())
    bus.publish(
        RecoveryStarted(
            run_id=work.run_id,
            checkpoint_created_at=latest.created_at if latest is not None else now,
            tool_calls_completed=work.journal.progress.tool_calls_completed,
        )
    )
    response = run_to_end(work)
    bus.publish(RecoveryCompleted(run_id=work.run_id))
    return response
