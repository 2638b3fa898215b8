"""Transcripts of OpenAI's chat completions: what people have of them, and what becomes of it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from turnledger.adapters.transcripts import Note, TranscriptError, plan_of
from turnledger.adapters.transcripts.readers.openai_chat import read_chat
from turnledger.ledger import blob_name
from turnledger.projections import ChatTurn, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock
from turnledger.projections.history.blocks import STUB_TEXT

PNG = b"\x89PNG\r\n\x1a\n pixels"
DATA_URL = "data:image/png;base64," + b64encode(PNG).decode()
ASKED = [{"role": "user", "content": "Who wrote Emma?"}]
ANSWER = {"role": "assistant", "content": "Jane Austen."}
SAID = (
    ChatTurn("user", (TextBlock("Who wrote Emma?"),)),
    ChatTurn("assistant", (TextBlock("Jane Austen."),)),
)


@pytest.mark.parametrize(
    "data",
    [
        [*ASKED, ANSWER],
        {"messages": [*ASKED, ANSWER]},
        {"messages": ASKED, "choices": [{"message": ANSWER}, {"message": {"content": "No."}}]},
        {"request": {"messages": ASKED}, "response": {"choices": [{"message": ANSWER}]}},
        {"body": {"messages": ASKED}, "response": {"body": {"choices": [{"message": ANSWER}]}}},
        [{"role": "user", "content": [{"type": "text", "text": "Who wrote Emma?"}]}, ANSWER],
    ],
)
def test_all_the_ways_to_keep_a_conversation(data: Any) -> None:
    """A body, a list, a body with the answer, a dump of both sides, a line of a batch."""
    assert read_chat(data).turns == SAID


def test_an_answer_alone_is_a_transcript_too() -> None:
    """Nobody asked in it, so the history has a lead that nobody said."""
    plan = plan_of(read_chat({"model": "gpt-4o", "choices": [{"message": ANSWER}]}))
    assert plan.history.has_synthetic_lead
    assert (plan.model, plan.ended, len(plan.history)) == ("gpt-4o", True, 2)


def test_system_and_developer_texts_are_joined() -> None:
    """Wherever they stand; one in the middle is noted."""
    read = read_chat(
        [
            {"role": "system", "content": "One."},
            {"role": "developer", "content": [{"type": "text", "text": "Two."}]},
            *ASKED,
            {"role": "system", "content": "Three."},
        ]
    )
    assert read.system == "One.\n\nTwo.\n\nThree."
    assert [note.path for note in read.notes] == ["[3]"]


def test_calls_and_results() -> None:
    """Results go with the user's message after them, and arguments stay as they were written."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1 }'}}
    read = read_chat(
        [
            *ASKED,
            {"role": "assistant", "content": "Wait.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "42"}]},
            {"role": "user", "content": "Well?"},
        ]
    )
    assert read.turns[1].blocks == (TextBlock("Wait."), ToolUseBlock("c1", "f", '{"a": 1 }'))
    assert read.turns[2].blocks == (ToolResultBlock("c1", "42"), TextBlock("Well?"))
    assert plan_of(read).repairs == ()


def test_functions_of_the_old_kind() -> None:
    """Calls without ids are given some, and their results find them by name."""
    read = read_chat(
        [
            *ASKED,
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "42"},
        ]
    )
    assert read.turns[1].blocks == (ToolUseBlock("call_1", "f", "{}"),)
    assert read.turns[2].blocks == (ToolResultBlock("call_1", "42"),)


def test_media_become_blobs() -> None:
    """Bytes in data URLs and in base64 are kept; what is elsewhere stays there."""
    sound = {"data": b64encode(b"RIFF0000WAVE").decode(), "format": "wav"}
    pdf = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}
    parts = [
        {"type": "image_url", "image_url": {"url": DATA_URL}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "input_audio", "input_audio": sound},
        {"type": "file", "file": pdf},
    ]
    read = read_chat([{"role": "user", "content": parts}])
    image, other, audio, document = read.turns[0].blocks
    assert image == MediaBlock("image", blob=blob_name(PNG), mime="image/png")
    assert other == MediaBlock("image", url="https://example.com/a.png")
    assert isinstance(audio, MediaBlock)
    assert isinstance(document, MediaBlock)
    assert (audio.modality, audio.mime) == ("audio", "audio/wav")
    assert (document.modality, document.mime) == ("document", "application/pdf")
    assert sorted(read.blobs.values()) == sorted([PNG, b"RIFF0000WAVE", b"%PDF-1"])


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"type": "file", "file": {"file_id": "file-abc"}}, "[file file-abc: not imported]"),
        ({"type": "hologram", "id": "h1"}, "[hologram h1: not imported]"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,<cut>"}},
         "[image: not imported]"),
        ({"type": "image_url", "image_url": {"url": ""}}, "[image: not imported]"),
    ],
)  # fmt: skip
def test_what_can_not_be_taken_over_is_a_note(part: Any, text: str) -> None:
    """In its place stands a text that says so, and the note says where that was."""
    read = read_chat({"messages": [{"role": "user", "content": [part]}]})
    assert read.turns[0].blocks == (TextBlock(text),)
    (note,) = read.notes
    assert note.path.startswith("messages[0].content[0]")
    assert "not imported" in note.text


def test_refusals_and_spoken_answers_are_text() -> None:
    """What the assistant said in another way than as content."""
    read = read_chat(
        [
            *ASKED,
            {"role": "assistant", "content": None, "refusal": "I won't."},
            {"role": "assistant", "audio": {"id": "a1", "transcript": "La la."}},
            {"role": "assistant", "content": "x", "reasoning_content": "hm"},
        ]
    )
    texts = [turn.blocks for turn in read.turns[1:]]
    assert texts == [(TextBlock("I won't."),), (TextBlock("La la."),), (TextBlock("x"),)]
    assert read.notes == (Note("[3].reasoning_content", "reasoning_content: not imported"),)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (7, ""),
        ({"prompt": "hello"}, ""),
        ({"messages": "hello"}, "messages"),
        ({"messages": [*ASKED, 7]}, "messages[1]"),
        ({"messages": [{"content": "hello"}]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [7]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0]"),
        ({"request": {"messages": [{"role": 1}]}}, "request.messages[0].role"),
    ],
)
def test_bad_input_is_refused_with_its_path(data: Any, path: str) -> None:
    """The error leads to the value that is wrong."""
    with pytest.raises(TranscriptError) as refused:
        read_chat(data)
    assert refused.value.path == path
    assert str(refused.value).startswith(path)


def test_a_conversation_in_which_nobody_speaks_is_refused() -> None:
    """There would be nothing in the run."""
    with pytest.raises(TranscriptError, match="it has no messages"):
        plan_of(read_chat([{"role": "user", "content": " "}]))


def test_labels_of_an_export_are_hints_again() -> None:
    """The line before media, numbered as an export does it; other lines stay what they are."""
    image = {"type": "image_url", "image_url": {"url": DATA_URL}}
    label, other = {"type": "text", "text": "Media 1: a cat"}, {"type": "text", "text": "See:"}
    read = read_chat([{"role": "user", "content": [label, image, other, image]}])
    hints = [getattr(block, "prompt_hint", "-") for block in read.turns[0].blocks]
    assert hints == ["a cat", "-", None]


def test_the_stub_of_an_export_is_an_error_again() -> None:
    """The format has no word for that, but the text is known."""
    stub = {"role": "tool", "tool_call_id": "c1", "content": STUB_TEXT}
    assert read_chat([stub]).turns[0].blocks == (ToolResultBlock("c1", STUB_TEXT, is_error=True),)
