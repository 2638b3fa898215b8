"""Named malformations, each with its exact outcome; the same table is in the docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.unit.projections.provider_rules import violations
from turnledger.projections.history.blocks import (
    STUB_TEXT,
    SYNTHETIC_LEAD,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.projections.history.message_history import MessageHistory

PAGE = Path(__file__).parents[4] / "docs" / "explanation" / "message-history.md"


class Case(NamedTuple):
    """Messages, the turns that they become, and the kinds of repairs that are on record."""

    name: str
    given: list[Any]
    turns: list[ChatTurn]
    repairs: list[str]


def blocks(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(TextBlock(part) if isinstance(part, str) else part for part in parts)


def user(*parts: Any) -> ChatTurn:
    return ChatTurn("user", blocks(parts))


def assistant(*parts: Any) -> ChatTurn:
    return ChatTurn("assistant", blocks(parts))


def call(call_id: str) -> ToolUseBlock:
    return ToolUseBlock(call_id, "tool", "{}")


def result(call_id: str, content: str = "ok") -> ToolResultBlock:
    return ToolResultBlock(call_id, content)


def stub(call_id: str) -> ToolResultBlock:
    return ToolResultBlock(call_id, STUB_TEXT, is_error=True)


class Odd:
    """Something that no history has heard of."""


ODD: Any = Odd()
HI, IMAGE = user("hi"), MediaBlock("image", url="https://example.com/a.png")

CASES = [
    # who speaks first
    Case("the assistant speaks first", [assistant("hello"), HI], [HI], ["leading_assistant"]),
    Case(
        "two assistant messages at the start",
        [assistant("a"), assistant(call("x")), HI],
        [HI],
        ["leading_assistant"] * 2,
    ),
    Case(
        "a result whose call was in a dropped leading message",
        [assistant(call("x")), user(result("x"), "hi")],
        [HI],
        ["leading_assistant", "orphan_result"],
    ),
    Case(
        "the assistant speaks after the synthetic lead",
        [SYNTHETIC_LEAD, assistant("hello")],
        [SYNTHETIC_LEAD, assistant("hello")],
        [],
    ),
    Case("a real user takes the lead's place", [SYNTHETIC_LEAD, HI], [HI], []),
    Case(
        "an empty message does not take the lead's place",
        [SYNTHETIC_LEAD, user()],
        [SYNTHETIC_LEAD],
        ["empty_message"],
    ),
    Case("a synthetic turn that is not the first", [HI, SYNTHETIC_LEAD], [HI], ["late_lead"]),
    # whose turn it is
    Case("two user messages", [HI, user("there")], [user("hi", "there")], ["merged"]),
    Case(
        "two assistant messages",
        [HI, assistant("a"), assistant("b")],
        [HI, assistant("a", "b")],
        ["merged"],
    ),
    Case(
        "assistant messages with calls, and no user between them",
        [HI, assistant(call("x")), assistant("wait", call("y")), user(result("y"), result("x"))],
        [HI, assistant(call("x"), "wait", call("y")), user(result("x"), result("y"))],
        ["merged"],
    ),
    # nothing in it
    Case("a message without blocks", [HI, assistant(), user()], [HI], ["empty_message"] * 2),
    Case("an empty text", [HI, assistant("")], [HI], ["empty_text", "empty_message"]),
    Case("a text of blanks", [user(" \n\t\u2003", "hi")], [HI], ["empty_text"]),
    Case(
        "an empty text beside a call",
        [HI, assistant("", call("x"))],
        [HI, assistant(call("x"))],
        ["empty_text"],
    ),
    Case(
        "an emptied assistant message closes nothing",
        [HI, assistant(call("x")), user("well?"), assistant(" "), user(result("x"))],
        [HI, assistant(call("x")), user(result("x"), "well?")],
        ["empty_text", "empty_message"],
    ),
    # results without calls
    Case(
        "an orphan result empties its message",
        [HI, assistant("a"), user(result("x"))],
        [HI, assistant("a")],
        ["orphan_result", "empty_message"],
    ),
    Case(
        "an orphan result beside a text",
        [HI, assistant("a"), user(result("x"), "b")],
        [HI, assistant("a"), user("b")],
        ["orphan_result"],
    ),
    Case("a result in the first message", [user(result("x"), "hi")], [HI], ["orphan_result"]),
    Case(
        "a result before its call",
        [HI, user(result("x")), assistant(call("x"))],
        [HI, assistant(call("x"))],
        ["orphan_result", "empty_message"],
    ),
    Case(
        "a result after the assistant went on",
        [HI, assistant(call("x")), user("b"), assistant("c"), user(result("x"))],
        [HI, assistant(call("x")), user(stub("x"), "b"), assistant("c")],
        ["stubbed", "orphan_result", "empty_message"],
    ),
    Case(
        "two results for one call, in one message",
        [HI, assistant(call("x")), user(result("x", "1"), result("x", "2"))],
        [HI, assistant(call("x")), user(result("x", "1"))],
        ["repeated_result"],
    ),
    Case(
        "two results for one call, in two messages",
        [HI, assistant(call("x")), user(result("x", "1")), user(result("x", "2"))],
        [HI, assistant(call("x")), user(result("x", "1"))],
        ["repeated_result", "empty_message"],
    ),
    # results out of order
    Case(
        "results in another order than the calls",
        [HI, assistant(call("x"), call("y")), user(result("y"), result("x"))],
        [HI, assistant(call("x"), call("y")), user(result("x"), result("y"))],
        [],
    ),
    Case(
        "results one message at a time",
        [HI, assistant(call("x"), call("y")), user(result("y")), user(result("x"))],
        [HI, assistant(call("x"), call("y")), user(result("x"), result("y"))],
        [],
    ),
    Case(
        "a result after the user's text",
        [HI, assistant(call("x")), user("b"), user(result("x"))],
        [HI, assistant(call("x")), user(result("x"), "b")],
        [],
    ),
    Case(
        "a text between two results",
        [HI, assistant(call("x"), call("y")), user(result("y"), "b", result("x"))],
        [HI, assistant(call("x"), call("y")), user(result("x"), result("y"), "b")],
        [],
    ),
    # calls without results
    Case(
        "a call at the end stays open",
        [HI, assistant(call("x"))],
        [HI, assistant(call("x"))],
        [],
    ),
    Case(
        "the assistant goes on though a call is open",
        [HI, assistant(call("x")), user("b"), assistant("c")],
        [HI, assistant(call("x")), user(stub("x"), "b"), assistant("c")],
        ["stubbed"],
    ),
    Case(
        "one of two calls is answered",
        [HI, assistant(call("x"), call("y")), user(result("y")), assistant("c")],
        [HI, assistant(call("x"), call("y")), user(stub("x"), result("y")), assistant("c")],
        ["stubbed"],
    ),
    # call ids
    Case(
        "a call id twice in one message",
        [HI, assistant(call("x"), call("x")), user(result("x"))],
        [HI, assistant(call("x")), user(result("x"))],
        ["repeated_call"],
    ),
    Case(
        "a call id twice in one turn of two messages",
        [HI, assistant(call("x")), assistant(call("x"))],
        [HI, assistant(call("x"))],
        ["repeated_call", "empty_message"],
    ),
    Case(
        "a call id again in a later turn is fine",
        [HI, *[assistant(call("x")), user(result("x"))] * 2],
        [HI, *[assistant(call("x")), user(result("x"))] * 2],
        [],
    ),
    Case(
        "a call without an id",
        [HI, assistant(call(""), "a")],
        [HI, assistant("a")],
        ["bad_block"],
    ),
    Case(
        "a result without an id",
        [HI, assistant(call("x")), user(result(""))],
        [HI, assistant(call("x"))],
        ["bad_block", "empty_message"],
    ),
    # the wrong side
    Case("a call in a user's turn", [user(call("x"), "hi")], [HI], ["misplaced_call"]),
    Case(
        "a result in an assistant's turn",
        [HI, assistant(call("x"), result("x"))],
        [HI, assistant(call("x"))],
        ["misplaced_result"],
    ),
    # things that are no messages
    Case("nothing at all", [None, HI], [HI], ["not_a_turn"]),
    Case("something else than a turn", [ODD, "hi", 42, HI], [HI], ["not_a_turn"] * 3),
    Case(
        "a role of another vocabulary",
        [ChatTurn("tool", (TextBlock("hi"),)), HI],
        [HI],
        ["bad_role"],
    ),
    Case("a role that is no text", [ChatTurn(ODD, ()), HI], [HI], ["bad_role"]),
    Case("something else among the blocks", [user(ODD, "hi")], [HI], ["not_a_block"]),
    Case(
        "no blocks where blocks should be",
        [ChatTurn("user", ODD)],
        [],
        ["not_a_block", "empty_message"],
    ),
    Case("blocks in a list", [ChatTurn("user", [TextBlock("hi")])], [HI], []),
    Case("a text that is no text", [user(TextBlock(ODD), "hi")], [HI], ["bad_block"]),
    Case(
        "media from two places",
        [user(MediaBlock("image", url="u", blob="b"), IMAGE)],
        [user(IMAGE)],
        ["bad_block"],
    ),
    Case(
        "a text with a lone surrogate",
        [user("h\ud800i")],
        [user("h\ufffdi")],
        ["replaced_text"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_malformation_has_one_outcome(case: Case) -> None:
    """The turns are exactly these, each loss is on record, and both ways of sending are valid."""
    history = MessageHistory.rebuilt(case.given)
    assert history.to_list() == case.turns
    assert [repair.kind for repair in history.repairs] == case.repairs
    assert violations(history.for_send()) == violations(history.for_send("skip")) == []
    assert MessageHistory.rebuilt(history.to_list()).to_list() == case.turns


def test_the_page_shows_this_very_table() -> None:
    """Row by row: name, what came in, what stands there, what is on record."""
    lines = PAGE.read_text().splitlines()
    start = lines.index("| malformation | messages | turns | repairs |") + 2
    rows = lines[start : start + len(CASES)]
    assert rows == [row(case) for case in CASES]
    assert not lines[start + len(CASES)].startswith("|")


def test_names_are_unique_and_many() -> None:
    """At least thirty, and each has a name of its own."""
    assert len({case.name for case in CASES}) == len(CASES) >= 30


# --- the table as the page shows it ------------------------------------------------


def row(case: Case) -> str:
    repairs = ", ".join(f"{kind}" for kind in case.repairs) or "none"
    given, turns = (" / ".join(map(shown, what)) for what in (case.given, case.turns))
    return f"| {case.name} | {given} | {turns or 'none'} | {repairs} |"


def shown(turn: Any) -> str:
    if not isinstance(turn, ChatTurn):
        return "something else" if turn is ODD else repr(turn)
    if turn.synthetic:
        return "*lead*"
    who = {"user": "**U**", "assistant": "**A**"}.get(turn.role, "**?**")
    if turn.blocks is ODD:
        return f"{who} something else"
    return " ".join((who, ", ".join(map(shown_block, turn.blocks)) or "nothing"))


def shown_block(block: Any) -> str:
    match block:
        case TextBlock(text) if text is not ODD:
            return f"`{text!a}`"
        case ToolUseBlock(call_id):
            return f"call {call_id or '?'}"
        case ToolResultBlock(call_id, content):
            kind = {"ok": "result", STUB_TEXT: "stub"}.get(content, f"result {content!r}")
            return f"{kind} of {call_id or '?'}"
        case MediaBlock(modality, _, blob):
            return f"{modality} by url" + (" and blob" if blob else "")
        case _:
            return "something else"
