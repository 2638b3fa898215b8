"""Answers: JSON by msgspec, stored JSON as it is, ETags, and Cache-Control headers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from turnledger.adapters.http.protocol.bodies import NDJSON
from turnledger.adapters.http.protocol.wire import RecordLine, whole

__all__ = ["RecordLine", "whole"]

# Cache-Control of what never changes, of what changes and has an ETag, of what is not cached.
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
FRESH = {"cache-control": "private, no-cache"}
NEVER = {"cache-control": "no-store"}
# Payloads above this are cut in lists for people.
CUT = 64 * 1024


class Json(JSONResponse):
    """A JSON answer; `msgspec.Raw` in it goes out as it is."""

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


def lines(items: Iterable[Any]) -> bytes:
    """Items as NDJSON."""
    return b"".join(msgspec.json.encode(item) + b"\n" for item in items)


class NdjsonResponse(StreamingResponse):
    """Lines of JSON, sent in pages as they are made, in a thread.

    Args:
        pages: Gives pages of items.
        headers: Headers of the answer.
    """

    media_type = NDJSON

    def __init__(
        self, pages: Iterator[Iterable[Any]], headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(map(lines, pages), headers=headers)


def accepts_lines(request: Request) -> bool:
    """Whether the client asks for NDJSON."""
    return NDJSON in request.headers.get("accept", "")


def next_page(request: Request, **place: object) -> str:
    """The address of the next page: this one with another place, as a path and a query.

    Without scheme and host: those of a request come from the client, or from a proxy.
    """
    url = request.url.include_query_params(**place)
    return f"{url.path}?{url.query}"


def etag(version: int) -> str:
    """A run's version as an ETag."""
    return f'"{version}"'


def not_modified(tag: str, if_none_match: str | None) -> Response | None:
    """The answer 304, if the client's copy has this ETag; else None."""
    known = [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]
    if tag not in known and "*" not in known:
        return None
    return Response(status_code=304, headers={"etag": tag, **FRESH})
