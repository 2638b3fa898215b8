"""Observation of requests: figures for Prometheus and one line of log for each.

Neither holds a token, a body, or a value of a query. A route is named by its pattern, so that
what a client writes into an address is in no figure, and no figure grows with the runs.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnledger.adapters.http.protocol.access import CALLER, NOBODY, Caller

log: Final = logging.getLogger("turnledger.http.requests")
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# The upper bounds of the histogram, in seconds.
BOUNDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER: Final = "other"
# The client went away before there was an answer.
GONE: Final = 499
EVENT_STREAM: Final = b"text/event-stream"


class Metrics:
    """Figures of a server since its start. They are kept in the event loop alone."""

    def __init__(self) -> None:
        self.appended_events = 0
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._seconds: Counter[str] = Counter()

    def answered(self, method: str, route: str, status: int) -> None:
        """Count an answer."""
        self._requests[method, route, status] += 1

    def took(self, route: str, seconds: float) -> None:
        """Count how long an answer took."""
        self._buckets[route][bisect_left(BOUNDS, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def text(self, *, open_streams: int) -> str:
        """The figures in Prometheus' text format.

        Args:
            open_streams: How many event streams are open.
        """
        requests = (
            ({"method": method, "route": route, "status": str(status)}, count)
            for (method, route, status), count in sorted(self._requests.items())
        )
        return "".join(
            (
                *_family("http_requests_total", "counter", "Answered requests.", requests),
                *self._histogram(),
                *_family("http_open_streams", "gauge", "Open event streams.", [({}, open_streams)]),
                *_family(
                    "appended_events_total",
                    "counter",
                    "Events that POST /v1/runs/{run}/events recorded.",
                    [({}, self.appended_events)],
                ),
            )
        )

    def _histogram(self) -> Iterator[str]:
        name = "http_request_duration_seconds"
        yield from _family(name, "histogram", "Time to the end of an answer.", ())
        for route, buckets in sorted(self._buckets.items()):
            count = 0
            for bound, more in zip((*BOUNDS, "+Inf"), buckets, strict=True):
                count += more
                yield _sample(f"{name}_bucket", {"route": route, "le": str(bound)}, count)
            yield _sample(f"{name}_sum", {"route": route}, round(self._seconds[route], 6))
            yield _sample(f"{name}_count", {"route": route}, count)


def _family(
    name: str, kind: str, said: str, samples: Iterable[tuple[dict[str, str], float]]
) -> Iterator[str]:
    yield f"# HELP turnledger_{name} {said}\n# TYPE turnledger_{name} {kind}\n"
    for labels, value in samples:
        yield _sample(name, labels, value)


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    """One line; labels are patterns of routes and numbers, which need no escapes."""
    inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"turnledger_{name}{{{inside}}} {value}\n" if inside else f"turnledger_{name} {value}\n"


class Observe:
    """ASGI middleware that counts, times and logs requests.

    Args:
        app: The application.
        metrics: Where they are counted.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status, size, streams = GONE, 0, False

        async def observed(message: Message) -> None:
            nonlocal status, size, streams
            if message["type"] == "http.response.start":
                status = message["status"]
                streams = _is_stream(message)
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, observed)
        finally:
            seconds = time.perf_counter() - begun
            observe(self._metrics, scope, status, size, seconds, streams=streams)


def observe(
    metrics: Metrics,
    scope: Scope,
    status: int,
    size: int,
    seconds: float,
    *,
    streams: bool = False,
) -> None:
    """Count, time and log an answered request.

    Args:
        metrics: Where it is counted.
        scope: The request, with its route and its caller if they are known.
        status: The answer's status.
        size: Bytes of the answer's body.
        seconds: How long it took.
        streams: Whether it is an event stream.
    """
    method = scope["method"] if scope["method"] in METHODS else OTHER
    route = getattr(scope.get("route"), "path", OTHER)
    metrics.answered(method, route, status)
    if not streams:  # how long a client stays says nothing about the server
        metrics.took(route, seconds)
    if log.isEnabledFor(logging.INFO):
        line = _line(scope, method, route, status, seconds, size)
        log.info("%s", msgspec.json.encode(line).decode())


def _is_stream(start: Message) -> bool:
    return any(
        name == b"content-type" and value.startswith(EVENT_STREAM)
        for name, value in start.get("headers", ())
    )


def _line(
    scope: Scope, method: str, route: str, status: int, seconds: float, size: int
) -> dict[str, Any]:
    caller: Caller = scope.get(CALLER, NOBODY)
    line: dict[str, Any] = {
        "method": method,
        "route": route,
        "status": status,
        "ms": round(seconds * 1000, 1),
        "bytes": size,
    }
    if caller.id:
        line["caller"] = caller.id
    # A run's id and nothing else that may stand in its place.
    with suppress(ValueError, AttributeError, TypeError):
        line["run"] = str(UUID(scope.get("path_params", {}).get("run")))
    return line
