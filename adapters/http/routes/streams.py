"""Event streams: new events of the ledger or of a run, as they are recorded."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, TypeAlias

import anyio
from fastapi import Header, Query
from starlette.responses import Response

from turnledger.adapters.http.live.history import History, LedgerHistory, RunHistory
from turnledger.adapters.http.live.messages import StreamedRecord
from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.parameters import RunPath
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.routes.event_stream import EventStream
from turnledger.adapters.http.served import Served
from turnledger.ledger.ledger import LAST_POSITION

EVENT_STREAM: Final = "text/event-stream"
# How often, and how many seconds apart, it is asked for a position that was just appended: a
# transaction beside it may hide it for a moment.
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
        description="The position of the last event that the client has; it goes before `after`.",
    ),
]


class Streams:
    """The operations that never end."""

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
        that comes back with Last-Event-ID misses nothing and gets nothing twice; one that reads
        too slowly is closed, and resumes in the same way. A record whose stored text is damaged
        comes as an event of type `damaged`.
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
            f"The ledger has no position {position}; its last one is {last}. It is another ledger, "
            "or an older copy of it: read it from its start.",
        )
