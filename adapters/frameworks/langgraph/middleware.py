"""TurnledgerMiddleware: model and tool calls of a LangChain agent as durable steps of its thread.

A checkpointer never sees that a tool has begun. This does: the start is on disk before a tool
runs, so that after a crash nobody repeats a payment silently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ToolCallRequest
from langgraph.config import get_config

from turnledger.adapters.frameworks.langgraph.agent_steps import (
    ModelStep,
    Raises,
    Steps,
    ToolStep,
)
from turnledger.adapters.frameworks.langgraph.open_run import OpenRun
from turnledger.adapters.frameworks.langgraph.saver import TurnledgerSaver
from turnledger.ledger import InvalidInputError, run_id_for
from turnledger.ledger.errors import short_repr
from turnledger.runtime.agent.tools.tool import OnInterrupt
from turnledger.runtime.steps import StepScope, current_scope, off_loop

_POLICIES = ("retry", "fail", "ask")
_DURABILITY = "__pregel_durability"


class TurnledgerMiddleware(AgentMiddleware):
    """Makes the model and tool calls of an agent durable steps of its thread's run.

        saver = TurnledgerSaver("runs.db")
        agent = create_agent(
            model, tools, checkpointer=saver,
            middleware=[TurnledgerMiddleware(saver, on_interrupt={"pay": "ask"})],
        )

    An invocation claims its thread's run, and leaves it completed or failed. After a crash,
    `agent.invoke(None, config)` goes on: what is recorded is answered from the record. Put it
    last, so that other middleware sees each attempt of its own.

    Args:
        saver: The agent's checkpointer.
        on_interrupt: By tool, what happens to a call whose outcome is lost: "retry" runs it again,
            "fail" tells the model that the outcome is unknown, "ask" raises DecisionRequiredError
            until a person has decided. A tool's metadata may have it under that name too.
        raises: Error classes that are raised again as themselves; all others but the built-in
            ones are StepFailedError, live and resumed.
    """

    def __init__(
        self,
        saver: TurnledgerSaver,
        *,
        on_interrupt: Mapping[str, OnInterrupt] | None = None,
        raises: Raises = (),
    ) -> None:
        super().__init__()
        self._saver = saver
        self._policies = dict(on_interrupt or {})
        self._raises = raises
        for name, policy in self._policies.items():
            _check_policy(name, policy)

    # --- hooks ---

    def wrap_model_call(self, request: ModelRequest, handler: Callable[..., Any]) -> Any:
        """Call the model as a step."""
        with self._steps() as steps:
            if steps is None:
                return handler(request)
            step = ModelStep(steps, request, self._saver.serde, self._raises)
            return step.perform(lambda: handler(request))

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[..., Awaitable[Any]]
    ) -> Any:
        """Call the model as a step."""
        opened = await off_loop_in_context(self._opened)
        with self._steps(opened) as steps:
            if steps is None:
                return await handler(request)
            step = ModelStep(steps, request, self._saver.serde, self._raises)
            return await step.aperform(lambda: handler(request))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[..., Any]) -> Any:
        """Call a tool as a step."""
        with self._steps() as steps:
            if steps is None:
                return handler(request)
            return self._tool(steps, request).perform(lambda: handler(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[..., Awaitable[Any]]
    ) -> Any:
        """Call a tool as a step."""
        opened = await off_loop_in_context(self._opened)
        with self._steps(opened) as steps:
            if steps is None:
                return await handler(request)
            return await self._tool(steps, request).aperform(lambda: handler(request))

    def after_agent(self, state: Any, runtime: Any) -> None:
        """The agent came to its end: its run is completed."""
        if current_scope() is not None or not _has_thread():
            return
        root = _root()
        with self._saver.thread(_thread()) as thread:
            opened = thread.unfinished(root)
            if opened is not None:
                opened.close(None, completed=True)

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        """The agent came to its end: its run is completed."""
        await off_loop_in_context(lambda: self.after_agent(state, runtime))

    # --- runs ---

    @contextmanager
    def replay(self, thread_id: str) -> Iterator[None]:
        """Replay a thread: in the block, its graph is invoked as it was, from the beginning.

        No model and no tool is called, and nothing is written. ReplayDivergedError says where the
        code parts from the record.
        """
        opened = OpenRun.replayed(self._saver.ledger, run_id_for(str(thread_id)))
        with self._saver.thread(str(thread_id)) as thread:
            before, thread.opened = thread.opened, opened
        try:
            yield
            opened.compare()
        finally:
            thread.opened = before

    def release(self, thread_id: str) -> None:
        """Give up a thread's run whose graph stopped before its end, without an error.

        That is a graph with `interrupt_before`, or at its recursion limit. Another process can go
        on with it then; this one does so without it.
        """
        with self._saver.thread(str(thread_id)) as thread:
            if thread.opened is not None:
                thread.opened.close(None)

    def _opened(self) -> OpenRun | None:
        """The thread's run; None in a run of the caller's, or without a thread."""
        if current_scope() is not None or not _has_thread():
            return None
        with self._saver.thread(_thread()) as thread:
            return thread.open(_root())

    @contextmanager
    def _steps(self, opened: OpenRun | None = None) -> Iterator[Steps | None]:
        opened = opened or self._opened()
        if opened is not None:
            with opened.busy():
                yield opened
            return
        scope = current_scope()
        if scope is None:
            yield None
            return
        is_saved = _has_thread() and run_id_for(_thread()) == scope.run_id
        yield _StepsOfCaller(scope, is_saved)

    def _tool(self, steps: Steps, request: ToolCallRequest) -> ToolStep:
        name = request.tool_call["name"]
        policy = self._policies.get(name)
        if policy is None:
            metadata = (request.tool.metadata if request.tool is not None else None) or {}
            policy = metadata.get("on_interrupt", "retry")
            _check_policy(name, policy)
        return ToolStep(steps, request, self._saver.serde, policy, self._raises)


@dataclass(frozen=True)
class _StepsOfCaller:
    """The steps of a run that the caller has opened: `with turnledger.run(...)`."""

    scope: StepScope
    is_saved: bool

    def key(self, name: str, base: str) -> str:
        return base


async def off_loop_in_context(work: Callable[[], Any]) -> Any:
    """Do disk work in a thread, with this task's context."""
    context = copy_context()
    return await off_loop(lambda: context.run(work))


def _has_thread() -> bool:
    return bool(get_config()["configurable"].get("thread_id"))


def _thread() -> str:
    return str(get_config()["configurable"]["thread_id"])


def _root() -> str | None:
    """The root checkpoint whose tasks run; None if LangGraph records it at the end only."""
    configurable = get_config()["configurable"]
    if configurable.get(_DURABILITY) == "exit":
        return None
    found: str | None = (configurable.get("checkpoint_map") or {}).get("")
    return found


def _check_policy(name: str, policy: object) -> None:
    if policy not in _POLICIES:
        raise InvalidInputError(
            f"Invalid on_interrupt {short_repr(policy)} of tool {name!r}: expected one of "
            f"{', '.join(_POLICIES)}."
        )
