"""The tool calls of a turn: one after the other, or in parallel with time-outs.

Parallel handlers run in threads of their own. Only the loop's thread adds to the journal, in the
order in which they end.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from turnledger.ledger import ANY, ToolCallDecided
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.projections import ToolCallView
from turnledger.runtime.agent.run_control import (
    RunCancelled,
    check_cancelled,
    current_run,
    in_thread,
    wait_for_one,
)
from turnledger.runtime.agent.tools.call import Invocation, PreparedCall, failed
from turnledger.runtime.agent.tools.tool import Tool
from turnledger.runtime.agent.visibility import VisibilityExpansionRequired
from turnledger.runtime.errors import PromptEvaluationError
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.effects import Effects
from turnledger.runtime.loop.perform.late_result import LateResult
from turnledger.runtime.loop.perform.record_result import record
from turnledger.runtime.loop.perform.run_tool import (
    ended_by,
    handled,
    prepared_call,
    refuse,
    run_here,
    start,
)
from turnledger.runtime.loop.perform.tool_in_doubt import doubt
from turnledger.runtime.session.overlay import Overlay

NEVER_BEGAN = "the run itself, cancelled before the handler began"
logger = logger_of("turnledger.tools")


def run_tools(
    context: EvaluationContext[Any], effects: Effects, calls: Sequence[ToolCallView]
) -> None:
    """Run calls, as many at a time as the adapter allows."""
    width = min(context.adapter.parallel_tools, len(calls))
    # A handler in this thread could be neither timed nor left behind.
    if width == 1 and not _may_take_long(context, calls[0]) and current_run() is None:
        run_here(context, effects, calls[0])
    else:
        ParallelCalls(context, effects, calls, width).run()


def _may_take_long(context: EvaluationContext[Any], call: ToolCallView) -> bool:
    tool = context.tools.get(call.name)
    return tool is not None and _timeout(context, tool) is not None


def _timeout(context: EvaluationContext[Any], tool: Tool[Any, Any]) -> float | None:
    """The tool's own time-out, else the loop's."""
    return tool.timeout if tool.timeout is not None else context.journal.tool_timeout


class _Running(NamedTuple):
    """A call whose handler runs, and when its time is up."""

    call: ToolCallView
    ready: PreparedCall
    overlay: Overlay
    ends: float | None


class ParallelCalls:
    """Calls in threads. The start of each is on disk first, its result when it ends."""

    def __init__(
        self,
        context: EvaluationContext[Any],
        effects: Effects,
        calls: Sequence[ToolCallView],
        width: int,
    ) -> None:
        self._context = context
        self._effects = effects
        self._waiting = deque(calls)
        self._width = width
        self._running: dict[Future[Invocation], _Running] = {}
        self._ending: BaseException | None = None

    def run(self) -> None:
        try:
            while self._waiting or self._running:
                begun = self._begin_more()
                self._context.journal.commit()
                self._submit_all(begun)
                self._take_ended()
        except BaseException:
            # Interrupted: what has ended is recorded, as one that ended is not in doubt.
            for future in [one for one in self._running if one.done()]:
                running = self._running.pop(future)
                with suppress(BaseException):
                    self._ended(future, running.call, running.overlay)
            raise
        finally:
            # Handlers that still run can change nothing any more, others never begin.
            for future, one in self._running.items():
                one.overlay.close()
                if future.cancel():
                    _never_began(self._context, one.call)
        if self._ending is None:
            return
        if not isinstance(self._ending, VisibilityExpansionRequired):
            self._context.journal.commit()
        raise self._ending

    def _begin_more(self) -> list[tuple[ToolCallView, PreparedCall, Overlay]]:
        begun: list[tuple[ToolCallView, PreparedCall, Overlay]] = []
        if self._ending is None and self._waiting:
            check_cancelled()
            try:
                self._effects.check_limits(self._context, "tool")
            except PromptEvaluationError as error:
                self._ending = error
        if self._ending is not None:
            self._waiting.clear()
        while self._waiting and len(self._running) + len(begun) < self._width:
            call = self._waiting.popleft()
            ready = prepared_call(self._context, call)
            if isinstance(ready, Invocation):
                refuse(self._context, call, ready)
                continue
            call = start(self._context, call)
            begun.append((call, ready, Overlay(self._context.journal, call.call_id)))
        return begun

    def _submit_all(self, begun: list[tuple[ToolCallView, PreparedCall, Overlay]]) -> None:
        try:
            check_cancelled()
        except RunCancelled:
            for call, _, _ in begun:
                _never_began(self._context, call)
            raise
        for one in begun:
            self._submit(*one)

    def _submit(self, call: ToolCallView, ready: PreparedCall, overlay: Overlay) -> None:
        limit = _timeout(self._context, ready.tool)
        ends = None if limit is None else time.monotonic() + limit
        work = partial(handled, self._context, call, ready, overlay)
        future = in_thread(work, f"turnledger-tool-{call.name}")
        self._running[future] = _Running(call, ready, overlay, ends)

    def _take_ended(self) -> None:
        if not self._running:
            return
        ends = [one.ends for one in self._running.values() if one.ends is not None]
        patience = max(min(ends) - time.monotonic(), 0) if ends else None
        done = wait_for_one(self._running, patience)
        for future in [one for one in self._running if one in done]:
            running = self._running.pop(future)
            self._ended(future, running.call, running.overlay)
        for future, running in list(self._running.items()):
            late = running.ends is not None and running.ends <= time.monotonic()
            if late and not future.done():
                del self._running[future]
                self._timed_out(future, running)

    def _ended(self, future: Future[Invocation], call: ToolCallView, overlay: Overlay) -> None:
        # Other calls still run: they are recorded before this one ends the evaluation.
        try:
            invocation = future.result()
        except Exception as error:
            overlay.close()
            try:
                ended_by(self._context, call, error)
            except Exception as ending:
                self._ending = self._ending or ending
        except BaseException as interrupt:
            # KeyboardInterrupt and the like, raised by the handler: its call stays in doubt.
            overlay.close()
            if not future.done():
                raise
            self._ending = interrupt
        else:
            record(self._context, call, invocation, overlay)

    def _timed_out(self, future: Future[Invocation], running: _Running) -> None:
        """Record that a call ran out of time.

        A tool that may run again has failed. The outcome of any other is unknown, as after a
        crash: its policy decides, and a run that waits takes what the handler returns after all.
        """
        context, call, ready = self._context, running.call, running.ready
        late = f"it did not answer within {_timeout(context, ready.tool):g} seconds"
        if ready.tool.on_interrupt == "retry":
            text = f"{late}. It may still be at work: whether it happens is unknown"
            outcome = failed(call.name, ready.params, "ToolTimeout", text)
            record(context, call, outcome, running.overlay)
            return
        doubt(context, [call], reason=f"{late}, and may still be at work")
        future.add_done_callback(LateResult(context, call, running.overlay))


def _never_began(context: EvaluationContext[Any], call: ToolCallView) -> None:
    """Record of a call whose start is on disk that its handler was not called: nobody need ask.

    It is appended as a person's decision is, beside what the loop commits.
    """
    decision = ToolCallDecided(
        call_id=call.call_id, attempt=call.attempts, decision="retry", decided_by=NEVER_BEGAN
    )
    try:
        context.journal.ledger.append(context.journal.run_id, decision, ANY)
    except Exception as error:  # then the call is in doubt, which is true of it as well
        logger.warning("call %s of %s never began: %s", call.call_id, call.name, error)
