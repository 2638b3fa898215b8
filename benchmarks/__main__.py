"""`make bench`: what Turnledger costs, as ratios against the physical limit.

Exits with 1 if a goal was missed; where the baselines vary too much to tell, that is said instead.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from rich.console import Console

from benchmarks import growing, long_run
from benchmarks.measuring import Result, shown
from benchmarks.recorded import Recorded, machine, path_for
from benchmarks.report import report

# By name, the module: each is imported when it is run, as not all are where a framework is.
PARTS = {
    "append": "appending",
    "redaction": "redaction",
    "http": "http",
    "read": "reading",
    "fold": "folding",
    "moments": "moments",
    "http_folds": "http_folds",
    "page": "page",
    "tables": "tables",
    "loop": "looping",
    "async": "async_runs",
    "encode": "encoding",
    "event_cost": "event_cost",
    "replay": "replaying",
    "start_up": "start_up",
    "disk": "disk",
    "postgres": "postgres",
    "long_run": "long_run",
    "growth": "growing",
}
# Takes an hour and 10 GB: `make scale`.
SCALE = "scale"
# Run only when they are named: one needs a framework, and runs where it is installed, the others
# take minutes on a PostgreSQL of their own.
NAMED_PARTS = {
    "langgraph": "langgraph_threads",
    "dask": "dask_rebuild",
    "at_scale": "at_scale",
}


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=", ".join((*PARTS, *NAMED_PARTS, SCALE))
    )
    parser.add_argument(
        "--events",
        type=int,
        help="how long the run of long_run is, and up to how large the ledgers of growth and scale",
    )
    given = parser.parse_args()
    chosen = given.parts or list(PARTS)
    if unknown := [name for name in chosen if name not in (*PARTS, *NAMED_PARTS, SCALE)]:
        parser.error(f"no such part: {', '.join(unknown)}")
    folder = Path(tempfile.mkdtemp(prefix="turnledger-bench-"))
    results: list[Result] = []
    try:
        for name in chosen:
            for result in _measured(name, folder, given.events):
                results.append(result)
                Console().print(f"{result.name}: {shown(result.value)}", style="dim")
    finally:
        shutil.rmtree(folder)
    # A file or a pipe has no width: eighty columns would break every word.
    console = Console(width=None if sys.stdout.isatty() else 180)
    return report(results, Recorded(path_for(machine())), console)


def _measured(name: str, folder: Path, events: int | None) -> Iterator[Result]:
    if name == SCALE:
        return growing.measure_scale(folder, events or growing.SCALE)
    if name == "growth":
        return growing.measure(folder, events or growing.BRIEFLY)
    if name == "long_run":
        return long_run.measure(folder, events or long_run.EVENTS)
    module = PARTS.get(name) or NAMED_PARTS[name]
    measured: Iterator[Result] = import_module(f"benchmarks.{module}").measure(folder)
    return measured


if __name__ == "__main__":
    sys.exit(main())
