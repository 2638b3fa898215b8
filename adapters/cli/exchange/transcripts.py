"""Transcripts of providers' APIs: `export --format` and `import --format`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from turnledger.adapters.cli.shared.command import fail, finish, open_ledger, printer, report
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.files import read_whole, written
from turnledger.adapters.cli.shared.output import Format, pretty_json, say, to_json
from turnledger.adapters.transcripts import (
    EvaluationNotFoundError,
    ImportedRun,
    NothingSaidError,
    Wanted,
    export_transcript,
    import_transcripts,
    read_transcripts,
)
from turnledger.ledger import EventDecodeError, IntegrityFailureError, Ledger

# How many lines of a list are printed.
MOST_LISTED = 5


def write_transcripts(runs: tuple[UUID, ...], wanted: Wanted, output_file: Path | None) -> None:
    """Export conversations as request bodies."""
    skipped = SkippedRuns()
    with open_ledger() as ledger:
        documents = runs_to_export(
            ledger, runs, lambda run: export_transcript(ledger, run, wanted), skipped
        )
        encode = pretty_json if len(runs) == 1 else to_json
        try:
            count = written(output_file, lambda out: write_lines(out, map(encode, documents)))
        except EvaluationNotFoundError as error:
            fail(str(error), ExitCode.NOT_FOUND)
    text = f"Exported {count} {'conversation' if count == 1 else 'conversations'}."
    report(text, {"conversations": count})
    finish(skipped.code)


def runs_to_export(
    ledger: Ledger,
    runs: tuple[UUID, ...],
    document: Callable[[UUID], dict[str, Any]],
    skipped: SkippedRuns,
) -> Iterator[dict[str, Any]]:
    """Each run's document; with --all, empty conversations and damaged runs are left out.

    Args:
        ledger: The ledger that has the runs.
        runs: The runs; none means all, the oldest first.
        document: Makes a run's document.
        skipped: Told of damaged runs.
    """
    chosen = runs or [info.run_id for info in ledger.runs(on_damage=skipped)][::-1]
    for run in chosen:
        try:
            yield document(run)
        except NothingSaidError:
            if runs:
                raise
        except (IntegrityFailureError, EventDecodeError) as error:
            if runs:
                raise
            skipped(str(run), error)


def write_lines(out: BinaryIO, lines: Iterable[bytes]) -> int:
    """Write a line each, and count them."""
    count = 0
    for line in lines:
        out.write(line + b"\n")
        count += 1
    return count


def take_transcripts(file: BinaryIO, wire: str) -> None:
    """Import transcripts, and print what became of each."""
    source = "stdin" if file is sys.stdin.buffer or file.name == "<stdin>" else str(file.name)
    plans = read_transcripts(read_whole(file, source), wire, source=source)
    with open_ledger(create=True) as ledger:
        imported = import_transcripts(ledger, plans)
    out = printer()
    headings = ("run", "from", "outcome", "turns", "repairs", "notes")
    out.listing(imported, headings, _row, nothing="The file has no transcript.")
    out.flush()
    if out.form is Format.TABLE:
        for one in imported:
            _say_changes(one)


def _row(run: ImportedRun) -> tuple[Any, ...]:
    changes = (len(run.repairs), len(run.notes))
    return (run.run_id, run.place or "the file", run.outcome, run.turns, *changes)


def _say_changes(run: ImportedRun) -> None:
    """Print what was changed or left out, on a few lines."""
    counts = Counter((repair.kind, repair.detail) for repair in run.repairs)
    lines = [f"{count} x {kind}: {detail}" for (kind, detail), count in counts.items()]
    lines += [f"{note.path}: {note.text}" if note.path else note.text for note in run.notes]
    if lines:
        where = f" ({run.place})" if run.place else ""
        say_some(f"Changed on import, run {run.run_id}{where}:", lines)


def say_some(heading: str, lines: Sequence[object]) -> None:
    """Print a heading and the first few lines under it."""
    say(heading)
    for line in lines[:MOST_LISTED]:
        say(f"  {line}")
    if len(lines) > MOST_LISTED:
        say(f"  and {len(lines) - MOST_LISTED} more: -o json lists all.")
