"""Deadlines and budgets in an evaluation: where they are checked, and what comes of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.agent import says
from tests.unit.runtime.clocks import BEGIN, StandingClock
from tests.unit.runtime.evaluations import ADD, Add, Scripted, Sum, events, prompt_of, tool
from turnledger.ledger import ModelCalled, TokenUsage
from turnledger.runtime import (
    Budget,
    BudgetTracker,
    Deadline,
    PromptEvaluationError,
    Session,
    ToolContext,
)
from turnledger.runtime.agent.prompts.prompt import Prompt


def _late(clock: StandingClock, seconds: int) -> Deadline:
    return Deadline(BEGIN + timedelta(seconds=seconds), clock=clock)


@pytest.mark.parametrize(
    ("when", "phase", "sent"),
    [("begin", "request", 0), ("reply", "tool", 1), ("end", "response", 1)],
)
def test_the_deadline_is_checked_before_each_step(when: str, phase: str, sent: int) -> None:
    """S4-12: before a request, a tool and finalising, with the ISO time; the run is resumable."""
    clock, session = StandingClock(), Session()
    ran: list[int] = []

    def run(params: Add, *, context: ToolContext) -> str:
        ran.append(params.n)
        return "ok"

    def pass_time(*sending: Any) -> None:
        clock.advance(timedelta(seconds=60))

    if when == "begin":
        pass_time()
    script = [says("now")] if when == "end" else [ADD, says("4")]
    adapter = Scripted(script, on_send=pass_time)
    with pytest.raises(PromptEvaluationError, match="passed") as caught:
        adapter.evaluate(prompt_of(tool(run)), session=session, deadline=_late(clock, 30))
    assert (caught.value.phase, len(adapter.requests), ran) == (phase, sent, [])
    assert caught.value.provider_payload == {"deadline_expires_at": "2025-03-01T12:00:30+00:00"}
    again = Scripted(script, on_send=pass_time)
    answer = again.evaluate(prompt_of(tool(run)), session=session, resume=True)
    assert answer.text == ("now" if when == "end" else "4")


def test_evaluates_deadline_wins_over_the_prompts() -> None:
    """S4-12: in both directions, and tools are told the one that counts."""
    clock, told = StandingClock(), []

    def look(params: Add, *, context: ToolContext) -> str:
        told.append(context.deadline)
        return "ok"

    early, late = _late(clock, -1), _late(clock, 60)
    prompt = prompt_of(tool(look))
    adapter = Scripted([ADD, says("4")])
    with_early = Prompt(prompt.template, deadline=early)
    adapter.evaluate(with_early, session=Session(), deadline=late)
    assert told == [late]
    with pytest.raises(PromptEvaluationError, match="passed"):
        adapter.evaluate(with_early, session=Session())
    with pytest.raises(PromptEvaluationError, match="passed"):
        adapter.evaluate(Prompt(prompt.template, deadline=late), session=Session(), deadline=early)


def test_a_budget_that_is_used_up_ends_the_evaluation() -> None:
    """S4-3: in the phase "budget", and it can be resumed with a larger one."""
    session, adapter = Session(), Scripted([ADD, says("4")])
    small = BudgetTracker(Budget(max_total_tokens=13))
    with pytest.raises(PromptEvaluationError, match="max_total_tokens") as caught:
        adapter.evaluate(prompt_of(tool()), session=session, budget_tracker=small)
    assert caught.value.phase == "budget"
    assert session[Sum].all() == (Sum(2),)
    large = BudgetTracker(Budget(max_total_tokens=100), TokenUsage(10, 3))
    answer = adapter.evaluate(prompt_of(tool()), session=session, budget_tracker=large, resume=True)
    assert (answer.text, len(events(session, ModelCalled))) == ("4", 2)
