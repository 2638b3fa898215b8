"""Runs looked into: verify, export, lineage, compare, blame, and calls in doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any
from uuid import UUID

import msgspec
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import (
    FOREVER,
    FRESH,
    NEVER,
    Json,
    RecordLine,
    etag,
    next_page,
    whole,
)
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON, NDJSON
from turnledger.adapters.http.protocol.parameters import AtOrLast, Limit, RunPath
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.served import Served
from turnledger.ledger import InvalidInputError, Ledger, Problem, RunInfo, export_runs
from turnledger.ledger.errors import DAMAGE, error_message
from turnledger.ledger.runs.index import RunStatus
from turnledger.projections import Comparison, PendingTools, blame, compare, fold
from turnledger.projections.projection import as_json
from turnledger.projections.run_state.state import built_in

OPEN: tuple[RunStatus, ...] = ("waiting", "running", "failed", "parked")
# A JSON Pointer that begins with a view.
POINTER = f"^/({'|'.join(view.name for view in built_in())})(/([^~/]|~[01])*)*$"
CHUNK = 64 * 1024
IN_MEMORY = 1024 * 1024


class Verified(msgspec.Struct, frozen=True):
    """What a verification found; without `problems` all is well."""

    ok: bool
    runs: int
    records: int
    blobs: int
    problems: list[Problem]
    notes: list[str]


class Ancestor(msgspec.Struct, frozen=True):
    """A run, and the versions that the asked one reads of it."""

    run: RunInfo
    after: int
    until: int


class Lineage(msgspec.Struct, frozen=True):
    """The runs that a run is made of, the oldest first and itself last."""

    runs: list[Ancestor]


class Doubt(msgspec.Struct, frozen=True):
    """A tool call that has not ended: in doubt, waiting for approval, or running."""

    run_id: UUID
    status: RunStatus
    version: int
    call: dict[str, Any]


class Doubts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Calls that have not ended; `next` is the address of more, if there are more runs."""

    doubts: list[Doubt]
    damaged: dict[str, str] = {}
    next: str = ""


class Inspect:
    """The operations that look into runs as a whole."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        missing = (problems.RUN_NOT_FOUND, problems.EVENT_NOT_FOUND, problems.NOT_FOUND)

        def get(path: str, endpoint: Callable[..., Any], answer: Answer) -> None:
            api.add("GET", path, endpoint, role="reader", answers={200: answer}, refuses=missing)

        get("/v1/runs/{run}/verify", self.verify_run, Answer("The report", {JSON: Verified}))
        export = Answer("The export, as `turnledger import` reads it", {NDJSON: {}})
        get("/v1/runs/{run}/export", self.export_run, export)
        lineage = Answer("The runs that it is made of", {JSON: Lineage}, ("etag",))
        get("/v1/runs/{run}/lineage", self.get_lineage, lineage)
        blamed = Answer("The event that last set it", {JSON: RecordLine})
        get("/v1/runs/{run}/blame", self.blame_value, blamed)
        get("/v1/compare", self.compare_runs, Answer("What differs", {JSON: Comparison}))
        get("/v1/doubts", self.list_doubts, Answer("Calls that have not ended", {JSON: Doubts}))

    async def verify_run(self, request: Request, run: RunPath) -> Response:
        """Verify a run: recompute its digests, and those of its ancestors."""
        found = await self._served.fold(request, lambda ledger: ledger.verify(run))
        report = Verified(
            found.ok,
            found.runs,
            found.records,
            found.blobs,
            list(found.problems),
            list(found.notes),
        )
        return Json(report, headers=NEVER)

    async def export_run(self, request: Request, run: RunPath) -> Response:
        """Export a run with its ancestors, byte for byte as `turnledger export` writes it."""

        def export(ledger: Ledger) -> IO[bytes]:
            out: IO[bytes] = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - sent below
            try:
                export_runs(ledger, out, [run])  # type: ignore[arg-type]
            except BaseException:
                out.close()
                raise
            out.seek(0)
            return out

        out = await self._served.fold(request, export)
        name = {"content-disposition": f'attachment; filename="{run}.jsonl"'}
        return StreamingResponse(_chunks(out), headers={**name, **NEVER}, media_type=NDJSON)

    async def get_lineage(self, run: RunPath) -> Response:
        """Get the runs that a run is made of: its ancestors, and itself."""

        def ancestors() -> list[Ancestor]:
            found, until = [], 0
            current: RunInfo | None = self._ledger.run(run)
            while current is not None:
                after, end = current.parent_version, until or current.version
                if after < end:
                    found.append(Ancestor(current, after, end))
                until = min(after, end)
                current = self._ledger.run(current.parent) if current.parent and until else None
            return found[::-1]

        runs = await self._served.work.read(ancestors)
        return Json(Lineage(runs), headers={"etag": etag(runs[-1].run.version), **FRESH})

    async def blame_value(
        self,
        request: Request,
        run: RunPath,
        pointer: Annotated[
            str,
            Query(
                max_length=2000,
                pattern=POINTER,
                description="A JSON Pointer into the state: `/usage/total/calls`.",
            ),
        ],
        at: AtOrLast = None,
    ) -> Response:
        """Find the event that last set a value of the state."""
        try:
            record = await self._served.fold(
                request,
                lambda ledger: blame(
                    ledger, run, pointer, at=at, declarations=self._served.declarations
                ),
            )
        except InvalidInputError as error:  # the pointer is well formed, and names nothing
            raise ProblemError(problems.NOT_FOUND, error_message(error)) from None
        return Json(whole(record), headers=FRESH if at is None else FOREVER)

    async def compare_runs(
        self,
        request: Request,
        a: Annotated[UUID, Query(description="A run.")],
        b: Annotated[UUID, Query(description="Another run.")],
    ) -> Response:
        """Compare the events of two runs: what is the same, changed, or in one of them only."""
        found = await self._served.fold(request, lambda ledger: compare(ledger, a, b))
        return Json(found, headers=FRESH)

    async def list_doubts(
        self,
        request: Request,
        limit: Limit = 50,
        before: Annotated[UUID | None, Query(description="Only runs after it in the list.")] = None,
        status: Annotated[RunStatus, Query(description="Of runs with it.")] = "waiting",
    ) -> Response:
        """List tool calls that have not ended, of the runs with a status, newest first."""
        damaged: dict[str, str] = {}

        def found(ledger: Ledger) -> tuple[list[Doubt], list[RunInfo]]:
            runs = list(
                islice(
                    ledger.runs(
                        status=status,
                        before=None if before is None else ledger.run(before),
                        limit=limit + 1,
                        on_damage=lambda run, error: damaged.update({run: error_message(error)}),
                    ),
                    limit + 1,
                )
            )
            return list(_doubts(ledger, runs[:limit], damaged)), runs

        doubts, runs = await self._served.fold(request, found)
        following = ""
        if len(runs) > limit:
            following = next_page(request, before=runs[limit - 1].run_id)
        return Json(Doubts(doubts, damaged, following), headers=NEVER)


def _doubts(ledger: Ledger, runs: list[RunInfo], damaged: dict[str, str]) -> Iterator[Doubt]:
    for info in runs:
        try:
            calls = fold(ledger.read(info.run_id), PendingTools()).pending()
        except DAMAGE as error:
            damaged[str(info.run_id)] = error_message(error)
            continue
        for call in calls:
            yield Doubt(info.run_id, info.status, info.version, as_json(call))


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK):
            yield chunk
