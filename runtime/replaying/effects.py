"""Recorded effects: replies, tool results and failures come from the record of the run.

No provider is called, no handler runs and nothing is waited for. The loop decides on an effect;
the record must go on with the outcome of just that effect, and the outcome is taken as it is.
What failed is read from fields of the events; for older records see `older_records`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, NoReturn, TypeVar

from turnledger.ledger import (
    ApprovalRequested,
    EvaluationSuperseded,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    OutputRejected,
    Record,
    RunFailed,
    SliceEventApplied,
    StateRestored,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
    ToolMessageAmended,
)
from turnledger.ledger.events.types import CATALOGUE
from turnledger.projections import ToolCallView
from turnledger.runtime.agent.models.request import Request
from turnledger.runtime.agent.models.retry import FailedAttempt
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.tools.call import Invocation
from turnledger.runtime.agent.visibility import SectionVisibility, VisibilityExpansionRequired
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.errors import (
    BudgetExceededError,
    DeadlineExceededError,
    EvaluationPhase,
    PromptEvaluationError,
    TurnLimitExceededError,
)
from turnledger.runtime.journal.loop_progress import OPTIMIZE
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.perform.approval import requested
from turnledger.runtime.loop.perform.failures import EvaluationEnded, RecordedCause, RecordedError
from turnledger.runtime.loop.perform.prepare import PREPARE
from turnledger.runtime.loop.perform.run_tool import prepared_call, start
from turnledger.runtime.replaying.journal import Diverged, ReplayJournal
from turnledger.runtime.replaying.older_records import with_failure_fields

OutputT = TypeVar("OutputT")
# What a tool, and listeners of its result, may have recorded before its outcome.
_CHANGES = (SliceEventApplied, MessageAppended, StateRestored, ToolMessageAmended)
# The record ends in the midst of a tool's changes: `until=`, or a file that was cut.
_CUT_OFF = object()
# `RunFailed.cause` of a run that a limit ended.
_LIMITS = frozenset(
    kind.__name__ for kind in (DeadlineExceededError, BudgetExceededError, TurnLimitExceededError)
)


class RecordedEffects:
    """`Effects` of a re-execution, in the order of the record."""

    def __init__(self, journal: ReplayJournal) -> None:
        self._journal = journal

    def begin(self, context: EvaluationContext[OutputT]) -> EvaluationContext[OutputT]:
        self._journal.evaluation = context  # for finding causes
        if context.rendered.from_record:
            self._journal.recorded_prompts[context.evaluation_id] = None
        return context

    def prepare(self, prompt: Prompt[Any], state: ExecutionState) -> None:
        """Prepare nothing: what was prepared is on record, and so is a failure of it."""
        record = self._peek()
        event = record.event if record is not None else None
        if isinstance(event, RunFailed) and event.step == PREPARE:
            _fail(event)

    def optimize(self, prompt: Prompt[Any], state: ExecutionState) -> None:
        """Take what an optimization recorded: that it began, and the digest that came of it.

        Its own run is another record, which this one does not need.
        """
        journal, is_first = self._journal, True
        while isinstance(event := journal.expected().event, SliceEventApplied):
            if event.call_id != OPTIMIZE:
                break
            journal.take()
            is_first = False
        if isinstance(event, RunFailed) and event.step == OPTIMIZE:
            _fail(event)
        if is_first:
            journal.diverged("an optimization of the workspace")

    # --- limits ---

    def check_limits(
        self, context: EvaluationContext[Any], phase: EvaluationPhase, *, reserve: int = 0
    ) -> None:
        """Fail where the run failed by a limit, and nowhere else: a replay takes other times."""
        failed = self._failed_by_limit()
        if failed is not None and failed.phase in (phase, "budget"):
            _fail(failed)

    def _peek(self) -> Record | None:
        self._journal.take_inputs()
        return self._journal.cursor.peek()

    def _failed_by_limit(self) -> RunFailed | None:
        record = self._peek()
        event = record.event if record is not None else None
        return event if isinstance(event, RunFailed) and event.cause in _LIMITS else None

    # --- the model ---

    def model_turn(self, context: EvaluationContext[Any], request: Request) -> _RecordedTurn:
        record = self._peek()
        event = record.event if record is not None else None
        if isinstance(event, RunFailed):
            failed = with_failure_fields(event, self._journal.catalogue)
            if failed.step == "encode":
                raise _ended_by(failed)
        return _RecordedTurn(self._journal, context)

    # --- tools ---

    def ask_approval(self, context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
        """Take what was recorded about these calls: their tools are not asked."""
        for call in calls:
            ready = prepared_call(context, call)
            if isinstance(ready, Invocation):
                self._take_refusal(call, ready)
                continue
            self._journal.take_listeners_changes()
            event = self._journal.expected().event
            needed = event.needed if isinstance(event, ApprovalRequested) else True
            self._journal.add(requested(call, needed=needed))

    def run_tools(self, context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
        """Start the calls as a live loop would, and take their outcomes in the recorded order.

        Parallel calls end in any order. So before another call is started it is checked whether
        the record goes on with the end of one that runs: a live loop starts the next call only
        when there is room for it.
        """
        width = min(context.adapter.parallel_tools, len(calls))
        running: dict[str, ToolCallView] = {}
        try:
            self._run_tools(context, calls, width, running)
        except Diverged as stopped:
            raise self._by_another_width(stopped, calls, width, running) from None

    def _by_another_width(
        self,
        stopped: Diverged,
        calls: Sequence[ToolCallView],
        width: int,
        running: dict[str, ToolCallView],
    ) -> Diverged:
        """The divergence, by its cause if the record ran more or fewer calls at a time.

        It ran more if it starts another of these calls while there is no room for one here, and
        fewer if it ends one while there is room for another.
        """
        found, record = stopped.divergence, self._journal.cursor.peek()
        if record is None or record.version != found.version:
            return stopped  # an earlier record can't be folded
        others = {call.call_id for call in calls} - set(running)
        starts = record.event.call_id if isinstance(record.event, ToolCallStarted) else None
        started = found.found.get("call_id") if isinstance(found.found, dict) else None
        if starts in others and len(running) >= width:
            why = f"more than {width} at a time were recorded, and this adapter runs {width}"
        elif started in others and starts is None and self._ends_one_of(running):
            why = f"{len(running)} at a time were recorded, and this adapter runs {width}"
        else:
            return stopped
        return Diverged(replace(found, cause="parallel_tools changed", detail=why))

    def _run_tools(
        self,
        context: EvaluationContext[Any],
        calls: Sequence[ToolCallView],
        width: int,
        running: dict[str, ToolCallView],
    ) -> None:
        waiting = deque(calls if width > 1 else calls[:1])
        expansion: VisibilityExpansionRequired | None = None
        while waiting or running:
            if waiting and not self._ends_one_of(running):
                self.check_limits(context, "tool")
                while waiting and len(running) < width:
                    self._begin(context, waiting.popleft(), running)
            if running:
                expansion = self._take_outcome(running) or expansion
            if expansion is not None:
                # The calls that ran in parallel are recorded first; then sections are opened.
                waiting.clear()
                if not self._ends_one_of(running):
                    self._end_if_late(context)
                    raise expansion
        self._end_if_late(context)

    def _end_if_late(self, context: EvaluationContext[Any]) -> None:
        """Fail if a handler raised DeadlineExceededError: its call is recorded by now."""
        late = self._failed_by_limit()
        if late is not None and late.phase == "tool":
            _fail(late)

    def _begin(
        self, context: EvaluationContext[Any], call: ToolCallView, running: dict[str, ToolCallView]
    ) -> None:
        ready = prepared_call(context, call)
        if not isinstance(ready, Invocation):
            running[call.call_id] = start(context, call)
            return
        self._take_refusal(call, ready)

    def _take_refusal(self, call: ToolCallView, ready: Invocation) -> None:
        """Take the refusal of a call with invalid arguments, which is never started.

        The reason is compared; what listeners made of the refusal is taken as it was.
        """
        refused = self._outcome({call.call_id: call})
        if refused is not _CUT_OFF and not self._is_refused_alike(refused, ready):
            why = f"{call.name} refuses its arguments: {ready.error_message}"
            self._journal.diverged(why, "tool schema changed")
        self._take_outcome({call.call_id: call})

    def _is_refused_alike(self, refused: Any, ready: Invocation) -> bool:
        """Whether a call was refused for the same reason; older programs worded it otherwise."""
        if not isinstance(refused, ToolCallFailed):
            return False
        is_older = self._journal.catalogue < CATALOGUE
        same_words = is_older or refused.error_message == ready.error_message
        return same_words and refused.error_type == (ready.error_type or "ToolFailed")

    def asks_again(self, context: EvaluationContext[Any]) -> bool:
        """As recorded: how often an output is asked for again may be another number now."""
        record = self._peek()
        return record is not None and isinstance(record.event, OutputRejected)

    def _outcome(self, running: dict[str, ToolCallView]) -> Any:
        """The event with which one of these calls ends, if only its changes come before it.

        None if the record goes on otherwise, `_CUT_OFF` if it ends before that is known.
        """
        self._journal.expected()
        for place in count():
            record = self._journal.cursor.peek(place)
            if record is None:
                return _CUT_OFF
            event = record.event
            if isinstance(event, ToolCallCompleted | ToolCallFailed | ToolCallInDoubt):
                return event if event.call_id in running else None
            if isinstance(event, EvaluationSuperseded):
                return event
            if not isinstance(event, _CHANGES):
                return None
        raise AssertionError("unreachable")

    def _ends_one_of(self, running: dict[str, ToolCallView]) -> bool:
        """Whether the record goes on with the end of a call that runs."""
        return bool(running) and self._outcome(running) is not None

    def _take_outcome(self, running: dict[str, ToolCallView]) -> VisibilityExpansionRequired | None:
        """Take what one call changed, its result and its message; an expansion if it asked so."""
        journal = self._journal
        while True:
            event = journal.expected().event
            match event:
                case ToolCallCompleted() | ToolCallFailed() if event.call_id in running:
                    journal.take()
                    break
                case ToolCallInDoubt() if event.call_id in running:  # it ran out of time
                    journal.take()
                    del running[event.call_id]
                    return None
                case EvaluationSuperseded():
                    journal.take()
                    return expansion_of(event)
                case _ if isinstance(event, _CHANGES):
                    journal.take()
                case _:
                    journal.diverged(f"the outcome of {', '.join(running)}")
        del running[event.call_id]
        if not isinstance(journal.expected().event, MessageAppended):
            journal.diverged(f"the message of {event.call_id}")
        journal.take()
        if isinstance(event, ToolCallCompleted):
            every, done = journal.checkpoint_interval, journal.progress.tool_calls_completed
            if every and done % every == 0:
                journal.check_state("post_tool", done)
        return None


class _RecordedTurn:
    """A turn of the model as it was recorded, attempt by attempt."""

    def __init__(self, journal: ReplayJournal, context: EvaluationContext[Any]) -> None:
        self._journal = journal
        self._context = context

    def reply(self, attempt: int) -> None:
        """Take the recorded reply; None, as it is on record with its message already."""
        journal = self._journal
        journal.take_listeners_changes()
        message = journal.expected()
        if isinstance(message.event, ModelCallFailed):
            raise RecordedError(with_failure_fields(message.event, journal.catalogue))
        replied = journal.cursor.peek(1)
        is_message = isinstance(message.event, MessageAppended)
        if not is_message or not (replied is None or isinstance(replied.event, ModelReplied)):
            journal.diverged("a model's reply")
        journal.take()
        journal.expected()
        journal.take()

    def run_attempts(
        self, attempt: Callable[[int], None], failed: Callable[[FailedAttempt], None]
    ) -> None:
        number = 1
        while True:
            try:
                return attempt(number)
            except Exception as error:
                retryable = getattr(error, "retryable", False)
                failed(FailedAttempt(number, error, retryable, None))
                # Whether it was tried again, the record knows: the policy for retries and the
                # time that was left are not those of this process.
                self._journal.take_inputs()
                record = self._journal.cursor.peek()
                if record is not None and not isinstance(record.event, ModelCalled):
                    self._give_up(record, error)
                number += 1

    def _give_up(self, record: Record, error: Exception) -> NoReturn:
        event = record.event
        if isinstance(event, RunFailed) and event.cause == DeadlineExceededError.__name__:
            raise _ended_by(event) from error  # before the next attempt, or while it waited
        self._journal.expected()  # raises if the process ended here
        raise error


def _ended_by(failed: RunFailed) -> EvaluationEnded:
    """The recorded failure, to end the evaluation as it did when the run was live.

    The recorded text names prompt and phase already, so the error is given no prompt's name.
    """
    phase: Any = failed.phase
    error = PromptEvaluationError(
        failed.error_message, prompt_name="", phase=phase, step=failed.step
    )
    return EvaluationEnded(error, RecordedCause(failed.cause))


def _fail(failed: RunFailed) -> NoReturn:
    """End the evaluation by the failure that ended it when it was live."""
    ended = _ended_by(failed)
    raise ended.error from ended.cause


def expansion_of(event: EvaluationSuperseded) -> VisibilityExpansionRequired:
    """The signal of a tool that asked to open sections, from its event."""
    wanted = {path: SectionVisibility(shown) for path, shown in event.overrides.items()}
    return VisibilityExpansionRequired(wanted, reason=event.reason)
