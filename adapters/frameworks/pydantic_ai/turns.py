"""Messages of pydantic-ai as turns, for the views of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    FileUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from turnledger.ledger import blob_name
from turnledger.ledger.events.messages import Modality
from turnledger.projections.history.blocks import (
    Block,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

_MODALITIES: dict[str, Modality] = {"image": "image", "audio": "audio", "video": "video"}


class Turns:
    """Messages as turns.

    Attributes:
        system: System prompts and instructions.
        turns: The turns of the user and the assistant.
        blobs: The bytes that they name.
    """

    def __init__(self, messages: Sequence[ModelMessage]) -> None:
        self.blobs: list[bytes] = []
        self.turns: list[ChatTurn] = []
        said: list[str] = []
        for message in messages:
            if isinstance(message, ModelRequest):
                said += [p.content for p in message.parts if isinstance(p, SystemPromptPart)]
                self._add("user", self._asked(message.parts))
            else:
                self._add("assistant", self._replied(message))
        last = next((one for one in reversed(messages) if isinstance(one, ModelRequest)), None)
        if last is not None and last.instructions:
            said.append(last.instructions)
        self.system = "\n\n".join(said)

    def _add(self, role: Literal["user", "assistant"], blocks: Iterable[Block]) -> None:
        made = tuple(blocks)
        if self.turns and self.turns[-1].role == role:
            made = (*self.turns.pop().blocks, *made)
        if made:
            self.turns.append(ChatTurn(role, made))

    def _asked(self, parts: Iterable[Any]) -> Iterator[Block]:
        for part in parts:
            if isinstance(part, UserPromptPart):
                content = [part.content] if isinstance(part.content, str) else part.content
                yield from (self._content(one) for one in content)
            elif isinstance(part, ToolReturnPart):
                failed = part.outcome != "success"
                yield ToolResultBlock(part.tool_call_id, part.model_response_str(), failed)
            elif part.part_kind == "retry-prompt" and part.tool_name is not None:
                yield ToolResultBlock(part.tool_call_id, part.model_response(), is_error=True)
            elif part.part_kind in ("retry-feedback", "retry-prompt"):
                yield TextBlock(part.model_response())

    def _replied(self, response: ModelResponse) -> Iterator[Block]:
        for part in response.parts:
            if isinstance(part, TextPart):
                yield TextBlock(part.content)
            elif isinstance(part, ToolCallPart):
                yield ToolUseBlock(part.tool_call_id, part.tool_name, part.args_as_json_str())
            elif isinstance(part, FilePart):
                yield self._content(part.content)

    def _content(self, content: Any) -> Block:
        if isinstance(content, str | TextContent):
            return TextBlock(content if isinstance(content, str) else content.content)
        if isinstance(content, BinaryContent):
            self.blobs.append(content.data)
            kind, name = content.media_type, blob_name(content.data)
            return MediaBlock(_modality(kind), blob=name, mime=kind)
        if isinstance(content, FileUrl):
            return MediaBlock(_modality(content.kind.removesuffix("-url")), url=content.url)
        return TextBlock(f"[{type(content).__name__}]")


def _modality(kind: str) -> Modality:
    return _MODALITIES.get(kind.partition("/")[0], "document")
