"""Runs: list them, and look at one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from fastapi import Query
from pydantic import Field
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
from turnledger.adapters.http.protocol.parameters import TEXT, IfNoneMatch, Limit, Moment, RunPath
from turnledger.adapters.http.protocol.wire import RunLine, run_line
from turnledger.adapters.http.served import Served
from turnledger.ledger import RunInfo, RunNotFoundError
from turnledger.ledger.clock import to_micros
from turnledger.ledger.errors import error_message
from turnledger.ledger.events.types import AGENT_TAG
from turnledger.ledger.runs.append_request import id_ends
from turnledger.ledger.runs.index import RunRow, RunStatus
from turnledger.ledger.stores.base import RunQuery


class RunPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of runs; `next` is the address of the next one, if there are more.

    `damaged` are runs whose row in the index can't be read, with the reason.
    """

    runs: list[RunInfo]
    damaged: dict[str, str] = {}
    next: str = ""


class Runs:
    """The operations on runs."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger

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
            "/v1/runs/{run}",
            self.get_run,
            role="reader",
            answers={
                200: Answer("The run", {JSON: RunInfo, NDJSON: RunLine}, ("etag",)),
                304: Answer("The client has it", {}),
            },
            refuses=(problems.RUN_NOT_FOUND,),
        )

    async def list_runs(
        self,
        request: Request,
        status: Annotated[RunStatus | None, Query(description="Only runs with it.")] = None,
        tag: Annotated[
            list[Annotated[str, Field(pattern=TEXT)]] | None,
            Query(max_length=20, description="Only runs with this tag, `key=value` or `key`."),
        ] = None,
        prompt: Annotated[
            str | None,
            Query(max_length=1100, pattern=TEXT, description="Only runs of this prompt, `ns/key`."),
        ] = None,
        agent: Annotated[
            str | None, Query(max_length=512, pattern=TEXT, description="Only runs of this agent.")
        ] = None,
        id: Annotated[  # noqa: A002 - the name in the address
            str | None,
            Query(pattern="^-?([0-9A-Fa-f]-?){1,32}$", description="How its id begins or ends."),
        ] = None,
        since: Annotated[Moment | None, Query(description="Started then or later.")] = None,
        until: Annotated[Moment | None, Query(description="Started before.")] = None,
        before: Annotated[UUID | None, Query(description="Only runs after it in the list.")] = None,
        limit: Limit = 50,
        kind: Annotated[
            Literal["run", "prompt"], Query(description="Runs, or streams of prompts.")
        ] = "run",
    ) -> Response:
        """List runs, the newest first, in pages by key.

        With `Accept: application/x-ndjson` the rows of the index are given as they are stored.
        """
        damaged: dict[str, str] = {}
        agents = [] if agent is None else [f"{AGENT_TAG}={agent}"]
        tags = _tags([*(tag or ()), *agents])
        if tags is None:
            none = Json(RunPage([]), headers=FRESH)
            return Response(b"", 200, FRESH, NDJSON) if accepts_lines(request) else none

        def rows() -> list[RunRow]:
            last = None if before is None else self._row(before)
            query = RunQuery(
                status=status,
                prompt=prompt,
                prompts=kind == "prompt",
                tags=tuple(tags.items()),
                since=None if since is None else to_micros(since),
                until=None if until is None else to_micros(until),
                before=None if last is None else (last.started_at, last.run_id),
                ends=None if id is None else id_ends(id),
                limit=limit,
            )
            return self._ledger.store.list_runs(query)

        if accepts_lines(request):
            found = await self._served.work.read(rows)
            return Response(lines(map(run_line, found)), 200, FRESH, NDJSON)

        def page() -> list[RunInfo]:
            found = self._ledger.runs(
                status=status,
                tags=tags,
                prompt=prompt,
                id_part=id,
                since=since,
                until=until,
                before=None if before is None else self._ledger.run(before),
                page_size=limit + 1,
                kind=kind,
                on_damage=lambda run, error: damaged.update({run: error_message(error)}),
            )
            return list(islice(found, limit + 1))

        runs = await self._served.work.read(page)
        shown = runs[:limit]
        following = ""
        if len(runs) > limit:
            following = next_page(request, before=shown[-1].run_id)
        return Json(RunPage(shown, damaged, following), headers=FRESH)

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


def _tags(given: Iterable[str]) -> dict[str, str | None] | None:
    """The tags that a run must have, all of them; None if no run can: two values of one key."""
    tags: dict[str, str | None] = {}
    for text in given:
        key, equals, value = text.partition("=")
        known = tags.get(key)
        if equals and known not in (None, value):
            return None
        tags[key] = value if equals else known
    return tags
