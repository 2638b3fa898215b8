"""Reasoning items of OpenAI's Responses: kept with their place, and sent back there.

Reasoning must be followed by the item that it led to. What is kept of an answer is therefore
the reasoning as it came and, for the items around it, which they were; a turn that is no longer
made of them is written without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from turnledger.adapters.providers.wire import field_of
from turnledger.runtime.agent.models.request import as_data


def reasoning_of(output: Sequence[Any]) -> list[dict[str, Any]] | None:
    """The reasoning in an answer and the places of the other items; None if there is none.

    Reasoning before an item that does not go back (a hosted tool's) is left out with it, and so
    is reasoning that can't be read without the provider's memory. What a message is marked with
    as its phase goes back too.
    """
    spoken = any(text.strip() for text in texts_of(output))
    kept: list[dict[str, Any]] = []
    before: list[dict[str, Any]] = []
    for item in output:
        if field_of(item, "type") == "reasoning":
            data = {k: v for k, v in (as_data(item) or {}).items() if v is not None}
            if data.get("encrypted_content") or data.get("content"):
                before.append(data)
            continue
        place = _place(item, spoken)
        if place is None:
            before = []
        elif place.get("length") != 0:
            kept += [*before, place]
            before = []
    if any(one["type"] == "reasoning" or "phase" in one for one in kept):
        return kept
    return None


def _place(item: Any, spoken: bool) -> dict[str, Any] | None:
    """Which item it is, in so few words that it is known again; None if it does not go back.

    Blank text is not part of a turn unless more than that was `spoken`.
    """
    kind = field_of(item, "type")
    if kind == "function_call":
        return {"type": kind, "call_id": str(field_of(item, "call_id", ""))}
    if kind != "message":
        return None
    said = "".join(texts_of((item,))) if spoken else ""
    place = {"type": kind, "length": len(said), "sha256": _mark(said)}
    phase = field_of(item, "phase")
    return place | {"phase": phase} if phase else place


def as_it_came(kept: Any, text: str, calls: Mapping[str, Any]) -> list[Any] | None:
    """The items of a turn in the order in which they came, with their reasoning.

    None if nothing was kept, or if the turn is no longer what came.
    """
    if not isinstance(kept, list):
        return None
    items: list[Any] = []
    left = list(calls)
    for one in kept:
        if one["type"] == "reasoning":
            items.append(one)
        elif one["type"] == "message":
            said, text = text[: one["length"]], text[one["length"] :]
            if _mark(said) != one["sha256"]:
                return None
            items += said_items([said], one.get("phase"))
        elif not left or left.pop(0) != one["call_id"]:
            return None
        else:
            items.append(calls[one["call_id"]])
    return None if text or left else items


def said_items(said: Iterable[str], phase: Any = None) -> list[Any]:
    """What the assistant said: a message for each text, without an id.

    The text is plain: a list of `output_text` has to have the id and status of a stored message.
    """
    more = {"phase": phase} if phase else {}
    return [{"type": "message", "role": "assistant", "content": text, **more} for text in said]


def texts_of(output: Iterable[Any], name: str = "text") -> list[str]:
    """The texts of all messages in an answer; or, by that name, their refusals."""
    return [
        str(field_of(part, name, ""))
        for item in output
        if field_of(item, "type") == "message"
        for part in field_of(item, "content", ())
    ]


def _mark(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()
