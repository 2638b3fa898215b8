"""`approve`, `deny`, `edit`: what they record and refuse, and what waiting for them costs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from tests.agent import Crash, calls
from tests.unit.runtime.approving import DONE, REFUND, Refunds, Ticket, told, waiting
from tests.unit.runtime.clocks import StandingClock
from tests.unit.runtime.loops import Planner, crash_in, interrupted, tags
from turnledger import Agent, tool
from turnledger.ledger import (
    ANY,
    NEW,
    ApprovalDecided,
    CustomEvent,
    EvaluationStarted,
    Ledger,
    MessageAppended,
    RunAbandoned,
    RunClaimedError,
    RunNotFoundError,
    RunParked,
    RunStarted,
    ToolCallDecided,
    new_run_id,
)
from turnledger.runtime import (
    CheckpointExpiredError,
    DecisionRequiredError,
    MainLoopConfig,
    RecoveryConfig,
)
from turnledger.runtime.recovery.approvals import (
    ApprovalRefusedError,
    CallChangedError,
    CallNotFoundError,
    InvalidEditError,
    approve,
    deny,
    edit,
)

DECIDE: list[Callable[..., Any]] = [
    approve,
    lambda ledger, run, call, **more: deny(ledger, run, call, "No.", **more),
    lambda ledger, run, call, **more: edit(ledger, run, call, {"euros": 1}, **more),
]


def decisions(ledger: Ledger, run_id: UUID) -> list[ApprovalDecided]:
    found = [record.event for record in ledger.read(run_id)]
    return [event for event in found if isinstance(event, ApprovalDecided)]


# --- what they record ------------------------------------------------------------------


def test_a_decision_says_what_who_and_about_which_attempt(ledger: Ledger) -> None:
    """One event; the call is returned as it was."""
    run_id = waiting(ledger)
    call = edit(ledger, str(run_id), "c1", '{ "euros": 4 }', by="ann")
    assert (call.call_id, call.name, call.approval) == ("c1", "refund", "needed")
    assert decisions(ledger, run_id) == [
        ApprovalDecided(call_id="c1", decision="edited", arguments='{"euros":4}', decided_by="ann")
    ]


def test_a_decision_may_be_changed_until_the_call_starts(ledger: Ledger) -> None:
    """The later one counts."""
    run_id, loop = waiting(ledger), Refunds(ledger=ledger)
    approve(ledger, run_id, "c1")
    deny(ledger, run_id, "c1", "On second thoughts, no.")
    loop.recover(run_id)
    assert (loop.ran, told(ledger, run_id)) == ([], ["On second thoughts, no."])


def test_a_comment_in_between_is_no_conflict(ledger: Ledger) -> None:
    """Only a change of the call is one."""
    run_id = waiting(ledger)
    at = ledger.head(run_id)
    ledger.append(run_id, CustomEvent(kind="test.note"), ANY)
    approve(ledger, run_id, "c1", at=at)
    assert len(decisions(ledger, run_id)) == 1


@pytest.mark.parametrize("decide", DECIDE)
def test_a_call_that_changed_since_it_was_shown_is_not_decided_about(
    ledger: Ledger, decide: Callable[..., Any]
) -> None:
    """Another person was faster."""
    run_id = waiting(ledger)
    at = ledger.head(run_id)
    edit(ledger, run_id, "c1", {"euros": 2})
    with pytest.raises(CallChangedError, match=r'edited with the arguments {"euros":2} now'):
        decide(ledger, run_id, "c1", at=at)
    assert len(decisions(ledger, run_id)) == 1


@pytest.mark.parametrize("decide", DECIDE)
def test_decisions_about_other_calls_are_refused(
    ledger: Ledger, decide: Callable[..., Any]
) -> None:
    """Unknown runs and calls, calls that are over or need no approval; nothing is recorded."""
    with pytest.raises(RunNotFoundError):
        decide(ledger, new_run_id(), "c1")
    run_id = waiting(ledger)
    with pytest.raises(CallNotFoundError, match=r"has no call 'c9'.*: c1"):
        decide(ledger, run_id, "c9")
    deny(ledger, run_id, "c1", "No.")
    Refunds(ledger=ledger).recover(run_id)
    head = ledger.head(run_id)
    with pytest.raises(CallNotFoundError, match=r"no open call 'c1'.*: none"):
        decide(ledger, run_id, "c1")
    assert ledger.head(run_id) == head
    free = new_run_id()
    with pytest.raises(Crash):
        Refunds(
            [calls(("c1", "look", '{"euros": 1}'), ("c2", "look", '{"euros": 2}'))],
            ledger=ledger,
            dies_in="c1",
        ).execute(Ticket(), run_id=free)
    with pytest.raises(ApprovalRefusedError, match="needs no approval"):
        decide(ledger, free, "c2")
    with pytest.raises(ApprovalRefusedError, match=r"in doubt.*--completed JSON, --failed TEXT or"):
        decide(ledger, free, "c1")


@pytest.mark.parametrize("end", [RunAbandoned(reason="late"), RunParked(reason="late", attempts=3)])
def test_a_run_that_is_not_recovered_any_more_is_not_decided_about(
    ledger: Ledger, end: RunAbandoned | RunParked
) -> None:
    """The person would believe that the call runs; a fork takes the decision."""
    run_id = waiting(ledger)
    ledger.append(run_id, end, ANY)
    with pytest.raises(ApprovalRefusedError, match=r"not recovered any more.*turnledger fork"):
        approve(ledger, run_id, "c1")
    assert decisions(ledger, run_id) == []
    fork = ledger.fork(run_id, ledger.head(run_id))
    approve(ledger, fork, "c1")
    assert Refunds(ledger=ledger).recover(fork)[0].text == "Done."


def test_a_run_that_a_worker_has_is_not_decided_about(ledger: Ledger) -> None:
    """It is about to wait, or to go on with an earlier decision."""
    run_id = waiting(ledger)
    ledger.claim(run_id, worker="another", ttl=timedelta(minutes=1))
    with pytest.raises(RunClaimedError):
        approve(ledger, run_id, "c1")


# --- edited arguments ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"euros": "five"}, r"\$\.euros: 'five' is not of type 'integer'"),
        ({}, "'euros' is a required property"),
        ({"euros": 1, "cents": 2}, "cents"),
        ("[1]", "expected a JSON object"),
        ("{", "not JSON"),
        ({"euros": float("nan")}, "euros"),
    ],
)
def test_edited_arguments_are_checked_against_the_recorded_schema(
    ledger: Ledger, arguments: Any, why: str
) -> None:
    """When they are given, without the program that defines the tool."""
    run_id = waiting(ledger)
    with pytest.raises(InvalidEditError, match=why):
        edit(ledger, run_id, "c1", arguments)
    assert decisions(ledger, run_id) == []


def test_a_record_without_a_schema_takes_no_edited_arguments(ledger: Ledger) -> None:
    """One of an older program, or a restored conversation; an approval is taken."""
    source, run_id = waiting(ledger), new_run_id()
    ledger.append(run_id, RunStarted(), NEW)
    for record in ledger.read(source, after=1):
        event = record.event
        if isinstance(event, EvaluationStarted | MessageAppended) or "approval" in record.tag:
            if isinstance(event, EvaluationStarted):
                event = replace(event, tools=())
            ledger.append(run_id, event, ANY)
    with pytest.raises(InvalidEditError, match="no record of the schema of tool 'refund'"):
        edit(ledger, run_id, "c1", {"euros": 1})
    approve(ledger, run_id, "c1")


# --- waiting ---------------------------------------------------------------------------


def test_a_run_that_waits_for_approval_is_listed_after_the_decision(ledger: Ledger) -> None:
    """Before it, `recover` refuses it without a claim, however often it is tried."""
    run_id, loop = waiting(ledger), Refunds(ledger=ledger)
    head = ledger.head(run_id)
    for _ in range(5):
        with pytest.raises(DecisionRequiredError):
            loop.recover(run_id)
        with pytest.raises(DecisionRequiredError):
            loop.recover(run_id, retry_in_doubt=True)
    assert (loop.list_recoverable(), ledger.head(run_id)) == ([], head)
    approve(ledger, run_id, "c1")
    (found,) = loop.list_recoverable()
    assert loop.recover(found)[0].text == "Done."


def test_sixty_hours_of_waiting_count_for_no_limit(clock: StandingClock) -> None:
    """Neither for a time limit of seconds, nor for max_resume_age, which is a day."""
    config = MainLoopConfig(deadline=timedelta(seconds=30))
    options: dict[str, Any] = {"clock": clock, "config": config}
    with Ledger.open("memory://", clock=clock) as ledger:
        run_id = waiting(ledger, Refunds(ledger=ledger, **options))
        clock.advance(timedelta(hours=60))
        loop = Refunds(ledger=ledger, **options)
        with pytest.raises(DecisionRequiredError):
            loop.recover(run_id)
        approve(ledger, run_id, "c1")
        clock.advance(timedelta(hours=1))
        assert loop.recover(run_id)[0].text == "Done."
        assert loop.ran == [("refund", "c1", 20)]


def test_the_age_of_a_run_counts_from_the_decision(clock: StandingClock) -> None:
    """A decision that nobody went on with gets too old like any run."""
    with Ledger.open("memory://", clock=clock) as ledger:
        config = RecoveryConfig(max_resume_age=timedelta(hours=24))
        loop = Refunds(ledger=ledger, clock=clock, recovery=config)
        run_id = waiting(ledger, loop)
        clock.advance(timedelta(hours=60))
        approve(ledger, run_id, "c1")
        clock.advance(timedelta(hours=25))
        with pytest.raises(CheckpointExpiredError):
            loop.recover(run_id)


def test_the_age_counts_from_a_decision_about_a_call_in_doubt_too(clock: StandingClock) -> None:
    """A person took three days to find out; consent of a recovery alone is no such decision."""
    with Ledger.open("memory://", clock=clock) as ledger:
        options: dict[str, Any] = {"clock": clock, "on_interrupt": "ask"}
        run_id = interrupted(ledger, **options)
        loop = Planner(ledger=ledger, **options)
        with pytest.raises(DecisionRequiredError):
            loop.recover(run_id)
        clock.advance(timedelta(hours=72))
        with pytest.raises(DecisionRequiredError):
            loop.recover(run_id)
        ledger.append(run_id, ToolCallDecided(call_id="c2", decision="retry", attempt=1), ANY)
        assert loop.recover(run_id)
        other = interrupted(ledger, clock=clock)
        clock.advance(timedelta(hours=20))
        with pytest.raises(Crash):
            Planner(ledger=ledger, in_tool=crash_in("c2"), clock=clock).recover(
                other, retry_in_doubt=True
            )
        clock.advance(timedelta(hours=10))
        with pytest.raises(CheckpointExpiredError):
            Planner(ledger=ledger, clock=clock).recover(other)


def test_the_same_run_waits_again_for_its_next_call(ledger: Ledger) -> None:
    """An approval is for one call."""
    later = calls(("c2", "refund", '{"euros": 40}'))
    loop = Refunds([REFUND, later, DONE], ledger=ledger)
    run_id = waiting(ledger, loop)
    for call in ("c1", "c2"):
        approve(ledger, run_id, call)
        if call == "c1":
            with pytest.raises(DecisionRequiredError) as refused:
                loop.recover(run_id)
            assert refused.value.call_ids == ("c2",)
    assert loop.recover(run_id)[0].text == "Done."
    assert tags(ledger, run_id).count("approval.requested") == 2


def test_a_run_that_a_person_brings_on_is_not_parked(ledger: Ledger) -> None:
    """Each approval is progress: attempts that die after one are not counted up to the limit."""
    crashes = [True] * 5

    @tool(needs_approval=True, on_interrupt="retry")
    def pay() -> str:
        """Pay."""
        if crashes:
            crashes.pop()
            raise Crash
        return "Paid."

    replies = [calls(("c1", "pay", "{}")), DONE]
    agent = Agent("payer", model=replies, instructions="Pay.", tools=[pay], ledger=ledger)
    run_id = new_run_id()
    with pytest.raises(DecisionRequiredError):
        agent.run("Pay.", run_id=run_id)
    while crashes:
        agent.approve(run_id, "c1")
        with pytest.raises(Crash):
            agent.recover(run_id)
        with pytest.raises(DecisionRequiredError):
            agent.recover(run_id)
    agent.approve(run_id, "c1")
    assert agent.recover(run_id).text == DONE.text
