"""Reader of Anthropic's Messages: `messages` and `system`, and the answer if it is there.

Thinking is kept as the wire format keeps it, where it is signed.
"""

from __future__ import annotations

from typing import Any

from turnledger.adapters.transcripts.builder import TranscriptBuilder, modality_of, texts_in
from turnledger.adapters.transcripts.json_cursor import Node
from turnledger.adapters.transcripts.readers.envelope import opened
from turnledger.adapters.transcripts.transcript import Transcript
from turnledger.ledger.events.messages import Modality
from turnledger.projections import Block, TextBlock, ToolResultBlock, ToolUseBlock

NAME = "anthropic"
_ROLES = ("user", "assistant", "system")


def read_anthropic(data: Any) -> Transcript:
    """The conversation in a request body, a list of messages, or a dump of both sides."""
    body, messages, answer = opened(data, "messages", "content")
    found = TranscriptBuilder(NAME)
    found.model = body.text_at("model") or (answer.text_at("model") if answer is not None else "")
    system = body.get("system")
    if system is not None:
        found.system(system, texts_in(_blocks(system, found)))
    for message in messages.each() if messages is not None else ():
        _said(message, message.need("role").one_of(*_ROLES), found)
    if answer is not None:
        role = answer.get("role")
        _said(answer, "assistant" if role is None else role.one_of("assistant"), found)
    return found.done()


def _said(message: Node, role: str, found: TranscriptBuilder) -> None:
    content = message.need("content")
    if role == "assistant":
        _assistant(content, found)
    elif role == "system":
        found.system(message, texts_in(_blocks(content, found)))
    else:
        found.user(_blocks(content, found))


def _assistant(content: Node, found: TranscriptBuilder) -> None:
    found.asking()
    blocks: list[Block] = []
    # The same as the provider's answer had it, with the thinking.
    answer: list[dict[str, Any]] = []
    for part in _parts(content):
        kind = _kind(part)
        if kind in ("thinking", "redacted_thinking"):
            answer += _thinking(part, kind, found)
            continue
        block = _block(part, found)
        blocks.append(block)
        if isinstance(block, TextBlock):
            answer.append({"type": "text", "text": block.text})
        elif isinstance(block, ToolUseBlock):
            given = part.get("input")
            use = {"type": "tool_use", "id": block.call_id, "name": block.name}
            answer.append({**use, "input": {} if given is None else given.value})
    found.answered(blocks, {"content": answer})


def _thinking(part: Node, kind: str, found: TranscriptBuilder) -> list[dict[str, Any]]:
    """Thinking as it goes back; nothing if it would be refused."""
    if kind == "redacted_thinking":
        data = part.text_at("data")
        kept = [{"type": kind, "data": data}] if data else []
    else:
        thinking, signature = part.text_at("thinking"), part.text_at("signature")
        kept = [{"type": kind, "thinking": thinking, "signature": signature}] if signature else []
    if not kept:
        found.left_out(part, kind, "it is not signed")
    return kept


# --- blocks -----------------------------------------------------------------------------


def _parts(content: Node) -> list[Node]:
    if content.is_text:
        return [content] if content.value else []
    return list(content.each())


def _kind(part: Node) -> str:
    return "text" if part.is_text else part.need("type").text()


def _blocks(content: Node, found: TranscriptBuilder) -> list[Block]:
    """All blocks of a content but results, which are gathered."""
    blocks: list[Block] = []
    for part in _parts(content):
        if _kind(part) == "tool_result":
            _result(part, found)
        else:
            blocks.append(_block(part, found))
    return blocks


def _block(part: Node, found: TranscriptBuilder) -> Block:
    if part.is_text:
        return TextBlock(part.text())
    kind = part.need("type").text()
    match kind:
        case "text":
            if (cited := part.get("citations")) is not None and cited.value:
                found.note(cited, "citations: not imported")
            return TextBlock(part.need("text").text())
        case "tool_use":
            arguments = found.arguments(part.get("input"))
            return found.call(part.text_at("id"), part.text_at("name"), arguments)
        case "tool_result":
            return ToolResultBlock(part.text_at("tool_use_id"), "")
        case "image" | "document":
            return _media(part, "image" if kind == "image" else "document", found)
        case _:
            return found.left_out(part, kind)


def _result(part: Node, found: TranscriptBuilder) -> None:
    content = part.get("content")
    said = [] if content is None else [_block(inner, found) for inner in _parts(content)]
    failed = part.get("is_error")
    is_error = failed is not None and failed.value is True
    found.result(part, part.text_at("tool_use_id"), said, is_error)


def _media(part: Node, modality: Modality, found: TranscriptBuilder) -> Block:
    source = part.need("source")
    match source.text_at("type"):
        case "base64":
            mime = source.text_at("media_type") or None
            kind = modality_of(mime) if mime and modality == "document" else modality
            return found.media(source, source.text_at("data"), kind, mime)
        case "url":
            return found.media_at(source, source.text_at("url"), modality)
        case "text":
            return found.text_file(source, source.text_at("data"))
        case _:
            return found.left_out(source, modality)
