"""Export of runs as spans: of one run at once, or live over the whole ledger; and OTLP/JSON."""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from threading import Event as Flag
from typing import Any
from uuid import UUID

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from turnledger.adapters.telemetry.run_spans import RunSpans
from turnledger.ledger import Ledger, Record, TurnledgerError
from turnledger.ledger.arguments import check_arguments
from turnledger.ledger.errors import DAMAGE
from turnledger.ledger.events.types import PROMPT_TAGS
from turnledger.ledger.runs.append_request import RunId, canonical_id

# Records that are read before their spans are exported, at most.
PAGE = 500
# Runs whose spans are held at most: any other is read again when it goes on.
MOST_RUNS = 1_000
_IDS = ("traceId", "spanId", "parentSpanId")
_log = logging.getLogger(__name__)


class SpanExportError(TurnledgerError):
    """An exporter refused spans: `position` is what was exported before, to go on from."""

    def __init__(self, spans: int, position: int) -> None:
        self.spans, self.position = spans, position
        super().__init__(
            f"The exporter refused {spans} spans. Everything up to position {position} was "
            f"exported: go on with watch(ledger, exporter, after={position})."
        )


@check_arguments
def export_spans(
    ledger: Ledger,
    run_id: RunId,
    *,
    content: bool = False,
    resource: Resource | None = None,
) -> list[ReadableSpan]:
    """The spans of a run that have ended, in the order of their ends; the same every time.

    Args:
        ledger: The ledger that has the run.
        run_id: The run.
        content: Add messages, arguments, results and notes to the attributes.
        resource: What the spans are of; by default a service `turnledger`.
    """
    run = UUID(canonical_id(run_id))
    return RunSpans(ledger, run, content=content, resource=resource).read_on()


def otlp_json(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """Spans as the body of an OTLP/HTTP request in JSON (ExportTraceServiceRequest)."""
    # Protobuf's JSON has whole numbers of 64 bits as text, as OTLP wants them.
    body: dict[str, Any] = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for resource in body.get("resourceSpans", ()):
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for one in (span, *span.get("links", ())):
                    # OTLP has ids in hexadecimal, unlike Protobuf's JSON.
                    one.update({name: b64decode(one[name]).hex() for name in _IDS if name in one})
    return body


@check_arguments
def watch(
    ledger: Ledger,
    exporter: SpanExporter,
    *,
    after: int = 0,
    follow: bool = True,
    stop: Flag | None = None,
    content: bool = False,
    resource: Resource | None = None,
) -> Iterator[int]:
    """Export the spans of all runs as they end, in any process; yield positions to go on from.

    A position is yielded when all spans that ended up to there were exported. A watch that starts
    again with the last one misses none; those that it exports a second time have the same ids.

        for position in watch(ledger, exporter, after=saved):
            save(position)

    A run with a damaged record is left out from there on, with a warning in the log.

    Args:
        ledger: The ledger to watch.
        exporter: Any exporter of OpenTelemetry. It is not shut down.
        after: The position to go on from; 0 is the beginning of the ledger.
        follow: Wait for more. Otherwise it ends with the last record.
        stop: Ends a watch when it is set.
        content: Add messages, arguments, results and notes to the attributes.
        resource: What the spans are of; by default a service `turnledger`.

    Raises:
        SpanExportError: The exporter refused spans.
    """
    runs = _Runs(ledger, content, resource)
    for page in _pages(ledger, after, follow, stop):
        spans = runs.ended(page)
        if spans and exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise SpanExportError(len(spans), after)
        after = page[-1].position
        yield after


class _PageEnd(Flag):
    """Ends a follower with the page that it has; or when the watch is stopped."""

    def __init__(self, stop: Flag | None) -> None:
        super().__init__()
        self._stop = stop

    def is_set(self) -> bool:
        return super().is_set() or (self._stop is not None and self._stop.is_set())


def _pages(ledger: Ledger, after: int, follow: bool, stop: Flag | None) -> Iterator[list[Record]]:
    """All records after a position, page by page as they come."""
    while stop is None or not stop.is_set():
        end = _PageEnd(stop)
        page: list[Record] = []
        for record in islice(ledger.tail(after, follow=follow, stop=end, page_size=PAGE), PAGE):
            end.set()
            page.append(record)
        if page:
            after = page[-1].position
            yield page
        elif not follow:
            return


class _Runs:
    """The spans of the runs that a watch has seen, the last seen last."""

    def __init__(self, ledger: Ledger, content: bool, resource: Resource | None) -> None:
        self._ledger = ledger
        self._content = content
        self._resource = resource
        self._known: dict[str, RunSpans | None] = {}

    def ended(self, page: Iterable[Record]) -> list[ReadableSpan]:
        """The spans that ended with a page's commits.

        Each run is read to its end, not to the page's: so no commit is read by halves.
        """
        first: dict[str, int] = {}
        for record in page:
            if record.tag not in PROMPT_TAGS:
                first.setdefault(record.run_key, record.version)
        return [span for run, version in first.items() for span in self._spans_of(run, version)]

    def _spans_of(self, run: str, version: int) -> list[ReadableSpan]:
        try:
            # Of a run that is seen for the first time, what ended before was exported before.
            after = 0 if run in self._known else version - 1
            spans = self._known.pop(run) if run in self._known else self._made(run)
            found = spans.read_on(after=after) if spans is not None else []
        except DAMAGE as error:
            _log.warning("The spans of run %s are left out: %s", run, error)
            spans, found = None, []
        self._known[run] = spans
        if len(self._known) > MOST_RUNS:
            del self._known[next(iter(self._known))]
        return found

    def _made(self, run: str) -> RunSpans:
        return RunSpans(self._ledger, UUID(run), content=self._content, resource=self._resource)
