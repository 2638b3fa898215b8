"""OpenAI's Responses on the wire: items out, replies in, and reasoning back where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.adapters.conversations import FORMAT, TOOL, begun, called, growing, plain, steps
from tests.unit.adapters.conversations import request as asked
from turnledger.adapters.providers.media import UnsupportedMediaError
from turnledger.adapters.providers.openai.responses import (
    FailedResponseError,
    Responses,
    ResponsesStream,
)
from turnledger.adapters.providers.retry import InterruptedStreamError
from turnledger.projections import (
    MediaBlock,
    MessageHistory,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.runtime import Reply, ToolCall

SEALED = "reasoning.encrypted_content"


def reasoning(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": name, "summary": [], "encrypted_content": "gAA", **more}


def message(*texts: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content, **more}


def call(call_id: str, arguments: str = '{"n":1}') -> dict[str, Any]:
    said = {"call_id": call_id, "name": "add", "arguments": arguments, "status": "completed"}
    return {"type": "function_call", "id": f"fc_{call_id}", **said}


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "model": "gpt-5", "status": "completed", "output": list(output), **more}


def after(reply: Reply) -> tuple[MessageHistory, dict[int, Any]]:
    """The conversation after a reply whose calls were answered, and what was kept of it."""
    said = [TextBlock(reply.text)] if reply.text else []
    calls = [ToolUseBlock(one.call_id, one.name, one.arguments) for one in reply.tool_calls]
    history = begun().add_assistant(*said, *calls)
    place = len(history)
    results = [ToolResultBlock(one.call_id, "done") for one in reply.tool_calls]
    history = history.add_user(*results) if results else history.add_user_text("go on")
    return history, {} if reply.provider_data is None else {place: reply.provider_data}


def sent_back(*output: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of the assistant's turn, as they are written after this answer."""
    history, kept = after(Responses().decode(response(*output)))
    items: list[dict[str, Any]] = Responses().encode(asked(history, provider_data=kept))["input"]
    return [
        item
        for item in items
        if item["type"] in ("reasoning", "function_call") or item.get("role") == "assistant"
    ]


# --- out ---


def test_a_first_request_says_what_the_system_says_and_stores_nothing() -> None:
    """The turn that nobody said is left out, and the input is not empty all the same."""
    payload = Responses().encode(asked(begun(), options={"temperature": 0}))
    assert payload == {
        "model": "gpt-4o",
        "input": [{"type": "message", "role": "system", "content": "Be brief."}],
        "store": False,
        "temperature": 0,
    }


def test_results_come_before_what_the_user_says() -> None:
    """A result is an item of its own, with the id of its call."""
    history = called("call_1", text="Adding.").add_user_text("And?")
    assert Responses().encode(asked(history))["input"][1:] == [
        {"type": "message", "role": "assistant", "content": "Adding."},
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"n":1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "result of call_1"},
        {"type": "message", "role": "user", "content": "And?"},
    ]


def test_tools_are_flat_and_not_made_strict() -> None:
    """A parameter with a default stays one that may be left out."""
    payload = Responses().encode(asked(tools=(TOOL,)))
    assert payload["tools"] == [{"type": "function", "strict": False, **TOOL["function"]}]
    assert payload["tool_choice"] == "auto"


@pytest.mark.parametrize(
    "choice",
    [{"type": "function", "function": {"name": "add"}}, {"type": "function", "name": "add"}],
)
def test_a_forced_tool_is_named_flat(choice: dict[str, Any]) -> None:
    """Whichever of the two spellings the user took."""
    payload = Responses().encode(asked(tools=(TOOL,), tool_choice=choice))
    assert payload["tool_choice"] == {"type": "function", "name": "add"}


def test_the_format_of_the_output_goes_beside_other_wishes_for_the_text() -> None:
    """A closed schema is strict; the options' verbosity stays."""
    payload = Responses().encode(
        asked(response_format=FORMAT, options={"text": {"verbosity": "low"}})
    )
    wanted = {"type": "json_schema", "strict": True, **FORMAT["json_schema"]}
    assert payload["text"] == {"verbosity": "low", "format": wanted}


def test_an_open_schema_is_not_strict() -> None:
    """OpenAI would refuse it."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    assert Responses().encode(asked(response_format=form))["text"]["format"]["strict"] is False


@pytest.mark.parametrize(
    ("model", "options", "included"),
    [
        ("gpt-5", {}, [SEALED]),
        ("gpt-5.2-codex", {}, [SEALED]),
        ("openai/o4-mini", {}, [SEALED]),
        ("gpt-4o", {}, None),
        ("gpt-5-chat-latest", {}, None),
        ("my-deployment", {}, None),
        ("my-deployment", {"reasoning": {"effort": "low"}}, [SEALED]),
        ("gpt-5", {"include": []}, []),
    ],
)
def test_sealed_reasoning_is_asked_for_where_a_model_reasons(
    model: str, options: dict[str, Any], included: list[str] | None
) -> None:
    """Models that don't reason refuse to be asked; the options have the last word."""
    assert Responses().encode(asked(model=model, options=options)).get("include") == included


def test_media_are_labelled_parts() -> None:
    """Images and documents by URL and as bytes."""
    history = begun().add_user(
        MediaBlock("image", url="https://example.org/a.png", prompt_hint="a cat"),
        MediaBlock("image", blob="png"),
        MediaBlock("document", url="https://example.org/a.pdf"),
        MediaBlock("document", blob="pdf", id="paper"),
    )
    (_, said) = Responses().encode(asked(history))["input"]
    kinds = [part["type"] for part in said["content"]]
    assert kinds == ["input_text", "input_image"] * 2 + ["input_text", "input_file"] * 2
    labels = [part["text"] for part in said["content"] if part["type"] == "input_text"]
    assert labels == ["Media 1: a cat", "Media 2:", "Media 3:", "Media 4:"]
    shown = [part for part in said["content"] if part["type"] != "input_text"]
    assert shown[0]["image_url"] == "https://example.org/a.png"
    assert shown[1]["image_url"].startswith("data:image/png;base64,")
    assert shown[2] == {"type": "input_file", "file_url": "https://example.org/a.pdf"}
    assert shown[3]["filename"] == "paper.pdf"
    assert shown[3]["file_data"].startswith("data:application/pdf;base64,")


def test_sound_is_refused_or_hinted_at() -> None:
    """Before anything is sent."""
    history = begun().add_user(MediaBlock("audio", blob="wav", prompt_hint="a song"))
    with pytest.raises(UnsupportedMediaError, match="openai-responses can't take audio"):
        Responses().encode(asked(history))
    said = Responses(unsupported_media="hint").encode(asked(history))["input"][1]
    assert said["content"].startswith("Media 1: a song (audio")


def test_what_the_assistant_showed_is_told_in_words() -> None:
    """Its side takes no media."""
    history = begun().add_assistant(MediaBlock("image", url="https://example.org/a.png"))
    (_, said) = Responses().encode(asked(history))["input"]
    assert said["content"] == "Media 1: (image at https://example.org/a.png)"


def test_an_id_that_is_too_long_is_made_fit_for_call_and_result() -> None:
    """64 characters are the most."""
    (_, asked_for, result) = Responses().encode(asked(called("x" * 65)))["input"]
    assert asked_for["call_id"] == result["call_id"]
    assert len(asked_for["call_id"]) <= 64


@given(steps)
def test_a_conversation_that_grows_is_written_as_one_that_is_whole(taken: list[Any]) -> None:
    """What is kept from request to request changes nothing."""
    wire, kept = Responses(unsupported_media="hint"), dict[str, Any]()
    for history in growing(taken):
        grown = wire.encode(asked(history, kept=kept))
        assert grown == wire.encode(asked(history))


# --- in ---


@pytest.mark.parametrize("shape", [dict, plain])
def test_a_reply_has_text_calls_usage_and_the_model(shape: Callable[[Any], Any]) -> None:
    """Of the SDK's objects and of data alike."""
    used = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    raw = shape(response(message("Hel", "lo"), call("call_1"), usage=used))
    reply = Responses().decode(raw)
    assert (reply.text, reply.model, reply.finish_reason) == ("Hello", "gpt-5", "completed")
    assert reply.tool_calls == (ToolCall("call_1", "add", '{"n":1}'),)
    assert reply.usage.input_tokens == 9
    assert (reply.usage.cached_tokens, reply.usage.reasoning_tokens) == (4, 2)
    assert reply.provider_data is None


def test_a_refusal_is_text_and_the_reason_for_the_end() -> None:
    """It is what the model said."""
    part = {"type": "refusal", "refusal": "No."}
    reply = Responses().decode(response(message() | {"content": [part]}))
    assert (reply.text, reply.finish_reason) == ("No.", "refusal")


def test_an_answer_that_is_cut_short_says_why() -> None:
    """In the API's own word."""
    why = {"reason": "max_output_tokens"}
    reply = Responses().decode(
        response(message("Once"), status="incomplete", incomplete_details=why)
    )
    assert (reply.text, reply.finish_reason) == ("Once", "max_output_tokens")


@pytest.mark.parametrize(
    ("code", "retryable", "status"),
    [
        ("server_error", True, 500),
        ("rate_limit_exceeded", True, 429),
        ("invalid_prompt", False, None),
    ],
)
def test_a_failed_response_is_an_error(code: str, retryable: bool, status: int | None) -> None:
    """With the provider's words, and whether to try again."""
    raw = response(status="failed", error={"code": code, "message": "sorry"})
    with pytest.raises(FailedResponseError, match=f"{code}: sorry") as caught:
        Responses().decode(raw)
    assert (caught.value.retryable, caught.value.status_code) == (retryable, status)


def test_a_response_that_is_not_done_is_no_reply() -> None:
    """It was asked for in the background, say."""
    with pytest.raises(FailedResponseError, match="queued"):
        Responses().decode(response(status="queued"))


def test_a_call_that_nobody_offered_is_an_error() -> None:
    """A custom tool's has no arguments."""
    with pytest.raises(ValueError, match="custom_tool_call"):
        Responses().decode(response({"type": "custom_tool_call", "call_id": "c", "input": "x"}))


# --- reasoning ---


def test_reasoning_goes_back_unchanged_before_what_it_led_to() -> None:
    """With its id, its summary and its seal; the other items without ids."""
    first = reasoning("rs_1", summary=[{"type": "summary_text", "text": "hm"}])
    second = reasoning("rs_2")
    items = sent_back(first, message("One. "), second, call("call_1"), message("Two."))
    assert items == [
        first,
        {"type": "message", "role": "assistant", "content": "One. "},
        second,
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"n":1}'},
        {"type": "message", "role": "assistant", "content": "Two."},
    ]


def test_what_is_kept_can_be_stored() -> None:
    """It is JSON, under the format's name."""
    raw = plain(response(reasoning("rs_1", status=None), call("call_1")))
    kept = Responses().decode(raw).provider_data
    assert json.loads(json.dumps(kept)) == kept
    assert list(kept) == ["openai-responses"]
    assert kept["openai-responses"][0] == reasoning("rs_1")


def test_reasoning_without_a_seal_stays_away() -> None:
    """It would be looked up where nothing is stored."""
    assert sent_back(reasoning("rs_1", encrypted_content=None), call("call_1")) == [
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"n":1}'}
    ]


def test_reasoning_that_led_to_nothing_that_goes_back_stays_away() -> None:
    """What a hosted tool did is not sent again, and an end has nothing after it."""
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    items = sent_back(
        reasoning("rs_1"), search, reasoning("rs_2"), message("Hi."), reasoning("rs_3")
    )
    assert [item["type"] for item in items] == ["reasoning", "message"]
    assert items[0]["id"] == "rs_2"


def test_blank_text_does_not_part_reasoning_from_its_call() -> None:
    """A history has no blank texts."""
    items = sent_back(reasoning("rs_1"), message("\n"), call("call_1"))
    assert [item["type"] for item in items] == ["reasoning", "function_call"]


def test_the_phase_of_a_message_goes_back() -> None:
    """Models that say it want it back."""
    items = sent_back(message("Looking.", phase="commentary"), call("call_1"))
    assert items[0]["phase"] == "commentary"


@pytest.mark.parametrize(
    "blocks",
    [
        (TextBlock("Hi?"), ToolUseBlock("call_1", "add", "{}")),
        (TextBlock("Hi."), ToolUseBlock("call_2", "add", "{}")),
        (TextBlock("Hi."),),
        (TextBlock("Hi."), TextBlock("Ho."), ToolUseBlock("call_1", "add", "{}")),
    ],
)
def test_a_turn_that_is_no_longer_what_came_is_sent_without_reasoning(blocks: Any) -> None:
    """Another text, another call, one less, one more."""
    raw = response(reasoning("rs_1"), message("Hi."), call("call_1"))
    kept = Responses().decode(raw).provider_data
    history = begun().add_assistant(*blocks)
    items = Responses().encode(asked(history, provider_data={2: kept}))["input"]
    assert not [item for item in items if item["type"] == "reasoning"]


_output = st.lists(
    st.one_of(
        st.builds(message, st.sampled_from(["a", "bc", "", " ", "🙂"])),
        st.integers(0, 10_000).map(lambda number: reasoning(f"rs_{number}")),
        st.integers(0, 10_000).map(lambda number: call(f"call_{number}")),
        st.just({"type": "web_search_call", "id": "ws_1"}),
    ),
    max_size=8,
    unique_by=lambda item: item.get("call_id", id(item)),
)


@given(_output)
def test_reasoning_is_always_followed_by_what_it_led_to(output: list[dict[str, Any]]) -> None:
    """Whatever the answer was made of, nothing of text or calls is lost or moved."""
    reply = Responses().decode(response(*output))
    if reply.is_empty:
        return
    items = sent_back(*output)
    assert not items or items[-1]["type"] != "reasoning"
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert calls == [one.call_id for one in reply.tool_calls]
    said = [item["content"] for item in items if item["type"] == "message"]
    assert "".join(said).strip() == (reply.text or "").strip()


# --- streams ---


def test_a_stream_tells_its_text_and_ends_in_the_whole_answer() -> None:
    """The last event has all of it."""
    heard: list[str] = []
    stream = ResponsesStream(heard.append)
    whole = response(message("Hello"))
    stream.add({"type": "response.created", "response": response(status="in_progress")})
    stream.add({"type": "response.output_text.delta", "delta": "Hel"})
    stream.add(plain({"type": "response.output_text.delta", "delta": "lo"}))
    stream.add({"type": "response.completed", "response": whole})
    assert heard == ["Hel", "lo"]
    assert stream.whole() == whole


def test_a_stream_that_is_cut_short_is_whole() -> None:
    """The model came to a limit; nothing broke."""
    stream = ResponsesStream(lambda _: None)
    stream.add({"type": "response.incomplete", "response": response(status="incomplete")})
    assert stream.whole()["status"] == "incomplete"


def test_a_stream_that_breaks_off_is_no_answer() -> None:
    """However much of it came."""
    stream = ResponsesStream(lambda _: None)
    stream.add({"type": "response.output_text.delta", "delta": "Hel"})
    with pytest.raises(InterruptedStreamError):
        stream.whole()


@pytest.mark.parametrize(
    "event",
    [
        {
            "type": "response.failed",
            "response": response(error={"code": "server_error", "message": "sorry"}),
        },
        {"type": "error", "code": "server_error", "message": "sorry"},
        {"type": "error", "error": {"code": "server_error", "message": "sorry"}},
    ],
)
def test_a_stream_that_fails_says_so(event: dict[str, Any]) -> None:
    """At once, and that it may be tried again."""
    with pytest.raises(FailedResponseError, match="sorry") as caught:
        ResponsesStream(lambda _: None).add(event)
    assert caught.value.retryable
