"""Given the life of a run, when it is folded, then where it stands."""

from __future__ import annotations

import pytest

from tests.conformance.samples import PICTURE, one_of_each, started
from tests.unit.projections.given import (
    PARENT,
    continues,
    evaluation,
    folded,
    forks,
    moment,
)
from turnledger.ledger import (
    EvaluationFinished,
    Event,
    Ledger,
    RunAbandoned,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    RunWaiting,
    TokenLimits,
    ToolCallDecided,
    new_run_id,
)
from turnledger.projections import RunSummary, state_at
from turnledger.projections.views.summary import Summary

FAILED = RunFailed(error_type="ValueError", error_message="bad")


def decided(call_id: str) -> ToolCallDecided:
    return ToolCallDecided(call_id=call_id, decision="retry")


def test_a_run_that_began_is_running() -> None:
    """And says what it was begun with."""
    began = started()
    summary = folded(began).summary
    assert (summary.status, summary.kind, summary.started_at) == ("running", "run", moment(1))
    assert summary.request_id == summary.session_id == str(began.request_id)
    assert summary.tags == {"team": "red", "env": "test"}
    assert (summary.deadline, summary.time_limit) == (began.deadline, 12.5)
    assert summary.budget == TokenLimits(max_total_tokens=1000)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (RunCompleted(output=1), "completed"),
        (FAILED, "failed"),
        (RunParked(reason="too often"), "parked"),
        (RunAbandoned(), "abandoned"),
    ],
)
def test_a_run_that_ended_says_how_and_when(event: Event, status: str) -> None:
    """And runs again when it is resumed."""
    summary = folded(RunStarted(), event).summary
    assert (summary.status, summary.ended_at) == (status, moment(2))
    again = folded(RunStarted(), event, RunResumed(attempt=2, from_version=2)).summary
    assert (again.status, again.ended_at, again.attempts) == ("running", None, 2)


def test_a_run_that_is_resumed_has_no_error_any_more() -> None:
    """It may still end well."""
    resumed = RunResumed(attempt=2, from_version=2)
    summary = folded(RunStarted(), FAILED, resumed, RunCompleted(output="ok")).summary
    assert (summary.error_type, summary.error_message) == (None, None)
    assert folded(RunStarted(), FAILED).summary.error_type == "ValueError"


def test_a_run_waits_until_somebody_decides() -> None:
    """One decision lets it run; the calls that are undecided stay on the list until they are."""
    waits = RunWaiting(reason="in doubt", call_ids=("c1", "c2"))
    one = folded(RunStarted(), waits).summary
    assert (one.status, one.waiting_for) == ("waiting", ("c1", "c2"))
    two = folded(RunStarted(), waits, decided("c1")).summary
    assert (two.status, two.waiting_for) == ("running", ("c2",))
    three = folded(RunStarted(), waits, decided("c1"), decided("c2")).summary
    assert (three.status, three.waiting_for) == ("running", ())
    resumed = folded(RunStarted(), waits, decided("c1"), RunResumed(attempt=1, from_version=3))
    assert resumed.summary.waiting_for == ()


def test_a_decision_does_not_wake_a_run_that_is_over() -> None:
    """Only one that waits."""
    assert folded(RunStarted(), FAILED, decided("c1")).summary.status == "failed"


def test_claims_and_evaluations_are_in_the_summary() -> None:
    """The latest worker, the latest prompt, how many there were."""
    summary = folded(
        RunStarted(),
        RunClaimed(worker="w1", epoch=1),
        RunClaimed(worker="w2", epoch=2),
        evaluation("e1", "first"),
        evaluation("e2", "second"),
        EvaluationFinished(evaluation_id="e2", output={"answer": 42}),
    ).summary
    assert (summary.worker, summary.epoch) == ("w2", 2)
    assert (summary.evaluations, summary.prompt) == (2, "ns/second")
    assert summary.output == {"answer": 42}


@pytest.mark.parametrize(("begins", "kind"), [(forks(4), "fork"), (continues(4), "continuation")])
def test_a_child_begins_afresh(begins: RunStarted, kind: str) -> None:
    """Status, epoch, deadline, budget and attempts are its own; it knows where it comes from."""
    resumed = RunResumed(attempt=3, from_version=1)
    summary = folded(started(), RunClaimed(worker="w", epoch=2), resumed, FAILED, begins).summary
    assert summary == Summary(kind=kind, parent=str(PARENT), parent_version=4, started_at=moment(5))


def test_the_summary_agrees_with_the_run_index() -> None:
    """Status and prompt, after each kind of event."""
    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        ledger.append(run, RunStarted(tags={"a": "b"}), 0)
        for place, event in enumerate(one_of_each(), 1):
            ledger.append(run, event, place, blobs=[PICTURE])
            info, summary = ledger.run(run), state_at(ledger, run).summary
            assert (summary.status, summary.prompt) == (info.status, info.prompt), event.tag
            assert (summary.tags, summary.epoch) == (info.tags, info.epoch)


def test_the_status_is_always_in_the_json() -> None:
    """Also while it is the default."""
    assert folded().to_json()["summary"] == {"status": "running"}


def test_the_outcome_is_how_it_ended_and_with_what() -> None:
    """Not when, by whom, or at which attempt."""
    view = RunSummary()
    one = folded(RunStarted(), RunCompleted(output=[1])).summary
    two = folded(
        RunStarted(),
        RunClaimed(worker="w", epoch=1),
        RunResumed(attempt=1, from_version=2),
        RunCompleted(output=[1]),
    ).summary
    assert view.outcome(one) == view.outcome(two)
    assert view.digest(one) != view.digest(two)
    assert view.outcome(one) != view.outcome(folded(RunCompleted(output=[2])).summary)
    assert view.outcome(one) != view.outcome(folded(FAILED).summary)
