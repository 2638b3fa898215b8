"""Budgets and deadlines of a loop: whose counts, and what is left of them after a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.agent import Crash
from tests.unit.runtime.clocks import BEGIN, StandingClock
from tests.unit.runtime.loops import (
    ANSWER,
    Answer,
    Goal,
    Planner,
    asks,
    call,
    simulated_crash,
)
from turnledger.ledger import Ledger
from turnledger.projections import state_at
from turnledger.runtime import (
    Budget,
    Deadline,
    FilesystemCheckpointBackend,
    MainLoopConfig,
    MainLoopFailed,
    MainLoopRequest,
    PromptEvaluationError,
    RecoveryConfig,
    Reply,
    ToolContext,
    TurnLimitExceededError,
)

MINUTE = timedelta(minutes=1)


@pytest.fixture(params=["ledger", "files"])
def new_loop(
    request: pytest.FixtureRequest, tmp_path: Path, clock: StandingClock
) -> Iterator[Callable[..., Planner]]:
    """Makes loops that recover each other's runs, on one clock."""
    with Ledger.open("memory://", clock=clock) as ledger:

        def new(**options: Any) -> Planner:
            if request.param == "ledger":
                return Planner(ledger=ledger, clock=clock, **options)
            backend = FilesystemCheckpointBackend(tmp_path)
            return Planner(recovery=RecoveryConfig(backend=backend), clock=clock, **options)

        yield new


def at_each_tool(clock: StandingClock, takes: timedelta, dies_in: str = "") -> Any:
    """Each tool takes a while; in one of them the process dies afterwards."""

    def work(context: ToolContext) -> None:
        clock.advance(takes)
        if context.call_id == dies_in:
            raise Crash

    return work


def test_the_requests_limits_count_before_the_configs() -> None:
    """S2-7: budget and deadline of a request override those of the config."""
    strict = MainLoopConfig(
        deadline=Deadline(expires_at=datetime(2020, 1, 1, tzinfo=UTC)),
        budget=Budget(max_total_tokens=1),
    )
    later = Deadline(expires_at=datetime(2100, 1, 1, tzinfo=UTC))
    loop = Planner(config=strict).hears(MainLoopFailed)
    generous = Budget(max_total_tokens=10_000)
    loop._bus.publish(MainLoopRequest(request=Goal(), budget=generous, deadline=later))
    assert loop.heard == []
    for given in ({"budget": generous}, {"deadline": later}):
        loop._bus.publish(MainLoopRequest(request=Goal(), **given))
    assert [one.error.phase for one in loop.heard] == ["request", "budget"]


def test_the_limits_are_recorded() -> None:
    """X22: a run's deadline, time limit and budget are in its ledger."""
    with Ledger.open("memory://") as ledger:
        config = MainLoopConfig(deadline=timedelta(minutes=5), budget=Budget(max_total_tokens=5000))
        Planner(ledger=ledger, config=config).execute(Goal())
        (info,) = ledger.runs()
        summary = state_at(ledger, info.run_id).summary
        assert (summary.deadline, summary.time_limit) == (None, 300.0)
        assert summary.budget is not None
        assert summary.budget.max_total_tokens == 5000


def test_every_execution_has_a_fresh_budget(new_loop: Callable[..., Planner]) -> None:
    """S2-7: what one execution used is not held against the next."""
    config = MainLoopConfig(budget=Budget(max_total_tokens=440))
    loop = new_loop(config=config)
    for _ in range(3):
        assert loop.execute(Goal())[0].output == Answer(3)


def test_a_used_budget_stays_used_after_a_restart(
    new_loop: Callable[..., Planner], clock: StandingClock
) -> None:
    """X22: the recovered run goes on with what was left, not with a full budget."""
    run_id = uuid4()
    config = MainLoopConfig(budget=Budget(max_total_tokens=435))  # four replies use 440
    with pytest.raises(Crash):
        new_loop(config=config, in_tool=at_each_tool(clock, MINUTE, "c2")).execute(
            Goal(), run_id=run_id
        )
    with pytest.raises(Crash):
        new_loop(in_tool=at_each_tool(clock, MINUTE, "c3")).recover(run_id)
    with pytest.raises(PromptEvaluationError) as stopped:
        new_loop().recover(run_id)
    assert stopped.value.phase == "budget"


def test_an_absolute_deadline_stays_absolute(
    new_loop: Callable[..., Planner], clock: StandingClock
) -> None:
    """X22: it passes while the run lies idle; `recover(deadline=)` takes its place."""
    run_id = uuid4()
    config = MainLoopConfig(deadline=Deadline(expires_at=BEGIN + 5 * MINUTE, clock=clock))
    loop = new_loop(config=config, in_tool=at_each_tool(clock, MINUTE, "c2"))
    with pytest.raises(Crash):
        loop.execute(Goal(), run_id=run_id)
    clock.advance(10 * MINUTE)
    with pytest.raises(PromptEvaluationError) as stopped:
        new_loop().recover(run_id)
    assert stopped.value.provider_payload == {
        "deadline_expires_at": (BEGIN + 5 * MINUTE).isoformat()
    }
    later = Deadline.after(10 * MINUTE, clock=clock)
    again = new_loop(in_tool=at_each_tool(clock, MINUTE))
    assert again.recover(run_id, deadline=later)[0].output == Answer(3)


def test_a_time_limit_counts_running_time(
    new_loop: Callable[..., Planner], clock: StandingClock
) -> None:
    """X22: idle time is not counted, and what ran before a restart is not forgotten."""
    run_id, config = uuid4(), MainLoopConfig(deadline=5 * MINUTE)
    loop = new_loop(config=config, in_tool=at_each_tool(clock, 2 * MINUTE, "c2"))
    with pytest.raises(Crash):
        loop.execute(Goal(), run_id=run_id)  # c1 ran for two minutes, and is recorded
    clock.advance(60 * MINUTE)
    with pytest.raises(Crash):
        new_loop(in_tool=at_each_tool(clock, 2 * MINUTE, "c3")).recover(run_id)
    clock.advance(60 * MINUTE)
    with pytest.raises(PromptEvaluationError) as stopped:
        new_loop(in_tool=at_each_tool(clock, 2 * MINUTE)).recover(run_id)
    assert "deadline_expires_at" in (stopped.value.provider_payload or {})


def test_a_time_limit_goes_on_with_what_remained(
    new_loop: Callable[..., Planner], clock: StandingClock
) -> None:
    """X22: what was left of it when the process died is enough for the rest."""
    run_id, config = uuid4(), MainLoopConfig(deadline=5 * MINUTE)
    loop = new_loop(config=config, in_tool=at_each_tool(clock, MINUTE, "c2"))
    with pytest.raises(Crash):
        loop.execute(Goal(), run_id=run_id)
    clock.advance(600 * MINUTE)
    again = new_loop(in_tool=at_each_tool(clock, MINUTE))
    assert again.recover(run_id)[0].output == Answer(3)


def test_a_time_limit_for_the_recovery_begins_with_it(
    new_loop: Callable[..., Planner], clock: StandingClock
) -> None:
    """X22: `recover(deadline=timedelta)` is that long from now, whatever was used before."""
    run_id, config = uuid4(), MainLoopConfig(deadline=5 * MINUTE)
    loop = new_loop(config=config, in_tool=at_each_tool(clock, 2 * MINUTE, "c3"))
    with pytest.raises(Crash):
        loop.execute(Goal(), run_id=run_id)
    again = new_loop(in_tool=at_each_tool(clock, MINUTE))
    assert again.recover(run_id, deadline=2 * MINUTE)[0].output == Answer(3)


def test_turns_count_over_all_attempts(new_loop: Callable[..., Planner]) -> None:
    """With a ledger or with checkpoint files alone: the limit goes on, and can be raised."""

    def for_ever(request: Any) -> Reply:
        return asks(call(f"c{request.turn}")) if request.turn < 5 else ANSWER

    loop, run_id = new_loop(replies=for_ever, config=MainLoopConfig(max_turns=3)), uuid4()
    with simulated_crash(loop, "c2"):
        loop.execute(Goal(), run_id=run_id)
    with pytest.raises(PromptEvaluationError, match=r"max_turns is 3, .* 3 times"):
        loop.recover(run_id)
    for _ in range(5):
        with pytest.raises(TurnLimitExceededError, match=r"max_turns is 3, .* 3 times"):
            loop.recover(run_id)
    assert loop.recover(run_id, max_turns=5)[0].output == Answer(3)
    assert loop.ran == ["c1", "c2", "c3", "c4"]
