"""`make bench`: what Turnledger costs, as ratios against the physical limit."""

from __future__ import annotations

import shutil
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import (
    appending,
    async_runs,
    disk,
    encoding,
    event_cost,
    folding,
    http,
    http_folds,
    long_run,
    looping,
    moments,
    page,
    postgres,
    reading,
    replaying,
    start_up,
    tables,
)
from benchmarks.measuring import Result

PARTS = {
    "append": appending,
    "http": http,
    "read": reading,
    "fold": folding,
    "moments": moments,
    "http_folds": http_folds,
    "page": page,
    "tables": tables,
    "loop": looping,
    "async": async_runs,
    "encode": encoding,
    "event_cost": event_cost,
    "replay": replaying,
    "start_up": start_up,
    "disk": disk,
    "postgres": postgres,
    "long_run": long_run,
}
# Need a framework, and run where it is installed.
FRAMEWORK_PARTS = {"langgraph": "benchmarks.langgraph_threads"}


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=", ".join((*PARTS, *FRAMEWORK_PARTS))
    )
    parser.add_argument(
        "--events", type=int, default=long_run.EVENTS, help="how long the run of long_run is"
    )
    given = parser.parse_args()
    chosen = given.parts or list(PARTS)
    if unknown := [name for name in chosen if name not in PARTS | FRAMEWORK_PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    folder = Path(tempfile.mkdtemp(prefix="turnledger-bench-"))
    console = Console()
    table = Table("", "reached", "must be", "", title="Turnledger, ratios in one run")
    missed = 0
    try:
        for name in chosen:
            for result in _measured(name, folder, given.events):
                sign = "at least" if result.at_least else "at most"
                missed += not result.ok
                table.add_row(
                    result.name,
                    f"{result.reached:.2f}",
                    f"{sign} {result.bar:g}" if result.bar is not None else "",
                    ("ok" if result.ok else "[red]missed[/red]") + f"  {result.detail}",
                )
                console.print(f"{result.name}: {result.reached:.2f}", style="dim")
    finally:
        shutil.rmtree(folder)
    console.print(table)
    return 1 if missed else 0


def _measured(name: str, folder: Path, events: int) -> Iterator[Result]:
    if name == "long_run":
        return long_run.measure(folder, events)
    if name in FRAMEWORK_PARTS:
        measured: Iterator[Result] = import_module(FRAMEWORK_PARTS[name]).measure(folder)
        return measured
    return PARTS[name].measure(folder)


if __name__ == "__main__":
    sys.exit(main())
