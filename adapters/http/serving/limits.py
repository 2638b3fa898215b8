"""Limits of requests that the application does not set: size and time of bodies.

Two ASGI middlewares. The number of event streams is limited where they are made
(`live`); here they are only ended, when the server stops.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Task
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.access import HEADERS
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.serving.settings import Limits

GONE: Message = {"type": "http.disconnect"}
STREAM_TYPE = b"text/event-stream"


def refusal(problem: ProblemError) -> Response:
    """The answer to a request that the application never sees, or sees only the beginning of."""
    response = problem.response()
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


class LimitBodies:
    """Middleware that limits bodies of requests: 413, 408, and 503 for all of them together.

    After a refusal the application gets a disconnect, and what it still sends is dropped.

    Args:
        app: The application.
        limits: Those of bodies are used.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self.limits = limits
        self.held = 0  # bytes of all bodies under way

    def have_room(self, size: int) -> bool:
        """Whether a request of this size, which is counted as far as it came, is within limits."""
        return size <= self.limits.body_bytes and self.held <= self.limits.bodies_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        announced = _announced(scope) if scope["type"] == "http" else 0
        if announced == 0:
            await self._app(scope, receive, send)
            return
        body = _Body(self, scope, receive, send)
        if announced is not None and announced > self.limits.body_bytes:
            await body.refuse(_too_large(self.limits))
            return
        try:
            await self._app(scope, body.receive, body.send)
        except Exception:
            if not body.is_refused:
                raise
        finally:
            self.held -= body.size


def _announced(scope: Scope) -> int | None:
    """The size of a body by the headers: 0 if there is none, None if they don't say."""
    found: int | None = 0
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":  # the server has checked that it is one number
            found = int(value)
    return found


def _too_large(limits: Limits) -> ProblemError:
    return ProblemError(
        problems.TOO_LARGE,
        f"The body of a request has at most {limits.body_bytes} bytes.",
        limit=limits.body_bytes,
    )


class _Body:
    """The body of one request, as the application receives it, and its answer."""

    def __init__(self, shared: LimitBodies, scope: Scope, receive: Receive, send: Send) -> None:
        self._shared = shared
        self._scope = scope
        self._receive = receive
        self._send = send
        self._begun: float | None = None
        self._is_whole = self._is_answered = self.is_refused = False
        self.size = 0

    async def send(self, message: Message) -> None:
        if not self.is_refused:
            self._is_answered = True
            await self._send(message)

    async def receive(self) -> Message:
        if self.is_refused:
            return GONE
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline()):
                message = await self._receive()
        except TimeoutError:
            detail = f"The body came too slowly: {self.size} bytes until now."
            return await self.refuse(ProblemError(problems.TOO_SLOW, detail))
        self._is_whole = not message.get("more_body", False)
        return await self._count(message)

    def _deadline(self) -> float:
        if self._begun is None:
            self._begun = asyncio.get_running_loop().time()
        limits = self._shared.limits
        return self._begun + limits.body_seconds + self.size / limits.body_rate

    async def _count(self, message: Message) -> Message:
        size = len(message.get("body", b""))
        self.size += size
        self._shared.held += size
        limits = self._shared.limits
        if self.size > limits.body_bytes:
            return await self.refuse(_too_large(limits))
        if self._shared.held > limits.bodies_bytes:
            return await self.refuse(
                full("The requests under way exceed the server's limit of bytes.")
            )
        return message

    async def refuse(self, problem: ProblemError) -> Message:
        """Answer with a problem; an answer under way is left unfinished."""
        self.is_refused = True
        if not self._is_answered:
            await refusal(problem)(self._scope, self._receive, self._send)
        return GONE


def full(detail: str) -> ProblemError:
    """The problem of a server that is at a limit."""
    return ProblemError(problems.SERVER_FULL, detail, headers={"retry-after": "1"})


class EndStreams:
    """Middleware that ends event streams when the server stops, without an error.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open: set[Task[Any]] = set()
        self._is_ending = False

    def end(self) -> None:
        """End all streams, and those that begin after this."""
        self._is_ending = True
        for task in self._open:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        task = asyncio.current_task()
        assert task is not None  # what is awaited runs in one

        async def watched(message: Message) -> None:
            await send(message)
            if _begins_stream(message):
                self._open.add(task)
                if self._is_ending:
                    task.cancel()

        try:
            await self._app(scope, receive, watched)
        except CancelledError:
            if not self._is_ending or task not in self._open:
                raise
            task.uncancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._open.discard(task)


def _begins_stream(message: Message) -> bool:
    return message["type"] == "http.response.start" and any(
        name.lower() == b"content-type" and value.lower().startswith(STREAM_TYPE)
        for name, value in message.get("headers", ())
    )
