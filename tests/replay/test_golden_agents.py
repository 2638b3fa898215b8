"""Histories of agents, run again by today's code: the same steps, or caught at the first other one.

The files are never regenerated to make a test pass; executing.py made them.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from tests.crash.agents import Agent
from tests.replay.executing import AGENTS, DIVERGING, OTHERWISE, RECORDED, agent
from turnledger.ledger import EvaluationStarted, Ledger, import_runs
from turnledger.runtime import replay


def _read(ledger: Ledger, path: Path) -> UUID:
    with path.open("rb") as file:
        import_runs(ledger, file)
    last = next(iter(ledger.runs()))
    return UUID(str(last.run_id))


def test_there_are_histories_of_ten_kinds_and_four_that_diverge() -> None:
    """Each has its file, and each file is somebody's."""
    assert {path.stem for path in AGENTS.glob("*.jsonl")} == set(RECORDED)
    assert {path.stem for path in DIVERGING.glob("*.jsonl")} == set(OTHERWISE)
    assert len(RECORDED) >= 10
    assert len(OTHERWISE) >= 4


@pytest.mark.parametrize("name", RECORDED)
def test_an_agents_history_is_what_todays_code_does(
    name: str, ledger: Ledger, tmp_path: Path
) -> None:
    """Folded and re-executed to its end, and nothing happens in the world."""
    kind, _, policy = RECORDED[name]
    run = _read(ledger, AGENTS / f"{name}.jsonl")
    with Ledger.open("memory://") as nowhere:
        loop = agent(kind, tmp_path, nowhere, on_interrupt=policy)
        for found in (replay(ledger, run), replay(ledger, run, loop=loop)):
            assert found.divergence is None, str(found.divergence)
            assert found.version == ledger.head(run)
    assert loop.asked == []
    assert not (tmp_path / "effects").exists()


@pytest.mark.parametrize(("name", "compared"), [("recorded-prompt", 0), ("accepted-prompt", 1)])
def test_the_program_that_went_on_under_another_prompt_replays_what_it_did(
    name: str, compared: int, ledger: Ledger, tmp_path: Path
) -> None:
    """What the other program did before is taken as recorded, and it says how much that is."""
    run = _read(ledger, AGENTS / f"{name}.jsonl")
    begun = [r.event for r in ledger.read(run) if isinstance(r.event, EvaluationStarted)]
    with Ledger.open("memory://") as nowhere:
        found = replay(ledger, run, loop=agent("accepting", tmp_path, nowhere))
        whole = replay(ledger, run, loop=agent("sequential", tmp_path, nowhere))
    assert (found.divergence, found.version) == (None, ledger.head(run))
    assert found.not_compared_evaluations == (begun[0].evaluation_id,)
    assert len(begun) - 1 == compared
    # The program that began it has the recorded prompt, and not the accepted one.
    assert whole.not_compared_evaluations == ()
    assert whole.ok == (name == "recorded-prompt")


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_history_of_another_agent_is_caught(name: str, ledger: Ledger, tmp_path: Path) -> None:
    """With the right cause, at the first event that differs."""
    run = _read(ledger, DIVERGING / f"{name}.jsonl")
    with Ledger.open("memory://") as nowhere:
        found = replay(ledger, run, loop=Agent("sequential", tmp_path / "effects", nowhere))
    assert found.divergence is not None
    assert found.divergence.cause == OTHERWISE[name][1]
    first = {"another-reducer": "checkpoint.reached"}.get(name, "evaluation.started")
    if name == "another-model":
        first = "model.called"
    assert found.divergence.tag == first
    version = next(r.version for r in ledger.read(run) if r.version == found.divergence.version)
    assert found.version == version - 1
