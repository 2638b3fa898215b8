"""Inspection of runs: verify, export, lineage, blame, and calls in doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
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
    NdjsonResponse,
    accepts_lines,
    etag,
    next_page,
)
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON, NDJSON
from turnledger.adapters.http.protocol.cut import Cut, cut_fields, plain_fields
from turnledger.adapters.http.protocol.parameters import (
    AtOrLast,
    CutLarge,
    Limit,
    RunPath,
    StatePointer,
)
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.routes.run.events import ShownEvent, shown
from turnledger.adapters.http.served import Served
from turnledger.ledger import InvalidInputError, Ledger, RunInfo, export_runs
from turnledger.ledger.errors import DAMAGE, error_message
from turnledger.ledger.integrity.verify import Report, verifying_run
from turnledger.ledger.runs.index import RunStatus
from turnledger.projections import PendingTools, blame, fold
from turnledger.projections.projection import as_json

CHUNK = 64 * 1024
IN_MEMORY = 1024 * 1024


class Damage(msgspec.Struct, frozen=True):
    """The first damaged record of a run, or damage outside of runs (`run_id` is then empty)."""

    run_id: str
    version: int | None
    position: int | None
    event_id: str | None
    what: str


class Verified(msgspec.Struct, frozen=True):
    """What a verification found; `ok` if there are no `problems`."""

    ok: bool
    runs: int
    records: int
    blobs: int
    problems: list[Damage]
    notes: list[str]


class VerifyLine(msgspec.Struct, frozen=True):
    """How many records a verification has looked at, and of how many; the last has the report."""

    records: int | msgspec.UnsetType = msgspec.UNSET
    of: int | msgspec.UnsetType = msgspec.UNSET
    report: Verified | msgspec.UnsetType = msgspec.UNSET


class Ancestor(msgspec.Struct, frozen=True):
    """A run, and the versions of it that the requested run consists of."""

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
    cut: list[Cut] | msgspec.UnsetType = msgspec.UNSET


class Inspect:
    """The operations that inspect whole runs."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        missing = (problems.RUN_NOT_FOUND, problems.EVENT_NOT_FOUND, problems.NOT_FOUND)

        def get(path: str, endpoint: Callable[..., Any], answer: Answer) -> None:
            api.add("GET", path, endpoint, role="reader", answers={200: answer}, refuses=missing)

        verified = Answer("The report", {JSON: Verified, NDJSON: VerifyLine})
        get("/v1/runs/{run}/verify", self.verify_run, verified)
        export = Answer("The export, as `turnledger import` reads it", {NDJSON: {}})
        get("/v1/runs/{run}/export", self.export_run, export)
        lineage = Answer("The runs that it is made of", {JSON: Lineage}, ("etag",))
        get("/v1/runs/{run}/lineage", self.get_lineage, lineage)
        blamed = Answer("The event that last set it", {JSON: ShownEvent})
        get("/v1/runs/{run}/blame", self.blame_value, blamed)
        get("/v1/doubts", self.list_doubts, Answer("Calls that have not ended", {JSON: Doubts}))

    async def verify_run(self, request: Request, run: RunPath) -> Response:
        """Verify a run: recompute its digests, and those of its ancestors.

        With `Accept: application/x-ndjson` lines say how far it is, and the last has the report.
        """
        if not accepts_lines(request):
            found = await self._served.fold(request, lambda ledger: ledger.verify(run))
            return Json(_verified(found), headers=NEVER)
        steps = self._verifying(run)
        first = await self._served.work.read(lambda: next(steps))
        # Each step runs in a thread; after the client has disconnected, no further one runs.
        return NdjsonResponse(([step] for step in chain((first,), steps)), NEVER)

    def _verifying(self, run: UUID) -> Iterator[VerifyLine]:
        store, name = self._ledger.store, str(run)
        row = store.run(name)
        total = row.version if row is not None and isinstance(row.version, int) else 0
        is_begun = False
        for step in verifying_run(store, self._ledger.codec, name):
            if not is_begun:
                yield VerifyLine(0, total)
                is_begun = True
            if isinstance(step, int):
                yield VerifyLine(step, max(total, step))
            else:
                yield VerifyLine(report=_verified(step))

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
        pointer: StatePointer,
        at: AtOrLast = None,
        is_cut: CutLarge = False,
    ) -> Response:
        """Find the event that last set a value of the state."""
        try:
            record = await self._served.cancellable(
                request,
                lambda gone: blame(
                    self._ledger,
                    run,
                    pointer,
                    at=at,
                    moments=self._served.moments,
                    cancelled=gone.is_set,
                ),
            )
        except InvalidInputError as error:  # the pointer is well formed, and names nothing
            raise ProblemError(problems.NOT_FOUND, error_message(error)) from None
        return Json(shown(record, is_cut), headers=FRESH if at is None else FOREVER)

    async def list_doubts(
        self,
        request: Request,
        limit: Limit = 50,
        before: Annotated[
            UUID | None, Query(description="Only runs after this one in the list.")
        ] = None,
        status: Annotated[
            RunStatus, Query(description="Only calls of runs with this status.")
        ] = "waiting",
        is_cut: CutLarge = False,
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
        made = Doubts(doubts, damaged, following)
        if is_cut:
            plain: Any = [plain_fields(one) for one in doubts]
            answer = msgspec.structs.replace(made, doubts=plain)
            made = await self._served.work.read(lambda: cut_fields(answer, "doubts"))
        return Json(made, headers=NEVER)


def _verified(found: Report) -> Verified:
    return Verified(
        found.ok,
        found.runs,
        found.records,
        found.blobs,
        [Damage(**msgspec.structs.asdict(problem)) for problem in found.problems],
        list(found.notes),
    )


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
