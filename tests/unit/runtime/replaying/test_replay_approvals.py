"""Replays of runs with approvals: the record answers, no tool is asked, and nothing runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, calls
from tests.unit.runtime.approving import DONE, Refunds, Ticket, told, waiting
from turnledger.ledger import ANY, ApprovalDecided, Ledger, new_run_id
from turnledger.projections import state_at
from turnledger.runtime import DecisionRequiredError, replay
from turnledger.runtime.recovery.approvals import approve, deny, edit
from turnledger.runtime.replaying.live.replay import LiveReplay, NotRecordedError, replay_live
from turnledger.runtime.replaying.what_if.fork import what_if

FOUR = calls(
    ("c1", "refund", '{"euros": 20}'),
    ("c2", "look", '{"euros": 1}'),
    ("c3", "refund", '{"euros": 30}'),
    ("c4", "refund", '{"euros": 40}'),
)
REPLIES = [FOUR, calls(("c5", "look", '{"euros": 2}')), DONE]


def decided(ledger: Ledger, width: int = 1, **options: Any) -> UUID:
    """A run in which one call was approved, one denied and one edited."""
    loop = Refunds(REPLIES, ledger=ledger, adapter_options={"parallel_tools": width}, **options)
    run_id = waiting(ledger, loop)
    approve(ledger, run_id, "c1", by="ann")
    deny(ledger, run_id, "c3", "No.", by="ann")
    edit(ledger, run_id, "c4", {"euros": 4}, by="ann")
    loop.recover(run_id)
    return run_id


def again(ledger: Ledger, run_id: UUID, width: int = 1, **options: Any) -> Any:
    """A replay by a loop that must not run anything, nor ask."""
    wide = {"parallel_tools": width}
    loop = Refunds(REPLIES, ledger=ledger, adapter_options=wide, **options)
    found = replay(ledger, run_id, loop=loop)
    assert (loop.ran, loop.asked) == ([], [])
    return found


@pytest.mark.parametrize("width", [1, 3])
def test_a_replay_takes_approvals_from_the_record(ledger: Ledger, width: int) -> None:
    """Approved, denied and edited: no handler runs, and the function is not called."""
    run_id = decided(ledger, width)
    found = again(ledger, run_id, width)
    assert found.divergence is None, str(found.divergence)
    assert (found.version, found.attempts) == (ledger.head(run_id), 2)


def test_every_beginning_of_such_a_run_replays(ledger: Ledger) -> None:
    """Also one that still waits, and one that was decided about in part."""
    run_id = decided(ledger)
    for until in range(1, ledger.head(run_id) + 1):
        found = replay(ledger, run_id, loop=Refunds(REPLIES), until=until)
        assert found.divergence is None, str(found.divergence)


def test_a_second_attempt_replays(ledger: Ledger) -> None:
    """In doubt, approved again, and denied."""
    for last in ("approve", "deny"):
        run_id = waiting(ledger, Refunds(ledger=ledger))
        approve(ledger, run_id, "c1")
        options: dict[str, Any] = {"ledger": ledger, "on_interrupt": "retry"}
        with pytest.raises(Crash):
            Refunds(dies_in="c1", **options).recover(run_id)
        with pytest.raises(DecisionRequiredError):
            Refunds(**options).recover(run_id)
        approve(ledger, run_id, "c1") if last == "approve" else deny(ledger, run_id, "c1", "No.")
        Refunds(**options).recover(run_id)
        loop = Refunds(on_interrupt="retry")
        found = replay(ledger, run_id, loop=loop)
        assert found.divergence is None, str(found.divergence)
        assert (loop.ran, loop.asked) == ([], [])


def test_a_refused_call_replays(ledger: Ledger) -> None:
    """Invalid arguments, which nobody was asked about."""
    replies = [calls(("c1", "refund", "{}"), ("c2", "refund", '{"euros": 1}')), DONE]
    run_id = new_run_id()
    Refunds(replies, ledger=ledger).execute(Ticket(), run_id=run_id)
    loop = Refunds(replies)
    found = replay(ledger, run_id, loop=loop)
    assert found.divergence is None, str(found.divergence)
    assert (loop.ran, loop.asked) == ([], [])


def test_another_answer_of_the_function_is_no_divergence(ledger: Ledger) -> None:
    """It is not asked: the record holds."""
    found = again(ledger, decided(ledger), needs_approval=lambda params: False)
    assert found.divergence is None, str(found.divergence)


def test_a_tool_that_needs_no_approval_any_more_is_a_divergence(ledger: Ledger) -> None:
    """Where the record has the question; and the other way round."""
    found = again(ledger, decided(ledger), needs_approval=False)
    assert (found.divergence.cause, found.divergence.tag) == (
        "needs_approval changed",
        "approval.requested",
    )
    run_id, loop = new_run_id(), Refunds(REPLIES, needs_approval=False, ledger=ledger)
    loop.execute(Ticket(), run_id=run_id)
    found = again(ledger, run_id)
    assert (found.divergence.cause, found.divergence.tag) == (
        "needs_approval changed",
        "tool_call.started",
    )
    assert "needs_approval" in found.divergence.advice


def test_a_decision_in_the_record_that_came_otherwise_is_followed(ledger: Ledger) -> None:
    """Decisions are inputs: a replay takes them where they stand, whatever they are about."""
    run_id = decided(ledger)
    ledger.append(run_id, ApprovalDecided(call_id="c1", decision="denied"), ANY)
    assert again(ledger, run_id).divergence is None


# --- with live parts -------------------------------------------------------------------


def live(ledger: Ledger, run_id: UUID, *parts: str, **options: Any) -> tuple[LiveReplay, Refunds]:
    loop = Refunds(REPLIES, ledger=ledger, **options)
    return replay_live(ledger, run_id, loop, live=parts), loop


@pytest.mark.parametrize("parts", [("model",), ("tool:look",), ("model", "tool:look")])
def test_recorded_calls_have_their_recorded_approval_in_a_live_replay(
    ledger: Ledger, parts: tuple[str, ...]
) -> None:
    """The person's decision with it: the fork ends as the run did, and is asked nothing."""
    run_id = decided(ledger)
    found, loop = live(ledger, run_id, *parts)
    assert found.status == "completed"
    assert loop.asked == []
    assert {name for name, _, _ in loop.ran} <= {"look"}
    assert sorted(told(ledger, found.fork)) == sorted(told(ledger, run_id))
    ends = [state_at(ledger, one).tools.calls for one in (run_id, found.fork)]
    first, second = ([(call.call_id, call.approval) for call in end] for end in ends)
    assert first == second
    assert ("c3", "denied") in first
    found_again = again(ledger, found.fork)
    assert found_again.divergence is None, str(found_again.divergence)


def test_a_live_call_waits_for_an_approval_of_its_own(ledger: Ledger) -> None:
    """An approval is for one run: the fork waits, and nothing of it has run."""
    run_id = decided(ledger)
    found, loop = live(ledger, run_id, "model", "tool:refund")
    assert (found.status, loop.asked) == ("waiting", [20, 30, 40])
    assert loop.ran == []
    assert isinstance(found.error, DecisionRequiredError)


def test_a_live_model_that_asks_for_another_call_has_no_record_of_it(ledger: Ledger) -> None:
    """It stops before anybody is asked."""
    run_id = decided(ledger)
    other = [calls(("c9", "refund", '{"euros": 99}')), DONE]
    loop = Refunds(other, ledger=ledger)
    with pytest.raises(NotRecordedError, match="refund"):
        replay_live(ledger, run_id, loop, live=["model"])
    assert (loop.ran, loop.asked) == ([], [])


# --- what if ---------------------------------------------------------------------------


def test_what_if_a_person_had_decided_otherwise(ledger: Ledger) -> None:
    """A fork from another decision goes on with it."""
    loop = Refunds(ledger=ledger)
    run_id = waiting(ledger, loop)
    deny(ledger, run_id, "c1", "No.")
    at = ledger.head(run_id)
    loop.recover(run_id)
    fork = what_if(ledger, run_id, at, {"/decision": "edited", "/arguments": '{"euros": 3}'})
    loop.recover(fork)
    assert loop.ran == [("refund", "c1", 3)]
