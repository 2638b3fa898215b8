"""Reader of OpenAI's Responses: `input`, and the `output` if it is there.

Items that the model wrote one after the other are one turn. Reasoning is kept as the wire
format keeps it, where it is sealed in the item itself.
"""

from __future__ import annotations

from typing import Any

from turnledger.adapters.transcripts.builder import TranscriptBuilder, blocks_in, texts_in
from turnledger.adapters.transcripts.json_cursor import Node, json_text
from turnledger.adapters.transcripts.readers.envelope import opened
from turnledger.adapters.transcripts.transcript import Transcript
from turnledger.projections import Block, TextBlock

NAME = "openai-responses"
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_ROLES = ("system", "developer", "user", "assistant")
_ELSEWHERE = ("previous_response_id", "conversation")


def read_responses(data: Any) -> Transcript:
    """The conversation in a request body, a list of items, or a dump of both sides."""
    body, given, answer = opened(data, "input", "output", "instructions")
    found = TranscriptBuilder(NAME)
    items = _Items(found)
    found.model = body.text_at("model") or (answer.text_at("model") if answer is not None else "")
    instructions = body.get("instructions")
    if instructions is not None:
        found.system(instructions, _instructions(instructions, found))
    for name in _ELSEWHERE:
        if (earlier := body.get(name)) is not None:
            found.note(earlier, f"{name}: what was said before is not in the file, not imported")
    for said, role in ((given, "user"), (answer.get("output") if answer else None, "assistant")):
        if said is not None and said.is_text:
            items.add(Node({"role": role, "content": said.value}, said.path))
        elif said is not None:
            for item in said.each():
                items.add(item)
    return items.done()


class _Items:
    """Groups items into messages; the model's items are held until another role follows."""

    def __init__(self, found: TranscriptBuilder) -> None:
        self._found = found
        self._blocks: list[Block] = []
        # The same as the provider's answer had them.
        self._output: list[dict[str, Any]] = []

    def done(self) -> Transcript:
        self._flush()
        return self._found.done()

    def add(self, item: Node) -> None:
        kind = item.text_at("type", default="message")
        match kind:
            case "message":
                self._message(item)
            case "function_call" | "custom_tool_call":
                self._call(item, kind)
            case "function_call_output" | "custom_tool_call_output":
                self._result(item)
            case "reasoning":
                self._reasoning(item)
            case _ if kind.endswith(("_output", "_response")):
                self._flush()
                self._found.user([self._found.left_out(item, kind)])
            case _:
                self._begin()
                self._output.append({"type": kind})
                self._say([self._found.left_out(item, kind)])

    def _flush(self) -> None:
        blocks, output = self._blocks, self._output
        self._blocks, self._output = [], []
        if output:
            self._found.answered(blocks, {"output": output})

    def _begin(self) -> None:
        if not self._output:
            self._found.asking()

    def _say(self, blocks: list[Block], phase: str = "") -> None:
        texts = [block.text for block in blocks if isinstance(block, TextBlock)]
        content = [{"type": "output_text", "text": text} for text in texts]
        more = {"phase": phase} if phase else {}
        self._blocks += blocks
        self._output.append({"type": "message", "content": content, **more})

    def _message(self, item: Node) -> None:
        role = item.need("role").one_of(*_ROLES)
        blocks = _blocks(item.get("content"), self._found)
        if role == "assistant":
            self._begin()
            self._say(blocks, item.text_at("phase"))
            return
        self._flush()
        if role == "user":
            self._found.user(blocks)
        else:
            self._found.system(item, texts_in(blocks))

    def _call(self, item: Node, kind: str) -> None:
        self._begin()
        if kind == "custom_tool_call":
            self._found.note(item, "a custom tool's input: imported as an argument")
            arguments = json_text({"input": item.text_at("input")})
        else:
            given = item.get("arguments")
            plain = given is None or given.is_text
            arguments = item.text_at("arguments") if plain else item.need("arguments").as_json()
        call = self._found.call(item.text_at("call_id"), item.text_at("name"), arguments or "{}")
        self._blocks.append(call)
        self._output.append(
            {
                "type": "function_call",
                "call_id": call.call_id,
                "name": call.name,
                "arguments": call.arguments,
            }
        )

    def _result(self, item: Node) -> None:
        self._flush()
        said = _blocks(item.get("output"), self._found)
        call_id = item.text_at("call_id") or self._found.answering(item.text_at("name"))
        self._found.result(item, call_id, said)

    def _reasoning(self, item: Node) -> None:
        self._begin()
        if not (item.value.get("encrypted_content") or item.value.get("content")):
            self._found.left_out(item, "reasoning", "it is in the provider's memory only")
            return
        self._output.append({**item.value, "type": "reasoning"})


def _instructions(given: Node, found: TranscriptBuilder) -> str:
    """Instructions are text; an answer repeats them as a list of items at times."""
    if given.is_text:
        return given.text()
    return "\n\n".join(texts_in(_blocks(item.get("content"), found)) for item in given.each())


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
    if kind == "input_image":
        image = part.get("image_url")
        if image is None:
            return found.left_out(part, "image")
        return found.media_at(part, image.text(), "image")
    if kind == "input_file":
        url = part.text_at("file_url")
        return found.media_at(part, url, "document") if url else found.file(part)
    return found.left_out(part, kind)
