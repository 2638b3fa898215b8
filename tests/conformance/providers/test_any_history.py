"""Whatever was recorded, and wherever it stopped: every provider takes the request.

Payloads are judged by the strict servers' own rules, as they would be if they arrived.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.providers.harness import PROVIDERS
from tests.servers.serving import Wire
from tests.unit.projections.given import records
from tests.unit.runtime.evaluations import Sum, prompt_of, tool
from turnledger.adapters.providers.wire import WireFormat
from turnledger.ledger import (
    InnerMessage,
    MediaContent,
    MessageAppended,
    TextContent,
    ToolCallRecord,
)
from turnledger.projections import MessageHistory
from turnledger.projections.projection import fold_together
from turnledger.projections.views.conversation import Conversation
from turnledger.runtime import Request

texts = st.sampled_from(["hi", "", " ", "\n", "é ", "x" * 300, "\u0000", "trailing "]) | st.text(
    max_size=8
)
# What models and other providers have used: fit, too long, with odd characters, or the same again.
ids = st.sampled_from(["a", "b", "call_1", "c" * 41, "d" * 65, "e/f", "g h", "ü", ""])
names = st.sampled_from(["add", "no.such.tool", "n" * 65, "9lives", "a b", "ü", ""])
arguments = st.sampled_from(["{}", '{"n": 1}', "[1]", "null", "", "{not JSON", '"x"', "1e999"])
media = st.builds(
    MediaContent,
    st.just("image"),
    url=st.just("https://example.com/a.png"),
    prompt_hint=st.none() | texts,
)
parts = st.lists(st.builds(TextContent, texts) | media, max_size=3).map(tuple)
calls = st.lists(st.builds(ToolCallRecord, ids, names, arguments), max_size=3).map(tuple)


def _message(role: Any, content: Any, number: int, **more: Any) -> InnerMessage:
    return InnerMessage(role=role, content=content, evaluation_id="e1", sequence=number, **more)


said = st.one_of(
    st.builds(lambda c, p: {"role": "user", "content": c, "parts": p}, texts, parts),
    st.builds(
        lambda c, p, t: {"role": "assistant", "content": c, "parts": p, "tool_calls": t},
        texts,
        parts,
        calls,
    ),
    st.builds(
        lambda c, i, e: {"role": "tool", "content": c, "tool_call_id": i, "is_error": e},
        texts,
        ids,
        st.booleans(),
    ),
    st.builds(lambda c: {"role": "system", "content": c}, texts),
)
conversations = st.lists(said, max_size=8)


def _histories(conversation: list[dict[str, Any]]) -> list[MessageHistory]:
    """The history after each message, as it is folded from the ledger."""
    events = [
        MessageAppended(message=_message(number=number, **one))
        for number, one in enumerate(conversation)
    ]
    known = records(events)
    projection = Conversation()
    return [
        fold_together(known[:count], (projection,), (projection.initial(),))[0].history()
        for count in range(len(known) + 1)
    ]


@pytest.mark.parametrize("name", PROVIDERS)
@given(conversation=conversations, asking=st.sampled_from(["plain", "tools", "forced", "output"]))
def test_every_prefix_of_anything_recorded_is_taken(
    name: str, conversation: list[dict[str, Any]], asking: str
) -> None:
    """By every server, at every step; and kept work gives what work from scratch gives."""
    provider = PROVIDERS[name]
    wire, server = provider.adapter("http://127.0.0.1:9").wire, provider.wire()
    kept: dict[str, Any] = {}
    for history in _histories(conversation):
        if history.last is None or (history.last.role == "assistant" and not history.open_calls):
            continue  # nothing is asked: the loop has its answer
        payload = wire.encode(_request(history, kept, asking))
        fresh = wire.encode(_request(history, {}, asking))
        assert payload == fresh
        _judge(name, server, wire, fresh)


def _request(history: MessageHistory, kept: dict[str, Any], asking: str) -> Request:
    rendered = prompt_of(tool(), output=Sum).render()
    assert rendered.output is not None
    return Request(
        evaluation_id="e1",
        turn=1,
        prompt_name="p",
        system=history.system,
        history=history,
        tools=tuple(_specs()) if asking != "plain" else (),
        tool_choice={"type": "function", "function": {"name": "add"}}
        if asking == "forced"
        else "auto",
        response_format=rendered.output.response_format("sum") if asking == "output" else None,
        model="gemini-3-test",
        kept=kept,
    )


def _specs() -> list[dict[str, Any]]:
    from turnledger.runtime.agent.tools import ToolRegistry

    return ToolRegistry([tool()]).specs()


_PATHS = {
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/gemini-3-test:generateContent",
    "openai-responses": "/v1/responses",
}
_HEADERS = {
    "authorization": "Bearer test",
    "x-api-key": "test",
    "x-goog-api-key": "test",
    "anthropic-version": "2023-06-01",
    "content-type": "application/json",
}


def _judge(name: str, server: Wire, wire: WireFormat, payload: dict[str, Any]) -> None:
    body = json.loads(json.dumps(payload))
    if name == "gemini":
        body.pop("model", None)
    server.check("POST", _PATHS.get(name, "/v1/chat/completions"), dict(_HEADERS), body)
