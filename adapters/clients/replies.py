"""Replies: text, tool calls and usage, read from the bodies that a provider sent.

Whole bodies are read by the wire formats and the readers of transcripts; the events of a stream
are first put together by the assemblers of the providers' adapters. A body that can't be read is
recorded all the same: the views have less to show of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import msgspec

from turnledger.adapters.providers.registry import wire_of
from turnledger.adapters.providers.wire import count_of
from turnledger.adapters.transcripts.readers.registry import reader_of
from turnledger.adapters.transcripts.transcript import Transcript, TranscriptError
from turnledger.ledger import TokenUsage, TurnledgerError
from turnledger.projections import ChatTurn

# What data of another shape than a provider's can raise in its decoder.
_UNREADABLE = (TurnledgerError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
# Assemblers of streamed answers, and the event that ends an answer whose reader left it early.
_STREAMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "openai-chat": (
        "turnledger.adapters.providers.openai.chat",
        "ChatStream",
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "left"}]},
    ),
    "openai-responses": ("turnledger.adapters.providers.openai.responses", "ResponsesStream", {}),
    "anthropic": (
        "turnledger.adapters.providers.anthropic.stream",
        "MessageStream",
        {"type": "message_stop"},
    ),
    "gemini": (
        "turnledger.adapters.providers.gemini.stream",
        "GeminiStream",
        {"candidates": [{"index": 0, "finishReason": "left"}]},
    ),
}


@dataclass(frozen=True)
class ReadReply:
    """What a reply says: its turn if it has one, and what ModelReplied records beside it.

    `blobs` are the media in it.
    """

    turn: ChatTurn | None = None
    blobs: tuple[bytes, ...] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    finish_reason: str = ""
    model: str = ""


def read_conversation(wire: str, body: Any, answer: Any = None) -> Transcript | None:
    """The conversation of a request, with its answer as the last turn if that is given.

    Args:
        wire: The wire format.
        body: The request's body.
        answer: The answer's body; None before it came.
    """
    if not wire or not isinstance(body, dict):
        return None
    dump = {"request": body} if answer is None else {"request": body, "response": answer}
    try:
        return reader_of(wire)(dump)
    except TranscriptError:
        return None


def read_reply(wire: str, body: Any, answer: dict[str, Any] | None) -> ReadReply:
    """What the views show of an answer.

    Args:
        wire: The wire format; empty if the endpoint has none.
        body: The request's body.
        answer: The answer's body, after redaction; None if it is not JSON.
    """
    if answer is None:
        return ReadReply()
    if not wire:
        return ReadReply(usage=_usage(answer), model=_text(answer.get("model")))
    try:
        reply = wire_of(wire).decode(answer)
    except _UNREADABLE:
        return ReadReply()
    said = ReadReply(usage=reply.usage, finish_reason=reply.finish_reason, model=reply.model)
    read, before = read_conversation(wire, body, answer), read_conversation(wire, body)
    if read is None or before is None or len(read.turns) == len(before.turns):
        return said
    media = tuple(read.blobs[name] for name in read.blobs.keys() - before.blobs.keys())
    return replace(said, turn=read.turns[-1], blobs=media)


def assembled(wire: str, body: str) -> dict[str, Any] | None:
    """A streamed answer as it would have been whole; one that was left early as far as it came.

    Args:
        wire: The wire format.
        body: The stream: server-sent events.
    """
    if wire not in _STREAMS:
        return None
    module, name, end = _STREAMS[wire]
    make: Callable[..., Any] = getattr(import_module(module), name)
    stream = make(lambda text: None)
    try:
        for event in events_in(body):
            stream.add(event)
        return _whole(stream, end)
    except _UNREADABLE:
        return None


def _whole(stream: Any, end: dict[str, Any]) -> dict[str, Any] | None:
    try:
        found = stream.whole()
    except TurnledgerError:
        stream.add(end)
        found = stream.whole()
    return found if isinstance(found, dict) else None


def events_in(body: str) -> Iterator[Any]:
    """The JSON of each server-sent event; what is not JSON ("[DONE]") is left out."""
    for event in re.split(r"\r?\n\r?\n", body):
        data = event_data(event)
        if data is not None:
            yield data


def event_data(event: str) -> Any:
    """The JSON of one server-sent event; None if it has none."""
    lines = re.split(r"\r?\n", event)
    data = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
    with suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode("\n".join(data))
    return None


def _usage(answer: dict[str, Any]) -> TokenUsage:
    """Usage of endpoints without a conversation, embeddings and images."""
    used = answer.get("usage") or answer.get("usageMetadata")
    given = count_of(used, "prompt_tokens") or count_of(used, "input_tokens")
    return TokenUsage(
        input_tokens=given or count_of(used, "promptTokenCount"),
        output_tokens=count_of(used, "completion_tokens") or count_of(used, "output_tokens"),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
