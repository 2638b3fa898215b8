"""Messages of Anthropic's that come in pieces."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.adapters.anthropic_pieces import (
    WIRE,
    text,
    use,
)
from turnledger.adapters.providers.anthropic.stream import MessageStream, StreamedError
from turnledger.adapters.providers.retry import InterruptedStreamError, advice_for
from turnledger.runtime import ToolCall


def started(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **piece: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **piece}}


START = {"type": "message_start", "message": {"id": "m", "model": "claude", "content": []}}
STOP = {"type": "message_stop"}


def ended(reason: str, **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


def collected(*events: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    heard: list[str] = []
    stream = MessageStream(heard.append)
    for event in events:
        stream.add(event)
    return stream.whole(), heard


def test_a_stream_is_put_together_to_the_whole_message() -> None:
    """Every kind of piece finds its block; only text is heard."""
    start = {**START, "message": {**START["message"], "usage": {"input_tokens": 5}}}
    whole, heard = collected(
        start,
        started(0, {"type": "thinking", "thinking": "", "signature": ""}),
        {"type": "ping"},
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="s"),
        started(1, text("")),
        delta(1, "text_delta", text="One "),
        delta(1, "text_delta", text="two"),
        delta(1, "a_new_kind", text="?"),
        started(2, use("c1")),
        delta(2, "input_json_delta", partial_json='{"n"'),
        delta(2, "input_json_delta", partial_json=": 1}"),
        started(3, use("c2")),
        {"type": "content_block_stop", "index": 3},
        ended("tool_use", output_tokens=7, input_tokens=None),
        STOP,
    )
    assert heard == ["One ", "two"]
    assert whole["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        text("One two"),
        use("c1", n=1),
        use("c2"),
    ]
    assert whole["usage"] == {"input_tokens": 5, "output_tokens": 7}
    assert WIRE.decode(whole).finish_reason == "tool_use"


def test_arguments_that_were_cut_off_stay_as_they_are() -> None:
    """A reply that ran out of tokens is still a reply: the call fails, and the model hears why."""
    whole, _ = collected(
        START,
        started(0, use("c1")),
        delta(0, "input_json_delta", partial_json='{"n": '),
        ended("max_tokens"),
        STOP,
    )
    assert WIRE.decode(whole).tool_calls == (ToolCall("c1", "add", '{"n": '),)


def test_a_stream_that_does_not_end_is_no_answer() -> None:
    """Not even when the reason to end was told already."""
    with pytest.raises(InterruptedStreamError):
        collected(START, started(0, text("")), ended("end_turn"))


@pytest.mark.parametrize(
    ("kind", "again"),
    [
        ("overloaded_error", True),
        ("rate_limit_error", True),
        ("api_error", True),
        ("invalid_request_error", False),
    ],
)
def test_an_error_in_a_stream_says_whether_to_try_again(kind: str, again: bool) -> None:
    """What passes may be tried again; a refusal would be one again."""
    event = {"type": "error", "error": {"type": kind, "message": "so sorry"}}
    with pytest.raises(StreamedError, match="so sorry") as caught:
        collected(START, event)
    assert advice_for(caught.value).retryable is again
