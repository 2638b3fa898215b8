"""Transcripts of all formats: real documents, damaged as bytes and as JSON."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from functools import cache
from typing import Any

from tests.conformance.samples import note
from tests.fuzz.mutating import as_json, mutate_bytes, mutate_json
from tests.fuzz.targets import Target, promise
from turnledger.adapters.transcripts import (
    FORMATS,
    TranscriptError,
    Wanted,
    export_transcript,
    import_transcripts,
    read_transcripts,
)
from turnledger.ledger import ANY, InvalidInputError, Ledger, TurnledgerError
from turnledger.projections import Conversation, fold

PNG = "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n pixels").decode()
DATA = b64encode(b"%PDF-1.4 pages").decode()
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"n":1}'}}
DOCUMENTS: dict[str, list[Any]] = {
    "openai-chat": [
        {
            "model": "gpt-4o",
            "messages": [
                {"role": "system", "content": "Be kind."},
                {
                    "role": "user",
                    "name": "ann",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                        {"type": "input_audio", "input_audio": {"data": DATA, "format": "mp3"}},
                        {"type": "file", "file": {"filename": "a.pdf", "file_data": PNG}},
                    ],
                },
                {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "x"}]},
                {"role": "assistant", "function_call": {"name": "g", "arguments": "{}"}},
                {"role": "function", "name": "g", "content": "42"},
                {"role": "assistant", "content": "It is.", "refusal": "no", "reasoning": "hm"},
            ],
        },
        {
            "request": {"messages": [{"role": "user", "content": "Hello."}], "model": "m"},
            "response": {
                "body": {"choices": [{"message": {"role": "assistant", "content": "Hi."}}]}
            },
        },
        [{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}],
    ],
    "openai-responses": [
        {
            "model": "gpt-5",
            "instructions": "Be kind.",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "42"},
                {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "free"},
                {
                    "type": "custom_tool_call_output",
                    "call_id": "c2",
                    "output": [{"type": "input_image", "image_url": PNG}],
                },
                {"type": "web_search_call", "id": "ws", "status": "completed"},
                {
                    "role": "user",
                    "content": [
                        {"type": "input_file", "file_data": PNG, "filename": "a"},
                        {"type": "input_image", "image_url": "https://example.com/a.png"},
                    ],
                },
            ],
            "previous_response_id": "r0",
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "phase": "final",
                    "content": [{"type": "output_text", "text": "done", "annotations": []}],
                }
            ],
        },
        {"input": "Hello.", "response": {"output": [{"role": "assistant", "content": "Hi."}]}},
    ],
    "anthropic": [
        {
            "model": "claude-sonnet-4-5",
            "system": [{"type": "text", "text": "Be kind."}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What?"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": DATA},
                        },
                        {"type": "document", "source": {"type": "url", "url": "https://x.y/z"}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                        {"type": "redacted_thinking", "data": "AAAA"},
                        {"type": "text", "text": "Looking."},
                        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1]}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t1",
                            "content": [{"type": "text", "text": "ok"}],
                            "is_error": True,
                        }
                    ],
                },
            ],
            "response": {
                "role": "assistant",
                "model": "claude",
                "content": [{"type": "text", "text": "Done."}],
            },
        },
        [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}],
    ],
    "gemini": [
        {
            "model": "gemini-3-pro",
            "systemInstruction": {"parts": [{"text": "Be kind."}]},
            "contents": [
                {
                    "role": "user",
                    "parts": [
                        {"text": "What?"},
                        {"inlineData": {"mimeType": "image/png", "data": DATA}},
                        {"fileData": {"mimeType": "audio/wav", "fileUri": "gs://a/b"}},
                    ],
                },
                {
                    "role": "model",
                    "parts": [
                        {"text": "thinking", "thought": True, "thoughtSignature": "c2ln"},
                        {
                            "functionCall": {"name": "f", "args": {"n": 1}, "id": "c1"},
                            "thoughtSignature": "c2ln",
                        },
                    ],
                },
                {
                    "role": "user",
                    "parts": [
                        {"functionResponse": {"id": "c1", "name": "f", "response": {"output": 1}}}
                    ],
                },
            ],
            "response": {
                "candidates": [
                    {"content": {"role": "model", "parts": [{"text": "Done.", "extra": 1}]}}
                ]
            },
        },
        {"contents": "Hello."},
        [{"role": "user", "parts": [{"text": "Hello."}]}],
    ],
}
MORE_WORDS = [
    "body",
    "kwargs",
    "params",
    "payload",
    "completion",
    "answer",
    "result",
    "summary",
    "custom",
    "config",
    "tool",
    "developer",
    "function_response",
    "function_call",
    "inline_data",
    "file_data",
    "mime_type",
    "file_uri",
    "thought_signature",
    "input_text",
    "refusal",
    "audio",
    "transcript",
    "conversation",
    "file_id",
    "file_url",
    "executableCode",
    "parameters",
]


@cache
def documents(wire: str) -> tuple[bytes, ...]:
    """Documents of a format as they may be found, lines of several among them."""
    found = [json.dumps(one).encode() for one in DOCUMENTS[wire]]
    return (*found, b"\n".join(found[-2:]) + b"\n", b"[" + b",".join(found[:2]) + b"]")


@cache
def words(wire: str) -> tuple[str, ...]:
    """Every word that the documents of a format use, as key or as short text."""
    found: set[str] = set(MORE_WORDS)

    def gather(value: Any) -> None:
        if isinstance(value, dict):
            found.update(value)
            for inner in value.values():
                gather(inner)
        elif isinstance(value, list):
            for inner in value:
                gather(inner)
        elif isinstance(value, str) and len(value) < 25:
            found.add(value)

    gather(DOCUMENTS[wire])
    return tuple(sorted(found))


class Transcripts(Target):
    """Files for `import --format`; what is taken can be folded, exported and gone on with."""

    name = "transcripts"
    inputs = 4_000
    few = 500
    goal = 60_000

    def draw(self, dice: random.Random) -> tuple[str, bytes]:
        wire = dice.choice(FORMATS)
        own = wire if dice.random() < 0.95 else dice.choice(FORMATS)
        if dice.random() < 0.2:
            return wire, mutate_bytes(dice, dice.choice(documents(own)), documents(own)[:1])
        data = json.loads(dice.choice(documents(own)[: len(DOCUMENTS[own])]))
        return wire, as_json(dice, mutate_json(dice, data, words(own)))

    def check(self, given: tuple[str, bytes]) -> bool:
        wire, content = given
        try:
            plans = read_transcripts(content, wire, source="some.json")
        except TranscriptError:
            return False
        with Ledger.open("memory://") as ledger:
            try:
                runs = import_transcripts(ledger, plans)
            except TranscriptError:
                promise(next(ledger.tail(), None) is None, "refused, and yet there are records")
                return False
            for plan, run in zip(plans, runs, strict=True):
                history = fold(ledger.read(run.run_id), Conversation()).history()
                promise(history == plan.history, "what is folded is not what was read")
                self._check_export(ledger, run.run_id, wire)
            again = import_transcripts(ledger, read_transcripts(content, wire, source="some.json"))
            promise({one.outcome for one in again} == {"already there"}, "imported twice")
            ledger.append(runs[0].run_id, note(1), ANY)
            promise(ledger.verify_all().ok, "taken, and then not sound")
        return True

    def _check_export(self, ledger: Ledger, run_id: Any, wire: str) -> None:
        for name in {wire, FORMATS[run_id.int % len(FORMATS)]}:
            wanted = Wanted(format=name, unsupported_media="hint")
            try:
                document = export_transcript(ledger, run_id, wanted)
            except InvalidInputError:
                continue
            content = json.dumps(document).encode()
            try:
                plans = read_transcripts(content, name)
            except TurnledgerError as error:
                promise(False, f"what was exported is refused as {name}: {error}")
            promise(len(plans) == 1, "what was exported is several transcripts")

    def shown(self, given: tuple[str, bytes]) -> str:
        return f"{given[0]} base64 {b64encode(given[1]).decode()}"
