"""Anthropic's wire format by itself: turns, media, and answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.servers.anthropic_messages import AnthropicMessages as Server
from tests.unit.adapters.anthropic_pieces import (
    ADD,
    HEADERS,
    WIRE,
    answer,
    assistant,
    encoded,
    request,
    text,
    use,
    user,
)
from turnledger.adapters.providers.anthropic.messages import AnthropicMessages
from turnledger.adapters.providers.media import UnsupportedMediaError
from turnledger.ledger import TokenUsage
from turnledger.projections import (
    MediaBlock,
    MessageHistory,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.runtime import ToolCall

# --- requests ---------------------------------------------------------------------------


def test_a_request_has_the_system_text_apart_and_tools_in_the_providers_words() -> None:
    """Everything but the messages is where the Messages API wants it."""
    history = MessageHistory.new("Be brief.").add_user_text("Hello")
    payload = WIRE.encode(request(history, tools=(ADD,), options={"max_tokens": 9}))
    assert payload == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 9,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [text("Hello")]}],
        "tools": [
            {
                "name": "add",
                "description": "Adds.",
                "input_schema": ADD["function"]["parameters"],
            }
        ],
        "tool_choice": {"type": "auto"},
    }


@pytest.mark.parametrize("system", ["", " \n"])
def test_no_system_text_and_no_tools_leave_their_keys_out(system: str) -> None:
    """An empty system text is refused, and a choice needs tools."""
    history = MessageHistory.new(system).add_user_text("Hello")
    payload = WIRE.encode(request(history))
    assert payload.keys() == {"model", "max_tokens", "messages"}


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ({"type": "function", "function": {"name": "add"}}, {"type": "tool", "name": "add"}),
        ({"type": "tool", "name": "add"}, {"type": "tool", "name": "add"}),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            {"type": "any", "disable_parallel_tool_use": True},
        ),
    ],
)
def test_a_choice_of_tools_is_said_in_the_providers_words(choice: Any, said: Any) -> None:
    """Everybody's words are translated; the provider's own pass as they are."""
    assert encoded(user("Go"), tools=(ADD,), tool_choice=choice)["tool_choice"] == said


@pytest.mark.parametrize("choice", ["sometimes", {"type": "function"}])
def test_a_choice_that_is_none_is_an_error(choice: Any) -> None:
    """It is caught before anything is sent."""
    with pytest.raises(ValueError, match="tool_choice"):
        encoded(user("Go"), tools=(ADD,), tool_choice=choice)


def test_results_come_first_and_say_when_they_are_errors() -> None:
    """A user's turn begins with what answers the calls; a blank result has no content."""
    payload = encoded(
        user("Go"),
        assistant("Well.", *(ToolUseBlock(f"c{n}", "add", "{}") for n in range(4))),
        user(
            "And now?",
            ToolResultBlock("c0", "4"),
            ToolResultBlock("c1", "no", is_error=True),
            ToolResultBlock("c2", " "),
            ToolResultBlock("c3", "", is_error=True),
        ),
    )
    assert payload["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c0", "content": "4"},
        {"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True},
        {"type": "tool_result", "tool_use_id": "c2"},
        {
            "type": "tool_result",
            "tool_use_id": "c3",
            "content": "The tool failed and said nothing.",
            "is_error": True,
        },
        text("And now?"),
    ]


def test_calls_from_elsewhere_are_made_fit() -> None:
    """Ids, names and arguments that the provider refuses are changed, results with them."""
    calls = (
        ToolUseBlock("call|1.a", "my tool", "[1]"),
        ToolUseBlock("x" * 65, "add", '{"n": 1}'),
    )
    results = (ToolResultBlock("call|1.a", "a"), ToolResultBlock("x" * 65, "b"))
    payload = encoded(user("Go"), assistant(*calls), user(*results))
    first, second = payload["messages"][1]["content"]
    assert first["name"] == "my_tool"
    assert first["input"] == {"unreadable_arguments": "[1]"}
    assert second["input"] == {"n": 1}
    brought = [block["tool_use_id"] for block in payload["messages"][2]["content"]]
    assert brought == [first["id"], second["id"]]
    Server().check("POST", "/v1/messages", HEADERS, payload)


def test_only_the_last_word_of_an_assistant_loses_its_trailing_space() -> None:
    """The same turn stands as it was once somebody answered it."""
    kept: dict[str, Any] = {}
    history = MessageHistory.new().add_user_text("Go").add_assistant(TextBlock("Well, \n"))
    last = WIRE.encode(request(history, kept=kept))["messages"]
    assert last[-1]["content"] == [text("Well,")]
    later = WIRE.encode(request(history.add_user_text("Yes?"), kept=kept))["messages"]
    assert later[1]["content"] == [text("Well, \n")]


# --- media --------------------------------------------------------------------------------


def test_media_are_labelled_and_sent_by_url_or_as_bytes() -> None:
    """Images and documents both ways; plain text is a document's text."""
    files = {
        "image": b"\x89PNG\r\n\x1a\n",
        "pdf": b"%PDF-1.7 a page",
        "text": b"a\xc3\xa4",
        "blank": b" ",
    }
    payload = encoded(
        user(
            MediaBlock("image", url="https://a.example/b.png", prompt_hint="a cat"),
            MediaBlock("image", blob="image"),
            MediaBlock("document", url="https://a.example/b.pdf"),
            MediaBlock("document", blob="pdf"),
            MediaBlock("document", blob="text", mime="text/plain"),
            MediaBlock("document", blob="blank", mime="text/plain"),
        ),
        blob=files.__getitem__,
    )
    content = payload["messages"][0]["content"]
    assert [block["text"] for block in content if block["type"] == "text"] == [
        "Media 1: a cat",
        *(f"Media {number}:" for number in range(2, 7)),
    ]
    sources = [(block["type"], block["source"]) for block in content if block["type"] != "text"]
    png = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjcgYSBwYWdl"}
    assert sources == [
        ("image", {"type": "url", "url": "https://a.example/b.png"}),
        ("image", png),
        ("document", {"type": "url", "url": "https://a.example/b.pdf"}),
        ("document", pdf),
        ("document", {"type": "text", "media_type": "text/plain", "data": "aä"}),
    ]
    Server().check("POST", "/v1/messages", HEADERS, payload)


def test_sound_is_refused_or_becomes_a_line_of_text() -> None:
    """What the provider can't take never reaches it."""
    turn = user(MediaBlock("audio", url="https://a.example/b.mp3", prompt_hint="a song"))
    with pytest.raises(UnsupportedMediaError):
        encoded(turn)
    lenient = AnthropicMessages(unsupported_media="hint")
    payload = lenient.encode(request(MessageHistory.from_list([turn])))
    assert payload["messages"][0]["content"][0]["text"].startswith("Media 1: a song (audio at")


# --- answers --------------------------------------------------------------------------------


def test_an_answer_is_decoded_from_data_and_from_objects() -> None:
    """Texts are joined, inputs become JSON text, and input tokens include the cached ones."""
    used = {
        "input_tokens": 5,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 2,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 4},
    }
    data = answer(text("One "), use("c1", n=None), text("two."), stop_reason="tool_use", usage=used)
    reply = WIRE.decode(data)
    assert reply.text == "One two."
    assert reply.tool_calls == (ToolCall("c1", "add", '{"n":null}'),)
    assert reply.usage == TokenUsage(
        input_tokens=10, output_tokens=7, cached_tokens=3, reasoning_tokens=4
    )
    assert (reply.finish_reason, reply.model) == ("tool_use", "claude")
    content = [SimpleNamespace(**block) for block in data["content"]]
    plain = WIRE.decode(SimpleNamespace(**{**data, "content": content}))
    assert (plain.text, plain.tool_calls, plain.usage) == (
        reply.text,
        reply.tool_calls,
        reply.usage,
    )


def test_a_refusal_says_why_where_the_model_said_nothing() -> None:
    """Its explanation is the text, and the reason to end is on record."""
    why = {"type": "refusal", "explanation": "Not this."}
    reply = WIRE.decode(answer(stop_reason="refusal", stop_details=why))
    assert (reply.text, reply.finish_reason) == ("Not this.", "refusal")


def test_an_input_that_msgspec_can_not_write_is_written_all_the_same() -> None:
    """Half of a surrogate pair is no reason to lose a call."""
    reply = WIRE.decode(answer(use("c1", n="\ud800")))
    assert reply.tool_calls[0].arguments == '{"n": "\\ud800"}'


def test_an_answer_without_content_is_an_error() -> None:
    """It is no message at all."""
    with pytest.raises(ValueError, match="no content"):
        WIRE.decode({"type": "error"})
