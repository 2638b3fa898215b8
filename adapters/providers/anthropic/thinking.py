"""Anthropic thinking blocks: kept with a reply and sent back unchanged, in their place.

What is kept of a reply is a list: the thinking itself and, between it, marks of the reply's
texts and calls. Where a turn is no longer what the reply was, no thinking goes back with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from turnledger.adapters.providers.wire import count_of, field_of
from turnledger.projections import ChatTurn, MediaBlock, TextBlock, ToolUseBlock

THINKING = ("thinking", "redacted_thinking")


def texts_of(content: Iterable[Any]) -> list[str]:
    """The texts of an answer's content, one by one."""
    return [
        str(field_of(block, "text", "")) for block in content if field_of(block, "type") == "text"
    ]


def thought_in(content: Sequence[Any]) -> list[dict[str, Any]]:
    """What is kept of an answer's content; nothing if it has no thinking.

    Thinking that was cut off has no signature yet, and would be refused.
    """
    kept: list[dict[str, Any]] = []
    # Blank text is not part of a turn.
    says = "".join(texts_of(content)).strip()
    for block in content:
        kind = field_of(block, "type")
        if kind == "thinking" and field_of(block, "signature"):
            thought = str(field_of(block, "thinking", ""))
            signature = str(field_of(block, "signature"))
            kept.append({"type": kind, "thinking": thought, "signature": signature})
        elif kind == "redacted_thinking" and field_of(block, "data"):
            kept.append({"type": kind, "data": str(field_of(block, "data"))})
        elif kind == "text" and says:
            text = str(field_of(block, "text", ""))
            kept.append({"type": kind, "length": len(text), "digest": _digest(text)})
        elif kind == "tool_use":
            kept.append({"type": kind, "id": str(field_of(block, "id", ""))})
    return kept if any(one["type"] in THINKING for one in kept) else []


def arranged(turn: ChatTurn, kept: Any) -> list[Any]:
    """The blocks of a turn as the reply had them, the thinking between them as data.

    Empty if the turn is not what the reply was.
    """
    if not isinstance(kept, list) or any(type(block) is MediaBlock for block in turn.blocks):
        return []
    calls = {block.call_id: block for block in turn.blocks if type(block) is ToolUseBlock}
    text = "".join(block.text for block in turn.blocks if type(block) is TextBlock)
    found: list[Any] = []
    for mark in kept:
        kind = field_of(mark, "type")
        if kind == "text":
            length = count_of(mark, "length")
            piece, text = text[:length], text[length:]
            if _digest(piece) != field_of(mark, "digest"):
                return []
            if piece.strip():
                found.append(TextBlock(piece))
        elif kind == "tool_use":
            call = calls.pop(field_of(mark, "id", ""), None)
            if call is None:
                return []
            found.append(call)
        elif kind in THINKING:
            found.append(mark)
    return [] if text or calls else found


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def can_not_think(payload: Mapping[str, Any]) -> bool:
    """Whether thinking is asked for in a request that the provider refuses with it.

    Not where a tool must be called, nor where the assistant has the last word. With a budget
    (`"enabled"`) an answer that is under way has to have begun with thinking, which it has not
    where it began with another provider; where the model decides (`"adaptive"`) it need not.
    """
    kind = field_of(payload.get("thinking"), "type")
    if kind not in ("enabled", "adaptive"):
        return False
    if field_of(payload.get("tool_choice"), "type") in ("any", "tool"):
        return True
    messages = payload["messages"]
    if messages and messages[-1]["role"] == "assistant":
        return True
    return kind == "enabled" and not _began_with_thinking(messages)


def _began_with_thinking(messages: Sequence[Any]) -> bool:
    """Whether the answer that is under way, if one is, began with thinking.

    A user's turn that only brings results is part of an answer; one that says more begins
    another.
    """
    for at in range(len(messages) - 1, 1, -2):
        if not any(_is_result(block) for block in messages[at]["content"]):
            return True
        begins = not all(_is_result(block) for block in messages[at - 2]["content"])
        if begins and messages[at - 1]["content"][0]["type"] not in THINKING:
            return False
    return True


def _is_result(block: Mapping[str, Any]) -> bool:
    return bool(block["type"] == "tool_result")
