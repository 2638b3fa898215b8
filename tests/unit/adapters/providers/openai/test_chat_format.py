"""Chat completions on the wire: messages out, the first choice in, and streams put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given

from tests.unit.adapters.conversations import FORMAT, TOOL, begun, called, growing, plain, steps
from tests.unit.adapters.conversations import request as asked
from turnledger.adapters.providers.media import UnknownMediaTypeError, UnsupportedMediaError
from turnledger.adapters.providers.openai.chat import ChatCompletions, ChatStream
from turnledger.adapters.providers.retry import InterruptedStreamError
from turnledger.projections import MediaBlock, ToolResultBlock, ToolUseBlock
from turnledger.runtime import ToolCall


def answer(*messages: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    choices = [
        {"index": index, "message": {"role": "assistant", **said}, "finish_reason": finish}
        for index, said in enumerate(messages)
    ]
    return {"id": "chatcmpl-1", "model": "gpt-4o", "choices": choices, **more}


def call(call_id: str, arguments: Any = '{"n":1}') -> dict[str, Any]:
    function = {"name": "add", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def written(history: Any, **more: Any) -> list[dict[str, Any]]:
    """The messages after that of the system."""
    found: list[dict[str, Any]] = ChatCompletions(**more).encode(asked(history))["messages"]
    return found[1:]


# --- out ---


def test_a_first_request_has_the_systems_message_alone() -> None:
    """The turn that nobody said is left out, and what is not asked for is not there."""
    payload = ChatCompletions().encode(asked(begun(), options={"temperature": 0}))
    assert payload == {
        "model": "gpt-4o",
        "messages": [{"role": "system", "content": "Be brief."}],
        "temperature": 0,
    }


def test_a_conversation_without_a_system_has_no_message_of_it() -> None:
    """An empty one would be refused."""
    payload = ChatCompletions().encode(asked(begun().add_user_text("Hi."), system=""))
    assert payload["messages"] == [{"role": "user", "content": "Hi."}]


def test_results_are_messages_of_their_own_before_what_the_user_says() -> None:
    """In the order in which they are in the turn."""
    history = called("call_1", "call_2").add_user_text("And?")
    assert written(history) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("call_1"), call("call_2")],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "result of call_1"},
        {"role": "tool", "tool_call_id": "call_2", "content": "result of call_2"},
        {"role": "user", "content": "And?"},
    ]


def test_an_assistant_that_called_nothing_has_no_calls() -> None:
    """An empty list would be refused."""
    (said, _) = written(called(text="Done.").add_user_text("Thanks."))
    assert said == {"role": "assistant", "content": "Done."}


def test_tools_come_with_the_choice_among_them() -> None:
    """A choice without tools would be refused."""
    payload = ChatCompletions().encode(asked(tools=(TOOL,), tool_choice="required"))
    assert (payload["tools"], payload["tool_choice"]) == ([TOOL], "required")
    assert "tool_choice" not in ChatCompletions().encode(asked(tool_choice="required"))


def test_a_forced_tool_is_named_as_chat_completions_name_it() -> None:
    """Also if the user spelled it flat."""
    choice = {"type": "function", "name": "add"}
    payload = ChatCompletions().encode(asked(tools=(TOOL,), tool_choice=choice))
    assert payload["tool_choice"] == {"type": "function", "function": {"name": "add"}}


def test_a_choice_that_names_no_tool_is_refused() -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match="tool_choice is"):
        ChatCompletions().encode(asked(tools=(TOOL,), tool_choice={"type": "function"}))


def test_a_closed_schema_is_strict() -> None:
    """And the request's own stays as it was."""
    payload = ChatCompletions().encode(asked(response_format=FORMAT))
    assert payload["response_format"]["json_schema"]["strict"] is True
    assert "strict" not in FORMAT["json_schema"]


def test_an_open_schema_is_sent_as_it_is() -> None:
    """Strict mode would refuse it."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    assert ChatCompletions().encode(asked(response_format=form))["response_format"] == form


@pytest.mark.parametrize("bad", ["x" * 41, "ä"])
def test_an_id_that_would_be_refused_is_made_fit_for_call_and_result(bad: str) -> None:
    """It may come from another provider."""
    said, result = written(called(bad))
    assert said["tool_calls"][0]["id"] == result["tool_call_id"]
    assert len(result["tool_call_id"]) <= 40
    assert result["tool_call_id"].isascii()


def test_an_id_that_is_used_again_gets_another() -> None:
    """Results then answer the call that they belong to."""
    again = called("call_1").add_assistant(ToolUseBlock("call_1", "add", "{}"))
    messages = written(again.add_user(ToolResultBlock("call_1", "second")))
    first, second = (one["tool_calls"][0]["id"] for one in messages if "tool_calls" in one)
    assert first != second
    assert [one["tool_call_id"] for one in messages if one["role"] == "tool"] == [first, second]


@pytest.mark.parametrize("name", ["a tool!", "ä", "x" * 80])
def test_a_name_that_a_model_made_up_is_made_fit(name: str) -> None:
    """The provider would refuse to hear it again."""
    history = begun().add_assistant(ToolUseBlock("call_1", name, ""))
    (said, _) = written(history)
    function = said["tool_calls"][0]["function"]
    assert ChatCompletions.name_pattern.fullmatch(function["name"])
    assert function["arguments"] == "{}"


def test_media_are_parts_with_labels() -> None:
    """A URL, bytes of an image, sound and a paper; numbered over the whole conversation."""
    first = begun().add_user(
        MediaBlock("image", url="https://example.org/a.png", prompt_hint="a cat"),
        MediaBlock("image", blob="png"),
    )
    more = first.add_assistant(MediaBlock("image", url="https://example.org/b.png"))
    history = more.add_user(
        MediaBlock("audio", blob="wav"), MediaBlock("document", blob="pdf", id="paper")
    )
    shown, said, sent = written(history)
    assert [part["type"] for part in shown["content"]] == ["text", "image_url"] * 2
    assert shown["content"][0]["text"] == "Media 1: a cat"
    assert shown["content"][3]["image_url"]["url"].startswith("data:image/png;base64,")
    assert said["content"] == "Media 3: (image at https://example.org/b.png)"
    label, sound, _, paper = sent["content"]
    assert label == {"type": "text", "text": "Media 4:"}
    assert sound["input_audio"]["format"] == "wav"
    assert paper["file"]["filename"] == "paper.pdf"
    assert paper["file"]["file_data"].startswith("data:application/pdf;base64,")


@pytest.mark.parametrize(
    "media",
    [
        MediaBlock("video", url="https://example.org/a.mp4", prompt_hint="a film"),
        MediaBlock("document", url="https://example.org/a.pdf", prompt_hint="a film"),
        MediaBlock("image", blob="pdf", prompt_hint="a film"),
    ],
)
def test_media_that_can_not_be_sent_is_refused_or_hinted_at(media: MediaBlock) -> None:
    """The modality, the way, the type: each may be one that is not taken."""
    history = begun().add_user(media)
    with pytest.raises(UnsupportedMediaError, match="unsupported_media='hint'"):
        written(history)
    (said,) = written(history, unsupported_media="hint")
    assert said["content"].startswith("Media 1: a film (")


def test_bytes_of_which_nobody_knows_the_type_are_refused() -> None:
    """The error says how to tell."""
    with pytest.raises(UnknownMediaTypeError, match="mime="):
        ChatCompletions().encode(
            asked(begun().add_user(MediaBlock("image", blob="x")), blob=lambda _: b"?")
        )


@given(steps)
def test_a_conversation_that_grows_is_written_as_one_that_is_whole(taken: list[Any]) -> None:
    """What is kept from request to request changes nothing."""
    wire, kept = ChatCompletions(unsupported_media="hint"), dict[str, Any]()
    for history in growing(taken):
        grown = wire.encode(asked(history, kept=kept))
        assert grown == wire.encode(asked(history))


# --- in ---


@pytest.mark.parametrize("shape", [dict, plain])
def test_the_first_choice_is_the_reply(shape: Callable[[Any], Any]) -> None:
    """Others are not looked at, and objects are read like data."""
    used = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    first = {"content": "one", "tool_calls": [call("call_1"), call("call_2", None)]}
    raw = shape(answer(first, {"content": "two"}, finish="tool_calls", usage=used))
    reply = ChatCompletions().decode(raw)
    assert (reply.text, reply.model, reply.finish_reason) == ("one", "gpt-4o", "tool_calls")
    assert reply.tool_calls == (
        ToolCall("call_1", "add", '{"n":1}'),
        ToolCall("call_2", "add", "{}"),
    )
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (9, 5)
    assert (reply.usage.cached_tokens, reply.usage.reasoning_tokens) == (4, 2)


@pytest.mark.parametrize(
    ("raw", "why"), [({"choices": []}, "no choices"), ({"choices": [{}]}, "no message")]
)
def test_an_answer_without_a_message_is_an_error(raw: Any, why: str) -> None:
    """It says what is missing."""
    with pytest.raises(ValueError, match=why):
        ChatCompletions().decode(raw)


def test_a_refusal_is_text_and_the_reason_for_the_end() -> None:
    """It is what the model said."""
    reply = ChatCompletions().decode(answer({"content": None, "refusal": "No."}))
    assert (reply.text, reply.finish_reason) == ("No.", "refusal")


def test_content_in_segments_is_one_text() -> None:
    """Some servers send parts; those that are no text have none."""
    parts = [{"type": "text", "text": "Hel"}, {"type": "x"}, {"type": "text", "text": "lo"}]
    assert ChatCompletions().decode(answer({"content": parts})).text == "Hello"


def test_what_the_provider_parsed_is_plain_data() -> None:
    """Whatever object the SDK made of it."""

    @dataclass
    class Sum:
        total: int

    reply = ChatCompletions().decode(answer({"content": None, "parsed": Sum(3)}))
    assert reply.parsed == {"total": 3}
    assert not reply.is_empty


def test_a_call_that_nobody_offered_is_an_error() -> None:
    """A custom tool's has no arguments."""
    custom = {"id": "c", "type": "custom", "custom": {"name": "x", "input": "y"}}
    with pytest.raises(ValueError, match="'custom'"):
        ChatCompletions().decode(answer({"tool_calls": [custom]}))


# --- streams ---


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "model": "gpt-4o", "created": 1, "choices": [choice]}


def test_a_stream_is_put_together_to_the_answer_that_it_is() -> None:
    """Text, calls in pieces and side by side, usage in the end; other choices are left."""
    heard: list[str] = []
    stream = ChatStream(heard.append)
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add"}}
    second = {"index": 1, "id": "call_2", "type": "function", "function": {"name": "add"}}
    for one in (
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "other"}, index=1),
        plain(chunk({"content": "lo"})),
        chunk({"tool_calls": [first]}),
        chunk({"tool_calls": [second]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"n"'}}]}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
        chunk({}, finish="tool_calls"),
        {"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 9}},
    ):
        stream.add(one)
    assert heard == ["Hel", "lo"]
    reply = ChatCompletions().decode(stream.whole())
    assert (reply.text, reply.model, reply.finish_reason) == ("Hello", "gpt-4o", "tool_calls")
    assert reply.tool_calls == (
        ToolCall("call_1", "add", '{"n":1}'),
        ToolCall("call_2", "add", "{}"),
    )
    assert reply.usage.input_tokens == 9


def test_a_streamed_refusal_is_put_together() -> None:
    """It comes in pieces like text."""
    stream = ChatStream(lambda _: None)
    for piece in ("N", "o."):
        stream.add(chunk({"refusal": piece}))
    stream.add(chunk({}, finish="stop"))
    assert ChatCompletions().decode(stream.whole()).text == "No."


def test_what_providers_add_to_messages_and_calls_is_kept() -> None:
    """Fields of their own, whole or in pieces."""
    stream = ChatStream(lambda _: None)
    asked_for = {"index": 0, "id": "c", "function": {"name": "add", "arguments": "{}"}}
    stream.add(chunk({"own": {"a": 1}, "tool_calls": [asked_for | {"own": {"s": "x"}}]}))
    stream.add(chunk({"own": {"b": 2}, "thoughts": [1]}))
    stream.add(chunk({"thoughts": [2]}, finish="tool_calls"))
    message = stream.whole()["choices"][0]["message"]
    assert (message["own"], message["thoughts"]) == ({"a": 1, "b": 2}, [1, 2])
    assert message["tool_calls"][0]["own"] == {"s": "x"}


def test_a_stream_that_breaks_off_is_no_answer() -> None:
    """However much of it came; the call may be made again."""
    stream = ChatStream(lambda _: None)
    stream.add(chunk({"content": "Hel"}))
    with pytest.raises(InterruptedStreamError) as caught:
        stream.whole()
    assert caught.value.retryable
