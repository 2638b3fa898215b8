"""The strict server for Chat Completions: what it refuses, and that the SDK reads its replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest

from tests.servers.openai_chat import OpenAIChat
from tests.servers.openai_chat_cases import ACCEPTED, REFUSED, SAID, TOOL, asks, result
from tests.servers.openai_shared import call_id
from tests.servers.serving import (
    Answer,
    Asked,
    Call,
    CutBody,
    HalfStream,
    Hang,
    Raw,
    Script,
    Status,
    StrictServer,
    Used,
    replies,
)


@contextmanager
def serving(script: Script | None = None, **options: Any) -> Iterator[tuple[Any, Any]]:
    """The server, and a client of OpenAI's SDK that talks to it."""
    with (
        StrictServer(OpenAIChat(), script or (lambda asked: Answer("fine"))) as server,
        openai.OpenAI(
            api_key="test", base_url=f"{server.url}/v1", max_retries=0, **options
        ) as client,
    ):
        yield server, client


@pytest.fixture
def plain() -> Iterator[tuple[Any, Any]]:
    """A server that always answers the same."""
    with serving() as both:
        yield both


def send(client: openai.OpenAI, body: dict[str, Any]) -> Any:
    """Any body, through the SDK."""
    return client.post("/chat/completions", body=body, cast_to=object)


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_openai_refuses(plain: Any, name: str) -> None:
    """A malformed request gets 400 and the words that OpenAI has for it."""
    server, client = plain
    body, words = REFUSED[name]
    with pytest.raises(openai.BadRequestError) as caught:
        send(client, body)
    assert words in caught.value.body["message"]
    assert caught.value.type == "invalid_request_error"
    assert set(caught.value.body) == {"message", "type", "param", "code"}
    assert [refused.message for refused in server.refused] == [caught.value.body["message"]]
    assert server.asked == []


@pytest.mark.parametrize("name", ACCEPTED)
def test_takes_what_openai_takes(plain: Any, name: str) -> None:
    """A well-formed request is answered."""
    _, client = plain
    completion = client.chat.completions.create(**ACCEPTED[name])
    assert completion.choices[0].message.content == "fine"


@pytest.mark.parametrize(
    ("name", "param", "code"),
    [
        ("unknown field", None, None),
        ("no calls", "messages[1].tool_calls", "empty_array"),
        ("an id that is too long", "messages[1].tool_calls[0].id", "string_above_max_length"),
        ("a result without a call", "messages.[1].role", None),
        ("calls without results", "messages.[3].role", None),
        ("null content of a user", "messages.[0].content", None),
        ("strict, but open", "tools[0].function.parameters", "invalid_function_parameters"),
        ("a format that is open", "response_format", None),
        ("too hot", "temperature", "decimal_above_max_value"),
        ("unknown field of a message", "messages[0].mood", "unknown_parameter"),
    ],
)
def test_says_which_parameter_it_was(plain: Any, name: str, param: str, code: str) -> None:
    """An error names the parameter and has a code, where OpenAI's does."""
    with pytest.raises(openai.BadRequestError) as caught:
        send(plain[1], REFUSED[name][0])
    assert (caught.value.param, caught.value.code) == (param, code)


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer"}, {"authorization": "Basic a"}])
def test_needs_a_key(plain: Any, headers: dict[str, str]) -> None:
    """A request without a bearer key gets 401."""
    response = httpx.post(f"{plain[0].url}/v1/chat/completions", json=asks(), headers=headers)
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_knows_its_paths(plain: Any) -> None:
    """The path is known with and without its version, and no other is."""
    server, _ = plain
    key = {"authorization": "Bearer test"}
    for path, status in [
        ("/chat/completions", 200),
        ("/v1/chat/completions?a=b", 200),
        ("/v1/completions", 404),
    ]:
        assert httpx.post(server.url + path, json=asks(), headers=key).status_code == status
    assert httpx.get(f"{server.url}/v1/chat/completions", headers=key).status_code == 405


@pytest.mark.parametrize("body", [b"[1]", b"", b"{"])
def test_needs_an_object(plain: Any, body: bytes) -> None:
    """A body that is no JSON object gets 400."""
    headers = {"authorization": "Bearer test", "content-type": "application/json"}
    url = f"{plain[0].url}/v1/chat/completions"
    assert httpx.post(url, content=body, headers=headers).status_code == 400


def test_needs_json() -> None:
    """A body of another type is refused."""
    with serving() as (server, _):
        headers = {"authorization": "Bearer test", "content-type": "text/plain"}
        url = f"{server.url}/v1/chat/completions"
        assert httpx.post(url, content=b"{}", headers=headers).status_code == 400


# --- replies ----------------------------------------------------------------------------

ANSWERS = {
    "text": Answer("Grüße aus Zürich"),
    "nothing": Answer(""),
    "calls": Answer(
        calls=(Call("weather", '{"city": "Bern"}'), Call("now"), Call("later", "", "call_own"))
    ),
    "text and calls": Answer("I look", (Call("weather", '{"city": "Zürich"}'),)),
    "refusal": Answer(refusal="I will not do that"),
    "several": Answer("the first", others=("the second", "a third that is longer")),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_stream_says_the_same_as_the_whole(name: str) -> None:
    """The SDK puts a stream together to the message, calls and usage of the whole reply."""
    answer = ANSWERS[name]
    with serving(replies(answer)) as (_, client):
        whole = client.chat.completions.create(**asks())
        with client.chat.completions.stream(
            **asks(), stream_options={"include_usage": True}
        ) as stream:
            streamed = stream.get_final_completion()
    assert [_told(choice) for choice in streamed.choices] == [
        _told(choice) for choice in whole.choices
    ]
    assert streamed.usage == whole.usage
    assert (streamed.id, streamed.created) == (whole.id, whole.created)


def _told(choice: Any) -> tuple[Any, ...]:
    calls = [
        (call.id, call.type, call.function.name, call.function.arguments)
        for call in choice.message.tool_calls or ()
    ]
    said = (choice.message.content or "", choice.message.refusal or "")
    return choice.index, choice.finish_reason, *said, calls


def test_a_whole_reply() -> None:
    """A reply has what OpenAI's has: id, model, choice, calls with ids, usage in its details."""
    answer = Answer("I look", (Call("weather", '{"a": 1}'),), used=Used(20, 10, 5, 4))
    with serving(replies(answer)) as (_, client):
        completion = client.chat.completions.create(**asks())
    assert completion.id.startswith("chatcmpl-")
    assert (completion.object, completion.model) == ("chat.completion", "gpt-test")
    (choice,) = completion.choices
    assert (choice.message.content, choice.finish_reason) == ("I look", "tool_calls")
    assert choice.message.tool_calls[0].id == call_id(1, 0)
    usage = completion.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (20, 10, 30)
    assert usage.prompt_tokens_details.cached_tokens == 5
    assert usage.completion_tokens_details.reasoning_tokens == 4


def test_a_reply_that_is_cut() -> None:
    """The reason that a script gives is the reason of the reply, whole and streamed."""
    with serving(replies(Answer("It is", finish="length"))) as (_, client):
        whole = client.chat.completions.create(**asks())
        chunks = _chunks(client, asks())
    assert whole.choices[0].finish_reason == "length"
    assert chunks[-1].choices[0].finish_reason == "length"


def test_a_refusal_has_no_content() -> None:
    """A refusal stands beside a content that is null."""
    with serving(replies(Answer(refusal="no"))) as (_, client):
        message = client.chat.completions.create(**asks()).choices[0].message
    assert (message.content, message.refusal) == (None, "no")


def test_other_choices_come_after_the_first() -> None:
    """Other choices have their own index, and come although one was asked for."""
    with serving(replies(ANSWERS["several"])) as (_, client):
        choices = client.chat.completions.create(**asks()).choices
        chunks = _chunks(client, asks())
    assert [(choice.index, choice.message.content) for choice in choices] == [
        (0, "the first"),
        (1, "the second"),
        (2, "a third that is longer"),
    ]
    indices = [chunk.choices[0].index for chunk in chunks]
    assert indices[:4] == [0, 1, 2, 0]


def _chunks(client: openai.OpenAI, body: dict[str, Any]) -> list[Any]:
    with client.chat.completions.create(**body, stream=True) as stream:
        return list(stream)


def test_a_stream_comes_in_pieces() -> None:
    """Words and arguments come in several chunks, a role first and the reason last."""
    answer = Answer("a longer text", (Call("weather", '{"city": "Bern"}'),))
    with serving(replies(answer)) as (_, client):
        chunks = _chunks(client, asks())
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert sum(bool(delta.content) for delta in deltas) > 2
    assert sum(bool(delta.tool_calls) for delta in deltas) > 3
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "tool_calls"]
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_of_a_stream_is_asked_for() -> None:
    """Usage comes in a chunk without choices, and only to those who asked for it."""
    with serving() as (_, client):
        body = asks(stream_options={"include_usage": True})
        *chunks, last = _chunks(client, body)
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert (last.choices, last.usage.total_tokens) == ([], 18)


def test_a_stream_ends_with_a_word() -> None:
    """The last event of a stream is [DONE]."""
    events = OpenAIChat().stream(Asked(1, 1, asks(stream=True), "", True), Answer("a"))
    assert events[-1] == b"data: [DONE]\n\n"


def test_a_named_call_ends_with_stop() -> None:
    """The reason of a call that the request named is `stop`, as OpenAI gives it."""
    choice = {"type": "function", "function": {"name": "weather"}}
    with serving(replies(Answer(calls=(Call("weather"),)))) as (_, client):
        completion = client.chat.completions.create(**asks(tools=[TOOL], tool_choice=choice))
    assert completion.choices[0].finish_reason == "stop"


def test_a_conversation_goes_on() -> None:
    """What the server said, sent back by the SDK as it came, is the next turn."""
    script = replies(
        Answer("I look", (Call("weather"), Call("weather"))), Answer(refusal="no"), Answer("done")
    )
    with serving(script) as (server, client):
        messages: list[Any] = [SAID]
        for _ in range(3):
            message = client.chat.completions.create(**asks(*messages, tools=[TOOL])).choices[0]
            messages.append(message.message)
            messages += [result(call.id) for call in message.message.tool_calls or ()]
    assert [asked.turn for asked in server.asked] == [1, 2, 3]
    assert messages[-1].content == "done"


# --- faults -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error", "kind", "code"),
    [
        (Status(400), openai.BadRequestError, "invalid_request_error", None),
        (
            Status(400, kind="context_length_exceeded"),
            openai.BadRequestError,
            "invalid_request_error",
            "context_length_exceeded",
        ),
        (Status(401), openai.AuthenticationError, "invalid_request_error", "invalid_api_key"),
        (Status(429), openai.RateLimitError, "rate_limit_error", "rate_limit_exceeded"),
        (
            Status(429, kind="insufficient_quota"),
            openai.RateLimitError,
            "insufficient_quota",
            "insufficient_quota",
        ),
        (Status(500), openai.InternalServerError, "server_error", None),
        (Status(503, kind="overloaded_error"), openai.APIStatusError, "overloaded_error", None),
    ],
)
def test_an_error_has_openais_shape(
    status: Status, error: type[openai.APIStatusError], kind: str, code: str | None
) -> None:
    """An error that was asked for has the type and the code of its status."""
    with serving(lambda asked: status) as (_, client), pytest.raises(error) as caught:
        client.chat.completions.create(**asks())
    assert (caught.value.status_code, caught.value.type) == (status.code, kind)
    assert (caught.value.code, caught.value.body["message"]) == (code, status.message)


def test_a_limit_says_when_to_come_back() -> None:
    """429 has the headers that it was given, and the next attempt is counted."""

    def script(asked: Asked) -> Any:
        return Status(429, headers={"retry-after": "7"}) if asked.attempt == 1 else Answer("fine")

    with serving(script) as (server, client):
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(**asks())
        completion = client.chat.completions.create(**asks())
    assert caught.value.response.headers["retry-after"] == "7"
    assert completion.choices[0].message.content == "fine"
    assert [asked.attempt for asked in server.asked] == [1, 2]


def test_a_server_that_hangs() -> None:
    """A client that waits in vain gives up by its own time limit."""
    with (
        serving(lambda asked: Hang(), timeout=0.2) as (_, client),
        pytest.raises(openai.APITimeoutError),
    ):
        client.chat.completions.create(**asks())


def test_a_body_that_is_cut() -> None:
    """A connection that breaks within the body is an error of the connection."""
    with (
        serving(lambda asked: CutBody(Answer("fine" * 50))) as (_, client),
        pytest.raises((openai.APIConnectionError, httpx.TransportError)),
    ):
        client.chat.completions.create(**asks())


def test_a_stream_that_is_cut() -> None:
    """A connection that breaks within a stream is an error after the first chunks."""
    with (
        serving(lambda asked: CutBody(Answer("fine" * 50))) as (_, client),
        pytest.raises((openai.APIConnectionError, httpx.TransportError)),
    ):
        _chunks(client, asks())


def test_a_stream_that_ends_too_soon() -> None:
    """A stream that ends in good order has no reason for its end if it ended too soon."""
    with serving(lambda asked: HalfStream(Answer("a longer text"), 3)) as (_, client):
        chunks = _chunks(client, asks())
    assert len(chunks) == 3
    assert {chunk.choices[0].finish_reason for chunk in chunks} == {None}


def test_any_body_can_be_given() -> None:
    """A script may answer with what no provider should give."""
    with (
        serving(lambda asked: Raw(b"<html>", 502, "text/html")) as (_, client),
        pytest.raises(openai.InternalServerError),
    ):
        client.chat.completions.create(**asks())
