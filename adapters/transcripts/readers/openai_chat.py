"""Reader of OpenAI's chat completions: `messages`, and `choices` if they are there."""

from __future__ import annotations

from itertools import islice
from typing import Any

from turnledger.adapters.transcripts.builder import TranscriptBuilder, blocks_in, texts_in
from turnledger.adapters.transcripts.json_cursor import Node, json_text
from turnledger.adapters.transcripts.readers.envelope import opened
from turnledger.adapters.transcripts.transcript import Transcript
from turnledger.projections import Block, TextBlock

NAME = "openai-chat"
_SOUND = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_TEXTS = ("text", "input_text", "output_text")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
# What an assistant's message may have beyond what is taken over.
_BEYOND = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")


def read_chat(data: Any) -> Transcript:
    """The conversation in a request body, a list of messages, or a dump of both sides."""
    body, messages, answer = opened(data, "messages", "choices")
    found = TranscriptBuilder(NAME)
    found.model = body.text_at("model")
    if messages is not None:
        _messages(messages, found)
    if answer is not None:
        found.model = found.model or answer.text_at("model")
        # The first choice is the answer.
        for choice in islice(answer.need("choices").each(), 1):
            _assistant(choice.need("message"), found)
    return found.done()


def _messages(messages: Node, found: TranscriptBuilder) -> None:
    for message in messages.each():
        match message.need("role").one_of(*_ROLES):
            case "system" | "developer":
                found.system(message, texts_in(_blocks(message.get("content"), found)))
            case "user":
                if name := message.text_at("name"):
                    found.note(message, f"the speaker's name {name!r:.80}: not imported")
                found.user(_blocks(message.get("content"), found))
            case "assistant":
                _assistant(message, found)
            case _:
                _result(message, found)


def _assistant(message: Node, found: TranscriptBuilder) -> None:
    found.asking()
    blocks = _blocks(message.get("content"), found)
    refusal = message.text_at("refusal")
    if refusal:
        blocks.append(TextBlock(refusal))
    audio = message.get("audio")
    if audio is not None:
        spoken = audio.text_at("transcript")
        blocks.append(TextBlock(spoken) if spoken else found.left_out(audio, "audio"))
    calls = message.get("tool_calls")
    for call in calls.each() if calls is not None else ():
        blocks.append(_call(call, found))
    legacy = message.get("function_call")
    if legacy is not None:
        blocks.append(found.call("", legacy.text_at("name"), _arguments(legacy)))
    for name in _BEYOND:
        if (beyond := message.get(name)) is not None and beyond.value:
            found.note(beyond, f"{name}: not imported")
    found.assistant(blocks)


def _call(call: Node, found: TranscriptBuilder) -> Block:
    custom = call.get("custom")
    if custom is not None:
        arguments = json_text({"input": custom.text_at("input")})
        found.note(call, "a custom tool's input: imported as an argument")
        return found.call(call.text_at("id"), custom.text_at("name"), arguments)
    function = call.need("function")
    return found.call(call.text_at("id"), function.text_at("name"), _arguments(function))


def _arguments(function: Node) -> str:
    """Arguments as text; some dumps have them as the object that the text means."""
    given = function.get("arguments")
    if given is None:
        return "{}"
    return given.text() if given.is_text else given.as_json()


def _result(message: Node, found: TranscriptBuilder) -> None:
    said = _blocks(message.get("content"), found)
    call_id = message.text_at("tool_call_id") or found.answering(message.text_at("name"))
    found.result(message, call_id, said)


def _blocks(content: Node | None, found: TranscriptBuilder) -> list[Block]:
    return blocks_in(content, lambda part: _part(part, found))


def _part(part: Node, found: TranscriptBuilder) -> Block:
    if part.is_text:
        return TextBlock(part.text())
    kind = part.need("type").text()
    if kind in _TEXTS:
        return TextBlock(part.need("text").text())
    if kind == "refusal":
        return TextBlock(part.need("refusal").text())
    if kind == "image_url":
        image = part.need("image_url")
        return found.media_at(
            part, image.text() if image.is_text else image.text_at("url"), "image"
        )
    if kind == "input_audio":
        sound = part.need("input_audio")
        mime = _SOUND.get(
            sound.text_at("format"), f"audio/{sound.text_at('format', default='wav')}"
        )
        return found.media(part, sound.text_at("data"), "audio", mime)
    if kind == "file":
        return found.file(part.need("file"))
    return found.left_out(part, kind)
