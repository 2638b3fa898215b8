"""Quick appends: `POST /v1/runs/{run}/events` as most clients send it, from bytes to bytes.

Neither h11 nor an ASGI application takes part: a thread checks the token and appends the events in
one step. Only plain requests go this way: their few headers are known here, so that no check of
others is left out. Those that turn out to be refused for their token, and all that are not plain,
go to the application, which does the same and says what is wrong.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple
from uuid import UUID

from starlette.responses import Response

from turnledger.adapters.http.observe import observe
from turnledger.adapters.http.protocol.access import CALLER, Caller, add_headers, allows, host_name
from turnledger.adapters.http.protocol.answers import Json
from turnledger.adapters.http.protocol.bodies import NDJSON, SMALL
from turnledger.adapters.http.protocol.problems import ProblemError, ledger_answer
from turnledger.adapters.http.routes.run.events import (
    APPEND_PATH,
    Conditions,
    append_body,
    headers_of,
    status_of,
    written,
)
from turnledger.adapters.http.served import Served
from turnledger.ledger import TurnledgerError

# Bytes of a head that is plain: one of the Python client has some 300.
LONGEST_HEAD: Final = 2048
_RUN: Final = rb"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_FIRST_LINE: Final = re.compile(
    rb"POST (/v1/runs/" + _RUN + rb"/events)(\?expect=any)? HTTP/1\.1",
)
_HEADER: Final = re.compile(r"([A-Za-z-]+): ([!-~]+(?: [!-~]+)*)")
_VERSION: Final = re.compile(r'"[0-9]{1,18}"')
_EPOCH: Final = re.compile(r"[0-9]{1,18}")
_SIZE: Final = re.compile(r"[1-9][0-9]{0,7}")
_BEARER: Final = "Bearer "
# The headers of plain requests. Any other may decide something.
_NEEDED: Final = frozenset({"authorization", "content-length", "content-type", "host"})
_CONDITIONS: Final = frozenset({"if-match", "if-none-match", "turnledger-epoch"})
# What programs and proxies send, and what decides nothing about an append with a token.
_HARMLESS: Final = frozenset(
    {
        "accept",  # unless it asks for NDJSON
        "accept-encoding",
        "accept-language",
        "connection",  # unless it closes
        "forwarded",
        "sec-fetch-mode",
        "traceparent",
        "tracestate",
        "user-agent",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-real-ip",
        "x-request-id",
    }
)
_PLAIN: Final = _NEEDED | _CONDITIONS | _HARMLESS


class _Route(NamedTuple):
    path: str


# What the figures call these requests, as they call those of the route.
ROUTE: Final = _Route(APPEND_PATH)


class Plain(NamedTuple):
    """The head of a plain append: its size, that of the whole request, and what it asks for."""

    head_size: int
    size: int
    path: str
    run: str
    token: str
    conditions: Conditions


def plain_append(data: bytes, hosts: frozenset[str]) -> Plain | None:
    """What a request asks for, if its head is there, and is that of a plain append; else None.

    Args:
        data: The request, as far as it has come.
        hosts: The names of this server.
    """
    end = data.find(b"\r\n\r\n", 0, LONGEST_HEAD)
    first, *lines = data[: max(end, 0)].split(b"\r\n")
    path = _FIRST_LINE.fullmatch(first)
    found = None if path is None else _headers(lines)
    if path is None or found is None or not _has_small_json(found):
        return None
    token, if_match = found["authorization"], found.get("if-match")
    if_new, epoch = found.get("if-none-match"), found.get("turnledger-epoch")
    if (
        host_name(found["host"]) not in hosts
        or not token.startswith(_BEARER)
        or (if_match is not None and _VERSION.fullmatch(if_match) is None)
        or if_new not in (None, "*")
        or (epoch is not None and _EPOCH.fullmatch(epoch) is None)
    ):
        return None
    expect = None if path[3] is None else "any"
    return Plain(
        end + 4,
        end + 4 + int(found["content-length"]),
        path[1].decode(),
        path[2].decode(),
        token.removeprefix(_BEARER),
        Conditions(if_match, if_new, expect, None if epoch is None else int(epoch)),
    )


def _headers(lines: list[bytes]) -> dict[str, str] | None:
    """The headers by their names, if all are those of a plain request, each once."""
    found: dict[str, str] = {}
    for line in lines:
        parts = _HEADER.fullmatch(line.decode("latin-1"))
        name = "" if parts is None else parts[1].lower()
        if parts is None or name in found or name not in _PLAIN:
            return None
        found[name] = parts[2]
    return found if found.keys() >= _NEEDED else None


def _has_small_json(found: dict[str, str]) -> bool:
    """Whether the body is one that the server buffers for a caller whom it does not know yet."""
    return (
        found["content-type"] == "application/json"
        and NDJSON not in found.get("accept", "")
        and found.get("connection", "keep-alive") == "keep-alive"
        and _SIZE.fullmatch(found["content-length"]) is not None
        and int(found["content-length"]) <= SMALL
    )


class _Done(NamedTuple):
    """What became of an append; without a caller, the route has to say what is wrong."""

    caller: Caller | None = None
    response: Response | None = None
    events: int = 0


class QuickAppends:
    """Answers plain appends.

    Args:
        served: The ledger.
        hosts: The names of this server.
    """

    def __init__(self, served: Served, hosts: frozenset[str]) -> None:
        self._served = served
        self._hosts = hosts

    def head(self, data: bytes) -> Plain | None:
        """The head of the plain append that begins here, or None."""
        return plain_append(data, self._hosts)

    def answer(
        self, head: Plain, request: bytes, answered: Callable[[Response | None], None]
    ) -> None:
        """Answer a whole request; `answered` gets None if the application has to."""
        begun = time.perf_counter()

        def end(future: Future[_Done]) -> None:
            done = _Done() if future.exception() is not None else future.result()
            if done.response is not None:
                self._observe(head, done, time.perf_counter() - begun)
            answered(done.response)

        self._served.work.start_append(lambda: self._append(head, request), end)

    def _append(self, head: Plain, request: bytes) -> _Done:
        caller = self._served.caller_of(head.token)
        if caller is None or not allows(caller.role, "writer"):
            return _Done()
        events, run, body = 0, UUID(head.run), request[head.head_size :]
        try:
            _, answer = append_body(self._served.ledger, run, body, head.conditions)
        except ProblemError as problem:
            response = problem.response()
        except TurnledgerError as error:
            response = ledger_answer(error, "POST", head.path)
        else:
            events = written(answer)
            response = Json(answer, status_of(answer), headers_of(answer))
        message = {"headers": response.raw_headers}
        add_headers(message)
        response.raw_headers = message["headers"]
        return _Done(caller, response, events)

    def _observe(self, head: Plain, done: _Done, seconds: float) -> None:
        assert done.response is not None
        scope: dict[str, Any] = {
            "method": "POST",
            "route": ROUTE,
            "path_params": {"run": head.run},
            CALLER: done.caller,
        }
        metrics = self._served.metrics
        metrics.appended_events += done.events
        observe(metrics, scope, done.response.status_code, len(done.response.body), seconds)
