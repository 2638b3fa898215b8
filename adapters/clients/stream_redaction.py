"""Redaction of streams: secrets that a model writes piece by piece, over several events.

No event of such a stream holds the secret, so that a search in each of them would find nothing.
The pieces of a text are searched together, and if there is a secret in them the first event gets
the redacted text and the others nothing: put together they are what they were, but for the secret.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from turnledger.adapters.clients.replies import event_data

# The fields in which the providers send pieces of text.
_PIECES = frozenset(
    {"content", "text", "thinking", "partial_json", "arguments", "delta", "refusal", "input"}
)
# The fields that tell which text a piece belongs to.
_WHOSE = ("index", "output_index", "content_index", "item_id")
_BETWEEN = re.compile(r"(\r?\n\r?\n)")

# A piece: the object that holds it, and under which name.
_Piece = tuple[dict[str, Any], str]


def redacted_stream(body: str, redact: Callable[[str], str]) -> str:
    """Server-sent events with their secrets replaced.

    Args:
        body: The stream.
        redact: Replaces secrets in text.
    """
    parts = _BETWEEN.split(body)
    events = [event_data(part) for part in parts]
    texts: dict[Any, list[_Piece]] = defaultdict(list)
    for event in events:
        for key, piece in _pieces(event, ()):
            texts[key].append(piece)
    changed: set[int] = set()
    for pieces in texts.values():
        whole = "".join(holder[name] for holder, name in pieces)
        safe = redact(whole)
        if safe != whole:
            for holder, name in pieces:
                holder[name], safe = safe, ""
                changed.add(id(holder))
    if changed:
        parts = [
            _written(part, event) if _holds(event, changed) else part
            for part, event in zip(parts, events, strict=True)
        ]
    return redact("".join(parts))


def _pieces(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, _Piece]]:
    if isinstance(value, list):
        for item in value:
            yield from _pieces(item, path)
    elif isinstance(value, dict):
        whose = tuple(value.get(name) for name in _WHOSE)
        for name, inner in value.items():
            if isinstance(inner, str):
                if name in _PIECES:
                    yield (*path, whose, name), (value, name)
            else:
                yield from _pieces(inner, (*path, whose, name))


def _holds(value: Any, changed: set[int]) -> bool:
    if isinstance(value, list):
        return any(_holds(item, changed) for item in value)
    if not isinstance(value, dict):
        return False
    return id(value) in changed or any(_holds(inner, changed) for inner in value.values())


def _written(event: str, data: Any) -> str:
    """An event with other data: its other lines stay."""
    lines = [line for line in event.splitlines() if not line.startswith("data:")]
    return "\n".join([*lines, f"data: {msgspec.json.encode(data).decode()}"])
