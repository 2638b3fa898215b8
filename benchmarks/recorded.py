"""Results of earlier runs, a file for each machine under the user's cache folder.

Nothing of it is committed: times of one machine mean nothing on another.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measuring import Figure, Result, shown


def machine() -> str:
    """The machine by its processor, cores, kernel and Python."""
    python = sys.implementation
    version = ".".join(map(str, sys.version_info[:3]))
    return f"{_processor()}, {os.cpu_count()} cores, {platform.release()}, {python.name} {version}"


def path_for(name: str) -> Path:
    """The file of a machine's results."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    file = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
    return cache / "turnledger" / "benchmarks" / f"{file}.jsonl"


class Recorded:
    """The results of a machine: one line for each run of the benchmarks, the last one counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: dict[str, Figure] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                rows = json.loads(line)["rows"]
                self._last |= {name: Figure(**figure) for name, figure in rows.items()}

    def moved(self, result: Result) -> str:
        """What a row was in the last run, if it has moved by more than its spread; or ""."""
        before = self._last.get(result.name)
        if before is None or not isinstance(result.reached, Figure):
            return ""
        return shown(before.median) if result.reached.has_moved(before) else ""

    def add(self, results: Iterable[Result]) -> None:
        """Record a run."""
        rows = {one.name: asdict(one.reached) for one in results if isinstance(one.reached, Figure)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "rows": rows}
            file.write(json.dumps(line) + "\n")


def _processor() -> str:
    """The processor's model; what the platform says where Linux does not."""
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()
