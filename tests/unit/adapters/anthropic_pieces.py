"""Short ways to requests and answers of Anthropic's Messages API, for tests."""

from __future__ import annotations

from typing import Any

from tests.servers.anthropic_rules import signature
from turnledger.adapters.providers.anthropic.messages import AnthropicMessages
from turnledger.projections import ChatTurn, MessageHistory, TextBlock
from turnledger.runtime import Request

WIRE = AnthropicMessages()
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}
BUDGET = {"type": "enabled", "budget_tokens": 1024}
ADAPTIVE = {"type": "adaptive"}
HEADERS = {"x-api-key": "key", "anthropic-version": "2023-06-01"}


def request(history: MessageHistory, **more: Any) -> Request:
    given = {"model": "claude-sonnet-4-5", "system": history.system, **more}
    return Request(evaluation_id="e", turn=1, prompt_name="p", history=history, **given)


def encoded(*turns: ChatTurn, **more: Any) -> dict[str, Any]:
    return WIRE.encode(request(MessageHistory.from_list(turns), **more))


def user(*blocks: Any) -> ChatTurn:
    return ChatTurn("user", tuple(TextBlock(b) if isinstance(b, str) else b for b in blocks))


def assistant(*blocks: Any) -> ChatTurn:
    return ChatTurn("assistant", tuple(TextBlock(b) if isinstance(b, str) else b for b in blocks))


def thinking(thought: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": thought, "signature": signature(thought)}


def answer(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"content": list(content), "stop_reason": "end_turn", "model": "claude", **more}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def use(call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "add", "input": arguments}


def thought(*content: dict[str, Any]) -> Any:
    """What is kept of a reply with this content."""
    return WIRE.decode(answer(*content)).provider_data
