"""Browser sessions: exchange a one-time code for a cookie, get the caller, end the session."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.access import CALLER, COOKIE, NOBODY, Role
from turnledger.adapters.http.protocol.answers import NEVER, Json
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON, read_struct
from turnledger.adapters.http.protocol.parameters import FromPage
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.protocol.sessions import SESSION_SECONDS
from turnledger.adapters.http.served import Served


class OneTimeCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The code of the link that the server prints when it starts."""

    code: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Session(msgspec.Struct, frozen=True):
    """The caller: the id of its token or session, and its role."""

    id: str
    role: Role


class SessionRoutes:
    """The operations on browser sessions."""

    def __init__(self, served: Served) -> None:
        self._sessions = served.sessions

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        api.add(
            "POST",
            "/v1/session",
            self.begin_session,
            role="public",
            body={JSON: OneTimeCode},
            answers={200: Answer("A session; its cookie is set", {JSON: Session})},
            refuses=(problems.UNAUTHORIZED,),
        )
        api.add(
            "GET",
            "/v1/session",
            self.get_session,
            role="reader",
            answers={200: Answer("The caller", {JSON: Session})},
        )
        api.add(
            "DELETE",
            "/v1/session",
            self.end_session,
            role="reader",
            answers={204: Answer("The session is ended, if it was one", {})},
        )

    async def begin_session(self, request: Request, page: FromPage) -> Response:
        """Exchange a one-time code for a session's cookie."""
        given = await read_struct(request, OneTimeCode, is_small=True)
        made = self._sessions.exchange(given.code)
        if made is None:
            raise ProblemError(
                problems.UNAUTHORIZED,
                "Invalid code: a code is valid for one minute, once. Start the server again.",
                headers={"www-authenticate": "Bearer"},
            )
        secret, role = made
        caller = await self._sessions.caller(secret)
        response = Json(Session(caller.id if caller else "", role), headers=NEVER)
        response.set_cookie(
            COOKIE,
            secret,
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    async def get_session(self, request: Request) -> Response:
        """Get the caller: the id and the role of its token or session."""
        caller = request.scope.get(CALLER, NOBODY)
        return Json(Session(caller.id, caller.role), headers=NEVER)

    async def end_session(self, request: Request) -> Response:
        """End the session of the cookie. A token stays valid."""
        self._sessions.end(request.scope.get(CALLER, NOBODY).id)
        response = Response(status_code=204, headers=NEVER)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response
