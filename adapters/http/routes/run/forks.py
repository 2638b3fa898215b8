"""Forks and continuations: start a run from a version of another one."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from uuid import UUID

import msgspec
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import FRESH, NEVER, Json, etag
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON, read_struct
from turnledger.adapters.http.protocol.envelopes import ITEM, MOST_EVENTS, sorted_batch
from turnledger.adapters.http.protocol.parameters import LARGEST, RunPath
from turnledger.adapters.http.protocol.wire import AppendedEvents
from turnledger.adapters.http.routes.run.events import appended
from turnledger.adapters.http.served import Served
from turnledger.ledger import NEW, ForkPointError, StreamKindError
from turnledger.ledger.errors import error_message
from turnledger.ledger.runs.append import fork_point
from turnledger.ledger.runs.lineage import first_of_child

# The run's own first event is one of the batch.
Items: TypeAlias = Annotated[list[ITEM], msgspec.Meta(max_length=MOST_EVENTS - 1)]


class ForkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new run: its id, the parent's version that it goes on from, and how.

    `kind` is "fork" for a run that shares the parent's events up to there, or "continuation" for
    one that begins with its session state. `events` are appended to the new run in the same
    transaction; blobs that they name stand among them, as in an append.
    """

    child: UUID
    at: Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
    kind: Literal["fork", "continuation"] = "fork"
    tags: dict[str, str] = {}
    events: Items = []


class ForkPoint(msgspec.Struct, frozen=True):
    """Whether a run can begin at a version of another one.

    If not, `reason` says why, and `before` and `after` are the nearest versions where it can, as
    far as there are any.
    """

    at: int
    allowed: bool
    reason: str
    before: int | None
    after: int | None


class Forks:
    """The operations that fork and continue runs."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        api.add(
            "GET",
            "/v1/runs/{run}/fork",
            self.get_fork_point,
            role="reader",
            answers={200: Answer("Whether a run can begin there", {JSON: ForkPoint})},
            refuses=(problems.RUN_NOT_FOUND,),
        )
        api.add(
            "POST",
            "/v1/runs/{run}/fork",
            self.fork_run,
            role="writer",
            body={JSON: ForkRequest},
            answers={
                201: Answer("The new run", {JSON: AppendedEvents}, ("etag",)),
                200: Answer("Started before, by the same request", {JSON: AppendedEvents}),
            },
            refuses=(
                problems.RUN_NOT_FOUND,
                problems.BLOB_NOT_FOUND,
                problems.VERSION_CONFLICT,
                problems.RUN_CLAIMED,
                problems.ID_CONFLICT,
                problems.STREAM_KIND,
                problems.FORK_POINT,
                problems.REFUSED,
            ),
        )

    async def get_fork_point(
        self,
        run: RunPath,
        at: Annotated[int, Query(ge=1, le=LARGEST, description="A version of the run.")],
    ) -> Response:
        """Find out whether a fork can begin at a version, and where the nearest ones can."""
        found = await self._served.work.read(lambda: self._point(run, at))
        return Json(found, headers=FRESH)

    def _point(self, run: UUID, at: int) -> ForkPoint:
        try:
            fork_point(self._ledger.store, str(run), at)
        except ForkPointError as error:
            return ForkPoint(
                at,
                False,
                error_message(error),
                max((one for one in error.nearest if one < at), default=None),
                min((one for one in error.nearest if one > at), default=None),
            )
        except StreamKindError as error:
            return ForkPoint(at, False, error_message(error), None, None)
        return ForkPoint(at, True, "", None, None)

    async def fork_run(self, request: Request, run: RunPath) -> Response:
        """Start a run from a version of this one, which is not changed.

        The caller chooses the new run's id. Sending the same request again is safe, if its
        `events` have ids: it is answered with 200.
        """
        asked = await read_struct(request, ForkRequest)
        done = await self._served.work.append(lambda: self._fork(run, asked))
        headers = {"etag": etag(done.version), **NEVER}
        return Json(done, 200 if done.duplicate else 201, headers)

    def _fork(self, run: UUID, asked: ForkRequest) -> AppendedEvents:
        parent = self._ledger.run(run)
        first = first_of_child(parent, asked.at, asked.kind, asked.child, asked.tags)
        more, blobs = sorted_batch(asked.events)
        done = self._ledger.append(asked.child, [first, *more], NEW, blobs=blobs)
        return appended(asked.child, done, [first, *more])
