"""Turns of the user and the assistant, in blocks: a conversation as it is sent."""

from __future__ import annotations

from typing import Literal, TypeAlias, final

from turnledger.ledger.events.messages import Modality, Value

TurnRole: TypeAlias = Literal["user", "assistant"]


@final
class TextBlock(Value, frozen=True, tag_field="kind", tag="text"):
    """A piece of text."""

    text: str


@final
class MediaBlock(Value, frozen=True, tag_field="kind", tag="media"):
    """An image, sound, film or document: exactly one of `url` and `blob` says where it is.

    `blob` is the name of bytes in the ledger itself (see `ledger.events.blobs`).
    """

    modality: Modality
    url: str | None = None
    blob: str | None = None
    mime: str | None = None
    prompt_hint: str | None = None
    id: str | None = None


@final
class ToolUseBlock(Value, frozen=True, tag_field="kind", tag="tool_use"):
    """A call of a tool that the assistant asks for; `arguments` is JSON text, as it was written."""

    call_id: str
    name: str
    arguments: str


@final
class ToolResultBlock(Value, frozen=True, tag_field="kind", tag="tool_result"):
    """What came of a call."""

    call_id: str
    content: str
    is_error: bool = False


Block: TypeAlias = TextBlock | MediaBlock | ToolUseBlock | ToolResultBlock
"""A part of a turn: text, media, a tool call, or its result."""


@final
class ChatTurn(Value, frozen=True):
    """All consecutive messages of one side.

    A `synthetic` turn is a placeholder: it stands first where a conversation begins
    with the assistant, and a provider that needs no leading user is not sent it.
    """

    role: TurnRole
    blocks: tuple[Block, ...]
    synthetic: bool = False


STUB_TEXT = "[internal: tool call did not complete]"
SYNTHETIC_LEAD = ChatTurn("user", (TextBlock("[internal: conversation starts]"),), synthetic=True)


def stub_for(call: ToolUseBlock) -> ToolResultBlock:
    """The result that stands in for a missing one."""
    return ToolResultBlock(call.call_id, STUB_TEXT, is_error=True)
