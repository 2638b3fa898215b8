"""Gemini thought signatures: read from a reply's parts, kept, and sent back with them.

Gemini signs parts of its replies and wants each signature back with the part that it came with.
The signatures are kept as provider data together with the order and the bounds of the parts;
what the parts said is in the turn itself. Thoughts go back only where they are signed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec

from turnledger.projections import ChatTurn, MediaBlock, TextBlock, ToolUseBlock
from turnledger.runtime import ToolCall

# What Google documents for a call that has no signature because no Gemini model made it.
NO_SIGNATURE = "skip_thought_signature_validator"


@dataclass
class ReplyParts:
    """What the parts of one reply hold."""

    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    # The parts in their order: how long a text, which call, and what came with it.
    order: list[dict[str, Any]] = field(default_factory=list)

    @property
    def to_keep(self) -> dict[str, Any] | None:
        """What has to go back with the turn; None if the turn itself says it all."""
        if not any("signature" in part or "id" in part for part in self.order):
            return None
        asked = [(call.name, call.arguments) for call in self.calls]
        return {"of": _digest(self.text, asked), "parts": self.order}


def read(parts: Iterable[Mapping[str, Any]]) -> ReplyParts:
    """Texts and calls. Parts of other kinds (images, code that Google ran) are left aside."""
    found = ReplyParts()
    for part in parts:
        signature = part.get("thoughtSignature")
        signed = {"signature": signature} if signature else {}
        called, text = part.get("functionCall"), part.get("text") or ""
        if called is not None:
            call_id = str(called.get("id") or "")
            given = {"id": call_id} if call_id else {}
            found.order.append({"call": len(found.calls), **given, **signed})
            arguments = msgspec.json.encode(called.get("args") or {}).decode()
            found.calls.append(ToolCall(call_id, str(called.get("name") or ""), arguments))
        elif part.get("thought"):
            if signed:
                found.order.append({"thought": text, **signed})
        elif text or (signed and not _is_something_else(part)):
            found.text += text
            found.order.append({"text": len(text), **signed})
    return found


def _is_something_else(part: Mapping[str, Any]) -> bool:
    return bool(part.keys() - {"text", "thought", "thoughtSignature"})


def kept_of(kept: Any, turn: ChatTurn) -> list[dict[str, Any]] | None:
    """The order of a turn's parts, if the turn is still what the reply was; else None."""
    if not isinstance(kept, Mapping) or any(type(one) is MediaBlock for one in turn.blocks):
        return None
    asked = [(one.name, one.arguments) for one in turn.blocks if type(one) is ToolUseBlock]
    order = kept.get("parts")
    if kept.get("of") != _digest(text_of(turn), asked) or not isinstance(order, list):
        return None
    return order


def text_of(turn: ChatTurn) -> str:
    return "".join(one.text for one in turn.blocks if type(one) is TextBlock)


def as_they_came(
    order: Iterable[Mapping[str, Any]], text: str, calls: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """A turn's parts in the order and the bounds that the reply had, signed as they were."""
    parts: list[dict[str, Any]] = []
    at = 0
    for kept in order:
        part: dict[str, Any]
        if "call" in kept:
            part = calls[kept["call"]]
        elif "thought" in kept:
            part = {"text": kept["thought"], "thought": True}
        else:
            part = {"text": text[at : at + kept["text"]]}
            at += kept["text"]
        if "signature" in kept:
            parts.append({**part, "thoughtSignature": kept["signature"]})
        elif part.get("text") != "":
            parts.append(part)
    return parts


def sign_first_call(parts: list[dict[str, Any]]) -> None:
    """Have the first call bear a signature: the model's own, or the one that stands for none."""
    for part in parts:
        if "functionCall" in part:
            part.setdefault("thoughtSignature", NO_SIGNATURE)
            return


def _digest(text: str, calls: Sequence[tuple[str, str]]) -> str:
    """The text of a turn. Blank text does not count: histories leave it out."""
    said = json.dumps([text if text.strip() else "", calls])
    return sha256(said.encode()).hexdigest()[:16]
