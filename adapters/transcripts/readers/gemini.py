"""Reader of Gemini's generateContent: `contents`, and the candidate if it is there.

Names may be in camelCase or in snake_case. Signatures are kept as the wire format keeps them.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from turnledger.adapters.transcripts.builder import TranscriptBuilder, modality_of, texts_in
from turnledger.adapters.transcripts.json_cursor import Node
from turnledger.adapters.transcripts.readers.envelope import opened
from turnledger.adapters.transcripts.transcript import Transcript
from turnledger.projections import Block, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock

NAME = "gemini"
_ROLES = ("user", "model", "assistant", "function", "tool", "system")
# What is sent where a call has no signature: nothing to keep.
_NO_SIGNATURES = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
# What a part may have beside what it is.
_BESIDE = ("thought", "thoughtSignature", "thought_signature", "videoMetadata", "video_metadata")


def read_gemini(data: Any) -> Transcript:
    """The conversation in a request body, a list of contents, or a dump of both sides."""
    body, contents, answer = opened(data, "contents", "candidates")
    found = TranscriptBuilder(NAME)
    found.model = body.text_at("model").removeprefix("models/")
    system = _system_in(body)
    if system is not None:
        found.system(system, _texts(system, found))
    if contents is not None:
        _contents(contents, found)
    if answer is not None:
        found.model = found.model or answer.text_at("modelVersion", "model_version")
        # The first candidate is the answer.
        for candidate in islice(answer.need("candidates").each(), 1):
            said = candidate.get("content")
            if said is not None:
                _model(said, found)
    return found.done()


def _system_in(body: Node) -> Node | None:
    """The system text; the SDK has it in its config."""
    names = ("systemInstruction", "system_instruction")
    config = body.get("config")
    found = body.get(*names)
    if found is None and config is not None and config.is_object:
        found = config.get(*names)
    return found


def _contents(contents: Node, found: TranscriptBuilder) -> None:
    """A list of contents, or what the SDK takes for one: a content, or text."""
    for content in contents.each() if contents.is_list else (contents,):
        role = "user"
        if content.is_object and (said := content.get("role")) is not None:
            role = said.one_of(*_ROLES)
        if role in ("model", "assistant"):
            _model(content, found)
        elif role == "system":
            found.system(content, _texts(content, found))
        else:
            _user(content, found)


def _parts(content: Node) -> list[Node]:
    """The parts of a content; a text, or a part by itself, is short for one with that part."""
    if content.is_text:
        return [content]
    if content.is_list:
        return list(content.each())
    parts = content.get("parts")
    if parts is None:
        return [] if content.get("role") is not None or not content.value else [content]
    return list(parts.each()) if parts.is_list else [parts]


def _texts(content: Node, found: TranscriptBuilder) -> str:
    return texts_in([_block(part, found) for part in _parts(content)])


def _user(content: Node, found: TranscriptBuilder) -> None:
    blocks: list[Block] = []
    for part in _parts(content):
        answered = None if part.is_text else part.get("functionResponse", "function_response")
        if answered is not None:
            _result(answered, found)
        else:
            blocks.append(_block(part, found))
    found.user(blocks)


def _model(content: Node, found: TranscriptBuilder) -> None:
    found.asking()
    blocks: list[Block] = []
    # The same as the provider's answer had it, with the signatures.
    answer: list[dict[str, Any]] = []
    for part in _parts(content):
        signed = _signature(part)
        thought = None if part.is_text else part.get("thought")
        if thought is not None and thought.value:
            answer.append({"text": part.text_at("text"), "thought": True, **signed})
            if not signed:
                found.note(part, "a thought: not imported, it is not signed")
            continue
        block = _block(part, found)
        blocks.append(block)
        if isinstance(block, TextBlock):
            answer.append({"text": block.text, **signed})
        elif isinstance(block, ToolUseBlock):
            called = part.need("functionCall", "function_call")
            given, call_id = called.get("args"), called.text_at("id")
            call: dict[str, Any] = {"name": block.name, "args": given.value if given else {}}
            if call_id:
                call["id"] = call_id
            answer.append({"functionCall": call, **signed})
    found.answered(blocks, {"candidates": [{"content": {"parts": answer}}]})


def _signature(part: Node) -> dict[str, str]:
    if part.is_text:
        return {}
    signature = part.text_at("thoughtSignature", "thought_signature")
    if not signature or signature in _NO_SIGNATURES:
        return {}
    return {"thoughtSignature": signature}


def _block(part: Node, found: TranscriptBuilder) -> Block:
    if part.is_text:
        return TextBlock(part.text())
    if (text := part.get("text")) is not None:
        return TextBlock(text.text())
    if (called := part.get("functionCall", "function_call")) is not None:
        arguments = found.arguments(called.get("args"))
        return found.call(called.text_at("id"), called.text_at("name"), arguments)
    if (answered := part.get("functionResponse", "function_response")) is not None:
        return ToolResultBlock(answered.text_at("id"), "")
    if (inline := part.get("inlineData", "inline_data")) is not None:
        mime = inline.text_at("mimeType", "mime_type") or None
        return found.media(inline, inline.text_at("data"), modality_of(mime), mime)
    if (file := part.get("fileData", "file_data")) is not None:
        mime = file.text_at("mimeType", "mime_type") or None
        return found.media_at(file, file.text_at("fileUri", "file_uri"), modality_of(mime), mime)
    kind = next((str(name) for name in part.value if name not in _BESIDE), "")
    return found.left_out(part, kind) if kind else TextBlock("")


def _result(answered: Node, found: TranscriptBuilder) -> None:
    name = answered.text_at("name")
    call_id = answered.text_at("id") or found.answering(name)
    response = answered.get("response")
    content, failed = ("", False) if response is None else _response(response)
    parts = answered.get("parts")
    within = [_block(part, found) for part in (parts.each() if parts is not None else ())]
    media = (block for block in within if isinstance(block, MediaBlock))
    found.result(answered, call_id, [TextBlock(content), *media], failed)


def _response(response: Node) -> tuple[str, bool]:
    """What a function gave, as text, and whether that is an error."""
    if response.is_text:
        return response.text(), False
    if response.is_object and len(response.value) == 1:
        for name, failed in (("output", False), ("result", False), ("error", True)):
            said = response.get(name)
            if said is not None:
                return (said.text() if said.is_text else said.as_json()), failed
    return response.as_json(), False
