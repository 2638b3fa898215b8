"""Upcasters: convert payloads of retired event tags when they are read.

Stored events are never rewritten: an old tag stays here for ever, with a pure function from its
payload to that of its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec


class Upcaster(NamedTuple):
    """Converts the payload of a retired tag to that of its successor."""

    successor: str
    upcast: Callable[[dict[str, Any]], dict[str, Any]]


def upcast(
    tag: str, payload: dict[str, Any], upcasters: Mapping[str, Upcaster]
) -> tuple[str, dict[str, Any]]:
    """Apply upcasters until the tag is a current one.

    Args:
        tag: The stored tag.
        payload: Its decoded JSON.
        upcasters: By retired tag.
    """
    while tag in upcasters:
        step = upcasters[tag]
        tag, payload = step.successor, step.upcast(payload)
    return tag, payload


def _message_recorded(payload: dict[str, Any]) -> dict[str, Any]:
    """The first version had a call's arguments as an object, and the message's fields flat."""
    calls = [
        {**call, "arguments": msgspec.json.encode(call.get("arguments", {})).decode()}
        for call in payload.get("tool_calls", ())
    ]
    return {"message": {**payload, "tool_calls": calls}}


UPCASTERS: Mapping[str, Upcaster] = {
    "message.recorded": Upcaster("message.appended", _message_recorded),
}
