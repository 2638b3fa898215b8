"""Recovery: resume an interrupted run, from its events or from a checkpoint alone.

In this order: read the run, check its age and its request, create a session, make the prompt and
compare it with the recorded one, claim the run, restore state and resources, and run the same loop
as ever. What refuses a run comes before the claim, so that nothing is written to a run that can't
be recovered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice, takewhile
from typing import Any, get_args
from uuid import UUID

import msgspec

from turnledger.ledger import (
    ANY,
    CheckpointStored,
    EvaluationSuperseded,
    InvalidInputError,
    Ledger,
    RunClaimed,
    RunParked,
    RunResumed,
    RunStarted,
    ToolCallDecided,
    ToolCallStarted,
)
from turnledger.ledger.clock import to_datetime
from turnledger.ledger.events.types import CATALOGUE, PromptChoice
from turnledger.projections import RunState, ToolCallView
from turnledger.projections.views.checkpoints import CheckpointEntry
from turnledger.runtime.agent.models.limits import Deadline, TurnLimit
from turnledger.runtime.checkpoints.checkpoint import Checkpoint
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.checkpoints.ledger_backend import LedgerCheckpointBackend
from turnledger.runtime.checkpoints.save import Saved, payload_of, saved_in
from turnledger.runtime.errors import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    DecisionRequiredError,
    RecoveryError,
    TurnLimitExceededError,
)
from turnledger.runtime.journal.heartbeat import LeaseHeartbeat, claimed
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.journal.loop_progress import ProgressState
from turnledger.runtime.loop.events import (
    PromptResponse,
    RecoveryCompleted,
    RecoveryStarted,
)
from turnledger.runtime.loop.host import LoopHost
from turnledger.runtime.loop.perform.record_result import checkpoint as checkpoint_event
from turnledger.runtime.loop.run import RunWork, run_to_end
from turnledger.runtime.recovery.find import check_agent
from turnledger.runtime.recovery.prompt_check import OnChangedPrompt, PromptCheck, goes_back
from turnledger.runtime.recovery.request_types import request_from
from turnledger.runtime.recovery.run_reader import RunReader
from turnledger.runtime.session.session import Session
from turnledger.runtime.session.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class RecoveryOptions:
    """What the caller of `recover` asked for; see `MainLoop.recover`."""

    deadline: Deadline | timedelta | None = None
    max_turns: int | None = None
    retry_in_doubt: bool = False
    decided_by: str = ""
    prompt: OnChangedPrompt = "check"

    def __post_init__(self) -> None:
        if self.prompt not in get_args(OnChangedPrompt):
            raise InvalidInputError(
                f"Invalid prompt {self.prompt!r}: expected 'check', 'recorded' or 'accept'."
            )

    def consent(self, journal: Journal, calls: Iterable[ToolCallView]) -> list[str]:
        """Add the consent to run these calls again, if it was given; the ids of its events."""
        if not self.retry_in_doubt:
            return []
        return journal.add(
            *(
                ToolCallDecided(
                    call_id=call.call_id,
                    decision="retry",
                    decided_by=self.decided_by,
                    attempt=call.attempts,
                    until_resumed=True,
                )
                for call in calls
            )
        )


# --- from the ledger -----------------------------------------------------------------


def recover_from_ledger(
    host: LoopHost, run_id: UUID, options: RecoveryOptions, held: LeaseHeartbeat | None = None
) -> tuple[PromptResponse[Any], Session]:
    """Resume a run from its events; each of its records is read once.

    Args:
        host: The loop that resumes it.
        run_id: The run.
        options: What the caller asked for.
        held: The claim of the run, if this worker has it already.
    """
    ledger = host.ledger
    assert ledger is not None
    if not ledger.head(run_id):
        _take_over(host, ledger, run_id)
    if held is not None:
        _check_claims(host, ledger, held)
    reader = RunReader(ledger, run_id)
    check_agent(run_id, reader.known.run.summary.agent, host.name)
    _check_status(run_id, reader.known.run)
    is_free = held is not None or ledger.worker_of(run_id) is None
    if is_free or reader.known.run.summary.kind != "fork":
        _check_decisions(run_id, reader, options)
    _check_state_age(host, run_id, reader, reader.known.run)
    _check_turns(run_id, reader.known.progress, options)
    _check_request(host, run_id, reader.known.progress.started)
    session = host.create_session()
    prompt_check = PromptCheck(host, session, options.prompt)
    prompt_check.before_claim(ledger, reader)
    with claimed(
        ledger,
        run_id,
        declarations=session.declarations,
        clock=host.clock,
        lease=host.lease,
        held=held,
        known=lambda: reader.declare(session.declarations),
    ) as journal:
        started = journal.progress.started
        if started is None:
            raise CheckpointNotFoundError(str(run_id))
        # Before this claim another worker may have had the run.
        _check_status(run_id, journal.state)
        _check_decisions(run_id, reader, options)
        _check_state_age(host, run_id, reader, journal.state)
        request = request_from(
            str(run_id), host.request_type, started.request_type, started.request
        )
        used = reader.time_used
        latest = journal.state.checkpoints.latest
        checked = prompt_check.after_claim(journal, request)
        resumed = _count_attempt(host, run_id, journal, checked.choice, options.decided_by)
        is_back = goes_back(journal.state)
        consent = [] if is_back else options.consent(journal, reader.in_doubt(journal.state))
        opening = session.attach(journal)
        if started.kind == "fork" and not has_begun(journal):
            journal.add(*opening)
        session.session_id = started.session_id or session.session_id
        state = ExecutionState(session=session, resources=host.resources())
        if latest is not None and latest.stored is not None:
            checkpoint = Checkpoint.from_json(latest.stored)
            _go_back_to(checkpoint, state, journal)
            consent = options.consent(journal, reader.in_doubt(journal.state))
            # From here on the run's own checkpoints count again.
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
            deadline=options.deadline,
            max_turns=options.max_turns,
            state=state,
            consent=consent,
            prompt=checked.prompt,
            resumed=resumed,
        )
        return _recovered(work, latest), session


def has_begun(journal: Journal) -> bool:
    """Whether a fork's parent had begun where it was forked: state, messages, or a prompt."""
    known = journal.committed
    return known.progress.prompted_at is not None or bool(
        known.session.names or known.session.resources or known.session.messages.size
    )


def _take_over(host: LoopHost, ledger: Ledger, run_id: UUID) -> None:
    """Begin the run in this ledger with its checkpoint from the backend."""
    checkpoint = host.backend.load(run_id) if host.backend is not None else None
    if checkpoint is None:
        raise CheckpointNotFoundError(str(run_id))
    _check_whose(host, run_id, checkpoint)
    _check_age(host, run_id, checkpoint.created_at)
    LedgerCheckpointBackend(ledger).save(run_id, checkpoint)


def _check_whose(host: LoopHost, run_id: UUID, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint of another agent's run, or of one whose past it does not hold."""
    started = saved_in(checkpoint).started
    check_agent(run_id, started.agent if started is not None else "", host.name)
    if started is not None and started.kind == "turn":
        raise RecoveryError(
            f"Run {run_id} is a chat turn: what was said before it is in its ledger, and not in "
            "its checkpoint. Recover it with that ledger.",
            run_id=str(run_id),
        )


def _check_request(host: LoopHost, run_id: UUID, started: RunStarted | None) -> None:
    """Refuse a request of another loop's type, before a session is created for it."""
    if started is not None and started.request_id is not None:
        request_from(str(run_id), host.request_type, started.request_type, started.request)


def _go_back_to(checkpoint: Checkpoint, state: ExecutionState, journal: Journal) -> None:
    """Restore what a checkpoint holds: session, resources, evaluation and started calls."""
    saved = saved_in(checkpoint)
    if saved.evaluation is not None:
        journal.add(saved.evaluation)  # its prompt is made from the state before it
    state.restore(checkpoint.composite_snapshot)
    if saved.evaluation is not None:
        session, snapshot = state.session, checkpoint.composite_snapshot.session
        if saved.began_in is not None:
            session.restore(Snapshot.from_plain(saved.began_in), undeclared="keep")
        journal.add(saved.evaluation)  # and it is the one that goes on
        if saved.began_in is not None:
            session.restore(snapshot, undeclared="keep")
    if saved.superseded:
        journal.add(EvaluationSuperseded(evaluation_id=saved.superseded, reason="restored"))
    for call in saved.under_way:
        # Started and without a result: `decide` finds it in doubt.
        journal.add(
            ToolCallStarted(
                evaluation_id=call.evaluation_id,
                call_id=call.call_id,
                name=call.name,
                attempt=call.attempt,
                on_interrupt=call.on_interrupt,
            )
        )
    state.record(journal)


def _check_status(run_id: UUID, state: RunState) -> None:
    """Refuse a run that has ended."""
    status, latest = state.summary.status, state.checkpoints.latest
    if status == "completed":
        raise RecoveryError(f"Run {run_id} is completed: nothing to recover.", run_id=str(run_id))
    if status == "abandoned" or (latest is None and len(state.checkpoints.entries)):
        raise CheckpointNotFoundError(str(run_id))
    if status == "parked":
        raise RecoveryError(
            f"Run {run_id} is parked after {state.summary.attempts} attempts: it got nowhere, or "
            f"lost records. Find the cause with `turnledger log {run_id}`, then abandon the run, "
            "or fork it at an earlier version.",
            run_id=str(run_id),
        )


def _check_state_age(host: LoopHost, run_id: UUID, reader: RunReader, state: RunState) -> None:
    """Refuse a run that is too old. The time that it waited for a person does not count.

    Nor does the time that a request waited for a worker: it ages once it is begun.
    """
    latest = state.checkpoints.latest
    created = latest.created_at if latest is not None else reader.begun_at
    moments = [moment for moment in (created, reader.decided_at) if moment is not None]
    if moments:
        _check_age(host, run_id, max(moments))


def _check_decisions(run_id: UUID, reader: RunReader, options: RecoveryOptions) -> None:
    """Refuse a run with calls that a person must decide about, and did not.

    Those that it waits for; in a fork all that are in doubt, as its parent may have made them.
    Consent to run calls in doubt again is no approval of a call that never ran.
    """
    state, calls = reader.known.run, reader.in_doubt()
    summary = state.summary
    awaited = summary.waiting_for if summary.status == "waiting" else ()
    approvals = [
        call.call_id
        for call in state.tools.pending()
        if call.awaits_approval and call.call_id in awaited
    ]
    if summary.kind != "fork":
        calls = tuple(c for c in calls if c.call_id in awaited and not c.takes_approval)
    if options.retry_in_doubt:
        doubted = {call.call_id for call in reader.in_doubt()}
        calls, approvals = (), [call for call in approvals if call not in doubted]
    waiting = dict.fromkeys([*(call.call_id for call in calls), *approvals])
    if waiting:
        raise DecisionRequiredError(str(run_id), list(waiting), approvals=approvals)


def _check_turns(run_id: UUID, progress: ProgressState, options: RecoveryOptions) -> None:
    """Refuse a run that max_turns ended, unless there is a higher one: no attempt is counted."""
    recorded = progress.started.max_turns if progress.started is not None else None
    most = options.max_turns or recorded
    if most is not None and progress.failed_by == TurnLimitExceededError.__name__:
        TurnLimit(most, run_id=str(run_id)).check(progress.replies)


def _check_age(host: LoopHost, run_id: UUID, created: Any) -> None:
    assert host.recovery is not None
    age = to_datetime(host.clock.micros()) - created
    if age > host.recovery.max_resume_age:
        raise CheckpointExpiredError(str(run_id), age=age, limit=host.recovery.max_resume_age)


def _check_claims(host: LoopHost, ledger: Ledger, held: LeaseHeartbeat) -> None:
    """Park a run whose workers keep ending before their first commit: it may be what kills them.

    An attempt is counted with its first commit. Of one that ended before, its claim is the trace.
    """
    assert host.recovery is not None
    run, most = held.claim.run_id, host.recovery.max_attempts
    last = islice(ledger.read(run, backwards=True, page_size=most + 1), most + 1)
    claims = sum(1 for _ in takewhile(lambda record: record.tag == RunClaimed.tag, last))
    if claims > most:
        parked = RunParked(reason="its workers ended before they recorded anything", attempts=most)
        ledger.append(run, parked, ANY, held.claim.epoch)
        raise RecoveryError(
            f"Run {run} is parked now: {most} workers ended before they recorded anything.",
            run_id=run,
        )


def _count_attempt(
    host: LoopHost, run_id: UUID, journal: Journal, choice: PromptChoice, by: str
) -> tuple[str, RunResumed]:
    """Record the attempt; park the run instead after too many without progress.

    Args:
        host: The loop.
        run_id: The run.
        journal: Its journal.
        choice: How it goes on under a changed prompt.
        by: Who chose that.

    Returns:
        The event and its id. It is pending until the first commit.
    """
    assert host.recovery is not None
    # A fork inherits the count of its parent's attempts in `progress`, which are not its own.
    attempt = journal.progress.next_attempt if journal.state.summary.attempts else 1
    if attempt > host.recovery.max_attempts:
        journal.add(RunParked(reason="it got nowhere", attempts=attempt - 1))
        journal.commit()
        raise RecoveryError(
            f"Run {run_id} is parked now: {attempt - 1} attempts made no progress.",
            run_id=str(run_id),
        )
    resumed = _resumed(journal, attempt, choice, by)
    return journal.add(resumed)[0], resumed


def _resumed(journal: Journal, attempt: int, choice: PromptChoice, by: str) -> RunResumed:
    return RunResumed(
        attempt=attempt,
        from_version=journal.committed.version,
        catalogue=CATALOGUE,
        prompt=choice,
        prompt_by=by if choice else "",
    )


# --- from a checkpoint ---------------------------------------------------------------


def recover_from_checkpoint(
    host: LoopHost, run_id: UUID, options: RecoveryOptions
) -> tuple[PromptResponse[Any], Session]:
    """Resume a run from the checkpoint in the host's backend, without a ledger.

    Args:
        host: The loop that resumes it.
        run_id: The run.
        options: What the caller asked for.
    """
    if options.prompt == "accept":
        raise InvalidInputError(
            "prompt='accept' needs a ledger: a checkpoint does not say which evaluation goes on "
            "from which. Give the loop a ledger, or recover with prompt='recorded'."
        )
    backend = host.backend
    checkpoint = backend.load(run_id) if backend is not None else None
    if checkpoint is None or backend is None:
        raise CheckpointNotFoundError(str(run_id))
    _check_whose(host, run_id, checkpoint)
    _check_age(host, run_id, checkpoint.created_at)
    request = request_from(
        str(run_id), host.request_type, checkpoint.request_type, payload_of(checkpoint)
    )
    saved = saved_in(checkpoint)
    assert host.recovery is not None
    if saved.attempts >= host.recovery.max_attempts:
        raise RecoveryError(
            f"Run {run_id} is not recovered again: {saved.attempts} attempts made no progress.",
            run_id=str(run_id),
        )
    started = _started_by(checkpoint, saved)
    most = options.max_turns or started.max_turns
    if most is not None and checkpoint.phase.value == "failed":
        TurnLimit(most, run_id=str(run_id)).check(saved.turns)
    session = host.create_session()
    journal = session.begin_run(started)
    # The run's earlier events are in no ledger: its phase and count of tools come from here.
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
    checked = PromptCheck(host, session, options.prompt).check(journal, request)
    if checked.choice:
        by = options.decided_by
        journal.add(_resumed(journal, saved.attempts + 1, checked.choice, by))
    in_doubt = (c for c in journal.state.tools.pending() if c.status in ("started", "in_doubt"))
    consent = options.consent(journal, in_doubt)
    work = RunWork(
        host=host,
        run_id=run_id,
        journal=journal,
        session=session,
        request=request,
        started=started,
        used=timedelta(seconds=saved.seconds),
        deadline=options.deadline,
        max_turns=options.max_turns,
        consent=consent,
        saved=Saved(attempts=saved.attempts + 1, usage=saved.usage, turns=saved.turns),
        state=state,
        prompt=checked.prompt,
    )
    return _recovered(work, journal.state.checkpoints.latest), session


def _started_by(checkpoint: Checkpoint, saved: Saved) -> RunStarted:
    """The RunStarted of a run whose events are in no ledger; its parent is not here either."""
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
    """Run it to its end, and publish that this is a recovery."""
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
