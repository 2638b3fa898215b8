"""S0's three questions about a conversation that is kept as a slice."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.unit.projections.given import START, answers, asks, inner, system
from turnledger.ledger import InnerMessage, ToolCallRecord
from turnledger.projections import (
    get_inner_messages,
    get_latest_evaluation_id,
    get_pending_tool_calls,
)


class Session:
    """A fake of one: it has `select_all`."""

    def __init__(self, *messages: InnerMessage) -> None:
        self._messages = messages

    def select_all(self, slice_type: Any, /) -> tuple[Any, ...]:
        assert slice_type is InnerMessage
        return self._messages


SYSTEM = system().message
ASKS = asks(1, "c1", "c2").message
A, B = answers(2, "c1").message, answers(3, "c2").message


def test_an_empty_session_has_no_messages_no_evaluation_and_no_calls() -> None:
    """None of the questions fails."""
    assert get_inner_messages(Session()) == ()
    assert get_inner_messages(Session(), "e1") == ()
    assert get_latest_evaluation_id(Session()) is None
    assert get_pending_tool_calls(Session(), "e1") == ()


def test_messages_come_by_evaluation_and_sequence() -> None:
    """All of them, or those of one evaluation."""
    other = inner("system", "x", 0, evaluation_id="e0")
    session = Session(inner("user", "b", 2), SYSTEM, other, inner("user", "a", 1))
    found = [(m.evaluation_id, m.sequence) for m in get_inner_messages(session)]
    assert found == [("e0", 0), ("e1", 0), ("e1", 1), ("e1", 2)]
    assert [m.sequence for m in get_inner_messages(session, "e1")] == [0, 1, 2]
    assert get_inner_messages(session, "nobody") == ()


def test_equal_sequences_stay_in_the_slices_order() -> None:
    """Sorting is stable."""
    session = Session(inner("user", "first", 1), inner("user", "second", 1))
    assert [m.content for m in get_inner_messages(session)] == ["first", "second"]


def test_the_latest_evaluation_is_that_of_the_latest_system_message() -> None:
    """By its time, not by its place, its id, or what else was said later."""
    late = inner("system", "x", 5, evaluation_id="a")
    session = Session(late, SYSTEM, inner("user", "later still", 9))
    assert get_latest_evaluation_id(session) == "a"
    assert get_latest_evaluation_id(Session(inner("user", "no system", 0))) is None


def test_of_equal_times_the_later_in_the_slice_is_the_latest() -> None:
    """The ledger's order decides (X4)."""
    twins = [inner("system", "x", 0, evaluation_id=name, created_at=START) for name in "zab"]
    assert get_latest_evaluation_id(Session(*twins)) == "b"


def test_calls_without_a_tool_message_are_pending() -> None:
    """In the order in which they were asked for; a crash after tool A leaves B (S0-21)."""
    assert get_pending_tool_calls(Session(SYSTEM, ASKS), "e1") == ASKS.tool_calls
    assert get_pending_tool_calls(Session(SYSTEM, ASKS, A), "e1") == (ASKS.tool_calls[1],)
    assert get_pending_tool_calls(Session(SYSTEM, ASKS, B, A), "e1") == ()


def test_a_failed_tool_message_answers_its_call_too() -> None:
    """success=False is failed, and not pending (X23)."""
    failed = msgspec.structs.replace(A, is_error=True)
    session = Session(SYSTEM, ASKS, failed)
    assert [call.call_id for call in get_pending_tool_calls(session, "e1")] == ["c2"]
    assert [call.status for call in get_inner_messages(session)[1].tool_calls] == [
        "failed",
        "pending",
    ]


def test_calls_of_another_evaluation_are_not_asked_about() -> None:
    """Nor do its tool messages answer ours, though the ids are the same."""
    elsewhere = msgspec.structs.replace(A, evaluation_id="e2")
    session = Session(ASKS, elsewhere)
    assert len(get_pending_tool_calls(session, "e1")) == 2
    assert get_pending_tool_calls(session, "e2") == ()


def test_an_id_that_is_used_again_is_pending_again() -> None:
    """A tool message answers the call before it."""
    again = asks(4, "c1", turn=2).message
    session = Session(ASKS, A, B, again)
    assert get_pending_tool_calls(session, "e1") == again.tool_calls


def test_the_status_of_a_finished_call_is_projected() -> None:
    """The recorded message never changes; the view of it does (S0-8, X1)."""
    messages = get_inner_messages(Session(SYSTEM, ASKS, A))
    assert messages[1].tool_calls == (
        ToolCallRecord("c1", "search", '{"q":1}', "completed"),
        ToolCallRecord("c2", "search", '{"q":1}', "pending"),
    )
    assert ASKS.tool_calls[0].status == "pending"
    assert messages[0] is SYSTEM


def test_a_status_that_was_recorded_is_kept() -> None:
    """A snapshot may bring messages whose calls are marked already (X16)."""
    marked = (ToolCallRecord("c1", "search", "{}", "failed"),)
    message = msgspec.structs.replace(ASKS, tool_calls=marked)
    assert get_inner_messages(Session(message, A))[0].tool_calls == marked


def test_only_an_assistant_asks_and_only_a_tool_answers() -> None:
    """Calls and answers in other roles count for nothing."""
    asking_user = msgspec.structs.replace(ASKS, role="user")
    answering_user = msgspec.structs.replace(A, role="user")
    assert get_pending_tool_calls(Session(asking_user), "e1") == ()
    assert len(get_pending_tool_calls(Session(ASKS, answering_user), "e1")) == 2
