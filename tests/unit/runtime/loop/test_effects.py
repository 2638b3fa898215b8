"""Effects: an evaluation runs by those that it is given, and does not know which."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.runtime.evaluations import Add, Scripted, prompt_of, tool
from tests.unit.runtime.loops import Planner
from turnledger.ledger import Ledger
from turnledger.projections import ToolCallView
from turnledger.runtime import Reply, Session, ToolCall, ToolContext
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.errors import EvaluationPhase
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.evaluation import evaluate_with
from turnledger.runtime.loop.perform.record_result import add_result


class _Turn:
    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def reply(self, attempt: int) -> Reply:
        return self._reply

    def run_attempts(self, attempt: Callable[[int], None], failed: Any) -> None:
        attempt(1)


class Canned:
    """Effects that reach neither a provider nor a handler, and note what they were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def begin(self, context: EvaluationContext[Any]) -> EvaluationContext[Any]:
        self.asked.append("begin")
        return context

    def check_limits(
        self, context: EvaluationContext[Any], phase: EvaluationPhase, *, reserve: int = 0
    ) -> None:
        self.asked.append(phase)

    def model_turn(self, context: EvaluationContext[Any], request: Any) -> _Turn:
        self.asked.append(f"turn {request.turn}")
        call = ToolCall("c1", "add", '{"a": 1, "b": 2}')
        return _Turn(Reply(tool_calls=(call,)) if request.turn == 1 else Reply(text="3"))

    def run_tools(self, context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
        self.asked += [call.call_id for call in calls]
        for call in calls:
            add_result(context, call, "three")


def test_an_evaluation_runs_by_the_effects_that_it_is_given() -> None:
    """The same loop and the same record, and neither the adapter nor the handler is called."""

    def never(params: Add, *, context: ToolContext) -> str:
        raise AssertionError("a handler was called")

    effects, adapter, session = Canned(), Scripted([]), Session()
    response = evaluate_with(effects, adapter)(
        prompt_of(tool(never)),
        bus=session.bus,
        execution_state=ExecutionState(session=session),
        deadline=None,
        budget_tracker=None,
        resume=False,
    )
    assert response.text == "3"
    assert adapter.requests == []
    assert effects.asked == ["begin", "request", "turn 1", "c1", "request", "turn 2", "response"]
    (call,) = session.state.tools.calls
    assert (call.status, call.result) == ("completed", "three")


def test_what_a_loop_hands_in_is_a_value() -> None:
    """It can't be changed; a replay makes another one of it."""
    with Ledger.open("memory://") as ledger:
        host = Planner(ledger=ledger, resources={"shelf": object()}).loop_host
        with pytest.raises(dataclasses.FrozenInstanceError):
            host.ledger = None  # type: ignore[misc]
        assert list(host.resources()) == ["shelf"]
        assert dataclasses.replace(host, resources=dict).resources() == {}


def test_resources_are_given_or_made_for_each_run() -> None:
    """A mapping is every run's; a function is called for each, and may give none."""
    made: list[int] = []

    def make() -> dict[str, Any] | None:
        made.append(len(made))
        return {"number": made[-1]} if made[-1] else None

    host = Planner(resources=make).loop_host
    assert [host.resources(), host.resources()] == [{}, {"number": 1}]
    assert Planner().loop_host.resources() == {}
