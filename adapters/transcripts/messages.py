"""Message writer: the turns of a conversation as `MessageAppended` events, numbered.

Pure; ids and the moment are handed in. An import writes a whole conversation with one, a mirror of
another program's session goes on from the last number that is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from turnledger.ledger import (
    InnerMessage,
    MediaContent,
    MessageAppended,
    TextContent,
    ToolCallRecord,
)
from turnledger.projections import (
    Block,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)


class MessageWriter:
    """Writes turns as messages of one evaluation.

    Args:
        evaluation_id: The evaluation.
        moment: When all of it was said.
        message_id: Gives the id of the message with a number.
        sequence: The number of the next message.
        turn: How many replies of the model there are already.
        prompt_ns: The namespace of the prompt.
        prompt_key: The key of the prompt.
    """

    def __init__(
        self,
        evaluation_id: str,
        moment: datetime,
        message_id: Callable[[int], UUID],
        *,
        sequence: int = 0,
        turn: int = 0,
        prompt_ns: str = "",
        prompt_key: str = "",
    ) -> None:
        self._message_id = message_id
        self._same: dict[str, Any] = {
            "evaluation_id": evaluation_id,
            "created_at": moment,
            "prompt_ns": prompt_ns,
            "prompt_key": prompt_key,
        }
        self._names: dict[str, str] = {}
        self.evaluation_id = evaluation_id
        self.sequence = sequence
        self.turn = turn

    def system(self, text: str) -> MessageAppended:
        """The system text."""
        return self._message("system", content=text)

    def user(self, turn: ChatTurn) -> Iterator[MessageAppended]:
        """A user's turn: a tool message for each result, then what the user says."""
        said: list[Block] = []
        for block in turn.blocks:
            if isinstance(block, ToolResultBlock):
                yield self._message(
                    "tool",
                    content=block.content,
                    tool_call_id=block.call_id,
                    tool_name=self._names.get(block.call_id),
                    is_error=block.is_error,
                )
            else:
                said.append(block)
        if said:
            yield self._message("user", **_said(said))

    def assistant(self, turn: ChatTurn, *, goes_on: bool = False) -> Iterator[MessageAppended]:
        """One message, or several where text stands between calls: they are one turn again.

        Args:
            turn: The assistant's turn.
            goes_on: It is more of the model's last reply.
        """
        self.turn += not goes_on
        self._names = {}
        for said, calls in _pieces(turn.blocks):
            self._names.update((call.call_id, call.name) for call in calls)
            asked = tuple(ToolCallRecord(c.call_id, c.name, c.arguments) for c in calls)
            yield self._message("assistant", tool_calls=asked, **_said(said))

    def _message(self, role: Any, **more: Any) -> MessageAppended:
        message = InnerMessage(
            role=role,
            sequence=self.sequence,
            turn=self.turn,
            message_id=self._message_id(self.sequence),
            **self._same,
            **more,
        )
        self.sequence += 1
        return MessageAppended(message=message)


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
