"""The queue over HTTP: request a run by its agent's name, and claim the next one to work on."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.live.waiting_claims import Asked, WaitingClaims
from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import NEVER, Json, etag
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON, read_struct
from turnledger.adapters.http.protocol.wire import LONGEST_WAIT, ClaimAnswer, Requested
from turnledger.adapters.http.routes.run.claims import DEFAULT_TTL, ClaimKey, Ttl, Worker
from turnledger.adapters.http.served import Served
from turnledger.ledger.ledger import MOST_AGENTS, MOST_EXCLUDED

# Without NUL, which no store can hold.
AgentName = Annotated[str, msgspec.Meta(min_length=1, max_length=512, pattern=r"^[^\u0000]*$")]
Tag = Annotated[str, msgspec.Meta(max_length=512)]


class RunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run to be made: the name of an agent or workflow, and its input as JSON.

    With a `run_id`, the same request may be sent again, and is recorded once.
    """

    agent: AgentName
    input: Any
    run_id: UUID | None = None
    tags: dict[Tag, Tag] = {}


class NextClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agents whose runs a worker takes, and how many seconds it waits for one.

    Of the runs in `exclude` none is given. A worker that has several runs at once needs a name
    for each: asked again under the same name and key, the run that it has is given again.
    """

    agents: Annotated[list[AgentName], msgspec.Meta(min_length=1, max_length=MOST_AGENTS)]
    worker: Worker
    ttl: Ttl = DEFAULT_TTL
    wait: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT)] = 0.0
    exclude: Annotated[list[UUID], msgspec.Meta(max_length=MOST_EXCLUDED)] = []


class Queue:
    """The operations on the queue."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger
        self._waiting = WaitingClaims(served.ledger, served.work)

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        api.add(
            "POST",
            "/v1/requests",
            self.request_run,
            role="writer",
            body={JSON: RunRequest},
            answers={202: Answer("The run is requested", {JSON: Requested})},
            refuses=(
                problems.VERSION_CONFLICT,
                problems.RUN_CLAIMED,
                problems.STREAM_KIND,
                problems.REFUSED,
            ),
        )
        api.add(
            "POST",
            "/v1/claims",
            self.claim_next,
            role="writer",
            body={JSON: NextClaim},
            answers={
                200: Answer("A run is claimed", {JSON: ClaimAnswer}, ("etag",)),
                204: Answer("There is no run to work on", {}),
            },
            refuses=(problems.REFUSED,),
        )

    async def request_run(self, request: Request) -> Response:
        """Request a run of an agent or workflow, for a worker to take.

        The input is checked by the worker, which has the agent's code: one that the agent does
        not take fails the run. With a `run_id`, sending the same request again is safe.
        """
        asked = await read_struct(request, RunRequest)
        run = await self._served.work.append(
            lambda: self._ledger.enqueue(
                asked.agent, asked.input, run_id=asked.run_id, tags=asked.tags
            )
        )
        return Json(Requested(run), 202, NEVER)

    async def claim_next(self, request: Request, key: ClaimKey) -> Response:
        """Claim the oldest run of these agents that was requested or interrupted.

        204 if there is none after `wait` seconds. The claim is that of `POST
        /v1/runs/{run}/claim`, with the same key.
        """
        given = await read_struct(request, NextClaim, is_small=True)
        ttl = timedelta(seconds=given.ttl)
        asked = Asked(tuple(given.agents), tuple(given.exclude), given.worker, ttl, key)
        claim = await self._waiting.next(asked, given.wait, request.is_disconnected)
        if claim is None:
            return Response(status_code=204, headers=NEVER)
        answer = ClaimAnswer(
            UUID(claim.run_id), claim.worker, claim.epoch, claim.version, given.ttl
        )
        return Json(answer, headers={"etag": etag(claim.version), **NEVER})
