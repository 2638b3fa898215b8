"""Runs: list them, and get one."""

from __future__ import annotations

from itertools import islice
from typing import Annotated
from uuid import UUID

import msgspec
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import (
    FRESH,
    Json,
    accepts_lines,
    etag,
    lines,
    next_page,
    not_modified,
)
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON, NDJSON
from turnledger.adapters.http.protocol.parameters import IfNoneMatch, Limit, RunPath
from turnledger.adapters.http.protocol.wire import RunLine, run_line
from turnledger.adapters.http.routes.index.facets import Facets, facets
from turnledger.adapters.http.routes.index.run_details import RunDetail, RunDetails
from turnledger.adapters.http.routes.index.run_filter import FilterQuery
from turnledger.adapters.http.served import Served
from turnledger.ledger import RunInfo, RunNotFoundError
from turnledger.ledger.errors import error_message
from turnledger.ledger.runs.index import RunRow


class RunPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of runs; `next` is the address of the next one, if there are more.

    `damaged` are runs whose row in the index can't be read, with the reason. `details` are there
    if they were asked for, by run.
    """

    runs: list[RunInfo]
    damaged: dict[str, str] = {}
    next: str = ""
    details: dict[str, RunDetail] | msgspec.UnsetType = msgspec.UNSET


class Runs:
    """The operations on runs."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger
        self._details = RunDetails(served.ledger, served.work)

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        api.add(
            "GET",
            "/v1/runs",
            self.list_runs,
            role="reader",
            answers={200: Answer("Runs, the newest first", {JSON: RunPage, NDJSON: RunLine})},
            refuses=(problems.RUN_NOT_FOUND,),
        )
        api.add(
            "GET",
            "/v1/facets",
            self.get_facets,
            role="reader",
            answers={200: Answer("The values that runs have, counted", {JSON: Facets})},
        )
        api.add(
            "GET",
            "/v1/runs/{run}",
            self.get_run,
            role="reader",
            answers={
                200: Answer("The run", {JSON: RunInfo, NDJSON: RunLine}, ("etag",)),
                304: Answer("Not modified", {}),
            },
            refuses=(problems.RUN_NOT_FOUND,),
        )

    async def list_runs(
        self,
        request: Request,
        wanted: FilterQuery,
        before: Annotated[
            UUID | None, Query(description="Only runs after this one in the list.")
        ] = None,
        limit: Limit = 50,
        details: Annotated[
            bool, Query(description="With tokens, worker and a small shape of each run.")
        ] = False,
    ) -> Response:
        """List runs, the newest first, in pages by key.

        With `Accept: application/x-ndjson` the rows of the index are given as they are stored.
        """
        if accepts_lines(request):
            rows = await self._served.work.read(
                lambda: wanted.rows(
                    self._ledger, None if before is None else self._row(before), limit
                )
            )
            return Response(lines(map(run_line, rows)), 200, FRESH, NDJSON)
        damaged: dict[str, str] = {}

        def page() -> list[RunInfo]:
            found = wanted.runs(
                self._ledger,
                before=None if before is None else self._ledger.run(before),
                page_size=limit + 1,
                on_damage=lambda run, error: damaged.update({run: error_message(error)}),
            )
            return list(islice(found, limit + 1))

        runs = await self._served.work.read(page)
        shown = runs[:limit]
        following = ""
        if len(runs) > limit:
            following = next_page(request, before=shown[-1].run_id)
        answer = RunPage(shown, damaged, following)
        if details:
            found_details = await self._details.of(shown)
            answer = msgspec.structs.replace(answer, details=found_details)
        return Json(answer, headers=FRESH)

    async def get_facets(self, wanted: FilterQuery) -> Response:
        """Count the values that runs have: statuses, agents, prompts and tags.

        Of the newest 10,000 runs, the 50 most frequent values of each.
        """
        return Json(
            await self._served.work.read(lambda: facets(wanted, self._ledger)), headers=FRESH
        )

    async def get_run(
        self, request: Request, run: RunPath, if_none_match: IfNoneMatch = None
    ) -> Response:
        """Get a run's entry in the index: status, version, tags, times.

        With `Accept: application/x-ndjson` it is the row as it is stored.
        """
        if accepts_lines(request):
            row = await self._served.work.read(lambda: self._row(run))
            return Response(lines([run_line(row)]), 200, FRESH, NDJSON)
        info = await self._served.work.read(lambda: self._ledger.run(run))
        tag = etag(info.version)
        return not_modified(tag, if_none_match) or Json(info, headers={"etag": tag, **FRESH})

    def _row(self, run: UUID) -> RunRow:
        row = self._ledger.store.run(str(run))
        if row is None:
            raise RunNotFoundError(str(run))
        return row
