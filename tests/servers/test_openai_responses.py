"""What only the strict server for Responses does: items, reasoning, and the events of a stream."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.servers.openai_responses import OpenAIResponses
from tests.servers.openai_responses_cases import (
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
from tests.servers.sdks import ANSWERS, Responses, connected
from tests.servers.serving import Answer, Asked, Call

SHOWN = {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}
CUT = Answer("It is", finish="length")


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
def test_finds_nothing_that_was_stored(body: dict[str, Any], words: str) -> None:
    """What is only named gets 404: the server stores nothing."""
    with connected(Responses) as sdk, pytest.raises(openai.NotFoundError) as caught:
        sdk.send(body)
    assert words in caught.value.body["message"]


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


@pytest.mark.parametrize("name", [*ANSWERS, "cut"])
@pytest.mark.parametrize("more", [{}, SHOWN])
def test_a_stream_says_the_same_as_the_whole(name: str, more: dict[str, Any]) -> None:
    """The deltas of a stream make the items of the whole reply, and its end is that reply."""
    with connected(Responses, ANSWERS.get(name, CUT)) as sdk:
        whole = sdk.reply(**more)
        events = sdk.events(**more)
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


@pytest.mark.parametrize("name", ANSWERS)
def test_the_sdk_puts_a_stream_together(name: str) -> None:
    """The SDK's own accumulator comes to the reply that the server meant."""
    with connected(Responses, ANSWERS[name]) as sdk:
        whole = sdk.reply(**SHOWN)
        with sdk.client.responses.stream(**asks(**SHOWN)) as stream:
            streamed = stream.get_final_response()
    assert streamed.output_text == whole.output_text
    assert [item.type for item in streamed.output] == [item.type for item in whole.output]
    assert streamed.usage == whole.usage


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
    """A reply has what OpenAI's has: ids, items, status, what was asked."""
    answer = Answer("I look", (Call("weather", '{"a": 1}'),))
    with connected(Responses, answer) as sdk:
        response = sdk.reply(tools=[TOOL], instructions="be brief")
    assert response.id.startswith("resp_")
    assert (response.status, response.model) == ("completed", "gpt-test")
    message, call = response.output
    assert (message.id[:4], message.role, message.status) == ("msg_", "assistant", "completed")
    assert (call.id[:3], call.call_id, call.name) == ("fc_", call_id(1, 0), "weather")
    assert (response.instructions, response.tools[0].name) == ("be brief", "weather")


def test_a_reply_that_is_cut() -> None:
    """A reply that came to its limit is incomplete, and says why."""
    with connected(Responses, CUT) as sdk:
        response = sdk.reply()
        events = sdk.events()
    assert response.status == "incomplete"
    assert response.output[0].status == "incomplete"
    assert events[-1].type == "response.incomplete"


def test_thinking_is_shown_to_those_who_ask() -> None:
    """A summary and an encrypted content come only with a request that wants them."""
    with connected(Responses, ANSWERS["thinking"]) as sdk:
        hidden = sdk.reply().output[0]
        shown = sdk.reply(**SHOWN).output[0]
    assert (hidden.type, hidden.summary, hidden.encrypted_content) == ("reasoning", [], None)
    assert hidden.id == shown.id
    assert [part.text for part in shown.summary] == ["first this, then that"]
    assert shown.encrypted_content


def test_the_events_of_a_stream() -> None:
    """The events of a reply with words and a call come in OpenAI's order."""
    answer = Answer("ab", (Call("weather", "{}"),))
    with connected(Responses, answer) as sdk:
        kinds = [event.type.removeprefix("response.") for event in sdk.events()]
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


def test_a_conversation_that_is_not_stored_goes_on() -> None:
    """Reasoning that was sent back encrypted is the next turn's, though nothing is stored."""
    thought = Answer("I look", (Call("weather"), Call("weather")), thinking="hm")
    with connected(Responses, thought, thought, Answer("done")) as sdk:
        items: list[Any] = [SAID]
        for _ in range(3):
            response = sdk.reply(*items, tools=[TOOL], store=False, **SHOWN)
            items += sdk.following(response)
    assert [asked.turn for asked in sdk.server.asked] == [1, 2, 3]
    assert response.output_text == "done"


def test_a_history_without_its_reasoning_is_refused() -> None:
    """A call that came after reasoning may not be sent back with its id alone."""
    with connected(Responses, Answer(calls=(Call("weather"),), thinking="hm")) as sdk:
        _, call = sdk.reply(SAID).output
        with pytest.raises(openai.BadRequestError, match="without its required 'reasoning' item"):
            sdk.reply(SAID, call, result(call.call_id))
