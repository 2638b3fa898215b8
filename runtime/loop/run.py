"""Runs one run to completion, failure or a wait: the prompt, its evaluations, the last event.

The same code starts a run and goes on with one that is recovered: the journal knows what was done
already, and that is not done again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from turnledger.ledger import (
    CheckpointCleared,
    EventDecodeError,
    IntegrityFailureError,
    InvalidInputError,
    RunClaimedError,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    StaleEpochError,
)
from turnledger.ledger.clock import to_datetime
from turnledger.ledger.errors import error_message
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.projections.views.tool_calls import ToolsState
from turnledger.runtime.agent.models.limits import (
    Budget,
    BudgetTracker,
    Deadline,
    TurnLimit,
    deadline_for,
)
from turnledger.runtime.agent.models.retry import RetryCancelledError
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.run_control import RunHalted
from turnledger.runtime.agent.traceback_text import traceback_text
from turnledger.runtime.agent.visibility import (
    SetVisibilityOverride,
    VisibilityExpansionRequired,
    VisibilityOverrides,
)
from turnledger.runtime.bus import EventBus
from turnledger.runtime.checkpoints.checkpoint import Checkpoint, CheckpointPhase
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.checkpoints.save import Saved, checkpoint_of
from turnledger.runtime.errors import (
    ConversationNotFound,
    DecisionRequiredError,
    PromptEvaluationError,
    PromptMismatch,
)
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.journal.known import Known
from turnledger.runtime.journal.loop_progress import CREATE_PROMPT, OPTIMIZE
from turnledger.runtime.loop.events import CheckpointSaved, PromptResponse, ToolEnded, ToolStarted
from turnledger.runtime.loop.host import LoopHost
from turnledger.runtime.loop.perform.failures import error_type
from turnledger.runtime.loop.perform.record_result import checkpoint
from turnledger.runtime.session.overlay import Overlay
from turnledger.runtime.session.session import Session

logger = logger_of("turnledger.recovery")
MOST_EXPANSIONS = 10
# These leave the run as it is: it can be resumed, and nothing about it has failed.
_NO_FAILURE = (
    ConversationNotFound,
    DecisionRequiredError,
    EventDecodeError,
    IntegrityFailureError,
    PromptMismatch,
    RetryCancelledError,
    RunClaimedError,  # of an optimization that another worker still has
    StaleEpochError,
)


@dataclass
class RunWork:
    """One run, and what it takes to run it to its end."""

    host: LoopHost
    run_id: UUID
    journal: Journal
    session: Session
    request: Any
    started: RunStarted
    # The time that earlier attempts took, and a deadline that replaces the recorded one.
    used: timedelta = timedelta(0)
    deadline: Deadline | timedelta | None = None
    # Replaces the recorded one too.
    max_turns: int | None = None
    saved: Saved = field(default_factory=Saved)
    state: ExecutionState | None = None
    # Ids of the events of consent to run calls in doubt again. They are pending until the first
    # commit, which comes after the prompt was checked: a run that is refused has none.
    consent: Sequence[str] = ()
    # The prompt, if it was made already.
    prompt: Prompt[Any] | None = None
    # The event by which the run was resumed, and its id.
    resumed: tuple[str, RunResumed] | None = None
    # The failure that is about to be recorded.
    failure: RunFailed | None = field(init=False, default=None)
    began: int = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.host.clock.micros()
        self.started = self.host.limited(self.started)

    @property
    def seconds(self) -> float:
        """How long the run was worked on, in all attempts."""
        return self.used.total_seconds() + (self.host.clock.micros() - self.began) / 1e6

    def limit(self) -> Deadline | None:
        """The deadline: the caller's, the recorded one, or what is left of the running time."""
        started, clock = self.started, self.host.clock
        if self.deadline is not None:
            return deadline_for(self.deadline, clock=clock)
        if started.deadline is not None:
            return Deadline(expires_at=started.deadline, clock=clock)
        if started.time_limit is None:
            return None
        limit = timedelta(seconds=started.time_limit)
        return deadline_for(limit, used=self.used, clock=clock)

    def tracker(self) -> BudgetTracker | None:
        """The run's budget, with what it has used so far."""
        budget = Budget.from_limits(self.started.budget)
        if budget is None:
            return None
        return BudgetTracker(budget, self.saved.usage or self.journal.state.usage.total)

    def turn_limit(self) -> TurnLimit | None:
        """The most replies of the model: the caller's limit, or the recorded one."""
        most = self.started.max_turns if self.max_turns is None else self.max_turns
        return None if most is None else TurnLimit(most, self.saved.turns, str(self.run_id))


def run_to_end(work: RunWork) -> PromptResponse[Any]:
    """Run it until it has its answer, has failed, or waits for a decision."""
    journal, host = work.journal, work.host
    recovery = host.recovery
    journal.checkpoint_interval = recovery.checkpoint_interval if recovery is not None else 0
    journal.tool_timeout = host.tool_timeout
    journal.output_retries = host.output_retries
    state = work.state or ExecutionState(session=work.session, resources=host.resources())
    journal.turn_limit = work.turn_limit()
    stop = journal.on_commit(_saving(work, state))
    try:
        prompt = _prompt(work)
        _record_resources(work, prompt, state)
        if journal.state.checkpoints.latest is None and recovery is not None:
            journal.add(checkpoint(journal, "initialized"))
        response = _answered(work, prompt, state)
        _complete(work)
    except _NO_FAILURE:
        journal.discard()
        raise
    except Exception as error:
        _fail(work, error)
        raise
    except RunHalted as halted:
        journal.discard()
        raise halted.error from None
    except BaseException:
        # Ctrl-C and the like: what is not on disk did not happen, the rest can be resumed.
        journal.discard()
        raise
    finally:
        journal.turn_limit = None
        stop()
    response.run_id = work.run_id
    return response


def _prompt(work: RunWork) -> Prompt[Any]:
    """The run's prompt; what create_prompt changes is recorded in the first attempt only."""
    if work.prompt is not None:
        return work.prompt
    journal = work.journal
    is_first = journal.known.prompt_base is None
    prompt, overlay = made_prompt(work.host, work.session, journal, work.request)
    if is_first:
        journal.add(overlay.changes, blobs=overlay.blobs)
    return prompt


def made_prompt(
    host: LoopHost, session: Session, journal: Journal, request: Any
) -> tuple[Prompt[Any], Overlay]:
    """The prompt for a request, made from the same state in every attempt, and what that changed.

    Args:
        host: The loop.
        session: Its session, attached to the journal or not.
        journal: The run. Nothing is added to it.
        request: The run's request.
    """
    overlay = Overlay(journal, CREATE_PROMPT, known=journal.known.prompt_base)
    with session.scope(overlay):
        prompt: Prompt[Any] = host.create_prompt(request)
    overlay.close()
    return prompt, overlay


def _record_resources(work: RunWork, prompt: Prompt[Any], state: ExecutionState) -> None:
    """Prepare the resources of a run that starts, and record them.

    A recovered run has what was recorded, and so have a fork and a chat turn: nothing is
    prepared again.
    """
    journal = work.journal
    is_recorded = bool(journal.known.session.resources)
    is_first = journal.state.checkpoints.latest is None
    if not is_recorded or (is_first and not work.started.keeps_conversation):
        work.host.prepare(prompt, state)
    if not is_recorded or is_first:
        state.record(journal)


def _answered(work: RunWork, prompt: Prompt[Any], state: ExecutionState) -> PromptResponse[Any]:
    journal = work.journal
    limit, tracker = work.limit(), work.tracker()
    while True:
        found = journal.progress.evaluation
        goes_on = found is not None and found.goes_on
        if not goes_on:
            _optimize_if_needed(work, replace(prompt, deadline=limit or prompt.deadline), state)
        try:
            return work.host.evaluate(
                prompt,
                execution_state=state,
                bus=work.host.bus,
                deadline=limit,
                budget_tracker=tracker,
                overrides_store=work.host.overrides_store,
                overrides_tag=work.host.overrides_tag,
                resume=goes_on,
            )
        except VisibilityExpansionRequired as wanted:
            if journal.progress.expansions > MOST_EXPANSIONS:
                raise PromptEvaluationError(
                    f"The model asked to open sections more than {MOST_EXPANSIONS} times.",
                    prompt_name=prompt.label,
                    phase="tool",
                ) from wanted
            for path, visibility in wanted.requested_overrides.items():
                work.session[VisibilityOverrides].apply(
                    SetVisibilityOverride(path=path, visibility=visibility)
                )


def _optimize_if_needed(work: RunWork, prompt: Prompt[Any], state: ExecutionState) -> None:
    """Have a workspace digest written before an evaluation begins, within the run's deadline."""
    if not work.host.needs_optimization(work.session):
        return
    try:
        work.host.optimize(prompt, state)
    except PromptEvaluationError as error:
        raise PromptEvaluationError(
            error.message,
            prompt_name=error.prompt_name,
            phase=error.phase,
            provider_payload=error.provider_payload,
            step=OPTIMIZE,
        ) from error


def _complete(work: RunWork) -> None:
    """Record the run's end, in one commit with its last checkpoint."""
    journal, recovery = work.journal, work.host.recovery

    def completed(known: Known) -> RunCompleted:
        found = known.progress.evaluation
        return RunCompleted(
            message_id=found.reply_id if found is not None else None,
            output=found.output if found is not None else None,
            outcome_digest=known.run.outcome_digest,
        )

    journal.add(completed)
    if recovery is not None:
        journal.add(checkpoint(journal, "completed"))
        if recovery.cleanup_on_success:
            journal.add(CheckpointCleared(reason="the run is completed"))
    try:
        journal.commit()
        backend = work.host.backend
        if recovery is not None and recovery.cleanup_on_success and backend is not None:
            backend.delete(work.run_id)
    except Exception as error:
        if journal.committed.run.summary.status != "completed":
            raise
        # The run is completed on disk: a checkpoint that can't be saved or deleted elsewhere
        # does not change that.
        logger.warning("run %s is completed, but its checkpoint: %s", work.run_id, error)


def _fail(work: RunWork, error: Exception) -> None:
    """Record the failure, if that is possible; the caller gets the error itself."""
    journal = work.journal
    journal.withdraw(work.consent)
    _withdraw_choice(work)
    failed = RunFailed(
        error_type=type(error).__name__,
        error_message=error_message(error),
        phase=getattr(error, "phase", ""),
        cause=error_type(error.__cause__) if error.__cause__ is not None else "",
        step=getattr(error, "step", ""),
        traceback=traceback_text(error, journal.ledger.redact_text),
    )
    work.failure = failed

    def record() -> None:
        journal.add(failed)
        if work.host.recovery is not None:
            journal.add(checkpoint(journal, "failed"))
        journal.commit()

    try:
        try:
            record()
        except InvalidInputError:
            # What was pending can't be recorded; without it the failure can.
            journal.discard()
            record()
    except Exception as second:
        error.add_note(f"The failure could not be recorded: {second}")


def _withdraw_choice(work: RunWork) -> None:
    """Record the resume without a choice about the prompt, if nothing came of the choice.

    It failed before its first commit, so nothing else that is pending matters.
    """
    if work.resumed is None:
        return
    journal, (event_id, resumed) = work.journal, work.resumed
    is_unused = journal.progress.prompt_choice == resumed.prompt
    if resumed.prompt and is_unused and journal.is_pending(event_id):
        journal.discard()
        journal.add(msgspec.structs.replace(resumed, prompt="", prompt_by=""))


def _saving(work: RunWork, state: ExecutionState) -> Callable[[Known, Known], None]:
    """After each commit: save a checkpoint to the backend, and publish what is on disk."""

    is_first = True

    def listen(before: Known, now: Known) -> None:
        nonlocal is_first
        recovery, bus = work.host.recovery, work.host.bus
        _publish_calls(bus, before.run.tools, now.run.tools)
        if work.failure is not None and now.run.summary.status == "failed":
            _log_failure(work.run_id, work.failure)
            work.failure = None
        entries = now.run.checkpoints.entries
        new = len(entries) - len(before.run.checkpoints.entries)
        latest = list(_take(reversed(entries), max(new, 0)))
        if recovery is None:
            return
        backend = work.host.backend
        started = before.run.tools.open != now.run.tools.open
        if backend is not None and (latest or started or is_first):
            # The first one counts the attempt: one that dies at once must count too.
            backend.save(work.run_id, _checkpoint(work, state, now))
        is_first = False
        for entry in reversed(latest):
            bus.publish(
                CheckpointSaved(
                    run_id=work.run_id,
                    checkpoint_id=UUID(entry.checkpoint_id),
                    phase=CheckpointPhase(entry.phase),
                    tool_calls_completed=entry.tool_calls_completed,
                    created_at=entry.created_at,
                )
            )

    return listen


def _publish_calls(bus: EventBus, before: ToolsState, now: ToolsState) -> None:
    """Publish which calls have ended and which have started, by the state of what is on disk."""
    for key, call in now.ended.items():
        if key not in before.ended:
            done = call.status == "completed"
            bus.publish(ToolEnded(call.call_id, call.name, call.result or "", done))
    for key, call in now.open.items():
        earlier = before.open.get(key)
        attempts = earlier.attempts if earlier is not None else 0
        if call.status == "started" and call.attempts > attempts:
            bus.publish(ToolStarted(call.call_id, call.name, call.given_arguments))


def _log_failure(run_id: UUID, failed: RunFailed) -> None:
    logger.warning(
        "run %s failed: %s: %s\n%s",
        run_id,
        failed.error_type,
        failed.error_message,
        failed.traceback,
    )


def _checkpoint(work: RunWork, state: ExecutionState, known: Known) -> Checkpoint:
    return checkpoint_of(
        state,
        known,
        run_id=work.run_id,
        started=work.started,
        before=work.saved,
        seconds=work.seconds,
        created_at=to_datetime(work.host.clock.micros()),
    )


def _take(items: Any, count: int) -> Any:
    for _ in range(count):
        yield next(items)
