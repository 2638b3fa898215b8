"""Recovering a run more than once: waiting, parking, and what the bus hears of it."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from tests.agent import Crash
from tests.unit.runtime.loops import (
    ANSWER,
    Answer,
    Goal,
    Planner,
    asks,
    call,
    crash_in,
    interrupted,
    simulated_crash,
)
from turnledger.ledger import ANY, Ledger, ToolCallDecided, new_run_id
from turnledger.projections import state_at
from turnledger.runtime import (
    CheckpointNotFoundError,
    CheckpointPhase,
    CheckpointSaved,
    Deadline,
    DecisionRequiredError,
    MainLoopConfig,
    PromptMismatch,
    RecoveryCompleted,
    RecoveryConfig,
    RecoveryError,
    RecoveryFailed,
    RecoveryStarted,
)

# --- waiting and parking ---------------------------------------------------------------


def test_a_run_that_waits_for_a_person_is_not_listed(ledger: Ledger) -> None:
    """X7: until a person decides; then it goes on with the decision, and runs nothing twice."""
    run_id = interrupted(ledger, on_interrupt="ask")
    loop = Planner(ledger=ledger, on_interrupt="ask")
    for _ in range(5):
        with pytest.raises(DecisionRequiredError) as refused:
            loop.recover(run_id)
        assert refused.value.call_ids == ("c2",)
        assert loop.list_recoverable() == []
    decision = ToolCallDecided(call_id="c2", decision="completed", value={"done": True})
    ledger.append(run_id, decision, ANY)
    (found,) = loop.list_recoverable()
    assert loop.recover(found)[0].output == Answer(3)
    assert loop.ran == ["c3"]


def test_attempts_that_get_nowhere_park_the_run(ledger: Ledger) -> None:
    """S2-15, X10: after max_attempts in a row it is parked, and not listed any more."""
    run_id = interrupted(ledger, "c2")
    loop = Planner(ledger=ledger, in_tool=crash_in("c2"), recovery=RecoveryConfig(max_attempts=2))
    for _ in range(2):
        with pytest.raises(Crash):
            loop.recover(run_id)
    assert [one.run_id for one in loop.list_recoverable()] == [run_id]
    for _ in range(2):
        with pytest.raises(RecoveryError, match="parked"):
            loop.recover(run_id)
    assert (ledger.run(run_id).status, loop.list_recoverable()) == ("parked", [])
    assert ledger.worker_of(run_id) is None
    loop.abandon(run_id)
    assert ledger.run(run_id).status == "abandoned"


def test_attempts_that_get_somewhere_do_not_count(ledger: Ledger) -> None:
    """X10: a run that dies often, each time one step further, is not parked."""
    replies = [asks(call(f"c{n}", "refuse" if n % 2 else "step")) for n in range(8)]
    run_id = interrupted(ledger, "c0", replies=[*replies, ANSWER])
    once = RecoveryConfig(max_attempts=1)
    for number in range(1, 8):
        loop = Planner(
            [*replies, ANSWER], ledger=ledger, in_tool=crash_in(f"c{number}"), recovery=once
        )
        with pytest.raises(Crash):
            loop.recover(run_id)
    assert Planner([*replies, ANSWER], ledger=ledger, recovery=once).recover(run_id)


def test_a_failed_run_is_recovered_or_parked(ledger: Ledger) -> None:
    """X10: a run that failed is listed and tried again, but not for ever."""
    outage = Planner(replies=[asks(call("c1")), ConnectionError("away")], ledger=ledger)
    run_id = new_run_id()
    with pytest.raises(Exception, match="away"):
        outage.execute(Goal(), run_id=run_id)
    (found,) = outage.list_recoverable()
    assert (found.phase, ledger.run(run_id).status) == (CheckpointPhase.FAILED, "failed")
    for _ in range(3):
        with pytest.raises(Exception, match="away"):
            outage.recover(run_id)
    with pytest.raises(RecoveryError, match="parked"):
        outage.recover(run_id)


# --- events ----------------------------------------------------------------------------


def test_the_bus_hears_of_checkpoints(ledger: Ledger) -> None:
    """S2-14, S2-21: CheckpointSaved for each phase, with the event's id as checkpoint_id."""
    run_id = new_run_id()
    loop = Planner([asks(call("c1"), call("c2", "refuse")), ANSWER], ledger=ledger)
    loop.hears(CheckpointSaved).execute(Goal(), run_id=run_id)
    assert [(one.phase.value, one.tool_calls_completed) for one in loop.heard] == [
        ("initialized", 0),
        ("post_tool", 1),
        ("completed", 1),
    ]
    ids = {record.event_id for record in ledger.read(run_id) if record.tag == "checkpoint.reached"}
    assert {str(one.checkpoint_id) for one in loop.heard} == {str(one) for one in ids}
    assert {one.run_id for one in loop.heard} == {run_id}
    assert all(isinstance(one.created_at, datetime) for one in loop.heard)


def test_the_bus_hears_of_recoveries(ledger: Ledger) -> None:
    """S2-21: RecoveryStarted with the checkpoint's time and tools, then Completed or Failed."""
    run_id = interrupted(ledger, "c3")
    latest = state_at(ledger, run_id).checkpoints.latest
    assert latest is not None
    kinds = (RecoveryStarted, RecoveryCompleted, RecoveryFailed)
    wrong = Planner(ledger=ledger, title="Another").hears(*kinds)
    with pytest.raises(PromptMismatch):
        wrong.recover(run_id)
    assert [type(one) for one in wrong.heard] == [RecoveryFailed]  # it was never begun
    loop = Planner(ledger=ledger).hears(*kinds)
    loop.recover(run_id)
    started, completed = loop.heard
    assert (started.run_id, started.tool_calls_completed) == (run_id, 2)
    assert started.checkpoint_created_at == latest.created_at
    assert (type(completed), completed.run_id) == (RecoveryCompleted, run_id)
    loop.heard.clear()
    with pytest.raises(CheckpointNotFoundError) as error:
        loop.recover(uuid4())
    assert [one.error for one in loop.heard] == [error.value]


def test_recovering_with_another_deadline(ledger: Ledger) -> None:
    """X22: an absolute deadline stays absolute; `recover(deadline=)` takes its place."""
    past = MainLoopConfig(deadline=Deadline(expires_at=datetime(2100, 1, 1, tzinfo=UTC)))
    run_id = interrupted(ledger, config=past)
    loop = Planner(ledger=ledger)
    gone = Deadline(expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(Exception, match="2020-01-01"):
        loop.recover(run_id, deadline=gone)
    assert loop.recover(run_id)[0].output == Answer(3)


def test_interrupted_again_and_again_within_one_process(ledger: Ledger) -> None:
    """The same loop may recover what it was interrupted in itself."""
    loop, run_id = Planner(ledger=ledger), new_run_id()
    with simulated_crash(loop, "c1"):
        loop.execute(Goal(), run_id=run_id)
    with simulated_crash(loop, "c2"):
        loop.recover(run_id)
    with simulated_crash(loop, "c3"):
        loop.recover(run_id)
    assert loop.recover(run_id)[0].output == Answer(3)
    assert loop.ran == ["c1", "c2", "c3"]
