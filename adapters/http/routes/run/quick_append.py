"""Quick appends: `POST /v1/runs/{run}/events` as the Python client sends it, in one thread's step.

The token is checked and the events are appended in the same call, and no framework takes part.
Only plain requests go this way; all others, and those that turn out to be refused for their
token, go through the route, which does the same and says what is wrong.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from uuid import UUID

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnledger.adapters.http.protocol.access import CALLER, allows
from turnledger.adapters.http.protocol.answers import Json
from turnledger.adapters.http.protocol.bodies import NDJSON, SMALL
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.protocol.wire import AppendedEvents
from turnledger.adapters.http.routes.run.events import (
    APPEND_PATH,
    Conditions,
    append_body,
    headers_of,
    status_of,
    written,
)
from turnledger.adapters.http.served import Served
from turnledger.ledger import Appended

_PATH: Final = re.compile(r"/v1/runs/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/events")
_EXPECT: Final = {b"": None, b"expect=any": "any"}
_VERSION: Final = re.compile(r'"[0-9]{1,18}"')
_EPOCH: Final = re.compile(r"[0-9]{1,18}")
_SIZE: Final = re.compile(r"[1-9][0-9]{0,7}")
_BEARER: Final = "Bearer "
# Headers that decide about an append. With one of them twice, the request is not plain.
_DECIDING: Final = frozenset(
    {
        b"accept",
        b"authorization",
        b"content-length",
        b"content-type",
        b"if-match",
        b"if-none-match",
        b"transfer-encoding",
        b"turnledger-epoch",
    }
)


class _Route(NamedTuple):
    path: str


# What the figures call these requests, as they call those of the route.
ROUTE: Final = _Route(APPEND_PATH)


class Plain(NamedTuple):
    """A plain append: its run, its token and its conditions."""

    run: str
    token: str
    conditions: Conditions


def plain_append(scope: Scope) -> Plain | None:
    """What a request asks for, if it is a plain append whose body is small; else None.

    An unknown caller's body is read only up to the size that the server buffers anyway.
    """
    if scope["method"] != "POST" or scope["query_string"] not in _EXPECT:
        return None
    path = _PATH.fullmatch(scope["path"])
    found = _deciding(scope) if path is not None else None
    if path is None or found is None or not _has_small_json(found):
        return None
    token, if_match = found.get(b"authorization", ""), found.get(b"if-match")
    if_new, epoch = found.get(b"if-none-match"), found.get(b"turnledger-epoch")
    if (
        not token.startswith(_BEARER)
        or (if_match is not None and _VERSION.fullmatch(if_match) is None)
        or if_new not in (None, "*")
        or (epoch is not None and _EPOCH.fullmatch(epoch) is None)
    ):
        return None
    expect = _EXPECT[scope["query_string"]]
    conditions = Conditions(if_match, if_new, expect, None if epoch is None else int(epoch))
    return Plain(path[1], token.removeprefix(_BEARER), conditions)


def _deciding(scope: Scope) -> dict[bytes, str] | None:
    found: dict[bytes, str] = {}
    for name, value in scope["headers"]:
        if name in _DECIDING:
            if name in found:
                return None
            found[name] = value.decode("latin-1")
    return found


def _has_small_json(found: dict[bytes, str]) -> bool:
    size = found.get(b"content-length", "")
    return (
        found.get(b"content-type") == "application/json"
        and NDJSON not in found.get(b"accept", "")
        and b"transfer-encoding" not in found
        and _SIZE.fullmatch(size) is not None
        and int(size) <= SMALL
    )


class QuickAppends:
    """ASGI application that answers plain appends.

    Args:
        served: The ledger.
        otherwise: Answers what is not for it to answer.
    """

    def __init__(self, served: Served, otherwise: ASGIApp) -> None:
        self._served = served
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = plain_append(scope) if scope["type"] == "http" else None
        body = None if plain is None else await _read(receive)
        if plain is None or body is None:
            await self._otherwise(scope, receive, send)
            return
        response = await self._answer(plain, body, scope)
        if response is None:
            await self._otherwise(scope, _again(body, receive), send)
        else:
            await response(scope, receive, send)

    async def _answer(self, plain: Plain, body: bytes, scope: Scope) -> Response | None:
        """The answer; None if the route has to say what is wrong."""

        def append() -> tuple[Appended, AppendedEvents] | None:
            caller = self._served.caller_of(plain.token)
            if caller is None or not allows(caller.role, "writer"):
                return None
            scope[CALLER] = caller
            run = UUID(plain.run)
            return append_body(self._served.ledger, run, body, plain.conditions)

        scope["route"], scope["path_params"] = ROUTE, {"run": plain.run}
        try:
            found = await self._served.work.append(append)
        except ProblemError as problem:
            return problem.response()
        if found is None:
            return None
        _, answer = found
        self._served.metrics.appended_events += written(answer)
        return Json(answer, status_of(answer), headers_of(answer))


async def _read(receive: Receive) -> bytes | None:
    """The body; None if the client has gone."""
    parts = []
    while (message := await receive())["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
    return None


def _again(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read already, and what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return messages.pop() if messages else await receive()

    return received
