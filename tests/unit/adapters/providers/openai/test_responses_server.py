"""Responses through the real SDK, against the strict server: tools, reasoning, output, faults."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.servers.openai_responses import OpenAIResponses
from tests.servers.serving import (
    Answer,
    Call,
    StrictServer,
    replies,
)
from tests.unit.runtime.evaluations import prompt_of, tool
from turnledger.adapters.providers.openai.adapter import OpenAIAdapter
from turnledger.runtime import InProcessEventBus, Session, ThrottlePolicy

AT_ONCE = ThrottlePolicy(base_delay=timedelta(0), jitter=False)
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def adapter_for(strict: StrictServer, **more: Any) -> OpenAIAdapter[Any]:
    kwargs = {"base_url": f"{strict.url}/v1", "api_key": "k"}
    said = {"model": "gpt-5", "client_kwargs": kwargs, "throttle": AT_ONCE}
    return OpenAIAdapter(wire_format="responses", **said | more)


def quiet() -> Session:
    return Session(bus=InProcessEventBus())


@streamed
@pytest.mark.parametrize("model", ["gpt-5", "gpt-4o"])
def test_a_conversation_with_tools_goes_through(model: str, stream: bool) -> None:
    """Calls, their results, an answer; only sealed reasoning goes back."""
    script = replies(
        Answer("Adding.", (Call("add", '{"n": 3}'), Call("add", '{"n": 4}')), thinking="hm"),
        Answer(None, (Call("add", '{"n": 5}'),), thinking="so"),
        Answer("It is 12."),
    )
    heard: list[str] = []
    with StrictServer(OpenAIResponses(), script) as strict:
        on_delta = (lambda one: heard.append(one.text)) if stream else None
        with adapter_for(strict, model=model, on_delta=on_delta) as adapter:
            response = adapter.evaluate(prompt_of(tool()), session=quiet())
    assert response.text == "It is 12."
    assert (len(strict.asked), strict.refused) == (3, [])
    kinds = [item["type"] for item in strict.bodies[2]["input"]]
    assert kinds.count("reasoning") == (2 if model == "gpt-5" else 0)
    assert kinds.count("function_call") == kinds.count("function_call_output") == 3
    if stream:
        assert "".join(heard) == "Adding.It is 12."
