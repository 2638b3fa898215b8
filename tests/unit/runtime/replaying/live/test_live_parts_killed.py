"""Runs that were killed anywhere, recovered, and run again with parts of them live."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from tests.crash.agents import Agent, Order
from tests.crash.fuses import lay
from tests.matrices import cells
from tests.unit.runtime.replaying.live.test_live_parts import PAID, bytes_of
from tests.unit.runtime.replaying.test_replay_killed import KilledError, _fuse
from turnledger.ledger import InvalidInputError, Ledger, new_run_id
from turnledger.projections import state_at
from turnledger.runtime import DecisionRequiredError
from turnledger.runtime.replaying.live.replay import NotRecordedError, replay_live
from turnledger.runtime.replaying.replay import replay

# Each has its moments, and all together every moment.
POLICIES = ("retry", "fail", "ask")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "policy"), cells(["sequential", "parallel", "failing", "expansion"], POLICIES)
)
def test_whatever_was_killed_runs_again(kind: str, policy: str, tmp_path: Path) -> None:
    """However a run came to its end, its fork is whole: no call of it is ever in doubt."""
    forks = 0
    for length in range(1 + POLICIES.index(policy), 400, len(POLICIES)):
        with Ledger.open("memory://") as ledger:
            died, run = _killed_at(length, ledger, kind, policy, tmp_path / f"first-{length}")
            for live in ("tool:pay", "tool:refuse", "model") if ledger.head(run) else ():
                folder = tmp_path / f"{length}-{live[-3:]}"
                forks += _ran_again(ledger, run, kind, policy, folder, live)
        if not died:
            break
    assert forks > 10


def _killed_at(
    length: int, ledger: Ledger, kind: str, policy: str, effects: Path
) -> tuple[bool, UUID]:
    """A run that dies when the fuse has burnt down, and is recovered if it can be."""
    run, point, died = new_run_id(), _fuse(length), False
    agent = Agent(kind, effects, ledger, on_interrupt=policy, point=point)
    lay(ledger, point)
    try:
        agent.execute(Order(), run_id=run)
    except KilledError:
        died = True
    for name in ("begin", "append", "claim", "release"):
        vars(ledger).pop(name)  # nobody dies any more
    agent = Agent(kind, effects, ledger, on_interrupt=policy)
    try:
        if died and run in {found.run_id for found in agent.list_recoverable()}:
            agent.recover(run)
    except DecisionRequiredError:
        pass
    return died, run


def _ran_again(ledger: Ledger, run: UUID, kind: str, policy: str, folder: Path, live: str) -> bool:
    folder.mkdir()
    before = bytes_of(ledger, run)
    agent = Agent(kind, folder / "again", ledger, on_interrupt=policy)
    try:
        found = replay_live(ledger, run, agent, live=[live])
        fork, status = found.fork, found.status
    except InvalidInputError as error:
        if "would be live" not in str(error):
            raise
        return False
    except NotRecordedError as error:
        # Where a run waits for a decision, what comes after it is on no record.
        if policy != "ask":
            raise
        fork, status = error.fork, "running"
    assert bytes_of(ledger, run) == before
    assert sorted(agent.effects()) == (PAID[kind][: len(agent.effects())] if "pay" in live else [])
    tags = [record.tag for record in ledger.read(fork, after=ledger.run(fork).parent_version)]
    assert "tool_call.in_doubt" not in tags
    assert state_at(ledger, fork).summary.status == status
    with Ledger.open("memory://") as nobody:
        loop = Agent(kind, folder / "nowhere", nobody, on_interrupt=policy)
        repeated = replay(ledger, fork, loop=loop)
    assert repeated.divergence is None, str(repeated.divergence)
    return True
