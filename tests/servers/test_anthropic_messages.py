"""What only the strict server for Anthropic's Messages does: blocks, their events, and schemas."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from tests.servers.anthropic_cases import HELLO, LEAST, text, thought
from tests.servers.sdks import ANSWERS, Anthropic, connected
from tests.servers.serving import Answer, CutBody


def test_an_answer_with_everything() -> None:
    """Thinking, text and calls come in this order, with signature and ids."""
    with connected(Anthropic, ANSWERS["everything"]) as sdk:
        message = sdk.reply()
    thinking, words, first, second = (block.to_dict() for block in message.content)
    assert thinking == thought("Where is it?")
    assert words == text("I look.")
    assert (first["type"], second["type"]) == ("tool_use", "tool_use")
    assert first["input"] == {"at": "ský", "deep": {"n": [1, 2.5, None]}}
    assert second["input"] == {}
    assert str(first["id"]).startswith("toolu_")
    assert first["id"] != second["id"]
    assert message.id.startswith("msg_")


def test_the_events_of_a_stream() -> None:
    """A stream has the provider's events in their order, and what is long comes in pieces."""
    with connected(Anthropic, ANSWERS["everything"]) as sdk:
        events = sdk.events()
    kinds = [event.type for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    counted = Counter(one.delta.type for one in events if one.type == "content_block_delta")
    assert counted["text_delta"] > 1
    assert counted["thinking_delta"] > 1
    assert counted["signature_delta"] == 1
    assert counted["input_json_delta"] > 4


def test_a_stream_that_is_cut_has_no_end() -> None:
    """The events before a connection breaks do not tell that the message is complete."""
    kinds: list[str] = []
    with (
        connected(Anthropic, CutBody(Answer("x" * 1000))) as sdk,
        sdk.reply(stream=True) as stream,
        pytest.raises(httpx2.TransportError),
    ):
        kinds.extend(event.type for event in stream)
    assert "message_stop" not in kinds


def test_an_answer_to_a_schema() -> None:
    """The client's own schema of a type is taken, and the answer read as one."""

    class Place(BaseModel):
        name: str
        near: list[str] | None = None

    with connected(Anthropic, Answer('{"name": "Here", "near": null}')) as sdk:
        request: dict[str, Any] = {**LEAST, "messages": [HELLO]}
        parsed = sdk.client.messages.parse(**request, output_format=Place)
    assert parsed.parsed_output == Place(name="Here")
    assert sdk.server.bodies[0]["output_config"]["format"]["type"] == "json_schema"
