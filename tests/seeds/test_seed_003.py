"""Seed 003, the message history: it prints no code, but a table of invariants and a named test.

Each row of its table is one test here, with the malformation that it names.
"""

from __future__ import annotations

import pytest

from turnledger.projections import (
    ChatTurn,
    MessageHistory,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.projections.history.blocks import STUB_TEXT

HI, HELLO = TextBlock("hi"), TextBlock("hello")
ASKED, RESULT = ToolUseBlock("t1", "search", "{}"), ToolResultBlock("t1", "found")
ORPHAN = ToolResultBlock("lost", "found")


def user(*blocks: object) -> ChatTurn:
    return ChatTurn("user", blocks)  # type: ignore[arg-type]


def assistant(*blocks: object) -> ChatTurn:
    return ChatTurn("assistant", blocks)  # type: ignore[arg-type]


def added(*turns: ChatTurn) -> list[ChatTurn]:
    history = MessageHistory.new()
    for turn in turns:
        history = history.add(turn)
    return history.to_list()


def ingested(*turns: ChatTurn) -> list[ChatTurn]:
    return MessageHistory.from_list(list(turns)).to_list()


@pytest.mark.parametrize("made", [added, ingested])
def test_leading_message_must_be_user(made: type[list[ChatTurn]]) -> None:
    """S3-2: `add` silently drops a leading Assistant; `from_list` strips one at ingest."""
    assert made(assistant(HELLO), user(HI)) == [user(HI)]


@pytest.mark.parametrize("made", [added, ingested])
def test_user_assistant_alternation(made: type[list[ChatTurn]]) -> None:
    """S3-3: consecutive same-role messages are coalesced."""
    assert made(user(HI), user(HELLO), assistant(HI), assistant(HELLO)) == [
        user(HI, HELLO),
        assistant(HI, HELLO),
    ]


@pytest.mark.parametrize("made", [added, ingested])
def test_add_user_with_orphan_tool_result_strips_it_test(made: type[list[ChatTurn]]) -> None:
    """S3-4: without a matching tool_use before it; a message that this empties is dropped."""
    before = [user(HI), assistant(HELLO)]
    assert made(*before, user(ORPHAN, HI)) == [*before, user(HI)]
    assert made(*before, user(ORPHAN)) == before
    asked = [user(HI), assistant(ASKED)]
    assert made(*asked, user(RESULT, ORPHAN)) == [*asked, user(RESULT)]


@pytest.mark.parametrize("end", [(), (assistant(HELLO),)])
def test_no_orphan_tool_use(end: tuple[ChatTurn, ...]) -> None:
    """S3-5: `from_list` injects stub results, in the middle and for a half-completed cycle."""
    other = ToolUseBlock("t2", "fetch", "{}")
    stub = ToolResultBlock("t2", STUB_TEXT, is_error=True)
    found = ingested(user(HI), assistant(ASKED, other), user(RESULT), *end)
    assert found == [user(HI), assistant(ASKED, other), user(RESULT, stub), *end]


def test_for_send_exports_what_is_valid_already() -> None:
    """S3-6, S3-7: nothing is left to repair at the boundary; every way in is `add`."""
    history = MessageHistory.new().add_user_text("hi").add_assistant(ASKED).add_user(RESULT)
    history = history.add(assistant(HELLO))
    assert list(history.for_send()) == history.to_list()
    assert history == MessageHistory.from_list(history.to_list())
    assert not hasattr(history, "append")
    history.to_list().append(user(ORPHAN))
    assert len(history) == 4
