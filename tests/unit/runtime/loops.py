"""A loop to be interrupted: three steps, each of them a tool, and then an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, ScriptedLoop, task
from turnledger.ledger import Ledger, TokenUsage, new_run_id
from turnledger.runtime import Prompt, Reply, Session, Tool, ToolCall, ToolContext, ToolResult

USAGE = TokenUsage(input_tokens=100, output_tokens=10)


@dataclass(frozen=True)
class Goal:
    """What the loop is asked for."""

    text: str = "tidy up"


@dataclass(frozen=True)
class Step:
    name: str


@dataclass(frozen=True)
class Plan:
    step: str


@dataclass(frozen=True)
class Answer:
    steps: int


def call(call_id: str, tool: str = "step") -> ToolCall:
    return ToolCall(call_id, tool, f'{{"name": "{call_id}"}}')


def asks(*calls: ToolCall) -> Reply:
    return Reply(text="One moment.", tool_calls=calls, usage=USAGE)


ANSWER = Reply(text='{"steps": 3}', usage=USAGE)
REPLIES = [asks(call("c1")), asks(call("c2")), asks(call("c3")), ANSWER]
InTool = Callable[[ToolContext], object]


class Planner(ScriptedLoop[Goal, Answer]):
    """Its tools remember their steps in the session; `in_tool` is called within each."""

    def __init__(
        self,
        replies: Sequence[Any] | Callable[[Any], Reply] = REPLIES,
        *,
        in_tool: InTool = lambda context: None,
        title: str = "Task",
        on_interrupt: Any = "retry",
        **options: Any,
    ) -> None:
        self.in_tool = in_tool
        self.title = title
        self.on_interrupt = on_interrupt
        self.ran: list[str] = []
        self.heard: list[Any] = []
        super().__init__(replies, **options)

    def hears(self, *kinds: type) -> Planner:
        """Keep what the bus tells of these types, in `heard`."""
        for kind in kinds:
            self._bus.subscribe(kind, self.heard.append)
        return self

    def create_session(self) -> Session:
        session = Session(bus=self._bus, tags={"loop": "planner"})
        session.install(Plan)
        return session

    def create_prompt(self, request: Goal) -> Prompt[Answer]:
        tools = [
            Tool[Step, Any](
                name=name,
                description="Do a step.",
                handler=handler,
                on_interrupt=self.on_interrupt,
            )
            for name, handler in (("step", self._step), ("refuse", self._refuse))
        ]
        text = "Please ${text}."
        return task(request, text, tools, name="tests/plan", title=self.title, output=Answer)

    def _step(self, params: Step, *, context: ToolContext) -> ToolResult[Any]:
        self.in_tool(context)
        self.ran.append(context.call_id)
        assert context.session is not None
        context.session[Plan].append(Plan(params.name))
        return ToolResult(f"Did {params.name}.")

    def _refuse(self, params: Step, *, context: ToolContext) -> ToolResult[Any]:
        assert context.session is not None
        context.session[Plan].append(Plan("never"))
        self.in_tool(context)
        raise RuntimeError("not today")


def crash_in(*call_ids: str, error: type[BaseException] = Crash) -> InTool:
    """Die within these calls."""

    def die(context: ToolContext) -> None:
        if context.call_id in call_ids:
            raise error

    return die


@contextmanager
def simulated_crash(loop: Planner, call_id: str) -> Iterator[None]:
    """Within it the loop dies in that call; what comes after is another process, as it were."""
    before, loop.in_tool = loop.in_tool, crash_in(call_id)
    try:
        yield
    except Crash:
        pass
    else:
        raise AssertionError("nothing crashed")
    finally:
        loop.in_tool = before


def interrupted(ledger: Ledger, at: str = "c2", **options: Any) -> UUID:
    """A run that died within a call."""
    run_id = new_run_id()
    with pytest.raises(Crash):
        Planner(ledger=ledger, in_tool=crash_in(at), **options).execute(Goal(), run_id=run_id)
    return run_id


def tags(ledger: Ledger, run_id: UUID) -> list[str]:
    """The tags of a run's events."""
    return [record.tag for record in ledger.read(run_id)]
