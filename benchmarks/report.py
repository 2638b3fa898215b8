"""The table of results, and what it comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.measuring import Figure, Result, shown
from benchmarks.recorded import Recorded

COLUMNS = (
    "",
    "reached",
    "quartiles",
    "must be",
    "CPU times baseline",
    "against bare raw",
    "",
)
COLOURS = {"missed": "red", "too noisy to tell": "yellow"}


def report(results: Sequence[Result], recorded: Recorded, console: Console) -> int:
    """Print the table, mark the rows that have moved, record the run; 1 if a goal was missed."""
    table = Table(*COLUMNS, title="Turnledger, ratios in one run")
    counts: Counter[str] = Counter()
    for result in results:
        before = recorded.moved(result)
        counts[result.verdict or "without a goal"] += 1
        counts["moved"] += bool(before)
        table.add_row(*_cells(result, before))
    recorded.add(results)
    console.print(table)
    said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    console.print(f"{len(results)} rows: {said}.")
    return 1 if counts["missed"] else 0


def _cells(result: Result, before: str) -> list[str]:
    figure, bare, verdict = result.reached, result.bare, result.verdict
    sign = "at least" if result.at_least else "at most"
    quartiles = cpu = ""
    if isinstance(figure, Figure):
        quartiles = f"{shown(figure.low)} to {shown(figure.high)}"
        cpu = f"{figure.cpu:.2f}" if figure.cpu is not None else ""
    said = f"[{COLOURS[verdict]}]{verdict}[/]" if verdict in COLOURS else verdict
    moved = f"[bold]moved, was {before}[/]" if before else ""
    return [
        result.name,
        shown(result.value),
        quartiles,
        f"{sign} {result.bar:g}" if result.bar is not None else "",
        cpu,
        f"{bare.median:.2f}" if bare is not None else "",
        "  ".join(filter(None, (said, moved, result.detail))),
    ]
