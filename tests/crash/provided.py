"""Agents whose model is a provider: its own SDK, over real HTTP, to a strict server.

The server is the test's and outlives every agent; what it answers depends on the request alone.
"""

from __future__ import annotations

import gc
import importlib
import json
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tests.conformance.providers.harness import PROVIDERS
from tests.crash.agents import parallel_tools, reply_of
from tests.servers.serving import Answer, Asked, Call, Script
from turnledger.runtime import ProviderAdapter
from turnledger.runtime.agent.models import Sending

_SDKS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "litellm": "litellm",
    "anthropic": "anthropic",
    "gemini": "google.genai",
}


def warm(name: str) -> None:
    """Import what the children need, once: they are forked after it."""
    if name == "litellm":
        warnings.simplefilter("ignore")  # it warns of what it does itself
    importlib.import_module(_SDKS[name])


def import_all(modules: Sequence[str]) -> None:
    """Import these, but for what can't be imported by its name alone."""
    for name in modules:
        with suppress(Exception):
            importlib.import_module(name)
    gc.freeze()


def script_of(kind: str) -> Script:
    """What the server answers to an agent of this kind: a reply in the wire's own words."""

    def script(asked: Asked) -> Answer:
        reply = reply_of(kind, asked.turn, json.dumps(asked.body))
        calls = tuple(Call(one.name, one.arguments, one.call_id) for one in reply.tool_calls)
        return Answer(reply.text, calls, thinking="Money is involved.")

    return script


def provided(plan: dict[str, Any], point: Callable[[str], None]) -> ProviderAdapter[Any]:
    """The adapter of a provider, that may die before and after each answer."""
    adapter = PROVIDERS[plan["provider"]].adapter(
        plan["provider_url"],
        parallel_tools=parallel_tools(plan["kind"]),
        stream=plan["stream"],
    )
    send, sent = adapter.send, 0

    def sending(payload: Any, how: Sending) -> Any:
        nonlocal sent
        sent += 1
        point(f"in model call {sent}")
        raw = send(payload, how)
        point(f"after model call {sent}")
        return raw

    adapter.send = sending  # type: ignore[method-assign]
    return adapter
