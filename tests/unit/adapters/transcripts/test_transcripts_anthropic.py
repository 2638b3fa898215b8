"""Transcripts of Anthropic's Messages: blocks, thinking kept, the rest noted."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.adapters.transcripts import TranscriptError, plan_of
from turnledger.adapters.transcripts.readers.anthropic import read_anthropic
from turnledger.projections import ChatTurn, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock

ASKED = [{"role": "user", "content": "Who wrote Emma?"}]
BLOCKS = [{"type": "text", "text": "Jane Austen."}]
ANSWER = {"role": "assistant", "content": BLOCKS}
SAID = (
    ChatTurn("user", (TextBlock("Who wrote Emma?"),)),
    ChatTurn("assistant", (TextBlock("Jane Austen."),)),
)
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1]}}


@pytest.mark.parametrize(
    "data",
    [
        [*ASKED, ANSWER],
        {"messages": [*ASKED, {"role": "assistant", "content": "Jane Austen."}]},
        {"request": {"messages": ASKED}, "response": {"type": "message", **ANSWER}},
        {"params": {"messages": ASKED}, "result": {"type": "succeeded", "message": ANSWER}},
        {"messages": ASKED, "content": BLOCKS, "stop_reason": "end_turn"},
    ],
)
def test_all_the_ways_to_keep_a_conversation(data: Any) -> None:
    """A body, a list, a dump of both sides, a batch with its result."""
    assert read_anthropic(data).turns == SAID


@pytest.mark.parametrize("system", ["Be kind.", [{"type": "text", "text": "Be kind."}]])
def test_the_system_text_stands_apart(system: Any) -> None:
    """As text or in blocks; the model is taken from either side."""
    read = read_anthropic(
        {"request": {"system": system, "messages": ASKED}, "response": {**ANSWER, "model": "m"}}
    )
    assert (read.system, read.model) == ("Be kind.", "m")


def test_uses_and_results() -> None:
    """An input becomes JSON text; media in a result stand behind the results."""
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "is_error": True}
    content = [{"type": "text", "text": "one"}, image, {"type": "text", "text": "two"}]
    read = read_anthropic(
        [
            *ASKED,
            {"role": "assistant", "content": [*BLOCKS, USE, *BLOCKS]},
            {"role": "user", "content": [{**result, "content": content}, *BLOCKS]},
        ]
    )
    text, use = TextBlock("Jane Austen."), ToolUseBlock("t1", "f", '{"a":[1]}')
    assert read.turns[1].blocks == (text, use, text)
    assert read.turns[2].blocks == (
        ToolResultBlock("t1", "one\ntwo", is_error=True),
        MediaBlock("image", url="https://example.com/a.png"),
        text,
    )
    assert len(read.notes) == 1
    assert plan_of(read).repairs == ()


def test_thinking_is_kept_with_its_turn() -> None:
    """As the wire format keeps it of a live answer: the turn is what a live run records."""
    content = [THINKING, *BLOCKS, {"type": "redacted_thinking", "data": "eA=="}, USE]
    plan = plan_of(read_anthropic([*ASKED, {"role": "assistant", "content": content}]))
    kinds = [one["type"] for one in plan.beyond[2]]
    assert kinds == ["thinking", "text", "redacted_thinking", "tool_use"]
    last = plan.history.last
    assert last is not None
    assert last.blocks == (TextBlock("Jane Austen."), ToolUseBlock("t1", "f", '{"a":[1]}'))


def test_thinking_without_a_signature_is_noted() -> None:
    """It would be refused."""
    unsigned = {"type": "thinking", "thinking": "hm"}
    read = read_anthropic([*ASKED, {"role": "assistant", "content": [unsigned, *BLOCKS]}])
    assert read.turns == SAID
    assert (dict(read.provider_data), len(read.notes)) == ({}, 1)


def test_thinking_of_turns_that_become_one_is_noted() -> None:
    """It knows where it stood in a turn that is no longer there."""
    answer = {"role": "assistant", "content": [THINKING, *BLOCKS]}
    plan = plan_of(read_anthropic([*ASKED, answer, answer]))
    assert (dict(plan.beyond), [r.kind for r in plan.repairs]) == ({}, ["merged"])
    assert "two turns became one" in plan.notes[0].text


def test_media() -> None:
    """Images and documents: bytes, addresses and plain text; files elsewhere are noted."""
    base64 = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    text = {"type": "text", "media_type": "text/plain", "data": "All of it."}
    parts = [
        {"type": "image", "source": base64},
        {"type": "document", "source": text},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    ]
    read = read_anthropic([{"role": "user", "content": parts}])
    *media, last = read.turns[0].blocks
    kinds = [(b.modality, b.mime) for b in media if isinstance(b, MediaBlock)]
    assert kinds == [("image", "image/png"), ("document", "text/plain"), ("document", None)]
    assert b"All of it." in read.blobs.values()
    assert last == TextBlock("[document file_1: not imported]")


def test_server_tools_are_notes() -> None:
    """What Anthropic ran itself can't be sent back as somebody else's."""
    used = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    read = read_anthropic([*ASKED, {"role": "assistant", "content": [used, *BLOCKS]}])
    assert read.turns[1].blocks[0] == TextBlock("[server_tool_use srv_1: not imported]")


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"contents": []}, ""),
        ({"messages": {}}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": 1}]}]}, "messages[0].content[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages[0].content[0]",
        ),
        ({"messages": ASKED, "system": 7}, "system"),
    ],
)
def test_bad_input_is_refused_with_its_path(data: Any, path: str) -> None:
    """The error leads to the value that is wrong."""
    with pytest.raises(TranscriptError) as refused:
        read_anthropic(data)
    assert refused.value.path == path
