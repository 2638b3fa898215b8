"""Claims over HTTP: one worker at a time for a run, for workers on other machines.

A lease taken over HTTP has no process behind it: its holder is the worker's claim key, so that a
crash of the server frees no run. It ends by expiry or release.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, TypeAlias
from uuid import UUID

import msgspec
from fastapi import Header
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import NEVER, Json, etag
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON, read_struct
from turnledger.adapters.http.protocol.envelopes import BlobContent
from turnledger.adapters.http.protocol.parameters import LARGEST, RunPath
from turnledger.adapters.http.protocol.wire import ClaimAnswer, Holder
from turnledger.adapters.http.served import Served
from turnledger.ledger import Claim, Draft, RunStarted
from turnledger.ledger.clock import LAST_MOMENT, to_datetime
from turnledger.ledger.ledger import LONGEST_TTL
from turnledger.ledger.runs.claims import LONGEST_KEY, SHORTEST_KEY

DEFAULT_TTL = 60.0
MOST_BLOBS = 1000

ClaimKey: TypeAlias = Annotated[
    str,
    Header(
        alias="Turnledger-Claim-Key",
        min_length=SHORTEST_KEY,
        max_length=LONGEST_KEY,
        pattern="^[!-~]*$",
        description="A secret of this worker, the same for claim, heartbeat and release.",
    ),
]
Worker: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
Ttl: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_TTL.total_seconds())]


class FirstEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run's first event, as in an append."""

    # Not a tag, which the decoder wants only where several types are possible.
    type: Literal["run.started"]
    data: RunStarted
    event_id: UUID | None = None


class ClaimRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker that claims a run, and for how many seconds.

    With `started`, its first event, the run is started in the same transaction: no other worker
    can claim it in between. `blobs` are the bytes that this event names.
    """

    worker: Worker
    ttl: Ttl = DEFAULT_TTL
    started: FirstEvent | None = None
    blobs: Annotated[list[BlobContent], msgspec.Meta(max_length=MOST_BLOBS)] = []


class HeartbeatRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The claim to prolong, and for how many seconds from now."""

    worker: Worker
    epoch: Epoch
    ttl: Ttl = DEFAULT_TTL


class ReleaseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The claim to release."""

    worker: Worker
    epoch: Epoch


class Claims:
    """The operations on claims."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        body = ()
        api.add(
            "POST",
            "/v1/runs/{run}/claim",
            self.claim_run,
            role="writer",
            body={JSON: ClaimRequest},
            answers={200: Answer("The run is claimed", {JSON: ClaimAnswer}, ("etag",))},
            refuses=(
                *body,
                problems.RUN_NOT_FOUND,
                problems.BLOB_NOT_FOUND,
                problems.RUN_CLAIMED,
                problems.VERSION_CONFLICT,
                problems.ID_CONFLICT,
                problems.STREAM_KIND,
                problems.FORK_POINT,
                problems.REFUSED,
            ),
        )
        api.add(
            "GET",
            "/v1/runs/{run}/claim",
            self.get_claim,
            role="reader",
            answers={200: Answer("The worker that has the run", {JSON: Holder})},
        )
        api.add(
            "POST",
            "/v1/runs/{run}/heartbeat",
            self.prolong_claim,
            role="writer",
            body={JSON: HeartbeatRequest},
            answers={204: Answer("The claim is prolonged", {})},
            refuses=(
                *body,
                problems.RUN_NOT_FOUND,
                problems.RUN_CLAIMED,
                problems.STALE_EPOCH,
            ),
        )
        api.add(
            "POST",
            "/v1/runs/{run}/release",
            self.release_claim,
            role="writer",
            body={JSON: ReleaseRequest},
            answers={204: Answer("The claim is released", {})},
            refuses=(*body, problems.RUN_NOT_FOUND),
        )

    async def claim_run(self, request: Request, run: RunPath, key: ClaimKey) -> Response:
        """Claim a run: become its only worker.

        The same worker with the same claim key may send it again, which prolongs the claim and
        gives the same epoch. The claim ends by expiry or release, and not when this server or the
        worker dies.
        """
        asked = await read_struct(request, ClaimRequest)
        claim = await self._served.work.append(lambda: self._claim(run, asked, key))
        answer = ClaimAnswer(run, claim.worker, claim.epoch, claim.version, asked.ttl)
        return Json(answer, headers={"etag": etag(claim.version), **NEVER})

    def _claim(self, run: UUID, asked: ClaimRequest, key: str) -> Claim:
        ttl = timedelta(seconds=asked.ttl)
        if asked.started is None:
            return self._ledger.claim(run, worker=asked.worker, ttl=ttl, key=key)
        given = asked.started
        first = given.data if given.event_id is None else Draft(given.data, given.event_id)
        blobs = [one.content for one in asked.blobs]
        return self._ledger.begin(run, first, worker=asked.worker, ttl=ttl, key=key, blobs=blobs)

    async def prolong_claim(self, request: Request, run: RunPath, key: ClaimKey) -> Response:
        """Prolong a claim."""
        asked = await read_struct(request, HeartbeatRequest, is_small=True)
        ttl = timedelta(seconds=asked.ttl)
        await self._served.work.append(
            lambda: self._resumed(run, asked.worker, asked.epoch, key, ttl).heartbeat()
        )
        return Response(status_code=204, headers=NEVER)

    async def release_claim(self, request: Request, run: RunPath, key: ClaimKey) -> Response:
        """Release a claim. It succeeds as well if the worker no longer has the run."""
        asked = await read_struct(request, ReleaseRequest, is_small=True)
        await self._served.work.append(
            lambda: self._resumed(run, asked.worker, asked.epoch, key, timedelta(0)).release()
        )
        return Response(status_code=204, headers=NEVER)

    def _resumed(self, run: UUID, worker: str, epoch: int, key: str, ttl: timedelta) -> Claim:
        return self._ledger.resume_claim(run, worker=worker, epoch=epoch, key=key, ttl=ttl)

    async def get_claim(self, run: RunPath) -> Response:
        """Get the worker that has a run."""
        return Json(await self._served.work.append(lambda: self._holder(run)), headers=NEVER)

    def _holder(self, run: UUID) -> Holder:
        lease = self._ledger.store.lease(str(run))
        if lease is None:
            return Holder(False)
        is_live = self._ledger.worker_of(run) == lease.worker
        return Holder(
            is_live, lease.worker, lease.epoch, to_datetime(min(lease.expires_at, LAST_MOMENT))
        )
