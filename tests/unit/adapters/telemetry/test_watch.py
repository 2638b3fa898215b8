"""Live export: each span when it has ended, with the ids of an export, from any position."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.e2e.driving import tamper
from tests.replay.recording import HISTORIES, opened
from tests.unit.adapters.telemetry.telling import conversation, tell
from turnledger.adapters.telemetry import export
from turnledger.ledger import Ledger, RunCompleted, RunStarted, import_runs
from turnledger.telemetry import SpanExportError, export_spans, watch

PATIENCE = 30.0


def shown(spans: Sequence[ReadableSpan]) -> list[str]:
    return sorted(span.to_json() for span in spans)


def exported(ledger: Ledger) -> list[str]:
    """The spans of all runs, one export after the other."""
    return shown([span for run in ledger.runs() for span in export_spans(ledger, run.run_id)])


def watched(ledger: Ledger, after: int = 0) -> tuple[list[str], list[int]]:
    """The spans that a watch gives, and the positions that it yields."""
    exporter = InMemorySpanExporter()
    positions = list(watch(ledger, exporter, after=after, follow=False))
    return shown(exporter.get_finished_spans()), positions


@pytest.fixture
def golden() -> Iterator[Ledger]:
    """A ledger with several golden histories, prompts among them."""
    with opened((HISTORIES / "fork.jsonl").read_bytes()) as ledger:
        for name in ("parked-and-abandoned", "overridden-prompt", "in-doubt-and-decided", "chat"):
            import_runs(ledger, BytesIO((HISTORIES / f"{name}.jsonl").read_bytes()))
        yield ledger


def test_a_watch_gives_the_spans_of_an_export(golden: Ledger) -> None:
    """All of them, each once, with the same ids, times and attributes."""
    found, positions = watched(golden)
    assert found == exported(golden)
    assert positions[-1] == max(record.position for record in golden.tail())


@pytest.mark.parametrize("page", [1, 7, 500])
def test_a_watch_starts_again_from_any_position(
    golden: Ledger, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is missed wherever it was stopped, in the middle of a commit too; ids stay."""
    monkeypatch.setattr(export, "PAGE", page)
    everything = set(exported(golden))
    exporter = InMemorySpanExporter()
    before: dict[int, set[str]] = {0: set()}
    for position in watch(golden, exporter, follow=False):
        before[position] = set(shown(exporter.get_finished_spans()))
    for position in list(before)[::3]:
        known = before[position]
        rest, _ = watched(golden, position)
        assert set(rest) <= everything
        assert known | set(rest) == everything


def test_runs_that_are_no_longer_held_are_read_again(
    golden: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many runs there are, a watch holds a few of them, and misses nothing."""
    monkeypatch.setattr(export, "PAGE", 3)
    monkeypatch.setattr(export, "MOST_RUNS", 1)
    found, _ = watched(golden)
    assert set(found) == set(exported(golden))


class Waiting(SpanExporter):
    """Tells when it has got a number of spans."""

    def __init__(self, expected: int) -> None:
        self.spans: list[ReadableSpan] = []
        self._expected = expected
        self.complete = Flag()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans.extend(spans)
        if len(self.spans) >= self._expected:
            self.complete.set()
        return SpanExportResult.SUCCESS


@contextmanager
def following(ledger: Ledger, exporter: SpanExporter) -> Iterator[list[int]]:
    """A watch in a thread of its own, and the positions that it yields; stopped at the end."""
    stop, positions = Flag(), list[int]()
    watching = watch(ledger, exporter, stop=stop)
    thread = Thread(target=lambda: positions.extend(watching))
    thread.start()
    try:
        yield positions
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def test_spans_come_while_the_run_goes_on(tmp_path: Path) -> None:
    """Before the run has ended, and of another connection's appends; a flag ends the watch."""
    commits = conversation()
    with Ledger.open(tmp_path / "runs.db") as ledger, Ledger.open(tmp_path / "runs.db") as other:
        early, whole = Waiting(1), Waiting(4)
        with following(ledger, early), following(ledger, whole) as positions:
            run = tell(other, *commits[:3])
            assert early.complete.wait(PATIENCE)
            tell(other, *commits[3:], run=run)
            assert whole.complete.wait(PATIENCE)
        assert [span.name for span in early.spans][:1] == ["chat gpt-5"]
        assert shown(whole.spans) == exported(ledger)
        assert positions[-1] == max(record.position for record in ledger.tail())


class Refusing(SpanExporter):
    """Takes one batch, and no more."""

    def __init__(self) -> None:
        self.batches = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.batches += 1
        return SpanExportResult.SUCCESS if self.batches == 1 else SpanExportResult.FAILURE


def test_a_refusal_names_the_position_to_go_on_from(
    golden: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spans that were refused come again from there."""
    monkeypatch.setattr(export, "PAGE", 20)
    exporter, positions = Refusing(), list[int]()
    with pytest.raises(
        SpanExportError, match=r"go on with watch\(ledger, exporter, after="
    ) as told:
        positions.extend(watch(golden, exporter, follow=False))
    everything = set(exported(golden))
    rest, _ = watched(golden, told.value.position)
    assert 0 < len(rest) < len(everything)
    assert told.value.spans > 0


def test_a_damaged_run_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left out with a warning."""
    path = tmp_path / "runs.db"
    with Ledger.open(path) as ledger:
        broken = tell(ledger, [RunStarted()], [RunCompleted(output="x")])
        whole = tell(ledger, [RunStarted()], [RunCompleted()])
    table = "UPDATE events SET data = '{' WHERE run_id = ? AND version = 2"
    tamper(path, table, str(broken))
    exporter = InMemorySpanExporter()
    with Ledger.open(path) as ledger, caplog.at_level(logging.WARNING):
        list(watch(ledger, exporter, follow=False))
    (span,) = exporter.get_finished_spans()
    assert span.context.trace_id == whole.int
    assert f"The spans of run {broken} are left out" in caplog.text
