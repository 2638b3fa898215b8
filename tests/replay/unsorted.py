"""An agent whose prompt holds the order of a set, recorded and run again in other processes.

    python -m tests.replay.unsorted LEDGER [sort]

records it, and says as JSON what came of it. What the hashes of text are is the process's:
PYTHONHASHSEED. It is run again by the command `replay`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from tests.replay.shepherd import DONE, Job, Sheep, Shepherd, calls
from turnledger.ledger import Ledger
from turnledger.runtime import Session

ROOT = Path(__file__).parents[2]
RUN = UUID("0197b0a4-7c55-7a4e-9d0e-3b1d3a2f6c01")
NAMES = ("juniper", "clover", "sorrel", "yarrow", "thyme", "dandelion", "plantain", "vetch")
# Not a constant of the module: the order of one is another if it comes from compiled bytecode.
HERBS = {*NAMES}


def recorded_with(ledger: Path, *, seed: int, sort: bool = False) -> dict[str, Any]:
    """Record the run in a process with this seed of hashes."""
    return _asked("-m", "tests.replay.unsorted", str(ledger), *["sort"] * sort, seed=seed)


def replayed_with(ledger: Path, *, seed: int, app: str = "unsorted") -> dict[str, Any]:
    """Run it again, by a factory of this module, in a process with this seed of hashes."""
    main = "from turnledger.adapters.cli import main; main()"
    said = ["replay", str(RUN), "--db", str(ledger), "-o", "json"]
    app = f"tests.replay.unsorted:{app}"
    return _asked("-c", main, *said, "--app", app, seed=seed, codes=(0, 6))


def _asked(*command: str, seed: int, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    said = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode in codes, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def _agent(ledger: Ledger, herbs: Iterable[str], *, live: bool = False, **other: Any) -> Shepherd:
    text = f"They eat {', '.join(herbs)}. Please ${{text}}."
    return Shepherd(ledger, [calls("a1"), DONE], live=live, **{"template": text, **other})


def unsorted(ledger: Ledger) -> Shepherd:
    """The agent as it was recorded, with a set as Python orders it."""
    return _agent(ledger, list(HERBS))


def in_order(ledger: Ledger) -> Shepherd:
    """The agent with its set sorted."""
    return _agent(ledger, sorted(HERBS))


def unsorted_session(ledger: Ledger) -> Shepherd:
    """The sorted agent with a session that is seeded in the order of the set."""

    def seeds(session: Session) -> None:
        session[Sheep].seed([Sheep(name) for name in HERBS])

    return _agent(ledger, sorted(HERBS), session=seeds)


_MADE_ON_IMPORT = uuid4()


def by_process(ledger: Ledger) -> Shepherd:
    """The sorted agent with an id that every process makes for itself."""
    return _agent(ledger, [str(_MADE_ON_IMPORT)])


def changed(ledger: Ledger) -> Shepherd:
    """The agent with another order that is the same in every process."""
    return _agent(ledger, sorted(HERBS, reverse=True))


def record(url: str, sort: bool) -> dict[str, Any]:
    """Record the run here."""
    with Ledger.open(url) as ledger:
        herbs = sorted(HERBS) if sort else list(HERBS)
        _agent(ledger, herbs, live=True).execute(Job(), run_id=RUN)
        return {"head": ledger.head(RUN), "tags": [record.tag for record in ledger.read(RUN)]}


if __name__ == "__main__":
    url, *rest = sys.argv[1:]
    print(json.dumps(record(url, "sort" in rest)))
