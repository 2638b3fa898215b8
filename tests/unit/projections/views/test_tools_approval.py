"""Given approvals that are needed and decided, when they are folded, then how each call stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.projections.given import (
    answers,
    approval,
    asks,
    asks_approval,
    doubts,
    folded,
    forks,
    records,
    starts,
    supersedes,
)
from tests.unit.projections.random_runs import small_world
from turnledger.ledger import Event, RunResumed, RunStarted, RunWaiting, ToolCallStarted
from turnledger.projections import RunState, ToolCallView
from turnledger.projections.views.tool_calls import plain_call

ASKED: list[Event] = [RunStarted(), asks(1, "c1")]
NEEDED: list[Event] = [*ASKED, asks_approval()]


def call_after(*events: Event) -> ToolCallView:
    return folded(*events).tools.calls[0]


def test_it_is_recorded_whether_a_call_needs_approval() -> None:
    """Once: what is recorded first holds, and only for a call that is open."""
    assert call_after(*ASKED).approval == ""
    assert call_after(*NEEDED).approval == "needed"
    assert call_after(*ASKED, asks_approval(needed=False)).approval == "not_needed"
    assert call_after(*NEEDED, asks_approval(needed=False)).approval == "needed"
    assert call_after(*ASKED, answers(2, "c1"), asks_approval()).approval == ""
    assert not len(folded(RunStarted(), asks_approval("c9")).tools.calls)


@pytest.mark.parametrize("decision", ["approved", "denied", "edited"])
def test_a_decision_is_the_calls_until_it_starts(decision: str) -> None:
    """With its text, who made it, and the arguments that the handler gets."""
    made = approval(decision, text="because", arguments='{"q":2}', decided_by="ann")
    call = call_after(*NEEDED, made)
    assert (call.approval, call.approval_text, call.approval_by) == (decision, "because", "ann")
    assert call.given_arguments == ('{"q":2}' if decision == "edited" else '{"q":1}')
    assert (call.arguments, call.awaits_approval) == ('{"q":1}', False)


def test_the_later_of_two_decisions_counts() -> None:
    """As long as the call has not started; arguments that were edited stay with the call."""
    edited = approval("edited", arguments='{"q":2}')
    call = call_after(*NEEDED, approval("approved"), approval("denied", text="no"))
    assert (call.approval, call.approval_text) == ("denied", "no")
    call = call_after(*NEEDED, approval("denied", text="no"), edited, approval("approved"))
    assert (call.approval, call.approval_text) == ("approved", "")
    assert call.given_arguments == '{"q":2}'


def test_a_start_uses_an_approval_up() -> None:
    """The next attempt needs another one, and has the arguments of the one before."""
    for decision in ("approved", "edited"):
        made = approval(decision, arguments='{"q":2}', decided_by="ann")
        call = call_after(*NEEDED, made, starts())
        assert (call.approval, call.approval_by, call.takes_approval) == ("needed", "", False)
        assert call.given_arguments == ('{"q":2}' if decision == "edited" else '{"q":1}')
    free = call_after(*ASKED, asks_approval(needed=False), starts())
    assert free.approval == "not_needed"


@dataclass(frozen=True)
class Ignored:
    events: list[Event]
    approval: str


@pytest.mark.parametrize(
    "given_",
    [
        Ignored([*ASKED, approval("approved")], ""),
        Ignored([*ASKED, asks_approval(needed=False), approval("denied")], "not_needed"),
        Ignored([*NEEDED, approval("approved", attempt=1)], "needed"),
        Ignored([*NEEDED, approval("approved", "c2")], "needed"),
        Ignored([*NEEDED, starts(), approval("approved", attempt=1)], "needed"),
        Ignored([*NEEDED, starts(), doubts(), approval("approved", attempt=1)], "needed"),
        Ignored([*NEEDED, supersedes(), approval("approved")], "needed"),
        Ignored([*NEEDED, answers(2, "c1"), approval("approved")], "needed"),
    ],
)
def test_a_decision_about_anything_else_is_ignored(given_: Ignored) -> None:
    """A call nobody asked about, another attempt or call, one at work, in doubt, or over."""
    assert call_after(*given_.events).approval == given_.approval


def test_a_call_in_doubt_takes_approval_where_it_would_be_tried_again() -> None:
    """By the policy that was recorded with its start."""
    for policy in ("retry", "ask", "fail"):
        begun = ToolCallStarted(
            evaluation_id="e1", call_id="c1", name="search", on_interrupt=policy
        )
        events = [*NEEDED, approval("approved"), begun, doubts()]
        assert call_after(*events).awaits_approval is (policy == "retry")
        again = call_after(*events, approval("approved", attempt=1))
        assert again.approval == ("approved" if policy == "retry" else "needed")


@pytest.mark.parametrize("decision", ["approved", "denied", "edited"])
def test_a_fork_does_not_inherit_a_decision(decision: str) -> None:
    """It was given for one run; that approval is needed is inherited."""
    made = approval(decision, text="t", arguments='{"q":2}', decided_by="ann")
    fork = call_after(*NEEDED, made, forks(4))
    assert fork == call_after(*NEEDED, forks(3))
    assert fork.approval == "needed"
    begun = call_after(*NEEDED, approval("edited", arguments='{"q":2}'), starts(), forks(5))
    assert (begun.status, begun.given_arguments) == ("in_doubt", '{"q":2}')


def test_the_digest_of_a_call_without_approval_is_as_it_was() -> None:
    """And each part of an approval changes it."""
    plain = call_after(*ASKED)
    assert len(plain_call(plain)) == 17
    made: dict[str, Any] = {"text": "t", "arguments": "{}", "decided_by": "ann"}
    seen = {plain_call(plain), plain_call(call_after(*NEEDED))}
    for name in made:
        other_one = {**made, name: '{"q":9}'}
        seen.add(plain_call(call_after(*NEEDED, approval("edited", **other_one))))
    assert len(seen) == 5
    one, other = folded(*ASKED).state_digest, folded(*NEEDED).state_digest
    assert one != other


def test_an_edit_without_arguments_is_no_decision() -> None:
    """The call would run with the model's own arguments, which nobody approved."""
    assert call_after(*NEEDED, approval("edited")) == call_after(*NEEDED)


def test_a_decision_ends_the_waiting() -> None:
    """The summary says what is waited for until then, and the run is running after it."""
    waiting = [*NEEDED, RunWaiting(reason="", call_ids=("c1", "c2"))]
    assert folded(*waiting).summary.status == "waiting"
    summary = folded(*waiting, approval("approved")).summary
    assert (summary.status, summary.waiting_for) == ("running", ("c2",))
    resumed = folded(*waiting, approval("approved"), RunResumed(attempt=1, from_version=5)).summary
    assert (resumed.status, resumed.waiting_for) == ("running", ())


@given(st.lists(small_world, max_size=30), st.integers(0, 30))
def test_approvals_fold_the_same_wherever_the_fold_is_cut(events: list[Event], cut: int) -> None:
    """State, JSON and digest; and nothing that has a decision lacks the need for it."""
    rows = records([RunStarted(), *events])
    whole = RunState.initial().after(rows)
    parts = RunState.initial().after(rows[:cut]).after(rows[cut:])
    assert whole.state_digest == parts.state_digest
    assert msgspec.json.encode(whole.to_json()) == msgspec.json.encode(parts.to_json())
    for call in whole.tools.calls:
        assert not (call.status == "started" and call.approval in ("approved", "denied", "edited"))
        assert call.approval or not (call.approval_text or call.edited_arguments)
