"""Thinking on Anthropic's wire, and requests of any history, thinking in it or not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.anthropic_messages import AnthropicMessages as Server
from tests.unit.adapters.anthropic_pieces import (
    ADAPTIVE,
    ADD,
    BUDGET,
    HEADERS,
    WIRE,
    assistant,
    encoded,
    request,
    text,
    thinking,
    thought,
    use,
    user,
)
from turnledger.projections import (
    ChatTurn,
    MediaBlock,
    MessageHistory,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

OFF = {"type": "disabled"}


# --- thinking -----------------------------------------------------------------------------


def test_thinking_goes_back_as_it_came_and_where_it_stood() -> None:
    """Texts and calls between it are found again in the turn."""
    redacted = {"type": "redacted_thinking", "data": "xyz"}
    content = [
        thinking("one"),
        text("First "),
        use("c1", n=1),
        redacted,
        text("then."),
        use("c2"),
    ]
    payload = encoded(
        user("Go"),
        assistant(
            "First then.", ToolUseBlock("c1", "add", '{"n":1}'), ToolUseBlock("c2", "add", "{}")
        ),
        user(ToolResultBlock("c1", "1"), ToolResultBlock("c2", "2")),
        provider_data={2: thought(*content)},
        options={"thinking": BUDGET},
        tools=(ADD,),
    )
    assert payload["messages"][1]["content"] == content
    assert payload["thinking"] == BUDGET


@pytest.mark.parametrize(
    "turn",
    [
        assistant("Other", ToolUseBlock("c1", "add", "{}")),
        assistant("Text", ToolUseBlock("c2", "add", "{}")),
        assistant("Text"),
        assistant("Text and", ToolUseBlock("c1", "add", "{}")),
        assistant("Text", ToolUseBlock("c1", "add", "{}"), ToolUseBlock("c2", "add", "{}")),
        assistant("Text", MediaBlock("image", url="https://a.example/b.png")),
    ],
)
def test_thinking_stays_away_where_the_turn_is_not_what_the_reply_was(turn: ChatTurn) -> None:
    """Its signature holds for the reply, and for nothing else."""
    kept = thought(thinking("one"), text("Text"), use("c1"))
    payload = encoded(user("Go"), turn, user("Now?"), provider_data={2: kept})
    kinds = {block["type"] for block in payload["messages"][1]["content"]}
    assert kinds <= {"text", "tool_use"}


def test_thinking_that_was_cut_off_is_not_kept_and_never_ends_a_turn() -> None:
    """Without a signature it would be refused, and so would a turn that ends with it."""
    cut = {"type": "thinking", "thinking": "hm", "signature": ""}
    assert thought(cut, text("Text")) is None
    assert thought(text("Text")) is None
    kept = thought(text("Text"), thinking("one"))
    payload = encoded(user("Go"), assistant("Text"), user("On"), provider_data={2: kept})
    assert payload["messages"][1]["content"] == [text("Text")]


def test_blank_texts_between_thinking_are_not_sent() -> None:
    """Models write them, and the API refuses them: alone and beside others."""
    alone = thought(thinking("one"), text("\n"), use("c1"))
    beside = thought(thinking("two"), text("\n\n"), thinking("three"), text("Done."))
    payload = encoded(
        user("Go"),
        assistant(ToolUseBlock("c1", "add", "{}")),
        user(ToolResultBlock("c1", "1")),
        assistant("\n\nDone."),
        user("Thanks"),
        provider_data={2: alone, 4: beside},
    )
    assert payload["messages"][1]["content"] == [thinking("one"), use("c1")]
    assert payload["messages"][3]["content"] == [thinking("two"), thinking("three"), text("Done.")]


LOOP = (user("Go"), assistant(ToolUseBlock("c1", "add", "{}")), user(ToolResultBlock("c1", "1")))


@pytest.mark.parametrize(
    ("turns", "asked", "choice", "sent"),
    [
        (LOOP, BUDGET, "auto", OFF),
        (LOOP, ADAPTIVE, "auto", ADAPTIVE),
        (LOOP[:1], BUDGET, "auto", BUDGET),
        ((*LOOP, assistant("1"), user("And?")), BUDGET, "auto", BUDGET),
        ((*LOOP[:2], user(ToolResultBlock("c1", "1"), "And?")), BUDGET, "auto", OFF),
        (LOOP[:1], BUDGET, "required", OFF),
        (LOOP[:1], ADAPTIVE, {"type": "tool", "name": "add"}, OFF),
        (LOOP[:1], BUDGET, "none", BUDGET),
        ((*LOOP, assistant("So")), ADAPTIVE, "auto", OFF),
        (LOOP, OFF, "auto", OFF),
        (LOOP, {"type": "between_tools"}, "required", {"type": "between_tools"}),
    ],
)
def test_thinking_is_off_where_the_provider_would_refuse_it(
    turns: Any, asked: Any, choice: Any, sent: Any
) -> None:
    """In an answer that began without it, with a forced call, and after a last word."""
    options = {"thinking": asked}
    payload = encoded(*turns, options=options, tools=(ADD,), tool_choice=choice)
    assert payload["thinking"] == sent
    assert options == {"thinking": asked}


def test_an_answer_that_began_with_thinking_goes_on_with_it() -> None:
    """Later turns of the same answer need none: not every model thinks between two calls."""
    loop = (
        *LOOP,
        assistant(ToolUseBlock("c2", "add", "{}")),
        user(ToolResultBlock("c2", "2")),
    )
    more = {"options": {"thinking": BUDGET}, "tools": (ADD,)}
    first, second = thought(thinking("one"), use("c1")), thought(thinking("two"), use("c2"))
    assert encoded(*loop, provider_data={2: first}, **more)["thinking"] == BUDGET
    assert encoded(*loop, provider_data={4: second}, **more)["thinking"] == OFF


# --- any history ----------------------------------------------------------------------------

ids = st.sampled_from(["c1", "c2", "toolu_3", "call|4", "x" * 70])
words = st.sampled_from(["Yes.", "No ", "\n", "", "\ud800", "word \n"])
pictures = st.just(MediaBlock("image", url="https://a.example/b.png"))
uses = st.builds(
    ToolUseBlock, ids, st.sampled_from(["add", "my tool"]), st.sampled_from(["{}", "["])
)
results = st.builds(ToolResultBlock, ids, words, st.booleans())
blocks = st.lists(st.one_of(st.builds(TextBlock, words), pictures, uses, results), max_size=4)
turns_said = st.builds(ChatTurn, st.sampled_from(["user", "assistant"]), blocks.map(tuple))


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[MessageHistory], dict[int, Any]]:
    """A history as it grows, and thinking that came with some of its turns."""
    grown = [MessageHistory.new("Be brief.", synthetic_lead=True)]
    for turn in draw(st.lists(turns_said, max_size=8)):
        grown.append(grown[-1].add(turn))
    kept: dict[int, Any] = {}
    for place, turn in enumerate(grown[-1].for_send(), start=1):
        if turn.role == "assistant" and draw(st.booleans()):
            content: list[Any] = [thinking(f"thought {place}")]
            for block in turn.blocks:
                if isinstance(block, TextBlock):
                    content.append(text(block.text))
                elif isinstance(block, ToolUseBlock):
                    content.append(use(block.call_id))
            kept[place] = thought(*content)
    return grown, kept


@given(
    conversations(),
    st.sampled_from([None, BUDGET, ADAPTIVE]),
    st.sampled_from(["auto", "required", "none"]),
)
def test_any_history_is_a_request_that_the_provider_takes(
    given: tuple[list[MessageHistory], dict[int, Any]], asked: Any, choice: str
) -> None:
    """Roles alternate, results come first, ids are unique, thinking is where it may be.

    A request that goes on from the one before is the same as one that is made from scratch.
    """
    grown, thoughts = given
    kept: dict[str, Any] = {}
    for history in grown:
        more = {
            "tools": (ADD,),
            "tool_choice": choice,
            "provider_data": thoughts,
            "options": {"thinking": asked} if asked else {},
        }
        payload = WIRE.encode(request(history, kept=kept, **more))
        assert payload == WIRE.encode(request(history, **more))
        Server().check("POST", "/v1/messages", HEADERS, payload)
