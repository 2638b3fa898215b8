"""Projections of pydantic-ai's live objects: the JSON whose digest tells that code has changed.

What changes by itself between two processes, and what the model is not sent, is left out; the
tables below are the whole list.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models import ModelRequestParameters
from pydantic_core import to_jsonable_python

# Fields left out of messages, by the kind of message, and of their parts: times, ids of the run,
# and what stays on this side.
LEFT_OUT_OF_MESSAGES = {
    "request": {"timestamp", "run_id", "conversation_id", "metadata", "state"},
    "response": {
        "timestamp",
        "run_id",
        "conversation_id",
        "metadata",
        "usage",
        "history_digest",
        "failed_attempts",
        "workspace_ref",
    },
}
LEFT_OUT_OF_PARTS = {"timestamp", "metadata"}
LEFT_OUT_OF_EVENTS = {"timestamp", "run_id", "conversation_id"}
# Tool call ids that pydantic-ai makes up, where a provider sends none.
MADE_UP_ID, ANY_ID = "pyd_ai_", "made up"
# Settings of the connection; headers may hold keys.
LEFT_OUT_OF_SETTINGS = {"extra_headers", "timeout", "request_timeout", "first_event_timeout"}
# Definitions of tools hold it for the program alone.
LEFT_OUT_OF_TOOLS = {"metadata", "timeout", "sequential", "toolset_id", "capability_id"}
_TOOL_LISTS = ("function_tools", "output_tools")

_PARAMETERS = TypeAdapter(ModelRequestParameters)
_EXCLUDED: Any = {name: {"__all__": {"metadata"}} for name in _TOOL_LISTS}


def plain(value: Any) -> Any:
    """A value as JSON data; of an object that has no such form, the name of its class."""
    return to_jsonable_python(value, fallback=lambda one: f"<{type(one).__qualname__}>")


def request(
    model: str, messages: Any, settings: Any, parameters: ModelRequestParameters
) -> dict[str, Any]:
    """A request to a model.

    Args:
        model: The model's name.
        messages: The messages, as pydantic-ai has them.
        settings: The model settings.
        parameters: Tools, output and instructions.
    """
    return {
        "model": model,
        "settings": _without(plain(settings or {}), LEFT_OUT_OF_SETTINGS),
        "parameters": _parameters(parameters),
        "messages": messages_of(messages),
    }


def messages_of(messages: Any) -> list[dict[str, Any]]:
    """Messages without what changes by itself."""
    dumped = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return [_message(one) for one in dumped]


def event(value: Any) -> Any:
    """An event of a run's stream, without times and made-up ids."""
    return _scrubbed(plain(value))


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    kept = _without(message, LEFT_OUT_OF_MESSAGES[message["kind"]])
    return {**kept, "parts": [_part(part) for part in message["parts"]]}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    kept = _with_any_id(_without(part, LEFT_OUT_OF_PARTS))
    if "content" in kept:
        kept["content"] = _short(kept["content"])
    return kept


def _parameters(parameters: ModelRequestParameters) -> dict[str, Any]:
    dumped = _PARAMETERS.dump_python(
        parameters, mode="json", exclude=_EXCLUDED, fallback=lambda one: f"<{type(one).__name__}>"
    )
    kept = _without(dumped, set())
    for name in _TOOL_LISTS:
        kept[name] = [_without(tool, LEFT_OUT_OF_TOOLS) for tool in dumped[name]]
    # They are sets: their order is left to chance.
    return {
        name: sorted(value) if name.endswith(("_names", "_ids")) else value
        for name, value in kept.items()
        if value != []
    }


def _without(fields: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """Fields that hold something. A release that adds a field with no value changes no digest."""
    return {
        name: value for name, value in fields.items() if value is not None and name not in names
    }


def _short(content: Any) -> Any:
    """Content with a hash in the place of bytes."""
    if isinstance(content, list):
        return [_short(one) for one in content]
    if not isinstance(content, dict):
        return content
    if content.get("kind") == "binary" and isinstance(content.get("data"), str):
        return {**content, "data": f"sha256:{sha256(content['data'].encode()).hexdigest()}"}
    return {name: _short(one) for name, one in content.items()}


def _scrubbed(value: Any) -> Any:
    if isinstance(value, list):
        return [_scrubbed(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _scrubbed(one) for name, one in value.items() if name not in LEFT_OUT_OF_EVENTS}
    return _with_any_id(kept)


def _with_any_id(fields: dict[str, Any]) -> dict[str, Any]:
    made_up = str(fields.get("tool_call_id", "")).startswith(MADE_UP_ID)
    return {**fields, "tool_call_id": ANY_ID} if made_up else fields
