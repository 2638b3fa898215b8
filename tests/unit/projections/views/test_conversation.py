"""Given messages, when they are folded, then a history that can be sent."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.projections.given import (
    amends,
    answers,
    asks,
    continues,
    evaluation,
    folded,
    forks,
    raw_record,
    records,
    said,
    supersedes,
    system,
)
from tests.unit.projections.random_runs import messages
from turnledger.ledger import (
    MediaContent,
    MessageAppended,
    RunStarted,
    TextContent,
    ToolCallRecord,
    ToolMessageAmended,
)
from turnledger.projections import (
    ChatTurn,
    Conversation,
    MediaBlock,
    MessageHistory,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    fold,
)
from turnledger.projections.history.blocks import STUB_TEXT
from turnledger.projections.history.message_history import blocks_of

USE = {call: ToolUseBlock(call, "search", '{"q":1}') for call in ("c1", "c2", "c3")}


def results(history: MessageHistory) -> list[tuple[str, str]]:
    """Every result in the history: its call and its text."""
    return [
        (block.call_id, block.content)
        for turn in history.to_list()
        for block in turn.blocks
        if isinstance(block, ToolResultBlock)
    ]


def test_before_the_first_event_nothing_was_said() -> None:
    """And nothing can be sent."""
    state = folded()
    assert state.history == MessageHistory.new()
    assert state.conversation.latest == ""
    assert state.to_json()["history"]["turns"] == []


def test_a_conversation_that_begins_with_the_assistant_keeps_everything() -> None:
    """System, then at once an assistant: a turn that nobody said leads, and is marked."""
    history = folded(system(), said("assistant", "Hello.", 1)).history
    assert history.system == "Be brief."
    assert history.has_synthetic_lead
    assert history.to_list()[1:] == [ChatTurn("assistant", (TextBlock("Hello."),))]
    assert not history.repairs


def test_an_evaluation_without_a_name_keeps_everything_too() -> None:
    """The empty id is an id like another."""
    state = folded(said("assistant", "Hello.", 0, evaluation_id=""), evaluation("e1"))
    assert len(state.conversation.history("")) == 2
    assert list(state.conversation.earlier) == [""]


def test_a_real_user_takes_the_place_of_the_synthetic_lead() -> None:
    """It was only there so that the first turn is a user's."""
    history = folded(system(), said("user", "Hi", 1), said("assistant", "Hello.", 2)).history
    assert not history.has_synthetic_lead
    assert [turn.role for turn in history.to_list()] == ["user", "assistant"]


def test_results_that_come_one_by_one_and_out_of_order_find_their_place() -> None:
    """Parallel tools send the same bytes however they finished."""
    begin = (system(), said("user", "Hi", 1), asks(2, "c1", "c2"))
    one = folded(*begin, answers(3, "c1", "A"), answers(4, "c2", "B")).history
    other = folded(*begin, answers(3, "c2", "B"), answers(4, "c1", "A")).history
    assert one == other
    assert results(one) == [("c1", "A"), ("c2", "B")]


def test_an_empty_assistant_message_with_calls_has_no_text_block() -> None:
    """`content or ""` is no text."""
    history = folded(said("user", "Hi", 0), asks(1, "c1")).history
    assert history.to_list()[-1] == ChatTurn("assistant", (USE["c1"],))
    assert [call.call_id for call in history.open_calls] == ["c1"]


def test_media_parts_become_media_blocks() -> None:
    """Parts stand for the content."""
    picture = MediaContent("image", url="https://x/y.png", mime="image/png", prompt_hint="a cat")
    message = said("user", "ignored", 0, parts=(TextContent("See"), picture))
    (turn,) = folded(message).history.to_list()
    assert turn.blocks == (
        TextBlock("See"),
        MediaBlock("image", url="https://x/y.png", mime="image/png", prompt_hint="a cat"),
    )


def test_a_failed_tool_message_is_an_error_result() -> None:
    """The model is told."""
    history = folded(said("user", "Hi", 0), asks(1, "c1"), answers(2, "c1", is_error=True)).history
    (result,) = history.to_list()[-1].blocks
    assert isinstance(result, ToolResultBlock)
    assert result.is_error


def test_a_call_that_was_never_answered_gets_a_stub_when_the_conversation_goes_on() -> None:
    """Once the assistant speaks after a user's turn."""
    history = folded(
        said("user", "Hi", 0), asks(1, "c1"), said("user", "Well?", 2), said("assistant", "Hm", 3)
    ).history
    assert results(history) == [("c1", STUB_TEXT)]


# --- amending ------------------------------------------------------------------------

TWO_RESULTS = (
    system(),
    said("user", "Hi", 1),
    asks(2, "c1"),
    answers(3, "c1", "A"),
    asks(4, "c2", turn=2),
    answers(5, "c2", "B"),
    said("assistant", "Done.", 6, turn=3),
)


def test_the_last_tool_message_reads_differently_after_it_was_amended() -> None:
    """What was said since stays; so does the state before."""
    before = folded(*TWO_RESULTS)
    state = folded(*TWO_RESULTS, amends(5, '{"answer":42}'))
    assert results(state.history) == [("c1", "A"), ("c2", '{"answer":42}')]
    assert state.history.last == ChatTurn("assistant", (TextBlock("Done."),))
    assert results(before.history) == [("c1", "A"), ("c2", "B")]


def test_an_older_tool_message_can_be_amended_too() -> None:
    """The others keep their text, and the next amendment finds its message as well."""
    state = folded(*TWO_RESULTS, amends(3, "shorter"), amends(5, "short"))
    assert results(state.history) == [("c1", "shorter"), ("c2", "short")]
    assert len(state.history) == len(folded(*TWO_RESULTS).history)


def test_amending_twice_leaves_the_latest_text() -> None:
    """Each amendment is a fact of its own."""
    state = folded(*TWO_RESULTS, amends(5, "once"), amends(5, "twice"))
    assert results(state.history)[-1] == ("c2", "twice")


def test_only_the_amended_message_changes_though_a_call_id_is_used_again() -> None:
    """In a later turn, or in another evaluation."""
    again = (
        said("user", "Hi", 0),
        asks(1, "c1"),
        answers(2, "c1", "A"),
        asks(3, "c1", turn=2),
        answers(4, "c1", "B"),
        said("user", "More", 5),
    )
    assert results(folded(*again, amends(2, "x")).history) == [("c1", "x"), ("c1", "B")]
    other = (
        *again,
        said("user", "Hi", 10, evaluation_id="e2"),
        asks(11, "c1", evaluation_id="e2"),
        answers(12, "c1", "C", evaluation_id="e2"),
    )
    state = folded(*other, amends(2, "x"))
    assert results(state.conversation.history("e1")) == [("c1", "x"), ("c1", "B")]
    assert results(state.history) == [("c1", "C")]


def test_amending_a_message_that_found_no_place_changes_nothing() -> None:
    """A second result of a call, an orphan, or a message that nobody knows."""
    begin = (said("user", "Hi", 0), asks(1, "c1"), answers(2, "c1", "A"))
    for last in (answers(3, "c1", "again"), answers(3, "ghost", "boo")):
        state = folded(*begin, last, said("user", "So", 4), asks(5, "c2"), answers(6, "c2", "B"))
        later = folded(
            *begin,
            last,
            said("user", "So", 4),
            asks(5, "c2"),
            answers(6, "c2", "B"),
            amends(3, "x"),
            amends(99, "y"),
        )
        assert later.history == state.history


def test_amending_keeps_what_is_known_of_repairs() -> None:
    """Nothing vanishes silently because an older message was amended."""
    begin = (*TWO_RESULTS[:4], answers(20, "ghost"), *TWO_RESULTS[4:])
    before, after = folded(*begin).history, folded(*begin, amends(3, "x")).history
    assert any(repair.call_id == "ghost" for repair in before.repairs)
    assert after.repairs == before.repairs


# --- evaluations ---------------------------------------------------------------------


def test_a_history_is_one_evaluations_and_by_default_the_latest() -> None:
    """Earlier ones can be asked for by name."""
    state = folded(said("user", "one", 0), said("user", "two", 1, evaluation_id="e2")).conversation
    assert state.history().to_list() == [ChatTurn("user", (TextBlock("two"),))]
    assert state.history("e1").to_list() == [ChatTurn("user", (TextBlock("one"),))]
    assert state.history("nobody") == MessageHistory.new()


def test_a_superseded_evaluation_no_longer_counts() -> None:
    """Until the next one begins, the one before it is the latest."""
    begin = (said("user", "one", 0), said("user", "two", 1, evaluation_id="e2"))
    state = folded(*begin, supersedes("e2"))
    assert state.conversation.latest == "e1"
    assert state.history.to_list() == [ChatTurn("user", (TextBlock("one"),))]
    shown = state.to_json()["history"]
    assert (shown["evaluation_id"], shown["superseded"]) == ("e1", ["e2"])
    newest = folded(*begin, supersedes("e2"), said("user", "three", 2, evaluation_id="e3"))
    assert newest.conversation.latest == "e3"


def test_when_all_are_superseded_there_is_no_history() -> None:
    """Superseding again, or one that nobody knows, is harmless."""
    state = folded(said("user", "one", 0), supersedes("e1"), supersedes("e1"), supersedes("e9"))
    assert len(state.history) == 0
    assert state.conversation.latest == ""


def test_going_back_to_an_evaluation_goes_on_with_its_history() -> None:
    """Messages of two evaluations may alternate."""
    state = folded(
        said("user", "a", 0),
        said("user", "b", 1, evaluation_id="e2"),
        said("assistant", "c", 2),
        said("assistant", "d", 3, evaluation_id="e2"),
    ).conversation
    texts = {
        name: [turn.blocks[0].text for turn in state.history(name).to_list()]  # type: ignore[union-attr]
        for name in ("e1", "e2")
    }
    assert texts == {"e1": ["a", "c"], "e2": ["b", "d"]}
    assert list(state.earlier) == ["e1"]


def test_starting_an_evaluation_that_is_current_changes_nothing() -> None:
    """Its history goes on: a resumed run says so again."""
    state = folded(said("user", "a", 0), evaluation("e1"))
    assert len(state.history) == 1


# --- forks and continuations ---------------------------------------------------------


def test_a_fork_keeps_the_conversation() -> None:
    """With its open calls."""
    begin = (RunStarted(), said("user", "Hi", 0), asks(1, "c1"))
    assert folded(*begin, forks(3)).history == folded(*begin).history


def test_a_continuation_begins_a_new_conversation() -> None:
    """Nothing of the old one is left, not even to be amended."""
    state = folded(RunStarted(), *TWO_RESULTS, continues(8), amends(5, "x"))
    assert len(state.history) == 0
    assert state.to_json()["history"]["messages"] == []


def test_the_text_of_an_old_tag_is_in_the_history() -> None:
    """`message.recorded` is read as today's event by every fold."""
    old = (
        '{"role":"user","content":"Hi","evaluation_id":"e1","sequence":0,'
        '"created_at":"2025-11-03T09:15:27Z","message_id":"2f1b6f0e-6f5c-4b4e-9a53-0a4b1c7a9d10"}'
    )
    state = fold([raw_record("message.recorded", old, 1)], Conversation())
    assert state.history().to_list() == [ChatTurn("user", (TextBlock("Hi"),))]


def test_the_outcome_is_the_content_and_the_digest_is_exact() -> None:
    """Other message ids: the same outcome, another state. Another text: both differ."""
    view = Conversation()
    one, two, three = (
        fold(records([said("user", text, 0, message_id=ident)]), view)
        for text, ident in (
            ("Hi", said("user", "", 1).message.message_id),
            ("Hi", said("user", "", 2).message.message_id),
            ("Ho", said("user", "", 1).message.message_id),
        )
    )
    assert view.outcome(one) == view.outcome(two) != view.outcome(three)
    assert len({view.digest(state) for state in (one, two, three)}) == 3


# A message (its role, evaluation and call), or which of the earlier ones is amended.
spoken = st.tuples(
    st.sampled_from(["user", "assistant", "assistant", "tool", "tool"]),
    st.sampled_from(["e1", "e1", "e2"]),
    st.sampled_from(["c1", "c2"]),
)


@given(st.lists(spoken | st.integers(0, 12), max_size=30))
def test_an_amended_history_is_the_one_in_which_it_was_said_like_that(steps: list[Any]) -> None:
    """Whichever message is amended, whenever: the turns are those of the amended messages."""
    events: list[MessageAppended | ToolMessageAmended] = []
    for place, step in enumerate(steps):
        if isinstance(step, int):
            events.append(amends(step, f"amended at {place}"))
            continue
        role, evaluation_id, call_id = step
        asked = (ToolCallRecord(call_id, "search", "{}"),) if role == "assistant" else ()
        events.append(
            said(
                role,
                f"{place}",
                place,
                evaluation_id=evaluation_id,
                tool_calls=asked,
                tool_call_id=call_id if role == "tool" else None,
            )
        )
    latest = {
        event.message_id: event.content
        for place, event in enumerate(events)
        if isinstance(event, ToolMessageAmended)
        and any(
            isinstance(before, MessageAppended)
            and before.message.role == "tool"
            and before.message.message_id == event.message_id
            for before in events[:place]
        )
    }
    as_if = [
        MessageAppended(
            message=msgspec.structs.replace(
                event.message, content=latest.get(event.message.message_id, event.message.content)
            )
        )
        for event in events
        if isinstance(event, MessageAppended)
    ]
    state, expected = folded(*events).conversation, folded(*as_if).conversation
    for evaluation_id in ("e1", "e2"):
        assert state.history(evaluation_id).to_list() == expected.history(evaluation_id).to_list()
        assert state.history(evaluation_id) == expected.history(evaluation_id)


@given(st.lists(messages.filter(lambda e: e.message.evaluation_id == "e1"), max_size=30))
def test_recorded_messages_are_told_as_add_would(events: list[MessageAppended]) -> None:
    """The short way that usual messages take leads where the long way does, repairs included."""
    plain = MessageHistory.new(synthetic_lead=True)
    for event in events:
        message = event.message
        if message.role == "system":
            plain = plain.with_system(message.content)
        else:
            role: Any = "assistant" if message.role == "assistant" else "user"
            plain = plain.add(ChatTurn(role, blocks_of(message)))
    if not events:
        return
    found = fold(records(events), Conversation()).history("e1")
    assert found.to_list() == plain.to_list()
    assert (found.repairs, found.digest, found.system) == (
        plain.repairs,
        plain.digest,
        plain.system,
    )
