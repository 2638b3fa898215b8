"""Turns as messages: the fields of recorded messages that hold a turn, without ids and times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from turnledger.ledger import MediaContent, TextContent, ToolCallRecord
from turnledger.projections.history.blocks import (
    Block,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)


def message_fields(turns: Iterable[ChatTurn]) -> Iterator[dict[str, Any]]:
    """Turns as the messages that hold them: the fields that are not ids, places or times."""
    names: dict[str, str] = {}
    for turn in turns:
        yield from turn_fields(turn, names)


def turn_fields(turn: ChatTurn, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """One turn as messages.

    An assistant's turn is several messages where text stands between calls: they are one turn
    again when they are read.

    Args:
        turn: The turn.
        names: The names of the last assistant's calls, by their ids; kept up to date here.
    """
    if turn.role == "assistant":
        names.clear()
        for said, calls in _pieces(turn.blocks):
            names.update((call.call_id, call.name) for call in calls)
            asked = tuple(ToolCallRecord(c.call_id, c.name, c.arguments) for c in calls)
            yield {"role": "assistant", "tool_calls": asked, **_said(said)}
    elif not turn.synthetic:
        yield from _user(turn, names)


def _user(turn: ChatTurn, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    said: list[Block] = []
    for block in turn.blocks:
        if isinstance(block, ToolResultBlock):
            yield {
                "role": "tool",
                "content": block.content,
                "tool_call_id": block.call_id,
                "tool_name": names.get(block.call_id),
                "is_error": block.is_error,
            }
        else:
            said.append(block)
    if said:
        yield {"role": "user", **_said(said)}


def _pieces(blocks: Sequence[Block]) -> Iterator[tuple[list[Block], list[ToolUseBlock]]]:
    """An assistant's blocks as messages can hold them: first what it says, then its calls."""
    said: list[Block] = []
    calls: list[ToolUseBlock] = []
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            calls.append(block)
            continue
        if calls:
            yield said, calls
            said, calls = [], []
        said.append(block)
    yield said, calls


def _said(blocks: Sequence[Block]) -> dict[str, Any]:
    """The content of a message: one text by itself, anything else in parts too."""
    if not blocks:
        return {"content": ""}
    first = blocks[0]
    if len(blocks) == 1 and isinstance(first, TextBlock):
        return {"content": first.text}
    parts = tuple(_part(block) for block in blocks)
    return {"content": "\n\n".join(map(_shown, blocks)), "parts": parts}


def _part(block: Block) -> TextContent | MediaContent:
    if isinstance(block, MediaBlock):
        return MediaContent(
            block.modality, block.url, block.blob, block.mime, block.prompt_hint, block.id
        )
    assert isinstance(block, TextBlock)
    return TextContent(block.text)


def _shown(block: Block) -> str:
    if isinstance(block, TextBlock):
        return block.text
    assert isinstance(block, MediaBlock)
    return f"[{block.modality}{f': {block.prompt_hint}' if block.prompt_hint else ''}]"
