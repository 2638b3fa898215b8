"""Recorded answers: an HTTP answer as JSON data, and as a response of the client's HTTP module.

    {"status": 200, "type": "application/json", "text": "..."}

Bodies are recorded as they are after decoding (gzip and the like), so that replay hands the SDK
the bytes that its parser had. No header is kept but the type of the body. Text is `text`; other
bytes are a `blob`, or `base64` where the event names no blobs. `left` is true if the reader of a
stream left it before its end. Of a redirect `location` is where to, without the query: the request
that follows is known without it.
"""

from __future__ import annotations

import builtins
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from turnledger.adapters.clients.stream_redaction import redacted_stream
from turnledger.ledger import blob_name
from turnledger.runtime.steps import StepOutcome

# Longer texts are blobs: an event has a limit, and views read events.
_LONGEST_TEXT = 1024 * 1024
_JSON = "application/json"


@dataclass(frozen=True)
class Answer:
    """An HTTP answer, as far as it is recorded."""

    status: int
    type: str
    body: bytes
    left: bool = False
    location: str = ""

    @property
    def text(self) -> str | None:
        """The body as text; None if it is none."""
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            return None

    @property
    def is_stream(self) -> bool:
        return self.type.startswith("text/event-stream")

    def data(
        self, redact: Callable[[str], str], *, names_blobs: bool
    ) -> tuple[dict[str, Any], list[bytes]]:
        """The answer as it is recorded, and the blobs that it names.

        Args:
            redact: Replaces secrets in text.
            names_blobs: Whether the event that it will be in can name blobs.
        """
        head: dict[str, Any] = {"status": self.status, "type": self.type}
        if self.left:
            head["left"] = True
        if self.location:
            head["location"] = redact(self.location)
        text = self.text
        if text is not None:
            text = redacted_stream(text, redact) if self.is_stream else redact(text)
            if len(text) <= _LONGEST_TEXT or not names_blobs:
                return {**head, "text": text}, []
        content = self.body if text is None else text.encode()
        if names_blobs:
            return {**head, "blob": blob_name(content)}, [content]
        return {**head, "base64": b64encode(content).decode()}, []


def answer_of(value: Any, blob: Callable[[str], bytes]) -> Answer:
    """The answer that a recorded value is; any other value is a person's, who decided the call.

    Args:
        value: The recorded value.
        blob: Loads a blob by its name.
    """
    if not isinstance(value, dict) or "status" not in value or "type" not in value:
        return Answer(200, _JSON, msgspec.json.encode(value))
    if "blob" in value:
        body = blob(value["blob"])
    elif "base64" in value:
        body = b64decode(value["base64"])
    else:
        body = value.get("text", "").encode()
    left, location = value.get("left", False), value.get("location", "")
    return Answer(value["status"], value["type"], body, left, location)


class RecordedStream:
    """The recorded bytes of a stream, and what ends them; for both kinds of clients.

    Args:
        body: The bytes.
        end: Makes the error that broke the stream, or that says where its reader left it.
    """

    def __init__(self, body: bytes, end: Callable[[], Exception]) -> None:
        self._body, self._end = body, end

    def __iter__(self) -> Iterator[bytes]:
        yield self._body
        raise self._end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body
        raise self._end()


@cache
def stream_class(kind: type, *bases: type) -> type:
    """A class on those of the HTTP module that will use it: that one checks for its own."""
    return type(kind.__name__, (kind, *bases), {})


def error_of(outcome: StepOutcome, http: Any, request: Any) -> Exception | None:
    """The error of a broken connection, as a class of that name; None if it is another failure.

    Args:
        outcome: How the call ended.
        http: The client's HTTP module.
        request: The request.
    """
    kind = getattr(http, outcome.error_type, None)
    if isinstance(kind, type) and issubclass(kind, http.RequestError):
        error: Exception = kind(outcome.error_message, request=request)
        return error
    kind = getattr(builtins, outcome.error_type, None)
    if isinstance(kind, type) and issubclass(kind, OSError):
        return kind(outcome.error_message)
    return None
