"""Start-up: CPU time of importing the ledger, of a first state, and of `turnledger --version`.

Each is a process of its own, measured in turns with `python -c pass`. Bytecode is there from the
first round on, as an installed package has it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.measuring import Figure, Result
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
    least, *_ = figures = [Figure.of(found[1:], times["pass"][1:]) for found in times.values()]
    taken = dict(zip(commands, figures, strict=True))

    def result(name: str, measured: str, seconds: float) -> Result:
        ratio = taken[measured].median / least.median
        detail = f"{ratio:.1f} times python -c pass, {least.median:.3f} s"
        return Result(name, taken[measured], seconds, at_least=False, detail=detail)

    # Names are imported on first use: without one the import would measure nothing.
    ratios = [mine / other for mine, other in zip(times["import"], times["pass"], strict=True)][1:]
    imported = Figure.of(ratios, times["pass"][1:])
    yield Result("import Ledger, CPU times python -c pass", imported, 10, at_least=False)
    yield result(f"open and state of {EVENTS:,} events, CPU seconds", "state", 0.25)
    yield result("turnledger --version, CPU seconds", "version", 0.15)


def _cpu_seconds(command: Sequence[str], settings: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=settings)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
