"""Results of tools as they are recorded: what the tool returned, by itself.

pydantic-ai hands over a result in a shape of its own, which also tells of a retry or an approval
that the tool asked for. A plain result is recorded without it, so that views show what the tool
returned, and a person's decision (`turnledger resolve --completed`) is read in the same way.
"""

from __future__ import annotations

from typing import Any

# Marks a result that is recorded in pydantic-ai's own shape.
SHAPED = "pydantic_ai"


def recorded_result(payload: Any) -> Any:
    """A result as it is recorded."""
    result = payload.get("result") if isinstance(payload, dict) else None
    if payload == _shape(result) and not _is_shaped(result):
        return result
    return {SHAPED: payload}


def payload_of(value: Any) -> Any:
    """A recorded result in pydantic-ai's shape."""
    return value[SHAPED] if _is_shaped(value) else _shape(value)


def _is_shaped(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {SHAPED}


def _shape(result: Any) -> dict[str, Any]:
    shape = {"result": result, "kind": "tool_return"}
    # It says that no mapping in the result stands for a file of pydantic-ai's.
    return shape | {"content_file_digests": []} if isinstance(result, dict | list) else shape
