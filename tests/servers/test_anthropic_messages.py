"""The strict server for Anthropic's Messages API, talked to by Anthropic's own client."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import anthropic
import httpx
import httpx2
import pytest
from pydantic import BaseModel

from tests.servers.anthropic_messages import OLD, AnthropicMessages
from tests.servers.anthropic_rules import NEW, signature
from tests.servers.serving import (
    Answer,
    Call,
    CutBody,
    HalfStream,
    Hang,
    Scripted,
    Status,
    StrictServer,
    Used,
    replies,
)

HELLO = {"role": "user", "content": "Hello"}
TOOL = {
    "name": "look",
    "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
}
THINKING = {"type": "enabled", "budget_tokens": 1024}
PNG = base64.b64encode(b"\x89PNG").decode()


def use(id: str = "toolu_1", **more: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": "tool_use", "id": id, "name": "look", "input": {}, **more}


def result(id: str = "toolu_1", **more: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": "tool_result", "tool_use_id": id, "content": "seen", **more}


def text(words: str = "Well", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def thought(words: str = "Hm", signed: str | None = None) -> dict[str, Any]:
    return {
        "type": "thinking",
        "thinking": words,
        "signature": signature(words) if signed is None else signed,
    }


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def said(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


def held_to(schema: dict[str, Any]) -> dict[str, Any]:
    return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}


def image(**source: Any) -> dict[str, Any]:
    return said(user({"type": "image", "source": source}))


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "no model": ({"model": None}, "model: "),
    "no messages": ({"messages": []}, "messages: at least one message is required"),
    "max_tokens as text": ({"max_tokens": "9"}, "max_tokens: Input should be a valid integer"),
    "max_tokens of nothing": ({"max_tokens": 0}, "max_tokens: Input should be greater"),
    "unknown field": ({"response_format": {}}, "response_format: Extra inputs are not permitted"),
    "unknown field in a block": (
        said(user(text(name="x"))),
        "messages.0.content.0.text.name: Extra inputs are not permitted",
    ),
    "unknown field in a message": (
        said({**HELLO, "name": "x"}),
        "messages.0.name: Extra inputs are not permitted",
    ),
    "sampling in the new version": (
        {"temperature": 1.0},
        "temperature: Extra inputs are not permitted",
    ),
    "system as a role": (
        said({"role": "system", "content": "Be kind"}, HELLO),
        'messages: Unexpected role "system"',
    ),
    "tool as a role": (said({**HELLO, "role": "tool"}), "messages.0.role: Input should be 'user'"),
    "assistant first": (said(assistant(text())), 'first message must use the "user" role'),
    "user twice": (said(HELLO, HELLO), 'roles must alternate between "user" and "assistant"'),
    "no content": (said(user()), "messages.0: user messages must have non-empty content"),
    "assistant without content": (
        said(HELLO, assistant(), HELLO),
        "messages.1: all messages must have non-empty content",
    ),
    "null content": (
        said(HELLO, {"role": "assistant", "content": None}, HELLO),
        "messages.1.content: Input should be a valid list",
    ),
    "empty text": (said(user(text(""))), "messages: text content blocks must be non-empty"),
    "empty string": (said({**HELLO, "content": ""}), "text content blocks must be non-empty"),
    "only space": (said(user(text(" \n"))), "blocks must contain non-whitespace text"),
    "empty text in a result": (
        said(HELLO, assistant(use()), user(result(content=[text("")])), tools=[TOOL]),
        "text content blocks must be non-empty",
    ),
    "space at the end of a prefill": (
        said(HELLO, assistant(text("Well "))),
        "final assistant content cannot end with trailing whitespace",
    ),
    "prefill for a model without": (
        said(HELLO, assistant(text()), model="claude-opus-4-6"),
        "This model does not support assistant message prefill.",
    ),
    "id of a use": (
        said(HELLO, assistant(use("a.b")), user(result("a.b"))),
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    "an id twice": (
        said(HELLO, assistant(use()), user(result()), assistant(use()), user(result())),
        "messages.3.content.0: `tool_use` ids must be unique",
    ),
    "use without result": (
        said(HELLO, assistant(use("a"), use("b")), user(result("a"))),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: b.",
    ),
    "use at the end": (
        said(HELLO, assistant(use())),
        "messages.1: `tool_use` ids were found without `tool_result` blocks",
    ),
    "text before a result": (
        said(HELLO, assistant(use()), user(text(), result())),
        "messages.1: `tool_use` ids were found without `tool_result` blocks",
    ),
    "result without use": (
        said(user(result("x"))),
        "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: x.",
    ),
    "result too late": (
        said(HELLO, assistant(use()), user(result()), assistant(text()), user(result())),
        "messages.4.content.0: unexpected `tool_use_id` found",
    ),
    "two results": (
        said(HELLO, assistant(use()), user(result(), result())),
        "each tool_use must have a single result",
    ),
    "use by the user": (said(user(use())), "`tool_use` blocks can only be in `assistant`"),
    "result by the assistant": (
        said(HELLO, assistant(result()), HELLO),
        "`tool_result` blocks can only be in `user`",
    ),
    "image by the assistant": (
        said(
            HELLO,
            assistant({"type": "image", "source": {"type": "url", "url": "https://a.b/c"}}),
            HELLO,
        ),
        "`image` blocks can only be in `user` messages",
    ),
    "document by the assistant": (
        said(
            HELLO,
            assistant({"type": "document", "source": {"type": "url", "url": "https://a.b/c"}}),
            HELLO,
        ),
        "`document` blocks can only be in `user` messages",
    ),
    "thinking by the user": (said(user(thought())), "`thinking` blocks can only be in `assistant`"),
    "citations by the user": (
        said(user(text(citations=[{"type": "char_location"}]))),
        "`citations` are not permitted",
    ),
    "input as text": (
        said(HELLO, assistant(use(input="{}")), user(result())),
        "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
    ),
    "image of another kind": (
        image(type="base64", media_type="image/bmp", data=PNG),
        "image.source.base64.media_type: Input should be 'image/jpeg'",
    ),
    "image that is no base64": (
        image(type="base64", media_type="image/png", data="!"),
        "image.source.base64.data: invalid base64 data",
    ),
    "image by http": (image(type="url", url="http://a.b"), "Only HTTPS URLs are supported."),
    "document that is no pdf": (
        said(
            user(
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "text/html", "data": PNG},
                }
            )
        ),
        "media_type: Input should be 'application/pdf'",
    ),
    "audio": (said(user({"type": "audio", "source": {}})), "Input tag 'audio'"),
    "video": (said(user({"type": "video", "source": {}})), "Input tag 'video'"),
    "empty system": ({"system": ""}, "system: text content blocks must be non-empty"),
    "system as an image": (
        {"system": [{"type": "image", "source": {}}]},
        "system.0.type: Input should be 'text'",
    ),
    "name of a tool": (
        {"tools": [{**TOOL, "name": "look.at"}]},
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ),
    "tools of one name": ({"tools": [TOOL, TOOL]}, "tools: Tool names must be unique."),
    "schema of no object": (
        {"tools": [{"name": "look", "input_schema": {"type": "string"}}]},
        "tools.0.custom.input_schema.type: Input should be 'object'",
    ),
    "parameters as OpenAI has them": (
        {"tools": [{"name": "look", "parameters": {"type": "object"}}]},
        "tools.0.custom.input_schema: Field required",
    ),
    "anyOf on top": (
        {"tools": [{"name": "look", "input_schema": {"type": "object", "anyOf": []}}]},
        "does not support oneOf, allOf, or anyOf at the top level",
    ),
    "strict tool that is open": (
        {"tools": [{**TOOL, "strict": True}]},
        "tools.0.custom: For 'object' type, 'additionalProperties' must be explicitly set to false",
    ),
    "choice without tools": (
        {"tool_choice": {"type": "auto"}},
        "tool_choice may only be specified while providing tools.",
    ),
    "choice as text": ({"tools": [TOOL], "tool_choice": "auto"}, "tool_choice: Input should be"),
    "choice of another tool": (
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "hear"}},
        "Tool 'hear' not found in provided tools",
    ),
    "choice without its name": (
        {"tools": [TOOL], "tool_choice": {"type": "tool"}},
        "tool_choice.tool.name: Field required",
    ),
    "thinking that is forced to a tool": (
        {"tools": [TOOL], "tool_choice": {"type": "any"}, "thinking": THINKING, "max_tokens": 2048},
        "Thinking may not be enabled when tool_choice forces tool use.",
    ),
    "too little thinking": (
        {"thinking": {"type": "enabled", "budget_tokens": 1000}},
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
    ),
    "more thinking than tokens": (
        {"thinking": THINKING, "max_tokens": 1024},
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    "loop that began without thinking": (
        said(HELLO, assistant(use()), user(result()), thinking=THINKING, max_tokens=2048),
        "content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`",
    ),
    "thinking that was changed": (
        said(HELLO, assistant(thought("Ha", signature("Hm")), text()), HELLO),
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    "signature that was changed": (
        said(HELLO, assistant(thought(signed="x"), text()), HELLO),
        "Invalid `signature` in `thinking` block",
    ),
    "thinking without signature": (
        said(HELLO, assistant({"type": "thinking", "thinking": "Hm"}, text()), HELLO),
        "messages.1.content.0.thinking.signature: Field required",
    ),
    "thinking at the end": (
        said(HELLO, assistant(text(), thought()), HELLO),
        "The final block in an assistant message cannot be `thinking`.",
    ),
    "output that is open": (
        held_to({"type": "object", "properties": {}}),
        "output_config.format.schema: For 'object' type, 'additionalProperties' must be",
    ),
    "output that is open inside": (
        held_to({"type": "array", "items": {"type": "object"}}),
        "'additionalProperties' must be explicitly set to false",
    ),
    "output with a bound": (
        held_to({"type": "integer", "minimum": 1, "maximum": 2}),
        "For 'integer' type, properties maximum, minimum are not supported",
    ),
    "output without schema": (
        {"output_config": {"format": {"type": "json_schema"}}},
        "output_config.format.schema: Field required",
    ),
    "stop of only space": ({"stop_sequences": [" "]}, "each stop sequence must contain"),
    "five breakpoints": (
        {"system": [text(cache_control={"type": "ephemeral"})] * 5},
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
}

WELL_FORMED: dict[str, dict[str, Any]] = {
    "the least": {},
    "blocks": said(
        user(text(), {"type": "image", "source": {"type": "url", "url": "https://a.b"}})
    ),
    "a picture": image(type="base64", media_type="image/png", data=PNG),
    "documents": said(
        user(
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PNG},
                "title": "One",
            },
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "Two"},
            },
        )
    ),
    "a conversation": said(HELLO, {"role": "assistant", "content": "Hi"}, HELLO, system="Be kind"),
    "a prefill": said(HELLO, assistant(text("Well,"))),
    "results, then text": said(
        HELLO,
        assistant(text(), use("a"), use("b")),
        user(result("b"), result("a", is_error=True), text()),
        tools=[TOOL],
    ),
    "results of all kinds": said(
        HELLO,
        assistant(use("a"), use("b"), use("c")),
        user(
            result("a", content=""),
            {"type": "tool_result", "tool_use_id": "b"},
            result(
                "c",
                content=[
                    text(),
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                    },
                ],
            ),
        ),
        tools=[TOOL],
    ),
    "a loop that began with thinking": said(
        HELLO,
        assistant(thought(), use("a")),
        user(result("a")),
        assistant(use("b")),
        user(result("b")),
        tools=[TOOL],
        thinking=THINKING,
        max_tokens=2048,
    ),
    "an older turn without thinking": said(
        HELLO, assistant(text()), HELLO, thinking=THINKING, max_tokens=2048
    ),
    "choices": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look"}},
    "a closed output": held_to(
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        }
    ),
    "the rest": {
        "metadata": {"user_id": "u"},
        "stop_sequences": ["END"],
        "system": [text(cache_control={"type": "ephemeral", "ttl": "1h"})],
        "service_tier": "standard_only",
    },
}

Serve = Callable[..., tuple[StrictServer, anthropic.Anthropic]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that gives these answers, with a client that tries once."""
    with ExitStack() as opened:

        def served(*answers: Scripted) -> tuple[StrictServer, anthropic.Anthropic]:
            server = opened.enter_context(StrictServer(AnthropicMessages(), replies(*answers)))
            client = anthropic.Anthropic(api_key="test", base_url=server.url, max_retries=0)
            return server, opened.enter_context(client)

        yield served


def request(**more: Any) -> dict[str, Any]:
    return {"model": "claude-opus-4-5", "max_tokens": 100, "messages": [HELLO], **more}


def create(client: anthropic.Anthropic, **more: Any) -> anthropic.types.Message:
    """Through the client, which itself checks nothing that is in the body."""
    return client.messages.create(**request(), extra_body=more)


@pytest.mark.parametrize("case", MALFORMED)
def test_what_the_real_one_refuses_is_refused(serve: Serve, case: str) -> None:
    """A malformed request gets status 400, the provider's shape of an error, and its words."""
    server, client = serve(Answer("no"))
    more, words = MALFORMED[case]
    with pytest.raises(anthropic.BadRequestError) as refused:
        create(client, **more)
    body: Any = refused.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert words in body["error"]["message"]
    assert body["request_id"].startswith("req_")
    assert server.asked == []
    assert len(server.refused) == 1


@pytest.mark.parametrize("case", WELL_FORMED)
def test_what_is_well_formed_is_taken(serve: Serve, case: str) -> None:
    """A well-formed request is answered."""
    _, client = serve(*[Answer("yes")] * 3)
    assert create(client, **WELL_FORMED[case]).content[0].to_dict() == text("yes")


@pytest.mark.parametrize("field", ["model", "max_tokens", "messages"])
def test_a_field_that_is_needed(serve: Serve, field: str) -> None:
    """Without one of the three fields that a request must have, the error names it."""
    server, _ = serve(Answer("no"))
    body = request()
    del body[field]
    headers = {"x-api-key": "test", "anthropic-version": NEW}
    refused = httpx.post(f"{server.url}/v1/messages", json=body, headers=headers)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == f"{field}: Field required"


@pytest.mark.parametrize(
    ("headers", "status", "kind", "words"),
    [
        ({"anthropic-version": NEW}, 401, "authentication_error", "x-api-key header is required"),
        ({"x-api-key": "k"}, 400, "invalid_request_error", "anthropic-version: header is required"),
        (
            {"x-api-key": "k", "anthropic-version": "2024-01-01"},
            400,
            "invalid_request_error",
            'anthropic-version: "2024-01-01" is not a valid version',
        ),
    ],
)
def test_headers_that_are_needed(
    serve: Serve, headers: dict[str, str], status: int, kind: str, words: str
) -> None:
    """Without a key it is 401, and without a version that there is, 400."""
    server, _ = serve(Answer("no"))
    refused = httpx.post(f"{server.url}/v1/messages", json=request(), headers=headers)
    assert refused.status_code == status
    assert refused.json()["error"] == {"type": kind, "message": words}


def test_another_path(serve: Serve) -> None:
    """What is no endpoint here is not found."""
    server, _ = serve(Answer("no"))
    refused = httpx.post(f"{server.url}/v1/complete", json=request(), headers={"x-api-key": "k"})
    assert refused.status_code == 404
    assert refused.json()["error"]["type"] == "not_found_error"


def test_the_old_version_samples(serve: Serve) -> None:
    """Version 2023-06-01 takes a temperature, up to 1."""
    server, _ = serve(Answer("yes"))
    headers = {"x-api-key": "test", "anthropic-version": OLD}
    url = f"{server.url}/v1/messages"
    assert httpx.post(url, json=request(temperature=1), headers=headers).status_code == 200
    refused = httpx.post(url, json=request(temperature=1.5), headers=headers)
    assert refused.json()["error"]["message"].startswith("temperature: Input should be less than")


EVERYTHING = Answer(
    text="I look.",
    thinking="Where is it?",
    calls=(Call("look", '{"at": "sk\\u00fd", "deep": {"n": [1, 2.5, null]}}'), Call("look")),
    used=Used(input=50, output=20, cached=30, reasoning=5),
)


def test_an_answer_with_everything(serve: Serve) -> None:
    """Thinking, text and calls come in this order, with signature, ids and usage."""
    _, client = serve(EVERYTHING)
    message = create(client, tools=[TOOL])
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    thinking, words, first, second = (block.to_dict() for block in message.content)
    assert thinking == thought("Where is it?")
    assert words == text("I look.")
    assert first["input"] == {"at": "ský", "deep": {"n": [1, 2.5, None]}}
    assert second["input"] == {}
    assert str(first["id"]).startswith("toolu_")
    assert first["id"] != second["id"]
    assert message.id.startswith("msg_")
    assert message.stop_reason == "tool_use"
    assert message.usage.input_tokens == 20
    assert message.usage.cache_read_input_tokens == 30
    assert message.usage.cache_creation_input_tokens == 0
    assert message.usage.output_tokens == 20


@pytest.mark.parametrize(
    "answer",
    [
        EVERYTHING,
        Answer("Hello, ☃ world"),
        Answer(""),
        Answer(refusal="I will not."),
        Answer("Cut", finish="max_tokens"),
        Answer(calls=(Call("look", "no json", "my-id"),)),
    ],
)
def test_a_stream_amounts_to_the_whole(serve: Serve, answer: Answer) -> None:
    """The client puts a stream together to the message that it gets without one."""
    _, client = serve(answer)
    whole = create(client, tools=[TOOL])
    with client.messages.stream(**request(tools=[TOOL])) as stream:
        streamed = stream.get_final_message()
    apart = {"service_tier", "parsed_output"}
    assert _without(streamed.to_dict(), apart) == _without(whole.to_dict(), apart)


def _without(given: Any, names: set[str]) -> Any:
    if isinstance(given, dict):
        return {key: _without(one, names) for key, one in given.items() if key not in names}
    return [_without(one, names) for one in given] if isinstance(given, list) else given


def test_the_events_of_a_stream(serve: Serve) -> None:
    """A stream has the provider's events in their order, and what is long comes in pieces."""
    _, client = serve(EVERYTHING)
    with client.messages.create(**request(tools=[TOOL], stream=True)) as stream:
        events = [event.to_dict() for event in stream]
    kinds = [str(event["type"]) for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    counted = {kind: [one["type"] for one in deltas].count(kind) for kind in map(_kind, deltas)}
    assert counted["text_delta"] > 1
    assert counted["thinking_delta"] > 1
    assert counted["signature_delta"] == 1
    assert counted["input_json_delta"] > 4


def _kind(delta: Any) -> str:
    return str(delta["type"])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer("Yes"), "end_turn"),
        (Answer(calls=(Call("look"),)), "tool_use"),
        (Answer("Cut", finish="max_tokens"), "max_tokens"),
        (Answer(refusal="No."), "refusal"),
    ],
)
def test_why_it_stopped(serve: Serve, answer: Answer, reason: str) -> None:
    """The reason goes with the answer, unless the script says another."""
    _, client = serve(answer)
    assert create(client, tools=[TOOL]).stop_reason == reason


def test_a_loop_of_tools_is_taken_back(serve: Serve) -> None:
    """What the server said is taken back as the client holds it, and counts as a turn."""
    server, client = serve(EVERYTHING, Answer(calls=(Call("look"),)), Answer("Found."))
    messages: list[Any] = [HELLO]
    config: dict[str, Any] = {"tools": [TOOL], "thinking": THINKING, "max_tokens": 2048}
    while (message := client.messages.create(**request(messages=messages, **config))).content:
        messages.append({"role": "assistant", "content": message.content})
        uses = [block for block in message.content if block.type == "tool_use"]
        if not uses:
            break
        messages.append(user(*(result(block.id) for block in uses)))
    assert message.content[0].to_dict() == text("Found.")
    assert [asked.turn for asked in server.asked] == [1, 2, 3]


def test_an_answer_to_a_schema(serve: Serve) -> None:
    """The client's own schema of a type is taken, and the answer read as one."""

    class Place(BaseModel):
        name: str
        near: list[str] | None = None

    server, client = serve(Answer('{"name": "Here", "near": null}'))
    parsed = client.messages.parse(**request(), output_format=Place)
    assert parsed.parsed_output == Place(name="Here")
    assert server.bodies[0]["output_config"]["format"]["type"] == "json_schema"


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (529, anthropic.APIStatusError, "overloaded_error"),
        (401, anthropic.AuthenticationError, "authentication_error"),
    ],
)
def test_a_status_that_was_asked_for(
    serve: Serve, status: int, error: type[anthropic.APIStatusError], kind: str
) -> None:
    """A scripted status comes as the client's error for it, with its headers."""
    _, client = serve(Status(status, "Slowly", {"retry-after": "7"}))
    with pytest.raises(error) as raised:
        create(client)
    assert raised.value.status_code == status
    assert raised.value.response.headers["retry-after"] == "7"
    body: Any = raised.value.body
    assert body["error"] == {"type": kind, "message": "Slowly"}


def test_no_answer_at_all(serve: Serve) -> None:
    """A client that waits no longer than it wants to has a timeout."""
    _, client = serve(Hang())
    with pytest.raises(anthropic.APITimeoutError):
        client.messages.create(**request(), timeout=0.2)


def test_a_body_that_is_cut(serve: Serve) -> None:
    """A connection that breaks in the body is an error, and no shorter answer."""
    _, client = serve(CutBody(Answer("x" * 1000)))
    with pytest.raises(anthropic.APIConnectionError):
        create(client)


def test_a_stream_that_is_cut(serve: Serve) -> None:
    """A connection that breaks in a stream is the transport's error, not one of the client's."""
    _, client = serve(CutBody(Answer("x" * 1000)))
    kinds: list[str] = []
    with (
        client.messages.create(**request(stream=True)) as stream,
        pytest.raises(httpx2.TransportError),
    ):
        kinds.extend(event.type for event in stream)
    assert "message_stop" not in kinds


def test_a_stream_that_ends_early(serve: Serve) -> None:
    """A stream that ends in good order before its answer raises nothing, but has no reason."""
    _, client = serve(HalfStream(Answer("Hello, world"), events=4))
    with client.messages.stream(**request()) as stream:
        message = stream.get_final_message()
    assert message.content[0].to_dict()["text"] == "Hello"
    assert message.stop_reason is None


def test_a_body_that_is_no_json(serve: Serve) -> None:
    """What is no JSON is refused in the provider's shape."""
    server, _ = serve(Answer("no"))
    refused = httpx.post(f"{server.url}/v1/messages", content=b"{")
    assert refused.status_code == 400
    assert json.loads(refused.text)["error"]["type"] == "invalid_request_error"
