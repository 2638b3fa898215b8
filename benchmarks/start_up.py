"""Start-up: CPU time of importing the ledger, of a first state, and of `turnledger --version`.

Each is a process of its own, measured in turns with `python -c pass`. Bytecode is there from the
first round on, as an installed package has it.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.measuring import Result
from benchmarks.workload import run_of
from turnledger.ledger import NEW, Ledger, new_run_id

EVENTS, ROUNDS = 1_000, 15
STATE = """
import sys
from turnledger.ledger import Ledger
from turnledger.projections import state_at

with Ledger.open(sys.argv[1], create=False) as ledger:
    assert state_at(ledger, sys.argv[2]).version == int(sys.argv[3])
"""


def measure(folder: Path) -> Iterator[Result]:
    file, run = folder / "start_up.db", new_run_id()
    with Ledger.open(file) as ledger:
        version = ledger.append(run, list(run_of(EVENTS)), NEW).version
    python = sys.executable
    commands: dict[str, list[str]] = {
        "pass": [python, "-c", "pass"],
        "import": [python, "-c", "from turnledger.ledger import Ledger"],
        "state": [python, "-c", STATE, str(file), str(run), str(version)],
        "version": [str(Path(python).with_name("turnledger")), "--version"],
    }
    settings = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS + 1):  # the first round writes bytecode and fills the disk's cache
        for name, command in commands.items():
            times[name].append(_cpu_seconds(command, settings))
    medians = {name: statistics.median(found[1:]) for name, found in times.items()}
    least = medians["pass"]
    detail = f"CPU time, python -c pass takes {least * 1000:.0f} ms"

    # Names are imported on first use: without one the import would measure nothing.
    name = "import Ledger of turnledger.ledger, times python -c pass"
    yield Result(name, medians["import"] / least, 10, at_least=False, detail=detail)
    for name, measured, bar in (
        (f"open and state of {EVENTS} events, seconds of CPU", "state", 0.25),
        ("turnledger --version, seconds of CPU", "version", 0.15),
    ):
        yield Result(name, medians[measured], bar, at_least=False, detail=detail)


def _cpu_seconds(command: Sequence[str], settings: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=settings)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
