"""Spans of every golden history: encoded by the official encoder, in words of the conventions."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as semconv
from opentelemetry.semconv.attributes import error_attributes, http_attributes

from tests.replay.recording import HISTORIES, opened
from turnledger.adapters.telemetry import conventions
from turnledger.ledger import Ledger, export_runs, import_runs
from turnledger.telemetry import export_spans, otlp_json

FILES = sorted(HISTORIES.rglob("*.jsonl"))
NAMES = [str(path.relative_to(HISTORIES)) for path in FILES]
KNOWN = {name for name in vars(semconv).values() if isinstance(name, str)}
IDS = ("traceId", "spanId", "parentSpanId")


def spans_of(path: Path, *, content: bool) -> Iterator[tuple[Ledger, UUID, list[ReadableSpan]]]:
    """Each run of a history, and its spans."""
    with opened(path.read_bytes()) as ledger:
        for run in ledger.runs():
            yield ledger, run.run_id, export_spans(ledger, run.run_id, content=content)


def request_of(body: dict[str, Any]) -> ExportTraceServiceRequest:
    """What a collector reads in OTLP/JSON: Protobuf's JSON, but for ids, which are hexadecimal."""
    given = json.loads(json.dumps(body))
    for resource in given.get("resourceSpans", ()):
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for one in (span, *span.get("links", ())):
                    for name in one.keys() & {*IDS}:
                        assert len(one[name]) == (32 if name == "traceId" else 16)
                        one[name] = b64encode(bytes.fromhex(one[name])).decode()
    return ParseDict(given, ExportTraceServiceRequest())


@pytest.mark.parametrize("content", [False, True], ids=["plain", "content"])
@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_the_spans_of_a_golden_run_are_what_a_collector_reads(path: Path, content: bool) -> None:
    """The JSON means what the official encoder makes of the spans; a second export is the same."""
    for ledger, run, spans in spans_of(path, content=content):
        body = otlp_json(spans)
        assert spans
        assert request_of(body) == encode_spans(spans)
        numbers = json.dumps(body)
        assert '"kind": "' not in numbers  # enums are numbers
        assert '"startTimeUnixNano": "' in numbers  # 64 bits are text
        again = otlp_json(export_spans(ledger, run, content=content))
        assert json.dumps(again) == json.dumps(body)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_every_attribute_is_one_of_the_conventions_or_ours(path: Path) -> None:
    """A `gen_ai.` name is in the installed conventions; so are operations, errors and statuses."""
    others = {error_attributes.ERROR_TYPE, http_attributes.HTTP_RESPONSE_STATUS_CODE}
    operations = {one.value for one in semconv.GenAiOperationNameValues}
    for _, _, spans in spans_of(path, content=True):
        for span in spans:
            assert span.attributes is not None
            found = {*span.attributes}
            for part in (*span.events, *span.links):
                found |= {*(part.attributes or {})}
            assert {name for name in found if name.startswith("gen_ai.")} <= KNOWN
            ours = {name for name in found if name.startswith("turnledger.")}
            assert found - ours <= KNOWN | others
            operation = span.attributes.get(conventions.OPERATION)
            assert operation in operations or span.name == "run.parked"


def test_every_name_of_the_conventions_that_we_have_is_known_there() -> None:
    """Also those that no golden run has; and so are the names of providers."""
    names = [value for value in vars(conventions).values() if isinstance(value, str)]
    names += conventions.TOKENS.values()
    assert {name for name in names if name.startswith("gen_ai.")} <= KNOWN
    providers = {one.value for one in semconv.GenAiProviderNameValues}
    assert {*conventions.PROVIDERS.values()} <= providers


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_spans_make_one_tree_with_the_times_of_the_record(path: Path) -> None:
    """Ids are unique, a parent is a span of the same run, and no time is made up."""
    for ledger, run, spans in spans_of(path, content=False):
        times = {record.commit * 1000 for record in ledger.read(run)}
        ids = {span.context.span_id for span in spans}
        assert len(ids) == len(spans)
        for span in spans:
            assert UUID(int=span.context.trace_id) == run
            assert span.parent is None or span.parent.span_id in ids
            assert {span.start_time, span.end_time} <= times
            assert (span.start_time or 0) <= (span.end_time or 0)
            assert {event.timestamp for event in span.events} <= times


def test_an_export_is_the_same_from_another_ledger() -> None:
    """Ids and times follow from the events: an imported run has the spans that it had."""
    with opened((HISTORIES / "fork.jsonl").read_bytes()) as ledger:
        out = BytesIO()
        export_runs(ledger, out)
        with Ledger.open("memory://") as other:
            import_runs(other, BytesIO(out.getvalue()))
            for run in ledger.runs():
                one, two = (otlp_json(export_spans(x, run.run_id)) for x in (ledger, other))
                assert one == two
