"""The strict server for Responses: what it refuses, and that the SDK reads its replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest

from tests.servers.openai_responses import OpenAIResponses
from tests.servers.openai_responses_cases import (
    ACCEPTED,
    REFUSED,
    SAID,
    TOOL,
    asks,
    called,
    result,
    thought,
    told,
    without,
)
from tests.servers.openai_shared import call_id
from tests.servers.serving import (
    Answer,
    Asked,
    Call,
    CutBody,
    HalfStream,
    Hang,
    Script,
    Status,
    StrictServer,
    Used,
    replies,
)

SHOWN = {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}


@contextmanager
def serving(script: Script | None = None, **options: Any) -> Iterator[tuple[Any, Any]]:
    """The server, and a client of OpenAI's SDK that talks to it."""
    with (
        StrictServer(OpenAIResponses(), script or (lambda asked: Answer("fine"))) as server,
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
    return client.post("/responses", body=body, cast_to=object)


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
    assert client.responses.create(**ACCEPTED[name]).output_text == "fine"


@pytest.mark.parametrize(
    ("name", "param", "code"),
    [
        ("unknown field", "top_k", "unknown_parameter"),
        ("messages", "messages", "unsupported_parameter"),
        ("an output without a call", "input", None),
        ("a call id that is too long", "input[1].call_id", "string_above_max_length"),
        ("a call with the id of the call", "input[1].id", "invalid_value"),
        ("reasoning at the end", "input", None),
        ("reasoning that was changed", None, "invalid_encrypted_content"),
        ("strict, but open", "tools[0].parameters", "invalid_function_parameters"),
        ("a format that is a choice", "text.format.schema", "invalid_json_schema"),
        ("a previous response", "previous_response_id", "previous_response_not_found"),
    ],
)
def test_says_which_parameter_it_was(plain: Any, name: str, param: str, code: str) -> None:
    """An error names the parameter and has a code, where OpenAI's does."""
    with pytest.raises(openai.BadRequestError) as caught:
        send(plain[1], REFUSED[name][0])
    assert (caught.value.param, caught.value.code) == (param, code)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            asks(SAID, without(thought(), "encrypted_content"), told(id="msg_1"), store=False),
            "Items are not persisted when `store` is set to false.",
        ),
        (asks(SAID, {"type": "item_reference", "id": "msg_1"}), "Item with id 'msg_1' not found."),
        (asks(conversation="conv_1"), "not found"),
    ],
)
def test_finds_nothing_that_was_stored(plain: Any, body: dict[str, Any], words: str) -> None:
    """What is only named gets 404: the server stores nothing."""
    with pytest.raises(openai.NotFoundError) as caught:
        send(plain[1], body)
    assert words in caught.value.body["message"]


def test_needs_a_key_and_its_path(plain: Any) -> None:
    """A request without a key gets 401, and one to another path 404."""
    server, _ = plain
    key = {"authorization": "Bearer test"}
    assert httpx.post(f"{server.url}/v1/responses", json=asks()).status_code == 401
    for path, status in [("/responses", 200), ("/v1/chat/completions", 404)]:
        assert httpx.post(server.url + path, json=asks(), headers=key).status_code == status


# --- turns ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "turn"),
    [
        (asks(), 1),
        (asks(SAID), 1),
        (asks(SAID, told(), SAID), 2),
        (asks(SAID, thought(), told(), called("a"), called("b"), result("a"), result("b")), 2),
        (asks(SAID, called("a"), result("a"), told(), SAID, told(), SAID), 4),
        (asks(SAID, told("a"), told("b"), SAID), 2),
        (asks(SAID, called("a"), result("a"), called("b"), result("b")), 3),
    ],
)
def test_a_turn_is_what_the_model_wrote_in_one_go(body: dict[str, Any], turn: int) -> None:
    """Items that the model wrote one after the other are one turn."""
    assert OpenAIResponses().turn(body) == turn


# --- replies ----------------------------------------------------------------------------

ANSWERS = {
    "text": Answer("Grüße aus Zürich"),
    "nothing": Answer(""),
    "calls": Answer(
        calls=(Call("weather", '{"city": "Bern"}'), Call("now"), Call("later", "", "call_own"))
    ),
    "text and calls": Answer("I look", (Call("weather", '{"city": "Zürich"}'),)),
    "refusal": Answer(refusal="I will not do that"),
    "cut": Answer("It is", finish="length"),
    "thinking": Answer("It is", (Call("weather"),), thinking="first this, then that"),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("more", [{}, SHOWN])
def test_a_stream_says_the_same_as_the_whole(name: str, more: dict[str, Any]) -> None:
    """The deltas of a stream make the items of the whole reply, and its end is that reply."""
    with serving(replies(ANSWERS[name])) as (_, client):
        whole = client.responses.create(**asks(**more))
        events = _events(client, asks(**more))
    assert events[-1].response == whole
    assert [event.item for event in _of(events, "output_item.done")] == whole.output
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = {
        "output_text": [part.text for part in _parts(whole, "output_text")],
        "refusal": [part.refusal for part in _parts(whole, "refusal")],
        "function_call_arguments": [i.arguments for i in whole.output if i.type == "function_call"],
        "reasoning_summary_text": [
            part.text for item in whole.output if item.type == "reasoning" for part in item.summary
        ],
    }
    for kind, told_whole in deltas.items():
        streamed = "".join(event.delta for event in _of(events, f"{kind}.delta"))
        assert streamed == "".join(told_whole)
        assert len(_of(events, f"{kind}.done")) == len(told_whole)


@pytest.mark.parametrize("name", [name for name in ANSWERS if name != "cut"])
def test_the_sdk_puts_a_stream_together(name: str) -> None:
    """The SDK's own accumulator comes to the reply that the server meant."""
    with serving(replies(ANSWERS[name])) as (_, client):
        whole = client.responses.create(**asks(**SHOWN))
        with client.responses.stream(**asks(**SHOWN)) as stream:
            streamed = stream.get_final_response()
    assert streamed.output_text == whole.output_text
    assert [item.type for item in streamed.output] == [item.type for item in whole.output]
    assert streamed.usage == whole.usage


def _events(client: openai.OpenAI, body: dict[str, Any]) -> list[Any]:
    with client.responses.create(**body, stream=True) as stream:
        return list(stream)


def _of(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if event.type == f"response.{kind}"]


def _parts(response: Any, kind: str) -> list[Any]:
    return [
        part
        for item in response.output
        if item.type == "message"
        for part in item.content
        if part.type == kind
    ]


def test_a_whole_reply() -> None:
    """A reply has what OpenAI's has: ids, items, status, usage in its details, what was asked."""
    answer = Answer("I look", (Call("weather", '{"a": 1}'),), used=Used(20, 10, 5, 4))
    with serving(replies(answer)) as (_, client):
        response = client.responses.create(**asks(tools=[TOOL], instructions="be brief"))
    assert response.id.startswith("resp_")
    assert (response.status, response.model) == ("completed", "gpt-test")
    message, call = response.output
    assert (message.id[:4], message.role, message.status) == ("msg_", "assistant", "completed")
    assert (call.id[:3], call.call_id, call.name) == ("fc_", call_id(1, 0), "weather")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 10)
    assert response.usage.total_tokens == 30
    assert response.usage.input_tokens_details.cached_tokens == 5
    assert response.usage.output_tokens_details.reasoning_tokens == 4
    assert (response.instructions, response.tools[0].name) == ("be brief", "weather")


def test_a_reply_that_is_cut() -> None:
    """A reply that came to its limit is incomplete, and says why."""
    with serving(replies(ANSWERS["cut"])) as (_, client):
        response = client.responses.create(**asks())
        events = _events(client, asks())
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete"
    assert events[-1].type == "response.incomplete"


def test_thinking_is_shown_to_those_who_ask() -> None:
    """A summary and an encrypted content come only with a request that wants them."""
    with serving(replies(ANSWERS["thinking"])) as (_, client):
        hidden = client.responses.create(**asks()).output[0]
        shown = client.responses.create(**asks(**SHOWN)).output[0]
    assert (hidden.type, hidden.summary, hidden.encrypted_content) == ("reasoning", [], None)
    assert hidden.id == shown.id
    assert [part.text for part in shown.summary] == ["first this, then that"]
    assert shown.encrypted_content


def test_the_events_of_a_stream() -> None:
    """The events of a reply with words and a call come in OpenAI's order."""
    answer = Answer("ab", (Call("weather", "{}"),))
    with serving(replies(answer)) as (_, client):
        kinds = [event.type.removeprefix("response.") for event in _events(client, asks())]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_an_event_has_two_lines() -> None:
    """An event names its type before its data."""
    first, *_ = OpenAIResponses().stream(Asked(1, 1, asks(stream=True), "", True), Answer("a"))
    assert first.startswith(b'event: response.created\ndata: {"type": "response.created"')
    assert first.endswith(b"\n\n")


@pytest.mark.parametrize("more", [{}, {"store": False, **SHOWN}])
def test_a_conversation_goes_on(more: dict[str, Any]) -> None:
    """What the server said, sent back by the SDK as it came, is the next turn."""
    script = replies(
        Answer("I look", (Call("weather"), Call("weather")), thinking="hm"),
        Answer(calls=(Call("weather"),), thinking="hm"),
        Answer("done"),
    )
    with serving(script) as (server, client):
        items: list[Any] = [SAID]
        for _ in range(3):
            response = client.responses.create(**asks(*items, tools=[TOOL], **more))
            items += response.output
            calls = [item for item in response.output if item.type == "function_call"]
            items += [result(call.call_id) for call in calls]
    assert [asked.turn for asked in server.asked] == [1, 2, 3]
    assert response.output_text == "done"


def test_a_history_without_its_reasoning_is_refused() -> None:
    """A call that came after reasoning may not be sent back with its id alone."""
    with serving(replies(Answer(calls=(Call("weather"),), thinking="hm"))) as (_, client):
        _, call = client.responses.create(**asks(SAID)).output
        with pytest.raises(openai.BadRequestError, match="without its required 'reasoning' item"):
            client.responses.create(**asks(SAID, call, result(call.call_id)))


# --- faults -----------------------------------------------------------------------------


def test_a_limit_says_when_to_come_back() -> None:
    """429 has OpenAI's shape and the headers that it was given."""
    status = Status(429, "slow down", {"retry-after": "7"})
    with (
        serving(lambda asked: status) as (_, client),
        pytest.raises(openai.RateLimitError) as caught,
    ):
        client.responses.create(**asks())
    assert caught.value.response.headers["retry-after"] == "7"
    assert (caught.value.type, caught.value.code) == ("rate_limit_error", "rate_limit_exceeded")


def test_an_error_of_the_server() -> None:
    """500 has OpenAI's shape."""
    with (
        serving(lambda asked: Status(500)) as (_, client),
        pytest.raises(openai.InternalServerError) as caught,
    ):
        client.responses.create(**asks())
    assert caught.value.type == "server_error"


def test_a_server_that_hangs() -> None:
    """A client that waits in vain gives up by its own time limit."""
    with (
        serving(lambda asked: Hang(), timeout=0.2) as (_, client),
        pytest.raises(openai.APITimeoutError),
    ):
        client.responses.create(**asks())


@pytest.mark.parametrize("stream", [False, True])
def test_a_connection_that_breaks(stream: bool) -> None:
    """A connection that breaks within the body or the stream is an error of the connection."""
    with (
        serving(lambda asked: CutBody(Answer("fine" * 50))) as (_, client),
        pytest.raises((openai.APIConnectionError, httpx.TransportError)),
    ):
        _events(client, asks()) if stream else client.responses.create(**asks())


def test_a_stream_that_ends_too_soon() -> None:
    """A stream that ends in good order, but too soon, has no last event."""
    with serving(lambda asked: HalfStream(Answer("a longer text"), 5)) as (_, client):
        events = _events(client, asks())
    assert len(events) == 5
    assert events[-1].type == "response.output_text.delta"
