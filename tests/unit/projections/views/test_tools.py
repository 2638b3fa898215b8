"""Given calls, starts and ends, when they are folded, then what became of each call."""

from __future__ import annotations

from unittest.mock import patch
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.projections.given import (
    amends,
    answers,
    asks,
    completes,
    continues,
    doubts,
    fails,
    folded,
    forks,
    moment,
    records,
    said,
    starts,
    supersedes,
)
from tests.unit.projections.random_runs import beginnings, small_world
from turnledger.ledger import (
    EvaluationStarted,
    Event,
    MessageAppended,
    RunStarted,
    ToolCallDecided,
    ToolMessageAmended,
)
from turnledger.projections import PendingTools, RunState, ToolCallView, fold
from turnledger.projections.persistent.containers import PersistentList
from turnledger.projections.views.tools import ToolsState


def only(state: ToolsState) -> ToolCallView:
    (call,) = state.calls
    return call


def pending(state: ToolsState) -> list[str]:
    return [call.call_id for call in state.pending()]


def decided(decision: str, call_id: str = "c1", **fields: object) -> ToolCallDecided:
    return ToolCallDecided(call_id=call_id, decision=decision, decided_by="ann", **fields)  # type: ignore[arg-type]


def test_a_call_that_was_asked_for_is_pending() -> None:
    """With its arguments, its evaluation and turn, and when it was asked for."""
    tools = folded(asks(1, "c1", turn=3)).tools
    assert only(tools) == ToolCallView(
        "c1", "search", '{"q":1}', "e1", 3, 1, "pending", asked_at=moment(1)
    )
    assert pending(tools) == ["c1"]


def test_a_call_that_was_started_is_still_pending_until_it_ended() -> None:
    """Attempts and times are those of its events."""
    call = only(folded(asks(1, "c1"), starts(), completes(value=[1])).tools)
    assert (call.status, call.attempts, call.value) == ("completed", 1, [1])
    assert (call.asked_at, call.started_at, call.ended_at) == (moment(1), moment(2), moment(3))
    assert pending(folded(asks(1, "c1"), starts()).tools) == ["c1"]
    assert pending(folded(asks(1, "c1"), starts(), completes()).tools) == []


def test_a_tool_message_alone_closes_its_call() -> None:
    """With or without a status event (X1)."""
    tools = folded(asks(1, "c1", "c2"), answers(2, "c1", "found")).tools
    call = tools.get("c1")
    assert call is not None
    assert (call.status, call.result, call.ended_at) == ("completed", "found", moment(2))
    assert pending(tools) == ["c2"]


def test_a_tool_message_that_is_an_error_fails_its_call() -> None:
    """success=False is failed, and not pending (X23)."""
    tools = folded(asks(1, "c1"), answers(2, "c1", "no", is_error=True)).tools
    assert only(tools).status == "failed"
    assert pending(tools) == []


def test_a_failed_call_says_why_and_is_not_pending() -> None:
    """The error stands beside the text for the model."""
    tools = folded(asks(1, "c1"), starts(), fails(), answers(2, "c1", "no", is_error=True)).tools
    call = only(tools)
    assert (call.status, call.error_type, call.error_message) == ("failed", "ValueError", "bad")
    assert call.result == "no"
    assert pending(tools) == []


def test_a_completed_call_stays_completed_though_its_message_is_an_error() -> None:
    """A vetoed call: the handler ran, its message says why its changes did not happen (X28)."""
    tools = folded(asks(1, "c1"), starts(), completes(), answers(2, "c1", "veto", is_error=True))
    assert only(tools.tools).status == "completed"
    assert only(tools.tools).ended_at == moment(3)


def test_the_first_result_of_a_call_is_its_result() -> None:
    """As in the history that is sent."""
    tools = folded(asks(1, "c1"), answers(2, "c1", "first"), answers(3, "c1", "second")).tools
    assert only(tools).result == "first"


def test_an_id_that_is_used_again_in_a_later_turn_is_another_call() -> None:
    """It is pending, though the first one was answered."""
    begin = (asks(1, "c1", turn=1), answers(2, "c1", "first"))
    tools = folded(*begin, asks(3, "c1", turn=2)).tools
    assert pending(tools) == ["c1"]
    assert [(call.turn, call.result) for call in tools.calls] == [(1, "first"), (2, None)]
    assert pending(folded(*begin, asks(3, "c1", turn=2), answers(4, "c1")).tools) == []


def test_the_same_message_again_changes_nothing() -> None:
    """Neither an answered call nor a pending one is asked for anew within its turn."""
    begin = (asks(1, "c1", "c2"), answers(2, "c1", "first"))
    one, two = folded(*begin).tools, folded(*begin, asks(1, "c1", "c2")).tools
    assert list(one.calls) == list(two.calls)


def test_a_message_for_a_call_that_nobody_asked_for_is_ignored() -> None:
    """So are calls that do not come from the assistant."""
    assert (
        len(folded(answers(1, "ghost"), said("tool", "", 2), said("user", "", 3)).tools.calls) == 0
    )


def test_a_start_without_its_question_is_a_call_all_the_same() -> None:
    """A run whose messages are recorded elsewhere."""
    tools = folded(starts("c9", attempt=2)).tools
    assert only(tools) == ToolCallView(
        "c9",
        "search",
        evaluation_id="e1",
        number=1,
        status="started",
        attempts=2,
        started_at=moment(1),
    )


def test_an_amendment_is_beside_what_the_tool_said() -> None:
    """The last one, an older one, one before its message; an unknown one changes nothing."""
    begin = (asks(1, "c1", "c2"), answers(2, "c1", "A"), answers(3, "c2", "B"))
    tools = folded(*begin, amends(3, "new B"), amends(2, "new A"), amends(99, "x")).tools
    assert [call.result for call in tools.calls] == ["A", "B"]
    assert [call.amended for call in tools.calls] == ["new A", "new B"]
    early = folded(asks(1, "c1", "c2"), amends(2, "new A"), *begin[1:]).tools
    assert [(call.result, call.amended) for call in early.calls] == [("A", "new A"), ("B", None)]


def test_calls_stand_in_the_order_in_which_they_were_asked_for() -> None:
    """Whenever they start, end, are amended or settle, and however the records are cut in pages."""
    events = (
        asks(1, "c1", "c2", "c3"),
        starts("c3"),
        completes("c3", message=2),
        answers(2, "c3", "C"),
        answers(3, "c1", "A"),
        said("assistant", "and", 4, turn=2),
        asks(5, "c4", turn=3),
        amends(2, "new C"),
        answers(6, "c2", "B"),
    )
    at_once = folded(*events).tools
    step_by_step = RunState.initial()
    for record in records(list(events)):
        step_by_step = step_by_step.after([record])
    for tools in (at_once, step_by_step.tools):
        assert [call.number for call in tools.calls] == [1, 2, 3, 4]
        assert [call.result for call in tools.calls] == ["A", "B", "C", None]
        assert [call.amended for call in tools.calls] == [None, None, "new C", None]


def test_a_message_that_was_amended_before_it_came_is_shown_as_amended() -> None:
    """Records may be read in an order in which no loop writes them."""
    tools = folded(asks(1, "c1"), amends(2, "amended"), answers(2, "c1", "A")).tools
    assert (only(tools).result, only(tools).amended) == ("A", "amended")


def test_the_end_of_an_evaluation_does_not_look_at_the_run() -> None:
    """Its last completed call is found among the calls since it began."""
    others = [
        event
        for number in range(400)
        for event in (
            asks(2 * number, f"c{number}", turn=number, evaluation_id="e1"),
            answers(2 * number + 1, f"c{number}", evaluation_id="e1"),
        )
    ]
    ours = (asks(900, "ours", evaluation_id="e2"), answers(901, "ours", evaluation_id="e2"))
    tools = folded(*others, *ours, asks(902, "open", evaluation_id="e2")).tools
    with patch.object(PersistentList, "_leaf", side_effect=AssertionError("it looked back")):
        found = tools.last_completed("e2")
        assert found is not None
        assert found.call_id == "ours"
        with pytest.raises(AssertionError, match="looked back"):
            tools.get("c0")


# --- in doubt ------------------------------------------------------------------------


def test_the_last_completed_call_of_an_evaluation_is_the_last_that_was_asked_for() -> None:
    """Not the last that ended, no failed one, none without its message, none of another's."""
    other = (asks(1, "c0", evaluation_id="e0"), answers(2, "c0", evaluation_id="e0"))
    ours = asks(3, "c1", "c2", "c3", "c4")
    ends = (
        answers(4, "c2", "B"),
        answers(5, "c1", "A"),
        answers(6, "c3", "no", is_error=True),
        starts("c4"),
        completes("c4"),
    )
    speaks = said("assistant", "done", 7, turn=9)
    for events in ((*other, ours, *ends), (*other, ours, *ends, speaks)):
        found = folded(*events).tools.last_completed("e1")
        assert found is not None
        assert (found.call_id, found.result) == ("c2", "B")
        amended = folded(*events, amends(4, "C")).tools.last_completed("e1")
        assert amended is not None
        assert (amended.result, amended.amended) == ("B", "C")
    assert folded(*other).tools.last_completed("e1") is None
    assert folded(ours).tools.last_completed("e1") is None


def test_an_answer_that_comes_late_does_not_hide_the_last_completed_call() -> None:
    """Another evaluation's call may be settled after ours."""
    tools = folded(
        asks(1, "c1", evaluation_id="e1"),
        asks(2, "c2", evaluation_id="e2"),
        answers(3, "c2", evaluation_id="e2"),
        said("assistant", "thinking", 4, evaluation_id="e2", turn=8),
        answers(5, "c1", evaluation_id="e1"),
        said("assistant", "done", 6, evaluation_id="e2", turn=9),
    ).tools
    assert [call.call_id for call in tools.settled] == ["c2", "c1"]
    for evaluation_id, call_id in (("e1", "c1"), ("e2", "c2")):
        found = tools.last_completed(evaluation_id)
        assert found is not None
        assert found.call_id == call_id


def test_an_accepted_evaluation_takes_over_the_open_calls() -> None:
    """Each with what is known of it; calls that ended stay where they were, and so do others'."""
    accepted = EvaluationStarted(
        evaluation_id="e2",
        prompt_ns="ns",
        prompt_key="key",
        prompt_digest="d",
        after="e1",
        accepted=True,
    )
    before = [
        asks(1, "c1", "c2", "c3"),
        starts("c1"),
        completes("c1"),
        answers(2, "c1"),
        starts("c2"),
        asks(3, "c4", evaluation_id="e0"),
    ]
    tools = folded(*before, accepted).tools
    shown = [(call.call_id, call.evaluation_id, call.status) for call in tools.calls]
    assert shown == [
        ("c1", "e1", "completed"),
        ("c2", "e2", "started"),
        ("c3", "e2", "pending"),
        ("c4", "e0", "pending"),
    ]
    assert {call.call_id for call in tools.pending()} == {"c2", "c3", "c4"}
    assert tools.last_completed("e2") is None
    ended = folded(
        *before,
        accepted,
        starts("c3", evaluation_id="e2"),
        answers(1, "c3", evaluation_id="e2"),
    ).tools
    last = ended.last_completed("e2")
    assert last is not None
    assert last.call_id == "c3"
    turn = msgspec.structs.replace(accepted, accepted=False)
    assert [call.evaluation_id for call in folded(*before, turn).tools.calls][1] == "e1"


@given(st.lists(small_world | beginnings, max_size=40))
def test_the_last_completed_call_is_the_one_that_looking_at_all_of_them_finds(
    events: list[Event],
) -> None:
    """In runs of any shape in which each message is said once, and amended after that."""
    known: set[UUID] = set()
    possible: list[Event] = []
    for event in events:
        if isinstance(event, MessageAppended):
            if event.message.message_id in known:
                continue
            known.add(event.message.message_id)
        if not isinstance(event, ToolMessageAmended) or event.message_id in known:
            possible.append(event)
    tools = folded(*possible).tools
    for evaluation_id in ("e1", "e2", "", "e3"):
        of_it = (
            call
            for call in reversed(tools.calls)
            if call.evaluation_id == evaluation_id
            and call.status == "completed"
            and call.message_id is not None
        )
        assert tools.last_completed(evaluation_id) == next(of_it, None)


def test_a_call_in_doubt_is_pending_and_runs_again() -> None:
    """The next attempt counts."""
    tools = folded(asks(1, "c1"), starts(), doubts()).tools
    assert only(tools).status == "in_doubt"
    assert pending(tools) == ["c1"]
    again = only(folded(asks(1, "c1"), starts(), doubts(), starts(attempt=2)).tools)
    assert (again.status, again.attempts, again.started_at) == ("started", 2, moment(4))


def test_a_decision_stands_with_its_call_until_somebody_acts_on_it() -> None:
    """What was decided, by whom, with what text and value."""
    tools = folded(
        asks(1, "c1", "c2"), starts(), doubts(), decided("completed", text="was sent", value=[7])
    ).tools
    call = tools.get("c1")
    assert call is not None
    assert (call.status, call.decision, call.decided_by) == ("in_doubt", "completed", "ann")
    assert (call.decision_text, call.decision_value) == ("was sent", [7])
    assert pending(tools) == ["c1", "c2"]


def test_a_decision_is_about_one_doubt_only() -> None:
    """A call that is in doubt again needs another one."""
    call = only(
        folded(
            asks(1, "c1"), starts(), doubts(), decided("retry"), starts(attempt=2), doubts()
        ).tools
    )
    assert (call.status, call.decision, call.decided_by) == ("in_doubt", None, "")


def test_a_decision_about_a_call_that_is_over_or_unknown_changes_nothing() -> None:
    """It came too late."""
    begin = (asks(1, "c1"), answers(2, "c1"))
    one, two = folded(*begin).tools, folded(*begin, decided("retry"), decided("retry", "c9")).tools
    assert list(one.calls) == list(two.calls)


def test_of_two_open_calls_with_one_id_the_later_is_decided() -> None:
    """Decisions name no evaluation."""
    tools = folded(
        asks(1, "c1"), asks(2, "c1", evaluation_id="e2"), starts(), decided("failed")
    ).tools
    assert [call.decision for call in tools.calls] == [None, "failed"]
    assert tools.get("c1", "e1") == tools.calls[0]
    latest = tools.get("c1")
    assert latest is not None
    assert latest.evaluation_id == "e2"
    assert tools.get("c1", "e3") is None
    assert tools.get("c7") is None


# --- superseding, forking, going on --------------------------------------------------


def test_the_calls_of_a_superseded_evaluation_wait_for_nobody() -> None:
    """A visibility expansion is raised inside a tool and leaves its call open (X20)."""
    tools = folded(
        asks(1, "c1"), starts(), supersedes("e1"), asks(2, "c2", evaluation_id="e2")
    ).tools
    assert pending(tools) == ["c2"]
    old = tools.get("c1")
    assert old is not None
    assert (old.status, old.superseded) == ("started", True)


def test_what_a_superseded_evaluation_asks_for_later_is_superseded_too() -> None:
    """Whether its question or its start comes first."""
    assert pending(folded(supersedes("e1"), asks(1, "c1"), starts("c2")).tools) == []
    assert pending(folded(supersedes("e2"), asks(1, "c1")).tools) == ["c1"]


def test_a_fork_puts_calls_that_were_started_in_doubt() -> None:
    """One that was only asked for is pending; what was over stays over."""
    tools = folded(
        RunStarted(),
        asks(1, "c1", "c2", "c3"),
        starts("c1"),
        starts("c2"),
        completes("c2"),
        forks(5),
    ).tools
    statuses = [call.status for call in tools.calls]
    assert statuses == ["in_doubt", "completed", "pending"]
    assert pending(tools) == ["c1", "c3"]


def test_a_continuation_has_no_calls() -> None:
    """They belong to the conversation, which it does not keep."""
    tools = folded(RunStarted(), asks(1, "c1"), starts(), continues(3)).tools
    assert (len(tools.calls), pending(tools)) == (0, [])


def test_a_run_can_have_any_number_of_open_calls() -> None:
    """They are pending in the order in which they were asked for, and end in any order."""
    ids = [f"c{number}" for number in range(100)]
    tools = folded(asks(1, *ids), *(answers(2 + n, f"c{n}") for n in range(0, 100, 2))).tools
    assert pending(tools) == ids[1::2]
    tools = folded(asks(1, *ids), *(answers(2 + n, f"c{n}") for n in range(99, -1, -1))).tools
    assert pending(tools) == []


def test_every_call_says_its_status_in_json() -> None:
    """Also while it is the default."""
    view = PendingTools()
    state = fold(records([asks(1, "c1", "c2"), answers(2, "c1")]), view)
    assert [call["status"] for call in view.to_json(state)] == ["completed", "pending"]
