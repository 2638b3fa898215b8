"""A recorded message as what a history is told: its blocks, or at once the turn that it makes."""

from __future__ import annotations

from typing import Any

from turnledger.ledger import InnerMessage, MediaContent
from turnledger.projections.history.blocks import (
    Block,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    TurnRole,
)
from turnledger.projections.history.message_history import Repairs, told
from turnledger.projections.history.rules import reply_said, result_said
from turnledger.projections.history.turns import Turn, UserTurn
from turnledger.projections.persistent.containers import pushed


def blocks_of(message: InnerMessage) -> tuple[Block, ...]:
    """A recorded message as blocks of a turn."""
    if message.role == "tool":
        return (ToolResultBlock(message.tool_call_id or "", message.content, message.is_error),)
    said: list[Block] = [_block(part) for part in message.parts]
    if not message.parts and message.content:
        said.append(TextBlock(message.content))
    said.extend(ToolUseBlock(c.call_id, c.name, c.arguments) for c in message.tool_calls)
    return tuple(said)


def _block(part: Any) -> Block:
    if isinstance(part, MediaContent):
        return MediaBlock(part.modality, part.url, part.blob, part.mime, part.prompt_hint, part.id)
    return TextBlock(part.text)


def message_told(
    tip: Turn | None, repairs: Repairs, message: InnerMessage
) -> tuple[Turn | None, Repairs]:
    """The last turn and the repairs after a recorded message that is not the system's."""
    if message.role == "tool":
        result = ToolResultBlock(message.tool_call_id or "", message.content, message.is_error)
        after = result_said(tip, result)
        if after is not None:
            return after, repairs
        return told(tip, repairs, ChatTurn("user", (result,)))
    if message.role == "assistant" and type(tip) is UserTurn and not message.parts:
        replied = reply_said(tip, message.content, message.tool_calls)
        if replied is not None:
            return replied, pushed(repairs, tip) if tip.waits else repairs
    role: TurnRole = "assistant" if message.role == "assistant" else "user"
    return told(tip, repairs, ChatTurn(role, blocks_of(message)))
