"""The whole ledger: its records in their order, blobs, and imports."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Annotated, BinaryIO, TypeAlias, cast
from uuid import UUID

import msgspec
from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import (
    FOREVER,
    FRESH,
    NEVER,
    Json,
    NdjsonResponse,
)
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON, NDJSON, media_type
from turnledger.adapters.http.protocol.parameters import LARGEST, After, LimitOrAll
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.protocol.wire import Catalogue, Imported, RecordLine, whole
from turnledger.adapters.http.served import Served
from turnledger.ledger import (
    EventDecodeError,
    ImportConflictError,
    ImportReport,
    IntegrityFailureError,
    InvalidInputError,
    NotAnExportError,
    Record,
    import_runs,
)
from turnledger.ledger.errors import error_message
from turnledger.ledger.runs.record import Columns, as_row

PAGE = 500
DEFAULT = 1000
OCTETS = "application/octet-stream"
# An import is held in memory up to this size, and in a temporary file beyond it.
IN_MEMORY = 1024 * 1024

BlobPath: TypeAlias = Annotated[
    str, Path(pattern="^sha256:[0-9a-f]{64}$", description="The blob's name, `sha256:...`.")
]


class FoundEvent(msgspec.Struct, frozen=True):
    """Where an event is: the run that holds it, its version there, and its position."""

    run_id: str
    version: int
    position: int
    type: str


class WholeLedger:
    """The operations on the ledger as a whole."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        api.add(
            "GET",
            "/v1/events",
            self.tail_events,
            role="reader",
            answers={200: Answer("Records", {NDJSON: RecordLine})},
        )
        api.add(
            "GET",
            "/v1/events/{event_id}",
            self.find_event,
            role="reader",
            answers={200: Answer("Where it is", {JSON: FoundEvent})},
            refuses=(problems.EVENT_NOT_FOUND,),
        )
        api.add(
            "GET",
            "/v1/catalogue",
            self.get_catalogue,
            role="reader",
            answers={200: Answer("The catalogue", {JSON: Catalogue})},
        )
        api.add(
            "GET",
            "/v1/blobs/{hash}",
            self.get_blob,
            role="reader",
            answers={200: Answer("The bytes", {OCTETS: {"type": "string", "format": "binary"}})},
            refuses=(problems.BLOB_NOT_FOUND,),
        )
        api.add(
            "POST",
            "/v1/import",
            self.import_export,
            role="admin",
            body={NDJSON: {"type": "string", "format": "binary"}},
            answers={200: Answer("Imported", {JSON: Imported})},
            refuses=(
                problems.NOT_AN_EXPORT,
                problems.EXPORT_DAMAGED,
                problems.IMPORT_CONFLICT,
                problems.BLOB_NOT_FOUND,
                problems.RUN_CLAIMED,
                problems.REFUSED,
            ),
        )

    async def tail_events(
        self,
        after: After = 0,
        before: Annotated[
            int | None,
            Query(
                ge=0, le=LARGEST, description="Instead of `after`: positions below, newest first."
            ),
        ] = None,
        limit: LimitOrAll = None,
        confirmed: Annotated[
            bool, Query(description="Only what a synchronous standby has confirmed.")
        ] = False,
    ) -> Response:
        """List the records of all runs in the order of their positions, as NDJSON.

        Each is whole, with ids, time and digest. To continue, send the last position as `after`:
        no record is missed or repeated.
        """
        store = self._ledger.store
        rows_after = store.confirmed_rows_after if confirmed else store.rows_after
        start, read = (after, rows_after) if before is None else (before, store.rows_before)
        pages = self._pages(read, start, DEFAULT if limit is None else limit)
        first = await self._served.work.read(lambda: next(pages, []))
        return NdjsonResponse(chain([first], pages), FRESH)

    def _pages(
        self, read: Callable[[int, int], list[Columns]], place: int, left: int
    ) -> Iterator[list[RecordLine]]:
        codec = self._ledger.codec
        while left > 0:
            asked = min(left, PAGE)
            rows = read(place, asked)
            yield [whole(Record(row, codec)) for row in rows]
            if len(rows) < asked:
                return
            place, left = as_row(rows[-1]).position, left - asked

    async def find_event(
        self, event_id: Annotated[UUID, Path(description="The event's id.")]
    ) -> Response:
        """Find an event by its id: its run, version and position."""
        row = await self._served.work.read(lambda: self._ledger.store.row_by_id(str(event_id)))
        if row is None:
            raise ProblemError(problems.EVENT_NOT_FOUND, f"Event {event_id} does not exist.")
        answer = FoundEvent(row.run_id, row.version, row.position, row.tag)
        return Json(answer, headers=FOREVER)

    async def get_catalogue(self) -> Response:
        """Get the event catalogue that the ledger was written with."""
        written = await self._served.work.read(self._ledger.store.written_catalogue)
        return Json(Catalogue(written), headers=FRESH)

    async def get_blob(self, hash: BlobPath) -> Response:  # noqa: A002 - the name in the address
        """Get a blob's bytes, as a download."""
        content = await self._served.work.read(lambda: self._ledger.blob(hash))
        name = hash.removeprefix("sha256:")
        headers = {
            "content-disposition": f'attachment; filename="{name}"',
            "x-content-type-options": "nosniff",
            "etag": f'"{name}"',
            **FOREVER,
        }
        return Response(content, 200, headers, OCTETS)

    async def import_export(self, request: Request) -> Response:
        """Import an export: the whole of it is checked before anything is written.

        Sending it again is safe: records that the ledger has already are skipped.
        """
        media_type(request, (NDJSON, OCTETS))
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
            async for chunk in request.stream():
                file.write(chunk)
            file.seek(0)
            done = await self._served.work.append(
                lambda: _import(self._served, cast(BinaryIO, file))
            )
        names = Imported.__struct_fields__
        return Json(Imported(*(getattr(done, name) for name in names)), headers=NEVER)


def _import(served: Served, file: BinaryIO) -> ImportReport:
    try:
        return import_runs(served.ledger, file)
    except (ImportConflictError, NotAnExportError):
        raise
    except (IntegrityFailureError, EventDecodeError) as error:
        raise ProblemError(problems.EXPORT_DAMAGED, error_message(error)) from None
    except InvalidInputError as error:
        if type(error) is not InvalidInputError:
            raise
        raise ProblemError(problems.NOT_AN_EXPORT, error_message(error)) from None  # a later format
