"""Conversations of steps: each message is recorded once, in the evaluation that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from turnledger.ledger import (
    NEW,
    EvaluationStarted,
    Event,
    Ledger,
    MessageAppended,
    RunStarted,
    new_run_id,
)
from turnledger.projections import ChatTurn, TextBlock, ToolResultBlock, ToolUseBlock
from turnledger.runtime.steps.messages.conversation import Conversation


def _user(text: str) -> ChatTurn:
    return ChatTurn("user", (TextBlock(text),))


def _assistant(text: str) -> ChatTurn:
    return ChatTurn("assistant", (TextBlock(text),))


def _said(events: Sequence[Event]) -> list[tuple[str, str]]:
    return [
        (event.message.role, event.message.content)
        for event in events
        if isinstance(event, MessageAppended)
    ]


def test_only_what_is_new_is_recorded() -> None:
    """The second request repeats the first and its reply; one evaluation holds them all."""
    talk = Conversation()
    first = talk.asked("chat", "Be kind.", [_user("One?")])
    assert _said(first.events) == [("system", "Be kind."), ("user", "One?")]
    events, message_id = talk.replied(first, _assistant("1"))
    assert isinstance(events[-1], MessageAppended)
    assert events[-1].message.message_id == message_id
    second = talk.asked("chat", "Be kind.", [_user("One?"), _assistant("1"), _user("Two?")])
    assert _said(second.events) == [("user", "Two?")]
    assert second.evaluation_id == first.evaluation_id


def test_another_conversation_is_another_evaluation() -> None:
    """A subagent with its own system text or question, and one that forgot the beginning."""
    talk = Conversation()
    first = talk.asked("chat", "Be kind.", [_user("One?")])
    others = [
        talk.asked("chat", "Be quick.", [_user("One?")]),
        talk.asked("chat", "Be kind.", [_user("Another?")]),
        talk.asked("responses", "Be kind.", [_user("One?")]),
    ]
    assert all(isinstance(one.events[0], EvaluationStarted) for one in others)
    assert len({one.evaluation_id for one in (first, *others)}) == 4


def test_a_second_reply_to_the_same_messages_is_a_conversation_of_its_own() -> None:
    """Two samples of one question: neither stands in the other's conversation."""
    talk = Conversation()
    first, second = (talk.asked("chat", "", [_user("One?")]) for _ in range(2))
    talk.replied(first, _assistant("1"))
    events, _ = talk.replied(second, _assistant("uno"))
    assert isinstance(events[0], EvaluationStarted)
    assert _said(events) == [("user", "One?"), ("assistant", "uno")]
    third = talk.asked("chat", "", [_user("One?"), _assistant("uno"), _user("Two?")])
    assert _said(third.events) == [("user", "Two?")]


def test_calls_and_results_are_messages_with_their_names() -> None:
    """A result says which tool it is of, though a request may not."""
    talk = Conversation()
    call = ChatTurn("assistant", (ToolUseBlock("c1", "add", '{"n":1}'),))
    result = ChatTurn("user", (ToolResultBlock("c1", "2"), TextBlock("Go on.")))
    asked = talk.asked("chat", "", [_user("One?"), call, result])
    messages = [event.message for event in asked.events if isinstance(event, MessageAppended)]
    assert [one.role for one in messages] == ["user", "assistant", "tool", "user"]
    assert (messages[2].tool_call_id, messages[2].tool_name) == ("c1", "add")
    assert [one.sequence for one in messages] == [0, 1, 2, 3]


_TEXTS = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.lists(_TEXTS, min_size=1, max_size=4), max_size=6))
def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(talks: list[list[str]]) -> None:
    """Folded from the record or not, the same requests add the same messages."""
    live, run_id = Conversation(), new_run_id()
    with Ledger.open("memory://") as ledger:
        ledger.append(run_id, RunStarted(), expected_version=NEW)
        for talk in talks:
            turns = [
                _user(text) if place % 2 == 0 else _assistant(text)
                for place, text in enumerate(talk)
            ]
            resumed = Conversation(ledger.read(run_id))
            again, now = resumed.asked("k", "", turns), live.asked("k", "", turns)
            assert _said(again.events) == _said(now.events)
            replied, _ = live.replied(now, _assistant("reply"))
            assert _said(resumed.replied(again, _assistant("reply"))[0]) == _said(replied)
            ledger.append(run_id, [*now.events, *replied], expected_version=ledger.head(run_id))
