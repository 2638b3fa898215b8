"""`make bench`: what Turnledger costs, as ratios against the physical limit."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import (
    appending,
    disk,
    encoding,
    folding,
    looping,
    postgres,
    reading,
    replaying,
    tables,
)

PARTS = {
    "append": appending,
    "read": reading,
    "fold": folding,
    "tables": tables,
    "loop": looping,
    "encode": encoding,
    "replay": replaying,
    "disk": disk,
    "postgres": postgres,
}


def main() -> int:
    chosen = sys.argv[1:] or list(PARTS)
    folder = Path(tempfile.mkdtemp(prefix="turnledger-bench-"))
    console = Console()
    table = Table("", "reached", "must be", "", title="Turnledger, ratios in one run")
    missed = 0
    try:
        for name in chosen:
            for result in PARTS[name].measure(folder):
                sign = "at least" if result.at_least else "at most"
                missed += not result.ok
                table.add_row(
                    result.name,
                    f"{result.reached:.2f}",
                    f"{sign} {result.bar:g}",
                    ("ok" if result.ok else "[red]missed[/red]") + f"  {result.detail}",
                )
                console.print(f"{result.name}: {result.reached:.2f}", style="dim")
    finally:
        shutil.rmtree(folder)
    console.print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
