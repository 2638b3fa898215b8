"""Decisions about calls in doubt: consent to run them again, and what a completed one carries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from tests.unit.runtime.loops import (
    ANSWER,
    Answer,
    Crash,
    Goal,
    Plan,
    Planner,
    asks,
    call,
    crash_in,
    interrupted,
)
from turnledger.ledger import (
    ANY,
    Ledger,
    MessageAppended,
    RunClaimedError,
    RunResumed,
    SliceChange,
    SliceEventApplied,
    ToolCallCompleted,
    ToolCallDecided,
    new_run_id,
)
from turnledger.projections import state_at
from turnledger.runtime import (
    Deadline,
    DecisionRequiredError,
    PromptEvaluationError,
    PromptMismatch,
    RequestTypeMismatchError,
    replay,
)


def decisions(ledger: Ledger, run_id: UUID) -> list[ToolCallDecided]:
    return [r.event for r in ledger.read(run_id) if isinstance(r.event, ToolCallDecided)]


def asking(ledger: Ledger, **options: Any) -> Planner:
    return Planner(ledger=ledger, on_interrupt="ask", **options)


def with_another_prompt(ledger: Ledger, run_id: UUID) -> None:
    with pytest.raises(PromptMismatch):
        asking(ledger, title="Another").recover(run_id, retry_in_doubt=True)


def with_a_prompt_that_fails(ledger: Ledger, run_id: UUID) -> None:
    def broken(request: Goal) -> None:
        raise ZeroDivisionError

    loop = asking(ledger)
    loop.create_prompt = broken  # type: ignore[assignment, method-assign]
    with pytest.raises(ZeroDivisionError):
        loop.recover(run_id, retry_in_doubt=True)


def while_another_worker_has_it(ledger: Ledger, run_id: UUID) -> None:
    with ledger.claim(run_id, worker="other"), pytest.raises(RunClaimedError):
        asking(ledger).recover(run_id, retry_in_doubt=True)


def with_another_loop(ledger: Ledger, run_id: UUID) -> None:
    with pytest.raises(RequestTypeMismatchError):
        asking(ledger, request_type=int).recover(run_id, retry_in_doubt=True)


@pytest.mark.parametrize(
    "refused",
    [
        with_another_prompt,
        with_a_prompt_that_fails,
        while_another_worker_has_it,
        with_another_loop,
    ],
)
def test_a_refused_recovery_leaves_no_consent(
    ledger: Ledger, refused: Callable[[Ledger, UUID], None]
) -> None:
    """Nothing that refuses it leaves a "retry" on record: the next recovery does not pay."""
    run_id = interrupted(ledger, on_interrupt="ask")
    refused(ledger, run_id)
    assert decisions(ledger, run_id) == []
    loop = asking(ledger)
    with pytest.raises(DecisionRequiredError):
        loop.recover(run_id)
    assert loop.ran == []


def test_consent_is_recorded_with_the_resume_and_used_up(ledger: Ledger) -> None:
    """It follows RunResumed, in the commit with the start; the next attempt asks again."""
    run_id = interrupted(ledger, on_interrupt="ask")
    with pytest.raises(Crash):
        asking(ledger, in_tool=crash_in("c2")).recover(
            run_id, retry_in_doubt=True, decided_by="ann"
        )
    records = list(ledger.read(run_id))
    (at,) = [n for n, r in enumerate(records) if isinstance(r.event, RunResumed)]
    consent = ToolCallDecided(
        call_id="c2", decision="retry", decided_by="ann", attempt=1, until_resumed=True
    )
    assert records[at + 1].event == consent
    assert {r.commit for r in records[at:]} == {records[at].commit}
    assert records[-1].tag == "tool_call.started"
    with pytest.raises(DecisionRequiredError):
        asking(ledger).recover(run_id)
    loop = asking(ledger)
    assert loop.recover(run_id, retry_in_doubt=True)[0].output == Answer(3)
    assert loop.ran == ["c2", "c3"]
    assert replay(ledger, run_id, loop=asking(Ledger.open("memory://"))).divergence is None


def test_consent_for_a_call_that_was_not_begun_ends_with_the_attempt(ledger: Ledger) -> None:
    """Of two calls in doubt the first one dies again: the second one waits for a decision."""
    run_id, replies = new_run_id(), [asks(call("c1"), call("c2")), ANSWER]
    loop = asking(ledger, replies=replies, in_tool=crash_in("c1", "c2"))
    loop._adapter.parallel_tools = 2  # type: ignore[misc]
    with pytest.raises(Crash):
        loop.execute(Goal(), run_id=run_id)
    again = asking(ledger, replies=replies, in_tool=crash_in("c1"))
    with pytest.raises(Crash):
        again.recover(run_id, retry_in_doubt=True)
    assert [d.call_id for d in decisions(ledger, run_id)] == ["c1", "c2"]
    last = asking(ledger, replies=replies)
    with pytest.raises(DecisionRequiredError) as refused:
        last.recover(run_id)
    assert refused.value.call_ids == ("c1", "c2")
    assert (again.ran, last.ran) == ([], [])


def test_consent_ends_with_an_attempt_that_a_limit_ends(ledger: Ledger) -> None:
    """The deadline passed before the call was run: a later recovery asks."""
    run_id = interrupted(ledger, on_interrupt="ask")
    gone = Deadline(expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(Exception, match="2020"):
        asking(ledger).recover(run_id, deadline=gone, retry_in_doubt=True)
    loop = asking(ledger)
    with pytest.raises(DecisionRequiredError):
        loop.recover(run_id)
    assert loop.ran == []


def test_consent_in_a_fork_ends_with_the_attempt(ledger: Ledger) -> None:
    """A fork asks again although its tools would be retried."""
    parent = interrupted(ledger)
    fork = UUID(str(ledger.fork(parent, ledger.head(parent))))
    with pytest.raises(Crash):
        Planner(ledger=ledger, in_tool=crash_in("c2")).recover(fork, retry_in_doubt=True)
    loop = Planner(ledger=ledger)
    with pytest.raises(DecisionRequiredError):
        loop.recover(fork)
    assert loop.ran == []
    assert loop.recover(fork, retry_in_doubt=True)[0].output == Answer(3)


def test_a_decision_to_retry_is_used_up_by_one_attempt(ledger: Ledger) -> None:
    """A person's "retry" is about one attempt: a second crash asks again."""
    run_id = interrupted(ledger, on_interrupt="ask")
    ledger.append(run_id, ToolCallDecided(call_id="c2", decision="retry", attempt=1), ANY)
    with pytest.raises(Crash):
        asking(ledger, in_tool=crash_in("c2")).recover(run_id)
    for _ in range(2):
        loop = asking(ledger)
        with pytest.raises(DecisionRequiredError):
            loop.recover(run_id)
        assert loop.ran == []
        # A decision that names an earlier attempt decides nothing about this one.
        ledger.append(run_id, ToolCallDecided(call_id="c2", decision="retry", attempt=1), ANY)


def test_consent_does_not_replace_a_decision(ledger: Ledger) -> None:
    """That the call happened stays on record, also after consent to run it again."""
    run_id = interrupted(ledger, on_interrupt="ask")
    ledger.append(run_id, ToolCallDecided(call_id="c2", decision="completed", attempt=1), ANY)
    consent = ToolCallDecided(call_id="c2", decision="retry", attempt=1, until_resumed=True)
    ledger.append(run_id, consent, ANY)
    (open_call,) = state_at(ledger, run_id).tools.pending()
    assert open_call.decision == "completed"
    loop = asking(ledger)
    loop.recover(run_id, retry_in_doubt=True)
    assert loop.ran == ["c3"]


# --- what a decision carries -----------------------------------------------------------


def completed(*changes: SliceChange, **fields: Any) -> ToolCallDecided:
    return ToolCallDecided(call_id="c2", decision="completed", attempt=1, changes=changes, **fields)


def test_a_completed_call_says_and_changes_what_was_decided(ledger: Ledger) -> None:
    """Text, value and session changes are recorded with the result, as if the tool had."""
    run_id = interrupted(ledger, on_interrupt="ask")
    change = SliceChange("Plan", "Plan", "append", {"step": "c2"})
    ledger.append(run_id, completed(change, text="Did c2.", value={"done": 2}), ANY)
    response, session = asking(ledger).recover(run_id)
    assert response.output == Answer(3)
    assert session[Plan].all() == (Plan("c1"), Plan("c2"), Plan("c3"))
    records = list(ledger.read(run_id))
    (at,) = [
        n
        for n, r in enumerate(records)
        if isinstance(r.event, SliceEventApplied) and r.event.payload == {"step": "c2"}
    ]
    applied, result, message = (record.event for record in records[at : at + 3])
    assert isinstance(applied, SliceEventApplied)
    assert applied.call_id == "c2"
    assert isinstance(result, ToolCallCompleted)
    assert (result.call_id, result.value) == ("c2", {"done": 2})
    assert isinstance(message, MessageAppended)
    assert message.message.content == "Did c2."
    assert len({r.commit for r in records[at : at + 3]}) == 1
    assert replay(ledger, run_id, loop=asking(Ledger.open("memory://"))).divergence is None


@pytest.mark.parametrize(
    "unfit",
    [
        SliceChange("Plan", "Plan", "append", {"no": "step"}),
        SliceChange("Plan", "Unknown", "apply", {}),
        SliceChange("Plan", "Plan", "seed", "no list"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_with_all_of_the_decision(
    ledger: Ledger, unfit: SliceChange
) -> None:
    """The run fails with the change's number, nothing is applied, and another decision works."""
    run_id = interrupted(ledger, on_interrupt="ask")
    fits = SliceChange("Plan", "Plan", "append", {"step": "c2"})
    ledger.append(run_id, completed(fits, unfit), ANY)
    with pytest.raises(PromptEvaluationError, match=r"Change 2 .* turnledger resolve"):
        asking(ledger).recover(run_id)
    assert len(state_at(ledger, run_id).slices.all("Plan")) == 1
    assert replay(ledger, run_id, loop=asking(Ledger.open("memory://"))).divergence is None
    ledger.append(run_id, completed(fits), ANY)
    _, session = asking(ledger).recover(run_id)
    assert session[Plan].all() == (Plan("c1"), Plan("c2"), Plan("c3"))


def test_a_secret_in_a_carried_change_is_not_stored(ledger: Ledger) -> None:
    """A decision's changes are redacted like the events that they become."""
    run_id = interrupted(ledger, on_interrupt="ask")
    secret = "sk-ant-api03-" + "a1B2" * 24 + "AA"
    ledger.append(run_id, completed(SliceChange("Plan", "Plan", "append", {"step": secret})), ANY)
    assert not [r for r in ledger.read(run_id) if secret in r.row.data]
