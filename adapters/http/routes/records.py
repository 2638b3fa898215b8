"""Shape of a run, and search for text in a run or in the whole ledger."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import FRESH, NEVER, Json, etag, not_modified
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON
from turnledger.adapters.http.protocol.parameters import LARGEST, IfNoneMatch, RunPath
from turnledger.adapters.http.served import Served
from turnledger.projections import search, search_all
from turnledger.projections.records.search import Found

# Seconds that a search takes at most before it answers with what it has.
SECONDS = 5.0
Text: TypeAlias = Annotated[
    str,
    Query(
        min_length=1, max_length=1000, pattern=r"^[^\x00]+$", description="The text to search for."
    ),
]
Hits: TypeAlias = Annotated[int, Query(ge=1, le=200, description="How many at most.")]
Before: TypeAlias = Annotated[
    int | None, Query(ge=0, le=LARGEST, description="`next` of the page before.")
]


class RunShape(msgspec.Struct, frozen=True):
    """One character an event, from version 1 on; the reference of `shape` has what they mean."""

    version: int
    shape: str


class Records:
    """The operations on a run's records as a whole."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        api.add(
            "GET",
            "/v1/runs/{run}/shape",
            self.get_shape,
            role="reader",
            answers={
                200: Answer("The shape", {JSON: RunShape}, ("etag",)),
                304: Answer("Not modified", {}),
            },
            refuses=(problems.RUN_NOT_FOUND,),
        )
        api.add(
            "GET",
            "/v1/runs/{run}/search",
            self.search_run,
            role="reader",
            answers={200: Answer("Events that have the text, newest first", {JSON: Found})},
            refuses=(problems.RUN_NOT_FOUND,),
        )
        api.add(
            "GET",
            "/v1/search",
            self.search_ledger,
            role="reader",
            answers={200: Answer("Events that have the text, newest first", {JSON: Found})},
        )

    async def get_shape(
        self, request: Request, run: RunPath, if_none_match: IfNoneMatch = None
    ) -> Response:
        """Get a run's shape: one character an event, to draw it in one line."""
        found = await self._served.fold(request, lambda ledger: self._served.shapes.of(run))
        tag = etag(found.version)
        answer = RunShape(found.version, found.text)
        return not_modified(tag, if_none_match) or Json(answer, headers={"etag": tag, **FRESH})

    async def search_run(
        self, request: Request, run: RunPath, q: Text, limit: Hits = 50, before: Before = None
    ) -> Response:
        """Search a run's events for text, newest first.

        After five seconds it answers with what it has; `next` is where to go on.
        """
        found = await self._served.fold(
            request,
            lambda ledger: search(ledger, run, q, before=before, limit=limit, seconds=SECONDS),
        )
        return Json(found, headers=NEVER)

    async def search_ledger(
        self, request: Request, q: Text, limit: Hits = 50, before: Before = None
    ) -> Response:
        """Search the events of all runs for text, newest first.

        After five seconds it answers with what it has; `next` is the position to go on from.
        """
        found = await self._served.fold(
            request,
            lambda ledger: search_all(ledger, q, before=before, limit=limit, seconds=SECONDS),
        )
        return Json(found, headers=NEVER)
