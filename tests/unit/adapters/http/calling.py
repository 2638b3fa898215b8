"""An application over a ledger in memory, and calls of it without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

import httpx

from turnledger.adapters.http.app import App
from turnledger.adapters.http.protocol.access import Role
from turnledger.ledger import NEW, Ledger, RunStarted, Tokens, new_run_id

T = TypeVar("T")


class Api(AbstractContextManager["Api"]):
    """An application and its ledger. `call` sends a request with an admin's token."""

    def __init__(self, **settings: Any) -> None:
        self.ledger = Ledger.open("memory://")
        self.app = App(self.ledger, **settings)
        self.tokens = Tokens(self.ledger)
        self.token = self.token_of("admin")
        self._runner = asyncio.Runner()
        self._transport = httpx.ASGITransport(self.app)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._runner.close()
        self.ledger.close()

    def token_of(self, role: Role) -> str:
        assert role != "public"
        return self.tokens.new(role).text

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def call(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> httpx.Response:
        """The answer to a request; `token=""` sends none."""
        given = self.token if token is None else token
        sent = {"authorization": f"Bearer {given}"} if given else {}
        return self.send(method, path, {**sent, **(headers or {})}, **more)

    def send(self, method: str, path: str, headers: dict[str, str], **more: Any) -> httpx.Response:
        """The answer to a request with exactly these headers beside Host.

        Without a client: to make one takes longer than the request, and it would keep cookies.
        """
        address = httpx.URL("http://localhost").join(path)
        request = httpx.Request(method, address, headers=headers, **more)

        async def sent() -> httpx.Response:
            response = await self._transport.handle_async_request(request)
            await response.aread()
            response.request = request
            return response

        return self.run(sent())

    def new_run(self) -> UUID:
        run = new_run_id()
        self.ledger.append(run, RunStarted(), NEW)
        return run
