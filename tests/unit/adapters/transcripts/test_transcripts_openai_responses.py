"""Transcripts of OpenAI's Responses: items in turns, reasoning kept, the rest noted."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.adapters.transcripts import TranscriptError, plan_of
from turnledger.adapters.transcripts.readers.openai_responses import read_responses
from turnledger.projections import ChatTurn, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock

ANSWER = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Jane Austen.", "annotations": []}],
}
SAID = (
    ChatTurn("user", (TextBlock("Who wrote Emma?"),)),
    ChatTurn("assistant", (TextBlock("Jane Austen."),)),
)
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}


@pytest.mark.parametrize(
    "data",
    [
        [{"role": "user", "content": "Who wrote Emma?"}, ANSWER],
        {"input": "Who wrote Emma?", "output": [ANSWER]},
        {"input": "Who wrote Emma?", "output": "Jane Austen."},
        {"request": {"input": "Who wrote Emma?"}, "response": {"output": [ANSWER]}},
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Who wrote Emma?"}]},
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "Jane Austen."}]},
            ]
        },
    ],
)
def test_all_the_ways_to_keep_a_conversation(data: Any) -> None:
    """A body, a list of items, text for an item, the output beside the input."""
    assert read_responses(data).turns == SAID


def test_instructions_and_system_items_are_the_system_text() -> None:
    """Joined in the order in which they come."""
    items = [
        {"role": "developer", "content": "Two."},
        {"role": "system", "content": [{"type": "input_text", "text": "Three."}]},
        {"role": "user", "content": "Hi."},
    ]
    read = read_responses({"instructions": "One.", "input": items})
    assert (read.system, read.notes) == ("One.\n\nTwo.\n\nThree.", ())
    listed = read_responses({"instructions": [{"role": "system", "content": "A"}], "input": "x"})
    assert listed.system == "A"


def test_items_of_the_model_are_one_turn() -> None:
    """Up to the results, and text between calls stays there."""
    second = {**CALL, "call_id": "c2"}
    read = read_responses([
        {"role": "user", "content": "Hi."}, CALL, ANSWER, second, OUTPUT,
        {**OUTPUT, "call_id": "c2", "output": [{"type": "input_text", "text": "43"}]},
    ])  # fmt: skip
    calls = [ToolUseBlock("c1", "f", "{}"), ToolUseBlock("c2", "f", "{}")]
    assert read.turns[1].blocks == (calls[0], TextBlock("Jane Austen."), calls[1])
    assert read.turns[2].blocks == (ToolResultBlock("c1", "42"), ToolResultBlock("c2", "43"))
    assert plan_of(read).repairs == ()


def test_sealed_reasoning_is_kept_with_its_turn() -> None:
    """As the wire format keeps it of a live answer, at the place of the turn."""
    plan = plan_of(read_responses({"input": "Hi.", "output": [SEALED, ANSWER, SEALED, CALL]}))
    assert list(plan.beyond) == [2]
    kinds = [one["type"] for one in plan.beyond[2]]
    assert kinds == ["reasoning", "message", "reasoning", "function_call"]
    assert plan.beyond[2][0] == SEALED


def test_reasoning_elsewhere_is_noted() -> None:
    """What only the provider remembers can't go back."""
    only_named = {"type": "reasoning", "id": "rs_1", "summary": []}
    read = read_responses(
        {"previous_response_id": "resp_1", "input": "Hi.", "output": [only_named, ANSWER]}
    )
    assert not read.provider_data
    assert [note.path for note in read.notes] == ["previous_response_id", "output[0]"]


def test_hosted_tools_and_unknown_items_are_notes() -> None:
    """On the side that they belong to; reasoning that led to one is left out with it."""
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    read = read_responses({"input": "Hi.", "output": [SEALED, search, ANSWER]})
    note = TextBlock("[web_search_call ws_1: not imported]")
    assert read.turns[1].blocks == (note, TextBlock("Jane Austen."))
    assert not read.provider_data
    shown = {"type": "computer_call_output", "call_id": "c9", "output": {}}
    assert read_responses([shown]).turns[0].role == "user"


def test_media_and_files() -> None:
    """Images and files by URL or as data; a file's id means nothing here."""
    parts = [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        {
            "type": "input_file",
            "filename": "a.pdf",
            "file_data": "data:application/pdf;base64,JVBE",
        },
        {"type": "input_image", "file_id": "file-1"},
    ]
    read = read_responses([{"role": "user", "content": parts}])
    *media, last = read.turns[0].blocks
    kinds = [(b.modality, b.mime, bool(b.url)) for b in media if isinstance(b, MediaBlock)]
    assert kinds == [
        ("image", "image/png", False),
        ("document", None, True),
        ("document", "application/pdf", False),
    ]
    assert last == TextBlock("[image file-1: not imported]")


def test_custom_tools_have_their_input_as_an_argument() -> None:
    """The call and its output find each other."""
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls"}
    read = read_responses([call, {**OUTPUT, "type": "custom_tool_call_output"}])
    assert read.turns[0].blocks == (ToolUseBlock("c1", "sh", '{"input":"ls"}'),)
    assert read.turns[1].blocks == (ToolResultBlock("c1", "42"),)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"messages": []}, ""),
        ({"input": 7}, "input"),
        ({"input": [7]}, "input[0]"),
        ({"input": [{"type": "message", "content": "x"}]}, "input[0]"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{**CALL, "name": 7}]}, "input[0].name"),
        ({"input": "x", "output": [{**ANSWER, "content": [{}]}]}, "output[0].content[0]"),
    ],
)
def test_bad_input_is_refused_with_its_path(data: Any, path: str) -> None:
    """The error leads to the value that is wrong."""
    with pytest.raises(TranscriptError) as refused:
        read_responses(data)
    assert refused.value.path == path
