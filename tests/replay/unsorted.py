"""An agent whose prompt holds the order of a set, recorded and run again in other processes.

    python -m tests.replay.unsorted record|replay LEDGER [sort]

says as JSON what came of it. What the hashes of text are is the process's: PYTHONHASHSEED.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.replay.shepherd import DONE, Job, Shepherd, calls
from turnledger.ledger import Ledger
from turnledger.runtime.replaying.replay import replay

ROOT = Path(__file__).parents[2]
RUN = UUID("0197b0a4-7c55-7a4e-9d0e-3b1d3a2f6c01")
HERBS = {"juniper", "clover", "sorrel", "yarrow", "thyme", "dandelion", "plantain", "vetch"}


def recorded_with(ledger: Path, *, seed: int, sort: bool = False) -> dict[str, Any]:
    """Record the run in a process with this seed of hashes."""
    return _asked("record", ledger, seed, sort)


def replayed_with(ledger: Path, *, seed: int, sort: bool = False) -> dict[str, Any]:
    """Run it again in a process with this seed of hashes."""
    return _asked("replay", ledger, seed, sort)


def _asked(what: str, ledger: Path, seed: int, sort: bool) -> dict[str, Any]:
    said = subprocess.run(
        [sys.executable, "-m", "tests.replay.unsorted", what, str(ledger), *["sort"] * sort],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def _agent(ledger: Ledger, sort: bool, *, live: bool) -> Shepherd:
    herbs = sorted(HERBS) if sort else list(HERBS)
    text = f"They eat {', '.join(herbs)}. Please ${{text}}."
    return Shepherd(ledger, [calls("a1"), DONE], template=text, live=live)


def _record(url: str, sort: bool) -> dict[str, Any]:
    with Ledger.open(url) as ledger:
        _agent(ledger, sort, live=True).execute(Job(), run_id=RUN)
        return {"head": ledger.head(RUN), "tags": [record.tag for record in ledger.read(RUN)]}


def _replay(url: str, sort: bool) -> dict[str, Any]:
    with Ledger.open(url) as ledger, Ledger.open("memory://") as nobody:
        found = replay(ledger, RUN, loop=_agent(nobody, sort, live=False))
    parted = found.divergence
    return {
        "version": found.version,
        "divergence": str(parted) if parted else None,
        "cause": parted.cause if parted else None,
        "tag": parted.tag if parted else None,
    }


if __name__ == "__main__":
    what, url, *rest = sys.argv[1:]
    told = (_record if what == "record" else _replay)(url, "sort" in rest)
    print(json.dumps(told))
