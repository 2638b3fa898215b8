"""Answers that are on record: no provider is asked, no handler is called, nothing is waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ledger import (
    EvaluationSuperseded,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    RunFailed,
    SliceEventApplied,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
)
from projections import ToolCallView
from runtime.errors import BudgetExceededError, DeadlineExceededError, EvaluationPhase
from runtime.model_calls import BadReplyError, EmptyReplyError
from runtime.replay_journal import ReplayJournal
from runtime.requests import Reply, Request, ToolCall
from runtime.throttle import FailedAttempt
from runtime.tool_calls import Invocation
from runtime.tool_results import checkpoint
from runtime.tool_runs import prepared_call, refuse, start
from runtime.visibility import SectionVisibility, VisibilityExpansionRequired

if TYPE_CHECKING:
    from runtime.evaluation import Evaluation

_LIMITS = {kind.__name__: kind for kind in (DeadlineExceededError, BudgetExceededError)}


class RecordedAnswers:
    """What models and tools said when the run was live, in the order of the record."""

    def __init__(self, journal: ReplayJournal) -> None:
        self._journal = journal

    def begin(self, evaluation: Evaluation[Any]) -> None:
        self._journal.evaluation = evaluation

    # --- limits ---

    def check_limits(self, evaluation: Evaluation[Any], phase: EvaluationPhase) -> None:
        """Time and tokens were used up where the record says so, and nowhere else."""
        failed = self._failed_by_a_limit()
        if failed is not None and failed.phase in (phase, "budget"):
            _fail(evaluation, failed)

    def _failed_by_a_limit(self) -> RunFailed | None:
        self._journal.take_inputs()
        record = self._journal.recording.peek()
        event = record.event if record is not None else None
        return event if isinstance(event, RunFailed) and event.cause in _LIMITS else None

    # --- the model ---

    def asking(self, evaluation: Evaluation[Any], request: Request) -> _Asking:
        return _Asking(self, self._journal, evaluation)

    # --- tools ---

    def run_tools(self, evaluation: Evaluation[Any], calls: Sequence[ToolCallView]) -> None:
        """Begin the calls as the loop would, and take what came of each as it came."""
        width = min(evaluation.adapter.parallel_tools, len(calls))
        waiting = deque(calls if width > 1 else calls[:1])
        running: dict[str, ToolCallView] = {}
        expansion: VisibilityExpansionRequired | None = None
        while waiting or running:
            if waiting and not self._comes_of(running):
                evaluation.check_limits("tool")
                while waiting and len(running) < width:
                    self._begin(evaluation, waiting.popleft(), running)
            if running:
                expansion = self._take_outcome(evaluation, running) or expansion
            if expansion is not None:
                # Sections are opened when the calls beside it have ended.
                waiting.clear()
                if not self._ends_one_of(running):
                    raise expansion

    def _begin(
        self, evaluation: Evaluation[Any], call: ToolCallView, running: dict[str, ToolCallView]
    ) -> None:
        ready = prepared_call(evaluation, call)
        if isinstance(ready, Invocation):
            refuse(evaluation, call, ready)
        else:
            running[call.call_id] = start(evaluation, call)

    def _comes_of(self, running: dict[str, ToolCallView]) -> bool:
        """Whether what was recorded next came of a call that runs."""
        if not running:
            return False
        event = self._journal.expected().event
        if isinstance(event, ToolCallStarted):
            return False
        call_id = getattr(event, "call_id", None)
        return call_id is None or call_id in running

    def _ends_one_of(self, running: dict[str, ToolCallView]) -> bool:
        """Whether what was recorded next ended a call that runs, or changed something for it."""
        event = self._journal.expected().event
        return getattr(event, "call_id", None) in running

    def _take_outcome(
        self, evaluation: Evaluation[Any], running: dict[str, ToolCallView]
    ) -> VisibilityExpansionRequired | None:
        """Take the record up to the end of one call: what it changed, its result, its message."""
        journal = self._journal
        while True:
            event = journal.expected().event
            match event:
                case SliceEventApplied() | MessageAppended():
                    journal.take()
                case ToolCallCompleted() | ToolCallFailed() if event.call_id in running:
                    journal.take()
                    break
                case EvaluationSuperseded():
                    journal.take()
                    return _expansion(event)
                case _:
                    journal.undecided(f"the outcome of {', '.join(running)}")
        del running[event.call_id]
        said = journal.expected()
        if not isinstance(said.event, MessageAppended):
            journal.undecided(f"the message of {event.call_id}")
        journal.take()
        self._after(evaluation, event)
        return None

    def _after(
        self, evaluation: Evaluation[Any], event: ToolCallCompleted | ToolCallFailed
    ) -> None:
        journal = self._journal
        if isinstance(event, ToolCallCompleted):
            every, done = journal.checkpoint_interval, journal.progress.tool_calls_completed
            if every and done % every == 0:
                journal.add(checkpoint(journal, "post_tool"))
            return
        failed = self._failed_by_a_limit()
        if event.error_type == DeadlineExceededError.__name__ and failed is not None:
            _fail(evaluation, failed)


class _Asking:
    """One turn of a model, as it was."""

    def __init__(
        self, answers: RecordedAnswers, journal: ReplayJournal, evaluation: Evaluation[Any]
    ) -> None:
        self._answers = answers
        self._journal = journal
        self._evaluation = evaluation

    def reply(self, attempt: int) -> Reply:
        journal = self._journal
        said = journal.expected()
        if isinstance(said.event, ModelCallFailed):
            raise _failure(said.event)
        came = journal.recording.peek(1)
        replied = came.event if came is not None else None
        if not isinstance(said.event, MessageAppended) or not isinstance(replied, ModelReplied):
            journal.undecided("a model's reply")
        return _reply(said.event, replied)

    def through(
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
                record = self._journal.recording.peek()
                if record is not None and not isinstance(record.event, ModelCalled):
                    self._give_up(record, error)
                number += 1

    def _give_up(self, record: Record, error: Exception) -> NoReturn:
        event = record.event
        if isinstance(event, RunFailed) and event.cause == DeadlineExceededError.__name__:
            said = _message_of(self._evaluation, event)
            raise DeadlineExceededError(said) from error
        self._journal.expected()  # the attempt may have ended here
        raise error


def _reply(said: MessageAppended, came: ModelReplied) -> Reply:
    message = said.message
    data = came.provider_data if isinstance(came.provider_data, dict) else {}
    return Reply(
        text=message.content,
        tool_calls=tuple(ToolCall(c.call_id, c.name, c.arguments) for c in message.tool_calls),
        usage=came.usage,
        finish_reason=came.finish_reason,
        model=came.model,
        parsed=data.get("parsed"),
        provider_data=data.get("provider"),
    )


class RecordedError(Exception):
    """What a model call raised when it was live."""

    retryable = False
    status_code: int | None = None


_OWN = {kind.__name__: kind for kind in (EmptyReplyError, BadReplyError)}


def _failure(event: ModelCallFailed) -> Exception:
    """An error of the recorded name that says what was recorded."""
    kind: Any = _OWN.get(event.error_type)
    if kind is None:
        kind = type(event.error_type, (RecordedError,), {})
    error: Any = kind(event.error_message.removeprefix(f"{event.error_type}: "))
    error.retryable = event.retryable
    error.status_code = event.status
    return error  # type: ignore[no-any-return]


def _message_of(evaluation: Evaluation[Any], failed: RunFailed) -> str:
    return failed.error_message.removeprefix(f"{evaluation.prompt.label} ({failed.phase}): ")


def _fail(evaluation: Evaluation[Any], failed: RunFailed) -> NoReturn:
    """End the evaluation by the limit that ended it when it was live."""
    phase: Any = failed.phase
    cause = _LIMITS[failed.cause].__new__(_LIMITS[failed.cause])
    raise evaluation.failed(_message_of(evaluation, failed), phase) from cause


def _expansion(event: EvaluationSuperseded) -> VisibilityExpansionRequired:
    wanted = {path: SectionVisibility(shown) for path, shown in event.overrides.items()}
    return VisibilityExpansionRequired(wanted, reason=event.reason)
