"""The response that is an event stream: history first, then what is broadcast, without end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio
from anyio import CancelScope
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.types import Receive, Scope, Send

from turnledger.adapters.http.live.history import History
from turnledger.adapters.http.live.messages import Message
from turnledger.adapters.http.protocol.access import NOBODY, Caller, allows
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.served import Served
from turnledger.ledger import TurnledgerError
from turnledger.ledger.errors import error_message

log: Final = logging.getLogger("turnledger.http.live")
# Seconds between comments. At each one it is asked again whether the token is valid.
COMMENT = 15.0
# Seconds for a client to take what is sent to it, and for the last word of a closed stream.
STALLED, LAST_WORD = 30.0, 1.0
# Milliseconds until a client comes back.
RETRY = 1000
# Proxies neither keep nor collect it.
HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


class EventStream(EventSourceResponse):
    """Messages of the ledger or of a run, as they are recorded, above a position.

    It ends when the client goes, is too slow or may not read any more, and when the server stops.

    Args:
        served: The ledger and its broadcast.
        history: What is recorded.
        after: Only messages above this position.
    """

    def __init__(self, served: Served, history: History, after: int) -> None:
        super().__init__(iter(()), headers=HEADERS)
        self._served = served
        self._history = history
        self._position = after
        self._send: Send
        self._writing = anyio.Lock()
        self._check: Callable[[], Awaitable[Caller]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send = send
        self._check = scope.get("turnledger.check")
        caller: Caller = scope.get("turnledger.caller", NOBODY)
        try:
            with self._served.slots.take(caller.id):
                await self._serve(receive)
        except ProblemError as problem:
            await problem.response()(scope, receive, send)

    async def _serve(self, receive: Receive) -> None:
        is_gone = False
        async with anyio.create_task_group() as tasks:
            scope = tasks.cancel_scope

            async def watch() -> None:
                nonlocal is_gone
                while (await receive())["type"] != "http.disconnect":
                    pass
                is_gone = True
                scope.cancel()

            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await self._send(start)
            tasks.start_soon(watch)
            tasks.start_soon(self._keep_in_touch, scope)
            try:
                await self._write(format_sse_event(comment="turnledger", retry=RETRY))
                await self._catch_up()
                await self._follow(scope)
            except TurnledgerError as error:
                log.warning("An event stream ends: %s", error_message(error))
            except TimeoutError:
                pass  # the client does not read; it may come back and resume
            scope.cancel()
        if not is_gone:
            # The end of the body: without it a client can't tell an end from a broken connection.
            with anyio.move_on_after(LAST_WORD):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _catch_up(self) -> None:
        """Send what is recorded, up to about the last position that was broadcast."""
        await self._served.broadcast.begin()
        while not await self._send_page(self._served.broadcast.position):
            pass

    async def _follow(self, scope: CancelScope) -> None:
        """Send what was recorded up to the moment of joining, then what is broadcast."""
        with self._served.broadcast.join(self._history.run, scope.cancel) as queue:
            while not await self._send_page(queue.start):
                pass
            while True:
                await queue.wait()
                await self._send_messages(
                    [one for one in queue.take() if one.position > self._position]
                )

    async def _send_page(self, until: int) -> bool:
        """Send a page of what is recorded; whether it was the last one up to a position."""
        after = self._position
        if after >= until:
            return True
        page = await self._served.work.read(lambda: self._history.page(after, until))
        await self._send_messages(page.messages)
        return page.is_last

    async def _send_messages(self, messages: list[Message]) -> None:
        if messages:
            await self._write(b"".join(one.text() for one in messages))
            self._position = messages[-1].position

    async def _keep_in_touch(self, scope: CancelScope) -> None:
        """Send a comment now and then; end the stream when its token is not valid any more."""
        while True:
            await anyio.sleep(COMMENT)
            if not await self._may_read():
                scope.cancel()
                return
            with suppress(TimeoutError):
                await self._write(KEEPALIVE_COMMENT)

    async def _may_read(self) -> bool:
        try:
            caller = await self._check() if self._check is not None else NOBODY
        except ProblemError:
            return False
        except TurnledgerError:
            return True  # the store is away for a moment
        return allows(caller.role, "reader")

    async def _write(self, chunk: bytes) -> None:
        """Send a chunk; TimeoutError if the client does not take it."""
        async with self._writing:
            with anyio.fail_after(STALLED):
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
