"""Health, readiness, metrics and OpenAPI document of the server."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.observe import METRICS_TYPE
from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import FRESH, NEVER, Json
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON
from turnledger.adapters.http.served import Served


class Health(msgspec.Struct, frozen=True):
    """Whether the server works."""

    ok: bool


class Server:
    """The operations on the server."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        answers = {200: Answer("It works", {JSON: Health})}
        api.add("GET", "/healthz", self.is_alive, role="public", answers=answers)
        api.add(
            "GET",
            "/readyz",
            self.is_ready,
            role="public",
            answers=answers,
            refuses=(problems.UNAVAILABLE, problems.BUSY),
        )
        api.add(
            "GET",
            "/openapi.json",
            self.get_document,
            role="reader",
            answers={200: Answer("OpenAPI 3.1", {JSON: {"type": "object"}})},
        )

        api.add(
            "GET",
            "/metrics",
            self.get_metrics,
            role="reader",
            answers={200: Answer("Prometheus text format", {"text/plain": {"type": "string"}})},
        )

    async def is_alive(self) -> Response:
        """Check that the process answers, without asking the store."""
        return Json(Health(True), headers=NEVER)

    async def is_ready(self) -> Response:
        """Check that the store answers."""
        await self._served.work.read(lambda: next(self._served.ledger.runs(limit=1), None))
        return Json(Health(True), headers=NEVER)

    async def get_document(self, request: Request) -> Response:
        """Get this OpenAPI document."""
        return Json(request.app.openapi(), headers=FRESH)

    async def get_metrics(self) -> Response:
        """Get figures for Prometheus: requests by route and status, times, events, streams."""
        text = self._served.metrics.text(open_streams=self._served.slots.taken)
        return Response(text, headers=NEVER, media_type=METRICS_TYPE)
