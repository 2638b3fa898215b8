"""Request deltas: the body of a model call as what differs from an earlier call of the run.

A conversation is sent whole with each call, so that whole bodies would cost the square of its
length. A delta names the call that it builds on, and how many items of its list stay.

    {"path": "/v1/chat/completions", "body": {...}}                        the first call
    {"path": ..., "since": "openai.chat.completions:4f1c…", "list": "messages",
     "keep": 3, "add": [...], "set": {"temperature": 0}, "drop": []}        a later one
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from turnledger.projections.digests import canonical

# The fields that hold a conversation: Chat Completions and Messages, Responses, Gemini.
_LISTS = ("messages", "input", "contents")
# How many bodies a run keeps in memory to build on: of conversations that take turns.
_KEPT = 8


class RequestDeltas:
    """The last bodies of a run, and the deltas of the next ones against them."""

    def __init__(self) -> None:
        self._recent: dict[str, Any] = {}

    def recorded(self, path: str, body: Any) -> dict[str, Any]:
        """A request as it is recorded: against the body that it shares most with.

        Args:
            path: What the request goes to; a part of the record.
            body: The whole body, JSON.
        """
        found = [
            (shared, name)
            for name, known in self._recent.items()
            if (shared := _shared(known, body)) is not None
        ]
        if not found:
            return {"path": path, "body": body}
        # The newest of those that share as much: `max` takes the first.
        since = max(reversed(found), key=lambda one: one[0])[1]
        return {"path": path, "since": since, **_delta(self._recent[since], body)}

    def add(self, call_id: str, body: Any) -> None:
        """Keep the body of a call that is on record."""
        self._recent.pop(call_id, None)
        self._recent[call_id] = body
        while len(self._recent) > _KEPT:
            del self._recent[next(iter(self._recent))]


def whole_request(request: Any, earlier: Callable[[str], Any]) -> Any:
    """A recorded request with its whole body; what is not a delta is given back as it is.

    So is one that nothing can be made of: others may have written to the run.

    Args:
        request: What ModelCalled has as its request.
        earlier: The recorded request of a call id.
    """
    chain, since = [request], set[str]()
    try:
        while isinstance(chain[-1], dict) and "since" in chain[-1]:
            call_id = chain[-1]["since"]
            if call_id in since:
                return request
            since.add(call_id)
            chain.append(earlier(call_id))
        if len(chain) == 1:
            return request
        body = chain.pop()["body"]
        for delta in reversed(chain):
            body = _applied(body, delta)
        return {"path": request["path"], "body": body}
    except (AttributeError, KeyError, TypeError):
        return request


def _list_in(body: Any) -> str | None:
    if not isinstance(body, dict):
        return None
    return next((name for name in _LISTS if isinstance(body.get(name), list)), None)


def _shared(before: Any, after: Any) -> int | None:
    """How many first items the lists of two bodies share; None if they have no list in common."""
    name = _list_in(after)
    if name is None or name != _list_in(before):
        return None
    return _common(before[name], after[name])


def _common(before: Iterable[Any], after: Iterable[Any]) -> int:
    count = 0
    for one, other in zip(before, after, strict=False):
        if not _same(one, other):
            break
        count += 1
    return count


def _same(one: Any, other: Any) -> bool:
    # 1 and True are equal, and two JSON values.
    return bool(one == other) and canonical(one) == canonical(other)


def _delta(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    name = _list_in(after)
    assert name is not None
    keep = _common(before[name], after[name])
    return {
        "list": name,
        "keep": keep,
        "add": after[name][keep:],
        "set": {
            key: value
            for key, value in after.items()
            if key != name and not (key in before and _same(before[key], value))
        },
        "drop": [key for key in before if key not in after],
    }


def _applied(body: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    name = delta["list"]
    rest = {key: value for key, value in body.items() if key not in delta["drop"]}
    return {**rest, **delta["set"], name: [*body[name][: delta["keep"]], *delta["add"]]}
