"""Answers that are on record: no provider is asked, no handler is called, nothing is waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NoReturn, TypeVar

from turnledger.ledger import (
    EvaluationSuperseded,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    RunFailed,
    SliceEventApplied,
    StateRestored,
    ToolCallCompleted,
    ToolCallFailed,
    ToolMessageAmended,
)
from turnledger.projections import ToolCallView
from turnledger.runtime.agent.models.request import Request
from turnledger.runtime.agent.models.retry import FailedAttempt
from turnledger.runtime.agent.tools.call import Invocation
from turnledger.runtime.agent.visibility import SectionVisibility, VisibilityExpansionRequired
from turnledger.runtime.errors import (
    BudgetExceededError,
    DeadlineExceededError,
    EvaluationPhase,
    PromptEvaluationError,
)
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.failures import EvaluationEnded, RecordedCause, RecordedError
from turnledger.runtime.loop.perform.run_tool import prepared_call, start
from turnledger.runtime.replaying.journal import ReplayJournal
from turnledger.runtime.replaying.older_records import with_failure_fields

OutputT = TypeVar("OutputT")
# What a tool, and whoever listens to it, may have changed before its outcome.
_BY_A_TOOL = (SliceEventApplied, MessageAppended, StateRestored, ToolMessageAmended)
_CUT_OFF = object()
_LIMITS = frozenset(kind.__name__ for kind in (DeadlineExceededError, BudgetExceededError))


class RecordedEffects:
    """What models and tools said when the run was live, in the order of the record."""

    def __init__(self, journal: ReplayJournal) -> None:
        self._journal = journal

    def begin(self, context: EvaluationContext[OutputT]) -> EvaluationContext[OutputT]:
        self._journal.evaluation = context  # for finding causes
        return context

    # --- limits ---

    def check_limits(
        self, context: EvaluationContext[Any], phase: EvaluationPhase, *, reserve: int = 0
    ) -> None:
        """Time and tokens were used up where the record says so, and nowhere else."""
        failed = self._failed_by_a_limit()
        if failed is not None and failed.phase in (phase, "budget"):
            _fail(failed)

    def _peek(self) -> Record | None:
        self._journal.take_inputs()
        return self._journal.cursor.peek()

    def _failed_by_a_limit(self) -> RunFailed | None:
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

    def run_tools(self, context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
        """Begin the calls as the loop would, and take what came of each as it came."""
        width = min(context.adapter.parallel_tools, len(calls))
        waiting = deque(calls if width > 1 else calls[:1])
        running: dict[str, ToolCallView] = {}
        expansion: VisibilityExpansionRequired | None = None
        while waiting or running:
            if waiting and not self._ends_one_of(running):
                self.check_limits(context, "tool")
                while waiting and len(running) < width:
                    self._begin(context, waiting.popleft(), running)
            if running:
                expansion = self._take_outcome(running) or expansion
            if expansion is not None:
                # Sections are opened when the calls beside it have ended.
                waiting.clear()
                if not self._ends_one_of(running):
                    self._end_if_late(context)
                    raise expansion
        self._end_if_late(context)

    def _end_if_late(self, context: EvaluationContext[Any]) -> None:
        """A handler said that time is up, and the calls beside it have ended."""
        late = self._failed_by_a_limit()
        if late is not None and late.phase == "tool":
            _fail(late)

    def _begin(
        self, context: EvaluationContext[Any], call: ToolCallView, running: dict[str, ToolCallView]
    ) -> None:
        ready = prepared_call(context, call)
        if not isinstance(ready, Invocation):
            running[call.call_id] = start(context, call)
            return
        # It is refused: what listeners made of that is on record, and why it is, is compared.
        refused = self._outcome({call.call_id: call})
        found = (ready.error_type or "ToolFailed", ready.error_message)
        if refused is not _CUT_OFF and found != _reason(refused):
            why = f"{call.name} refuses its arguments: {ready.error_message}"
            self._journal.undecided(why, "tool schema changed")
        self._take_outcome({call.call_id: call})

    def _outcome(self, running: dict[str, ToolCallView]) -> Any:
        """How one of these ended, if nothing but what it changed is recorded before that.

        `_CUT_OFF` if the record ends among what it changed.
        """
        self._journal.expected()
        for place in count():
            record = self._journal.cursor.peek(place)
            if record is None:
                return _CUT_OFF
            event = record.event
            if isinstance(event, ToolCallCompleted | ToolCallFailed):
                return event if event.call_id in running else None
            if isinstance(event, EvaluationSuperseded):
                return event
            if not isinstance(event, _BY_A_TOOL):
                return None
        raise AssertionError("unreachable")

    def _ends_one_of(self, running: dict[str, ToolCallView]) -> bool:
        """Whether what was recorded next is the end of a call that runs."""
        return bool(running) and self._outcome(running) is not None

    def _take_outcome(self, running: dict[str, ToolCallView]) -> VisibilityExpansionRequired | None:
        """Take the record up to the end of one call: what it changed, its result, its message."""
        journal = self._journal
        while True:
            event = journal.expected().event
            match event:
                case ToolCallCompleted() | ToolCallFailed() if event.call_id in running:
                    journal.take()
                    break
                case EvaluationSuperseded():
                    journal.take()
                    return expansion_of(event)
                case _ if isinstance(event, _BY_A_TOOL):
                    journal.take()
                case _:
                    journal.undecided(f"the outcome of {', '.join(running)}")
        del running[event.call_id]
        if not isinstance(journal.expected().event, MessageAppended):
            journal.undecided(f"the message of {event.call_id}")
        journal.take()
        if isinstance(event, ToolCallCompleted):
            every, done = journal.checkpoint_interval, journal.progress.tool_calls_completed
            if every and done % every == 0:
                journal.check_state("post_tool", done)
        return None


class _RecordedTurn:
    """One turn of a model, as it was."""

    def __init__(self, journal: ReplayJournal, context: EvaluationContext[Any]) -> None:
        self._journal = journal
        self._context = context

    def reply(self, attempt: int) -> None:
        """Take the reply from the record, where it is whole already."""
        journal = self._journal
        journal.take_notes()
        said = journal.expected()
        if isinstance(said.event, ModelCallFailed):
            raise RecordedError(with_failure_fields(said.event, journal.catalogue))
        came = journal.cursor.peek(1)
        is_said = isinstance(said.event, MessageAppended)
        if not is_said or not (came is None or isinstance(came.event, ModelReplied)):
            journal.undecided("a model's reply")
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
                self._journal.take_inputs()
                record = self._journal.cursor.peek()
                if record is not None and not isinstance(record.event, ModelCalled):
                    self._give_up(record, error)
                number += 1

    def _give_up(self, record: Record, error: Exception) -> NoReturn:
        event = record.event
        if isinstance(event, RunFailed) and event.cause == DeadlineExceededError.__name__:
            raise _ended_by(event) from error
        self._journal.expected()  # the attempt may have ended here
        raise error


def _reason(refused: Any) -> tuple[str, str] | None:
    """Why a call was refused, as recorded."""
    if not isinstance(refused, ToolCallFailed):
        return None
    return refused.error_type, refused.error_message


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
    """End the evaluation by the limit that ended it when it was live."""
    ended = _ended_by(failed)
    raise ended.error from ended.cause


def expansion_of(event: EvaluationSuperseded) -> VisibilityExpansionRequired:
    wanted = {path: SectionVisibility(shown) for path, shown in event.overrides.items()}
    return VisibilityExpansionRequired(wanted, reason=event.reason)
