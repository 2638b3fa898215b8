"""Running the tools that a model called: their start on disk first, then the handler, then what
came of it, with the session changes that it made.

Handlers may run side by side in threads; only the loop's thread adds to the journal, in the order
in which they end. A handler that is interrupted leaves its call in doubt, never failed.
"""

from __future__ import annotations

import contextvars
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

import msgspec

from ledger import (
    CheckpointReached,
    EvaluationSuperseded,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
)
from ledger.clock import to_datetime
from projections import ToolCallView
from runtime.bus import format_publish_failures
from runtime.bus_events import ToolInvoked
from runtime.errors import DeadlineExceededError, PromptEvaluationError
from runtime.journal import Journal, Known, Pending
from runtime.limits import deadline_provider_payload
from runtime.overlay import Overlay
from runtime.tool_calls import Invocation, call_by_name, failed
from runtime.tools import ToolContext
from runtime.visibility import VisibilityExpansionRequired

if TYPE_CHECKING:
    from runtime.evaluation import Evaluation

UNKNOWN = (
    "The outcome of this call is unknown: the process that ran it was interrupted. It may or may "
    "not have happened. Find out before you try it again."
)


def doubt(evaluation: Evaluation[Any], calls: Sequence[ToolCallView]) -> None:
    """Record that these calls were started and that nobody knows how they ended."""
    evaluation.journal.add(
        *(
            ToolCallInDoubt(
                evaluation_id=call.evaluation_id,
                call_id=call.call_id,
                name=call.name,
                attempt=call.attempts,
                reason="it was started, and nothing was heard of it since",
            )
            for call in calls
        )
    )


def settle(evaluation: Evaluation[Any], calls: Sequence[ToolCallView]) -> None:
    """Record the outcome of calls in doubt: what a person decided, or that it is unknown."""
    for call in calls:
        if call.decision == "completed":
            text = call.decision_text or _json_text(call.decision_value)
            _add_result(evaluation, call, text, value=call.decision_value)
        else:
            decided = call.decision == "failed"
            text = (call.decision_text if decided else UNKNOWN) or "The call failed."
            kind = "DecidedFailed" if decided else "OutcomeUnknown"
            _add_result(evaluation, call, text, error=(kind, text))


def run_tools(evaluation: Evaluation[Any], calls: Sequence[ToolCallView]) -> None:
    """Run calls, as many at a time as the adapter allows."""
    width = min(evaluation.adapter.parallel_tools, len(calls))
    if width == 1 and not _may_take_long(evaluation, calls[0]):
        _run_here(evaluation, calls[0])
    else:
        _SideBySide(evaluation, calls, width).run()


def _may_take_long(evaluation: Evaluation[Any], call: ToolCallView) -> bool:
    tool = evaluation.tools.get(call.name)
    return tool is not None and tool.timeout is not None


# --- one call ------------------------------------------------------------------------


def _start(evaluation: Evaluation[Any], call: ToolCallView) -> None:
    evaluation.journal.add(
        ToolCallStarted(
            evaluation_id=call.evaluation_id,
            call_id=call.call_id,
            name=call.name,
            attempt=call.attempts + 1,
        )
    )


def _context(evaluation: Evaluation[Any], call: ToolCallView) -> ToolContext:
    return ToolContext(
        call_id=call.call_id,
        is_resume=call.attempts > 0 or call.call_id in evaluation.calls_before,
        prompt=evaluation.prompt,
        rendered_prompt=evaluation.rendered,
        adapter=evaluation.adapter,
        session=evaluation.session,
        event_bus=evaluation.bus,
        deadline=evaluation.deadline,
        resources=evaluation.resources.resources if evaluation.resources else None,
    )


def _handled(evaluation: Evaluation[Any], call: ToolCallView, overlay: Overlay) -> Invocation:
    """Call the handler; what it changes in the session goes to the overlay."""
    with evaluation.session.scope(overlay):
        return call_by_name(evaluation.tools, call.name, call.arguments, _context(evaluation, call))


def _run_here(evaluation: Evaluation[Any], call: ToolCallView) -> None:
    evaluation.check_limits("tool")
    _start(evaluation, call)
    evaluation.journal.commit()
    overlay = Overlay(evaluation.journal, call.call_id)
    try:
        invocation = _handled(evaluation, call, overlay)
    except Exception as error:
        _ended_by(evaluation, call, error)
    else:
        _record(evaluation, call, invocation, overlay)


def _ended_by(evaluation: Evaluation[Any], call: ToolCallView, error: Exception) -> None:
    """What the handler raised to end more than its own call."""
    if isinstance(error, VisibilityExpansionRequired):
        wanted = {path: shown.value for path, shown in error.requested_overrides.items()}
        evaluation.journal.add(
            EvaluationSuperseded(
                evaluation_id=call.evaluation_id, reason=error.reason, overrides=wanted
            )
        )
        raise error
    assert isinstance(error, DeadlineExceededError)
    text = f"Tool {call.name!r} failed: {error}"
    _add_result(evaluation, call, text, error=(type(error).__name__, str(error)))
    evaluation.journal.commit()
    payload = deadline_provider_payload(evaluation.deadline)
    raise evaluation.failed(str(error), "tool", payload) from error


def _record(
    evaluation: Evaluation[Any], call: ToolCallView, invocation: Invocation, overlay: Overlay
) -> None:
    """Tell listeners, who may object, and add the result with what the tool changed."""
    succeeded = invocation.result.success
    event = ToolInvoked(
        name=call.name,
        params=invocation.params,
        result=invocation.result,
        call_id=call.call_id,
        session_id=evaluation.session.session_id,
        prompt_name=evaluation.prompt.label,
        adapter=evaluation.adapter.name,
        rendered_output=invocation.text,
    )
    with evaluation.session.scope(overlay):
        told = evaluation.bus.publish(event)
    evaluation.invoked.append(event)
    if not (told.ok and succeeded):
        _put_back(evaluation)
    if not told.ok:
        # The handler ran, so the call is completed; what it changed did not happen.
        _add_result(evaluation, call, format_publish_failures(told.errors), value=None, vetoed=True)
    elif succeeded:
        evaluation.journal.add(*overlay.close(), blobs=overlay.blobs)
        if evaluation.resources is not None:
            evaluation.resources.record(evaluation.journal)
        _add_result(evaluation, call, invocation.text, value=invocation.value)
    else:
        error = (invocation.error_type or "ToolFailed", invocation.error_message)
        _add_result(evaluation, call, invocation.text, error=error)
    overlay.close()


def _put_back(evaluation: Evaluation[Any]) -> None:
    """Undo what a tool that failed did to the resources, where it ran alone."""
    if evaluation.resources is not None and evaluation.adapter.parallel_tools == 1:
        journal = evaluation.journal
        evaluation.resources.restore_recorded(journal.known, journal.blob)


def _add_result(
    evaluation: Evaluation[Any],
    call: ToolCallView,
    text: str,
    *,
    value: Any = None,
    error: tuple[str, str] | None = None,
    vetoed: bool = False,
) -> None:
    """The result, its message and perhaps a checkpoint; they commit with what comes next."""
    message = evaluation.message(
        "tool",
        text,
        tool_call_id=call.call_id,
        tool_name=call.name,
        is_error=error is not None or vetoed,
    )
    now = evaluation.journal.state.tools.get(call.call_id, call.evaluation_id) or call
    common: dict[str, Any] = {
        "evaluation_id": call.evaluation_id,
        "call_id": call.call_id,
        "name": call.name,
        "message_id": message.message.message_id,
        "attempt": max(now.attempts, 1),
    }
    if error is None:
        evaluation.journal.add(ToolCallCompleted(value=value, **common), message)
        every = evaluation.journal.checkpoint_interval
        if every and evaluation.journal.progress.tool_calls_completed % every == 0:
            evaluation.journal.add(checkpoint(evaluation.journal, "post_tool"))
    else:
        kind, said = error
        evaluation.journal.add(
            ToolCallFailed(error_type=kind, error_message=said, **common), message
        )


def checkpoint(journal: Journal, phase: Any) -> Pending:
    """A checkpoint of whatever comes before it, made when that is known."""
    now = to_datetime(journal.clock.micros())

    def made(known: Known) -> CheckpointReached:
        return CheckpointReached(
            phase=phase,
            tool_calls_completed=known.progress.tool_calls_completed,
            state_digest=known.run.state_digest,
            outcome_digest=known.run.outcome_digest,
            created_at=now,
        )

    return made


def _json_text(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


# --- several at once -----------------------------------------------------------------


class _SideBySide:
    """Calls in threads. Each has its own durable start, and its result when it ends."""

    def __init__(
        self, evaluation: Evaluation[Any], calls: Sequence[ToolCallView], width: int
    ) -> None:
        self._evaluation = evaluation
        self._waiting = deque(calls)
        self._width = width
        self._running: dict[Future[Invocation], tuple[ToolCallView, Overlay, float | None]] = {}
        self._ending: Exception | None = None

    def run(self) -> None:
        while self._waiting or self._running:
            begun = self._begin_more()
            self._evaluation.journal.commit()
            for call, overlay in begun:
                self._submit(call, overlay)
            self._take_ended()
        if self._ending is not None:
            raise self._ending

    def _begin_more(self) -> list[tuple[ToolCallView, Overlay]]:
        begun: list[tuple[ToolCallView, Overlay]] = []
        if self._ending is None and self._waiting:
            try:
                self._evaluation.check_limits("tool")
            except PromptEvaluationError as error:
                self._ending = error
        if self._ending is not None:
            self._waiting.clear()
        while self._waiting and len(self._running) + len(begun) < self._width:
            call = self._waiting.popleft()
            _start(self._evaluation, call)
            begun.append((call, Overlay(self._evaluation.journal, call.call_id)))
        return begun

    def _submit(self, call: ToolCallView, overlay: Overlay) -> None:
        tool = self._evaluation.tools.get(call.name)
        limit = tool.timeout if tool is not None else None
        ends = None if limit is None else time.monotonic() + limit
        future: Future[Invocation] = Future()
        work = partial(_handled, self._evaluation, call, overlay)
        run = partial(contextvars.copy_context().run, _into, future, work)
        # A daemon: a handler that never answers must not keep the program from ending.
        Thread(target=run, name=f"turnledger-tool-{call.name}", daemon=True).start()
        self._running[future] = (call, overlay, ends)

    def _take_ended(self) -> None:
        if not self._running:
            return
        ends = [at for _, _, at in self._running.values() if at is not None]
        patience = max(min(ends) - time.monotonic(), 0) if ends else None
        done, _ = wait(self._running, patience, FIRST_COMPLETED)
        for future in [one for one in self._running if one in done]:
            call, overlay, _ = self._running.pop(future)
            self._ended(future, call, overlay)
        for future, (call, overlay, at) in list(self._running.items()):
            if at is not None and at <= time.monotonic() and not future.done():
                del self._running[future]
                self._timed_out(call, overlay)

    def _ended(self, future: Future[Invocation], call: ToolCallView, overlay: Overlay) -> None:
        try:
            invocation = future.result()
        except Exception as error:
            overlay.close()
            try:
                _ended_by(self._evaluation, call, error)
            except Exception as ending:
                # The others are still running: what comes of them is recorded first.
                self._ending = self._ending or ending
        else:
            _record(self._evaluation, call, invocation, overlay)

    def _timed_out(self, call: ToolCallView, overlay: Overlay) -> None:
        tool = self._evaluation.tools.get(call.name)
        assert tool is not None
        text = (
            f"it did not answer within {tool.timeout:g} seconds. It may still be at work: "
            "whether it happens is unknown"
        )
        _record(self._evaluation, call, failed(call.name, None, "ToolTimeout", text), overlay)


def _into(future: Future[Invocation], work: Callable[[], Invocation]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
