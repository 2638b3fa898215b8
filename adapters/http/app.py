"""The application: an ASGI app that serves a ledger over HTTP."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnledger.adapters.http.observe import Observe
from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.access import Guard, Identify
from turnledger.adapters.http.protocol.api import Api
from turnledger.adapters.http.protocol.document import document
from turnledger.adapters.http.protocol.problems import ProblemError, ledger_answer
from turnledger.adapters.http.routes.compare import Comparisons
from turnledger.adapters.http.routes.index.runs import Runs
from turnledger.adapters.http.routes.inspect import Inspect
from turnledger.adapters.http.routes.ledger import WholeLedger
from turnledger.adapters.http.routes.queue import Queue
from turnledger.adapters.http.routes.records import Records
from turnledger.adapters.http.routes.run.claims import Claims
from turnledger.adapters.http.routes.run.decisions import Decisions
from turnledger.adapters.http.routes.run.events import Events
from turnledger.adapters.http.routes.run.forks import Forks
from turnledger.adapters.http.routes.run.quick_append import QuickAppends
from turnledger.adapters.http.routes.run.states import States
from turnledger.adapters.http.routes.run.values import Values
from turnledger.adapters.http.routes.server import Server
from turnledger.adapters.http.routes.session import SessionRoutes
from turnledger.adapters.http.routes.streams import Streams
from turnledger.adapters.http.served import Served
from turnledger.adapters.http.work import ClientGoneError
from turnledger.adapters.web import Page
from turnledger.ledger import Ledger, TurnledgerError

GONE: Final = 499
# Names of this machine for itself.
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_STATUS: Final = {404: problems.NOT_FOUND, 405: problems.METHOD_NOT_ALLOWED}


class App(Guard):
    """An ASGI application that serves a ledger, and the page that shows it.

    Args:
        ledger: The ledger; it stays open.
        hosts: Names that the server is called by, beside those of this machine.
        origins: Other sites whose pages may call with a token, as `https://host`.
        any_scheme: Whether its own pages may have either scheme: behind a proxy that has TLS.

    Attributes:
        quick: Answers plain appends in place of the application, for `serve`.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        any_scheme: bool = False,
    ) -> None:
        self.served = Served(ledger)
        self.routes, self.api = _routes(self.served)
        page = Page()
        identified = Identify(
            self.routes, token=self.served.caller, session=self.served.sessions.caller
        )
        names = frozenset({*LOOPBACK, *(host.lower().strip("[]") for host in hosts)})
        self.quick = QuickAppends(self.served, names)
        super().__init__(
            _AnswerErrors(_PageFirst(page, identified)),
            hosts=names,
            origins=origins,
            any_scheme=any_scheme,
            is_document=page.is_document,
        )
        self._observed = Observe(super().__call__, self.served.metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._observed(scope, receive, send)

    def document(self) -> dict[str, Any]:
        """The API's document, OpenAPI 3.1."""
        return self.routes.openapi()


class _AnswerErrors:
    """ASGI: errors outside of the routes, such as a token that can't be looked up, as problems."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def sent(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except TurnledgerError as error:
            if has_begun:
                raise
            answer = await _ledger_error(Request(scope), error)
            await answer(scope, receive, send)
        except Exception as error:
            if not has_begun:  # else a route has answered it
                answer = await _unexpected(Request(scope), error)
                await answer(scope, receive, send)
            raise  # uvicorn logs it


class _PageFirst:
    """ASGI: the page's files, and the API for all else."""

    def __init__(self, page: Page, api: ASGIApp) -> None:
        self._page = page
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._page.answer(scope) if scope["type"] == "http" else None
        await (answer or self._api)(scope, receive, send)


def _routes(served: Served) -> tuple[FastAPI, Api]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await served.broadcast.close()
        await served.work.close()

    app = FastAPI(
        title="Turnledger",
        version="1",
        description="An append-only, event-sourced ledger for LLM agent runs.",
        openapi_url=None,  # served by a route of its own, with a role
        redirect_slashes=False,
        lifespan=lifespan,
    )
    api = Api(app)
    groups = (
        Server(served),
        SessionRoutes(served),
        Runs(served),
        Events(served),
        Claims(served),
        Queue(served),
        Forks(served),
        Decisions(served),
        WholeLedger(served),
        Records(served),
        States(served),
        Values(served),
        Inspect(served),
        Comparisons(served),
        Streams(served),
    )
    for group in groups:
        group.add_to(api)
    described = cache(lambda: document(app, api))
    app.openapi = described  # type: ignore[method-assign]
    app.add_exception_handler(ProblemError, _problem)
    app.add_exception_handler(TurnledgerError, _ledger_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientGoneError, _gone)
    app.add_exception_handler(ClientDisconnect, _gone)  # in the middle of a body
    app.add_exception_handler(Exception, _unexpected)
    return app, api


async def _problem(request: Request, error: Any) -> Response:
    response: Response = error.response()
    return response


async def _ledger_error(request: Request, error: Any) -> Response:
    return ledger_answer(error, request.method, request.url.path)


async def _invalid(request: Request, error: Any) -> Response:
    errors = [
        {"parameter": str(one["loc"][-1]), "in": str(one["loc"][0]), "detail": one["msg"]}
        for one in error.errors()
    ]
    said = "; ".join(f"{one['parameter']}: {one['detail']}" for one in errors)
    return ProblemError(problems.INVALID, said, errors=errors).response()


async def _http_error(request: Request, error: Any) -> Response:
    kind = _STATUS.get(error.status_code, problems.BAD_REQUEST)
    headers = dict(error.headers or {})
    if kind is problems.METHOD_NOT_ALLOWED:  # of all routes with this path, not of the first alone
        headers["allow"] = ", ".join(_methods(request))
    return ProblemError(kind, str(error.detail), headers=headers).response()


def _methods(request: Request) -> list[str]:
    routes = (route for route in request.app.routes if isinstance(route, APIRoute))
    found = (route for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    return sorted({method for route in found for method in route.methods or ()})


async def _gone(request: Request, error: Any) -> Response:
    return Response(status_code=GONE)


async def _unexpected(request: Request, error: Exception) -> Response:
    # uvicorn logs the traceback. It may hold what an event holds, so the answer has its id alone.
    error_id = secrets.token_hex(8)
    error.add_note(f"Error {error_id}: {request.method} {request.url.path}")
    detail = f"The server failed: error {error_id}. The server's log has the reason under this id."
    return ProblemError(problems.INTERNAL, detail).response()
