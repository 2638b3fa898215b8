"""Spans of runs that steps and wrapped clients really make."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI
from opentelemetry.trace import StatusCode

import turnledger
from tests.servers.openai_chat import OpenAIChat
from tests.servers.serving import Answer, Asked, Scripted, Status, StrictServer
from turnledger.ledger import Ledger, run_id_for
from turnledger.runtime.steps import run, step
from turnledger.telemetry import export_spans

pytestmark = pytest.mark.process


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """An empty ledger in memory."""
    with Ledger.open("memory://") as opened:
        yield opened


def script(asked: Asked) -> Scripted:
    """Busy at the first attempt."""
    busy = asked.attempt == 1 and asked.turn == 1
    return Status(429, headers={"retry-after": "0"}) if busy else Answer(f"answer {asked.turn}")


@step
def convert(amount: int) -> int:
    return amount * 100


@step
def pay(amount: int) -> int:
    return convert(amount)


def test_a_block_with_a_wrapped_client_is_a_trace(ledger: Ledger) -> None:
    """Chats with their models, tokens, attempts and messages; steps inside of steps."""
    with StrictServer(OpenAIChat(), script) as server:
        made = OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=1)
        client = turnledger.wrap(made)
        said: list[Any] = [{"role": "system", "content": "Be brief."}]
        with made, run("order-17", ledger=ledger):
            for question in ("One?", "Two?"):
                said.append({"role": "user", "content": question})
                reply = client.chat.completions.create(model="gpt-5", messages=said)
                answer = reply.choices[0].message.content
                said.append({"role": "assistant", "content": answer})
            pay(5)
        assert not server.refused
    spans = export_spans(ledger, run_id_for("order-17"), content=True)
    names = ["chat gpt-5", "chat gpt-5", "execute_tool convert", "execute_tool pay", "invoke_agent"]
    assert [span.name for span in spans] == names
    first, second, inner, outer, whole = spans
    assert [event.name for event in first.events] == ["model.call_failed"]
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    found = dict(second.attributes or {})
    assert found["gen_ai.provider.name"] == "openai"
    assert found["gen_ai.usage.input_tokens"] == 11
    texts = json.loads(found["gen_ai.input.messages"])
    assert [one["parts"][0]["content"] for one in texts] == ["One?", "answer 1", "Two?"]
    (reply_shown,) = json.loads(found["gen_ai.output.messages"])
    assert reply_shown["parts"] == [{"type": "text", "content": "answer 2"}]
    assert json.loads(found["gen_ai.system_instructions"])[0]["content"] == "Be brief."
    told = dict(whole.attributes or {})
    assert told["turnledger.tag.name"] == "order-17"
    assert told["gen_ai.usage.output_tokens"] == 14
    assert "gen_ai.prompt.name" not in told
