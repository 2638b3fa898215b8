"""Transcripts of Gemini's generateContent: parts, signatures kept, both spellings of names."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.adapters.transcripts import TranscriptError, plan_of
from turnledger.adapters.transcripts.readers.gemini import read_gemini
from turnledger.projections import ChatTurn, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock

ASKED = {"role": "user", "parts": [{"text": "Who wrote Emma?"}]}
ANSWER = {"role": "model", "parts": [{"text": "Jane Austen."}]}
SAID = (
    ChatTurn("user", (TextBlock("Who wrote Emma?"),)),
    ChatTurn("assistant", (TextBlock("Jane Austen."),)),
)


@pytest.mark.parametrize(
    "data",
    [
        [ASKED, ANSWER],
        {"contents": [ASKED, ANSWER]},
        {"contents": "Who wrote Emma?", "candidates": [{"content": ANSWER}]},
        {"contents": ASKED, "response": {"candidates": [{"content": ANSWER}]}},
        {"request": {"contents": [ASKED]}, "response": {"candidates": [{"content": ANSWER}]}},
        {"contents": [{"parts": [{"text": "Who wrote Emma?"}]}, ANSWER]},
        {"contents": ["Who wrote Emma?", {"role": "model", "parts": {"text": "Jane Austen."}}]},
    ],
)
def test_all_the_ways_to_keep_a_conversation(data: Any) -> None:
    """A body, a list, what the SDK takes for contents, a dump of both sides."""
    assert read_gemini(data).turns == SAID


@pytest.mark.parametrize(
    "body",
    [
        {"systemInstruction": {"parts": [{"text": "Be kind."}]}},
        {"system_instruction": {"parts": [{"text": "Be kind."}]}},
        {"system_instruction": "Be kind."},
        {"config": {"system_instruction": "Be kind."}},
    ],
)
def test_the_system_text_stands_apart(body: dict[str, Any]) -> None:
    """In either spelling, as a content or as text, and where the SDK has it."""
    read = read_gemini({"model": "models/gemini-3-pro", "contents": [ASKED], **body})
    assert (read.system, read.model) == ("Be kind.", "gemini-3-pro")


@pytest.mark.parametrize("snake", [False, True])
def test_calls_and_responses(snake: bool) -> None:
    """Calls without ids get some; responses find their calls by name, in order."""
    called, answered = "functionCall", "functionResponse"
    if snake:
        called, answered = "function_call", "function_response"
    calls = [{called: {"name": name, "args": {"n": 1}}} for name in ("f", "g", "f")]
    responses = [
        {answered: {"name": "g", "response": {"error": "no"}}},
        {answered: {"name": "f", "response": {"output": "one"}}},
        {answered: {"name": "f", "response": {"a": 1, "b": 2}}},
    ]
    read = read_gemini(
        [ASKED, {"role": "model", "parts": calls}, {"role": "function", "parts": responses}]
    )
    ids = [block.call_id for block in read.turns[1].blocks if isinstance(block, ToolUseBlock)]
    assert ids == ["call_1", "call_2", "call_3"]
    assert read.turns[2].blocks == (
        ToolResultBlock("call_2", "no", is_error=True),
        ToolResultBlock("call_1", "one"),
        ToolResultBlock("call_3", '{"a":1,"b":2}'),
    )
    assert plan_of(read).repairs == ()


@pytest.mark.parametrize("signature", ["thoughtSignature", "thought_signature"])
def test_signatures_are_kept_with_their_turn(signature: str) -> None:
    """As the wire format keeps them of a live answer; ids that Gemini gave too."""
    parts = [
        {"text": "hm", "thought": True, signature: "c2ln"},
        {"text": "Let me see."},
        {"functionCall": {"id": "fc1", "name": "f", "args": {}}, signature: "bW9yZQ=="},
    ]
    plan = plan_of(read_gemini([ASKED, {"role": "model", "parts": parts}]))
    assert plan.beyond[2]["parts"] == [
        {"thought": "hm", "signature": "c2ln"},
        {"text": 11},
        {"call": 0, "id": "fc1", "signature": "bW9yZQ=="},
    ]
    assert [call.call_id for call in plan.history.open_calls] == ["fc1"]


def test_what_stands_for_no_signature_is_none() -> None:
    """It is written by exports, and says that there is nothing to keep."""
    call = {"functionCall": {"name": "f"}, "thoughtSignature": "skip_thought_signature_validator"}
    read = read_gemini([ASKED, {"role": "model", "parts": [call]}])
    assert (dict(read.provider_data), read.notes) == ({}, ())


def test_media_and_code() -> None:
    """Bytes and addresses with their types; code that Google ran is noted."""
    parts = [
        {"inline_data": {"mime_type": "audio/wav", "data": "UklG"}},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/a.mp4"}},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
    ]
    read = read_gemini([{"role": "user", "parts": parts}])
    sound, film, code = read.turns[0].blocks
    assert isinstance(sound, MediaBlock)
    assert (sound.modality, sound.mime) == ("audio", "audio/wav")
    assert film == MediaBlock("video", url="gs://b/a.mp4", mime="video/mp4")
    assert code == TextBlock("[executableCode: not imported]")


def test_unsigned_thoughts_are_noted() -> None:
    """They do not go back, and are no part of what was said."""
    parts = [{"text": "hm", "thought": True}, {"text": "Jane Austen."}]
    read = read_gemini([ASKED, {"role": "model", "parts": parts}])
    assert read.turns == SAID
    assert [note.path for note in read.notes] == ["[1].parts[0]"]


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"messages": []}, ""),
        ({"contents": 7}, "contents"),
        ({"contents": [7]}, "contents[0]"),
        ({"contents": [{"role": "robot", "parts": []}]}, "contents[0].role"),
        ({"contents": [{"role": "user", "parts": [7]}]}, "contents[0].parts[0]"),
        ({"contents": [{"role": "user", "parts": [{"text": 7}]}]}, "contents[0].parts[0].text"),
        ({"candidates": [{"content": {"parts": [{"text": 7}]}}]},
         "candidates[0].content.parts[0].text"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_its_path(data: Any, path: str) -> None:
    """The error leads to the value that is wrong."""
    with pytest.raises(TranscriptError) as refused:
        read_gemini(data)
    assert refused.value.path == path
