"""Spans of random runs: whatever is recorded, what was exported stays, and it can be encoded."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from tests.unit.projections.random_runs import small_world
from turnledger.adapters.telemetry.run_spans import RunSpans
from turnledger.ledger import ANY, NEW, Event, Ledger, RunStarted, new_run_id
from turnledger.telemetry import export_spans

commits = st.lists(
    st.lists(small_world.filter(lambda event: type(event) is not RunStarted), min_size=1),
    min_size=1,
    max_size=8,
)


@settings(max_examples=40)
@given(commits, st.booleans())
def test_an_export_only_ever_adds_to_the_one_before(told: list[list[Event]], content: bool) -> None:
    """After every commit: the same spans again, with the same ids, and those that ended since."""
    run = new_run_id()
    with Ledger.open("memory://") as ledger:
        ledger.append(run, RunStarted(), NEW)
        live = RunSpans(ledger, run, content=content)
        before: list[str] = []
        followed: list[str] = []
        for events in told:
            ledger.append(run, events, ANY)
            spans = export_spans(ledger, run, content=content)
            shown = [span.to_json() for span in spans]
            assert shown[: len(before)] == before
            before = shown
            followed += [span.to_json() for span in live.read_on()]
            assert followed == shown
            assert len({span.context.span_id for span in spans}) == len(spans)
            encode_spans(spans)
