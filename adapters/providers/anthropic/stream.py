"""Anthropic streaming: assembles the events of a stream into the whole message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from turnledger.adapters.providers.retry import InterruptedStreamError
from turnledger.adapters.providers.wire import field_of
from turnledger.ledger import TurnledgerError
from turnledger.runtime.agent.models.request import as_data

# What another attempt may not meet again. All else would be refused once more.
_PASSING = frozenset({"overloaded_error", "rate_limit_error", "api_error", "timeout_error"})
# The field of a block that a delta of a kind adds to, and the delta's own name for the piece.
_GROWS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("input", "partial_json"),
}


class StreamedError(TurnledgerError):
    """The provider gave up in the middle of an answer. Nothing of it counts."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.retryable = kind in _PASSING
        super().__init__(f"the provider broke its answer off: {message or 'no reason'} ({kind})")


def streamed_error(told: Any) -> StreamedError:
    """What an error event says; `told` is the event, the error in it, or text that is neither."""
    if isinstance(told, str):
        return StreamedError("unknown", told)
    error = field_of(told, "error", told)
    return StreamedError(
        str(field_of(error, "type", "unknown")), str(field_of(error, "message", ""))
    )


class MessageStream:
    """The events of one message. Text goes to `on_text` as it comes."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._head: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        self._ended = False

    def add(self, event: Any) -> None:
        match field_of(event, "type"):
            case "message_start":
                message = as_data(field_of(event, "message")) or {}
                self._usage.update(message.pop("usage", None) or {})
                self._head = message
            case "content_block_start":
                block = as_data(field_of(event, "content_block")) or {}
                self._blocks[field_of(event, "index", 0)] = block
                if block.get("type") == "text" and block.get("text"):
                    self._on_text(block["text"])
            case "content_block_delta":
                self._grow(field_of(event, "index", 0), field_of(event, "delta"))
            case "message_delta":
                self._head.update(as_data(field_of(event, "delta")) or {})
                usage = as_data(field_of(event, "usage")) or {}
                # These are totals: what is not told again stays.
                self._usage.update({name: n for name, n in usage.items() if n is not None})
            case "message_stop":
                self._ended = True
            case "error":
                raise streamed_error(event)

    def _grow(self, index: int, delta: Any) -> None:
        known = _GROWS.get(field_of(delta, "type", ""))
        if known is None:
            return
        name, piece = known[0], str(field_of(delta, known[1], ""))
        self._pieces[index, name].append(piece)
        if name == "text" and piece:
            self._on_text(piece)

    def whole(self) -> dict[str, Any]:
        """The message; InterruptedStreamError if its end never came."""
        if not self._ended:
            raise InterruptedStreamError("the stream ended before the answer did")
        for (index, name), pieces in self._pieces.items():
            block = self._blocks.setdefault(index, {})
            said = "".join(pieces)
            block[name] = _input(said) if name == "input" else block.get(name, "") + said
        self._pieces.clear()
        content = [self._blocks[index] for index in sorted(self._blocks)]
        return {**self._head, "content": content, "usage": self._usage}


def _input(said: str) -> Any:
    """A call's input; the text itself where it was cut off before it was JSON."""
    if not said:
        return {}
    try:
        return msgspec.json.decode(said)
    except (msgspec.DecodeError, RecursionError):
        return said
