"""Access: who may call, from where, and with which role.

Checked for every request, on loopback too. The Host header must name this server, which stops DNS
rebinding; Origin and Sec-Fetch-Site, if present, must name this site. An absent header skips no
check: with a cookie, a request that changes something must have one of those two.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from fastapi import Depends
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.problems import ProblemError

Role: TypeAlias = Literal["public", "reader", "writer", "admin"]
# From the least rights to the most: each has those of the roles before it.
ROLES: Final = get_args(Role)
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE: Final = "turnledger"
# A cookie counts only with this header, which no form and no other site's page can send.
COOKIE_HEADER: Final = "x-turnledger"
CALLER: Final = "turnledger.caller"
HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
_RAW_HEADERS: Final = tuple((name.encode(), value.encode()) for name, value in HEADERS.items())
_EXPOSED: Final = "etag, location, retry-after"


class Caller(NamedTuple):
    """Who sent a request: the id of its token or session, and its role."""

    id: str
    role: Role


NOBODY: Final = Caller("", "public")
# Finds the caller of a token, or of a session's secret; None if it is invalid.
Who: TypeAlias = Callable[[str], Awaitable[Caller | None]]


def allows(role: Role, needed: Role) -> bool:
    """Whether a caller with a role may do what needs another."""
    return ROLES.index(role) >= ROLES.index(needed)


def require(role: Role) -> Any:
    """A dependency that refuses callers with a lower role."""

    async def check(request: Request) -> None:
        caller: Caller = request.scope.get(CALLER, NOBODY)
        if allows(caller.role, role):
            return
        if caller is NOBODY:
            raise ProblemError(
                problems.UNAUTHORIZED,
                "The request has no token.",
                headers={"www-authenticate": "Bearer"},
            )
        raise ProblemError(
            problems.FORBIDDEN, f"The token has the role {caller.role}; this needs {role}."
        )

    return Depends(check)


class Guard:
    """ASGI middleware: refuses other hosts and origins.

    Args:
        app: The application behind it.
        hosts: Names that the server is called by, without ports, in lower case.
        origins: Other sites whose pages may call with a token, as `https://host`.
        any_scheme: Whether its own pages may have either scheme: behind a proxy that has TLS.
        is_document: Whether a path is an address of the page, which says nothing of the ledger.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str],
        origins: Iterable[str] = (),
        any_scheme: bool = False,
        is_document: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._origins = frozenset(origins)
        self._any_scheme = any_scheme
        self._is_document = is_document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # not supported
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        sent = _with_headers(send, origin if origin in self._origins else "")
        try:
            self._check_host(headers)
            self._check_origin(scope, headers)
            if origin in self._origins and _is_preflight(scope, headers):
                await _preflight()(scope, receive, sent)
                return
        except ProblemError as problem:
            await problem.response()(scope, receive, sent)
            return
        await self._app(scope, receive, sent)

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or host_name(hosts[0]) not in self._hosts:
            raise ProblemError(problems.HOST_REFUSED, "The Host header names another server.")

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        origins = headers.getlist("origin")
        if len(origins) > 1:
            raise ProblemError(problems.ORIGIN_REFUSED, "There are several Origin headers.")
        if origins and origins[0] in self._origins:
            return
        schemes = ("http", "https") if self._any_scheme else (scope["scheme"],)
        own = {f"{scheme}://{headers['host'].lower()}" for scheme in schemes}
        if origins and origins[0] not in own:
            raise ProblemError(problems.ORIGIN_REFUSED, "The Origin header names another site.")
        if self._is_document(scope["path"]) and _is_link(scope, headers):
            return
        # "none" is an address that a person typed, or a program.
        if any(site not in ("none", "same-origin") for site in headers.getlist("sec-fetch-site")):
            raise ProblemError(problems.ORIGIN_REFUSED, "Sec-Fetch-Site names another site.")


class Identify:
    """ASGI middleware: finds out who calls, and refuses tokens and cookies that are not valid.

    Args:
        app: The application behind it.
        token: Finds the caller of a bearer token.
        session: Finds the caller of a session's cookie.
    """

    def __init__(self, app: ASGIApp, *, token: Who, session: Who) -> None:
        self._app = app
        self._token = token
        self._session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            scope[CALLER] = await self._caller(scope, headers)
        except ProblemError as problem:
            await problem.response()(scope, receive, send)
            return
        # For answers that never end: whether the token is still valid.
        scope["turnledger.check"] = partial(self._caller, scope, headers)
        await self._app(scope, receive, send)

    async def _caller(self, scope: Scope, headers: Headers) -> Caller:
        if "authorization" in headers:
            return await self._bearer(headers)
        cookies = _cookies(headers)
        if not cookies or headers.get(COOKIE_HEADER) != "1":
            return NOBODY
        caller = await self._session(cookies[0]) if len(cookies) == 1 else None
        if caller is None:
            raise ProblemError(
                problems.UNAUTHORIZED,
                "The session has ended. Open the link that the server prints when it starts.",
                headers={"www-authenticate": "Bearer"},
            )
        told = "origin" in headers or "sec-fetch-site" in headers
        if scope["method"] not in SAFE and not told:
            raise ProblemError(
                problems.ORIGIN_REFUSED,
                "With a cookie, a request that changes something has an Origin or Sec-Fetch-Site "
                "header.",
            )
        return caller

    async def _bearer(self, headers: Headers) -> Caller:
        given = headers.getlist("authorization")
        scheme, _, token = given[0].partition(" ")
        bearer = len(given) == 1 and scheme.lower() == "bearer"
        caller = await self._token(token.strip()) if bearer else None
        if caller is None:
            raise ProblemError(
                problems.UNAUTHORIZED,
                "The token is not valid: unknown, expired or revoked.",
                headers={"www-authenticate": 'Bearer error="invalid_token"'},
            )
        return caller


def _cookies(headers: Headers) -> list[str]:
    """The session cookies of a request: more than one if another site has put one there."""
    pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
    return [value for name, _, value in pairs if name == COOKIE]


def _is_link(scope: Scope, headers: Headers) -> bool:
    """Whether a person came by a link, of any site, to a page of its own in the browser."""
    if scope["method"] not in ("GET", "HEAD") or "origin" in headers:
        return False
    whole = headers.get("sec-fetch-dest") == "document"
    return whole and headers.get("sec-fetch-mode") == "navigate"


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    return scope["method"] == "OPTIONS" and "access-control-request-method" in headers


def _preflight() -> Response:
    allowed = {
        "access-control-allow-methods": "GET, POST, DELETE",
        "access-control-allow-headers": (
            "authorization, content-type, accept, if-match, if-none-match, last-event-id, "
            "turnledger-epoch, turnledger-claim-key"
        ),
        "access-control-max-age": "600",
    }
    return Response(status_code=204, headers=allowed)


def _with_headers(send: Send, origin: str) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            add_headers(message, origin)
        await send(message)

    return sent


def add_headers(message: MutableMapping[str, Any], origin: str = "") -> None:
    """Add the headers that every answer has; `origin` is another site's that may read it."""
    headers = MutableHeaders(scope=message)
    given = {name for name, _ in headers.raw}
    headers.raw.extend(one for one in _RAW_HEADERS if one[0] not in given)
    headers.add_vary_header("origin")
    if origin:
        headers["access-control-allow-origin"] = origin
        headers["access-control-expose-headers"] = _EXPOSED
        headers["cross-origin-resource-policy"] = "cross-origin"


_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")


def host_name(host: str) -> str:
    """The name of a Host header, without its port and in lower case; "" if it is malformed."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower().removesuffix(".") if found else ""
