"""Message contents in the JSON shape of the GenAI semantic conventions, as text of an attribute."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from turnledger.adapters.telemetry import conventions as names
from turnledger.projections import Block, ChatTurn, MediaBlock, MessageHistory, TextBlock
from turnledger.projections.history.blocks import ToolResultBlock, ToolUseBlock


def json_text(value: Any) -> str:
    """A recorded value as JSON text."""
    return msgspec.json.encode(value).decode()


def request_of(system: str, turns: Iterable[ChatTurn]) -> dict[str, str]:
    """The attributes of a request's contents."""
    found = {names.INPUT: _input(turns)}
    if system:
        found[names.INSTRUCTIONS] = json_text([{"type": "text", "content": system}])
    return found


def call_of(history: MessageHistory, finish_reason: str) -> dict[str, str]:
    """The attributes of a request and its reply, which a conversation ends with."""
    turns = history.to_list()
    if not turns or turns[-1].role != "assistant":
        return request_of(history.system, turns)
    reply = reply_of(turns[-1].blocks, finish_reason)
    return request_of(history.system, turns[:-1]) | reply


def reply_of(blocks: Iterable[Block], finish_reason: str) -> dict[str, str]:
    """The attribute of a reply's contents."""
    shown = {"role": "assistant", "parts": _parts(blocks), "finish_reason": finish_reason}
    return {names.OUTPUT: json_text([shown])}


def _input(turns: Iterable[ChatTurn]) -> str:
    """The messages of a request. Results of tools are messages of their own."""
    found: list[dict[str, Any]] = []
    for turn in turns:
        if turn.synthetic:
            continue
        results = [block for block in turn.blocks if isinstance(block, ToolResultBlock)]
        others = [block for block in turn.blocks if not isinstance(block, ToolResultBlock)]
        if results:
            found.append({"role": "tool", "parts": _parts(results)})
        if others:
            found.append({"role": turn.role, "parts": _parts(others)})
    return json_text(found)


def _parts(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    return [_part(block) for block in blocks]


def _part(block: Block) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "content": block.text}
        case ToolUseBlock():
            arguments = _decoded(block.arguments)
            return {
                "type": "tool_call",
                "id": block.call_id,
                "name": block.name,
                "arguments": arguments,
            }
        case ToolResultBlock():
            return {"type": "tool_call_response", "id": block.call_id, "response": block.content}
        case MediaBlock():
            # By name: the bytes of a blob stay in the ledger.
            where = (
                {"type": "uri", "uri": block.url}
                if block.url is not None
                else {"type": "file", "file_id": block.blob}
            )
            return {**where, "modality": block.modality, "mime_type": block.mime}
        case _:
            assert_never(block)


def _decoded(arguments: str) -> Any:
    """The arguments as JSON; as text if the model wrote something else."""
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return arguments
