"""Reader of Anthropic's Messages: `messages` and `system`, and the answer if it is there.

Thinking is kept as the wire format keeps it, where it is signed.
"""

from __future__ import annotations

from typing import Any

from turnledger.adapters.providers.registry import reply_of
from turnledger.adapters.transcripts.builder import TranscriptBuilder, modality_of
from turnledger.adapters.transcripts.json_cursor import Node, root_of
from turnledger.adapters.transcripts.readers.envelope import answer_in, refuse, request_in
from turnledger.adapters.transcripts.transcript import Transcript
from turnledger.ledger.events.messages import Modality
from turnledger.projections import Block, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock

NAME = "anthropic"
_ROLES = ("user", "assistant", "system")


def read_anthropic(data: Any) -> Transcript:
    """The conversation in a request body, a list of messages, or a dump of both sides."""
    root = root_of(data)
    found = TranscriptBuilder(NAME)
    if root.is_list:
        _messages(root, found)
        return found.done()
    body, answer = request_in(root, "messages"), answer_in(root, "content")
    messages = body.get("messages")
    if messages is None and answer is None:
        refuse(root, "messages")
    found.model = body.text_at("model") or (answer.text_at("model") if answer is not None else "")
    system = body.get("system")
    if system is not None:
        found.system(system, _texts(_blocks(system, found)))
    if messages is not None:
        _messages(messages, found)
    if answer is not None:
        role = answer.get("role")
        _said(answer, "assistant" if role is None else role.one_of("assistant"), found)
    return found.done()


def _messages(messages: Node, found: TranscriptBuilder) -> None:
    for message in messages.each():
        _said(message, message.need("role").one_of(*_ROLES), found)


def _said(message: Node, role: str, found: TranscriptBuilder) -> None:
    content = message.need("content")
    if role == "assistant":
        _assistant(content, found)
    elif role == "system":
        found.system(message, _texts(_blocks(content, found)))
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
    replied = reply_of(NAME, {"content": answer})
    if replied is None or any(isinstance(block, MediaBlock) for block in blocks):
        found.assistant(blocks)
    else:
        found.replied(*replied)


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
    media: list[Block] = [block for block in said if isinstance(block, MediaBlock)]
    if media:
        found.note(part, "media in a result: imported behind the results")
    failed = part.get("is_error")
    result = ToolResultBlock(
        part.text_at("tool_use_id"), _texts(said), failed is not None and failed.value is True
    )
    found.result(result, media)


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


def _texts(blocks: list[Block]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))
