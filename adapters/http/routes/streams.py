"""Event streams: new events of the ledger or of a run, as they are recorded.

`Streams` has the operations; `EventStream` is their response: recorded events first, then what is
broadcast, until the client or the server ends it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Final, TypeAlias

import anyio
from anyio import CancelScope
from fastapi import Header, Query
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnledger.adapters.http.live.history import History, LedgerHistory, RunHistory
from turnledger.adapters.http.live.messages import Message, StreamedRecord
from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.access import NOBODY, Caller, allows
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.parameters import RunPath
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.served import Served
from turnledger.ledger import TurnledgerError
from turnledger.ledger.errors import error_message
from turnledger.ledger.ledger import LAST_POSITION
from turnledger.ledger.redaction.safe_logging import logger_of

log: Final = logger_of("turnledger.http.live")
EVENT_STREAM: Final = "text/event-stream"
# Seconds between comments; at each one the token is checked again.
COMMENT = 15.0
# Seconds for a client to read what is sent, and to send the end of a closed stream.
STALLED, LAST_WORD = 30.0, 1.0
# Milliseconds until a client reconnects.
RETRY = 1000
# Proxies must neither cache nor buffer it.
HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
# Tries to find a position that was just appended, and seconds between them: a concurrent
# transaction may hide it for a moment.
TRIES, PAUSE = 20, 0.1
Position: TypeAlias = Annotated[
    int, Query(ge=0, le=LAST_POSITION, description="Only events above this position.")
]
LastEventId: TypeAlias = Annotated[
    int | None,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=LAST_POSITION,
        description="The position of the client's last event; takes precedence over `after`.",
    ),
]


class Streams:
    """The operations whose answer is an event stream."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        answers = {
            200: Answer("Server-sent events; the data of each", {EVENT_STREAM: StreamedRecord})
        }
        api.add(
            "GET",
            "/v1/stream",
            self.stream_ledger,
            role="reader",
            answers=answers,
            refuses=(problems.NOT_FOUND,),
        )
        api.add(
            "GET",
            "/v1/runs/{run}/stream",
            self.stream_run,
            role="reader",
            answers=answers,
            refuses=(problems.RUN_NOT_FOUND, problems.NOT_FOUND),
        )

    async def stream_ledger(
        self, after: Position = 0, last_event_id: LastEventId = None
    ) -> Response:
        """Follow the ledger: server-sent events of all runs, by position, without end.

        Each message has the position as its id, and a record as one line of JSON. First come the
        recorded events above `after`, then new ones as they are recorded, by any process. A client
        that reconnects with Last-Event-ID misses no event and gets none twice; one that reads
        too slowly is disconnected, and resumes in the same way. A record whose stored text is
        damaged is sent as an event of type `damaged`.
        """
        return await self._stream(LedgerHistory(self._ledger), after, last_event_id)

    async def stream_run(
        self, run: RunPath, after: Position = 0, last_event_id: LastEventId = None
    ) -> Response:
        """Follow a run: server-sent events, with those that it shares with its ancestors.

        As for the whole ledger: the id of a message is the event's position, not its version.
        """
        await self._served.work.read(partial(self._ledger.run, run))
        return await self._stream(RunHistory(self._ledger, str(run)), after, last_event_id)

    async def _stream(self, history: History, after: int, last_event_id: int | None) -> Response:
        start = after if last_event_id is None else last_event_id
        await self._check_position(start)
        return EventStream(self._served, history, start)

    async def _check_position(self, position: int) -> None:
        """Refuse a position of another ledger: all events up to it would be left out."""
        for _ in range(TRIES):
            last = await self._served.work.read(self._ledger.store.last_position) or 0
            if position <= last:
                return
            await anyio.sleep(PAUSE)
        raise ProblemError(
            problems.NOT_FOUND,
            f"The ledger has no position {position}; its last one is {last}. The position is from "
            "another ledger, or from a newer copy of this one: read from the start.",
        )


class EventStream(EventSourceResponse):
    """Messages of the ledger or of a run, as they are recorded, above a position.

    It ends when the client disconnects, is too slow or loses its rights, or the server stops.

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
                pass  # the client does not read; it may reconnect and resume
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
            return True  # the store is unavailable for a moment
        return allows(caller.role, "reader")

    async def _write(self, chunk: bytes) -> None:
        """Send a chunk; TimeoutError if the client does not take it."""
        async with self._writing:
            with anyio.fail_after(STALLED):
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
