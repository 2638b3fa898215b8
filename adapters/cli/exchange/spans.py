"""`export --format otlp`: runs as OpenTelemetry spans, in OTLP/JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from turnledger.adapters.cli.exchange.transcripts import runs_to_export, write_lines
from turnledger.adapters.cli.shared.command import finish, open_ledger, report
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.files import written
from turnledger.adapters.cli.shared.output import pretty_json, to_json
from turnledger.adapters.telemetry.export import otlp_json
from turnledger.adapters.telemetry.run_spans import RunSpans


def write_spans(runs: tuple[UUID, ...], output_file: Path | None, *, content: bool) -> None:
    """Export the spans of runs that have ended.

    Args:
        runs: The runs; none means all of the ledger.
        output_file: The file to write; by default stdout.
        content: Whether messages, arguments and results are in the attributes.
    """
    skipped = SkippedRuns()
    counts = {"runs": 0, "spans": 0, "open_spans": 0}
    with open_ledger() as ledger:

        def document(run: UUID) -> dict[str, Any]:
            known = RunSpans(ledger, run, content=content)
            spans = known.read_on()
            counts["runs"] += 1
            counts["spans"] += len(spans)
            counts["open_spans"] += known.open_spans
            return otlp_json(spans)

        def documents() -> Iterator[dict[str, Any]]:
            return runs_to_export(ledger, runs, document, skipped)

        encode = pretty_json if len(runs) == 1 else to_json
        written(output_file, lambda out: write_lines(out, map(encode, documents())))
    text = f"Exported {_counted(counts['spans'], 'span')} of {_counted(counts['runs'], 'run')}."
    if counts["open_spans"]:
        text += f" Left out: {_counted(counts['open_spans'], 'span')} not ended yet."
    report(text, counts)
    finish(skipped.code)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
