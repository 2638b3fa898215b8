"""Runs that were killed anywhere, recovered, and run again from their record alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.agents import KINDS, Agent, Order
from tests.crash.fuses import lay
from tests.matrices import cells
from turnledger.ledger import Ledger, new_run_id
from turnledger.runtime import DecisionRequiredError, RecoveryConfig
from turnledger.runtime.replaying.replay import Replayed, replay

MOST = 400


class KilledError(BaseException):
    """The process is gone."""


def _fuse(length: int) -> Callable[[str], None]:
    left = length

    def point(name: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KilledError(name)

    return point


def _agent(kind: str, effects: Path, ledger: Ledger, policy: str, length: int = 0) -> Agent:
    point = _fuse(length)
    agent = Agent(
        kind,
        effects,
        ledger,
        on_interrupt=policy,
        point=point,
        recovery=RecoveryConfig(max_attempts=50),
    )
    if length:
        lay(ledger, point)
    return agent


def _killed_at(
    length: int, kind: str, url: str, folder: Path, policy: str
) -> tuple[bool, list[Replayed]]:
    """A run that dies when the fuse has burnt down and is recovered; its replays."""
    run, effects = new_run_id(), folder / f"effects-{length}"
    died = False
    with Ledger.open(url) as ledger:
        try:
            _agent(kind, effects, ledger, policy, length).execute(Order(), run_id=run)
        except KilledError:
            died = True
    with Ledger.open(url) as ledger:
        if not ledger.head(run):
            return died, []
        if died:
            try:
                agent = _agent(kind, effects, ledger, policy)
                if run in {found.run_id for found in agent.list_recoverable()}:
                    agent.recover(run)
            except DecisionRequiredError:
                pass
        done = effects.read_bytes() if effects.exists() else b""
        elsewhere = folder / "replayed"
        with Ledger.open("memory://") as nobody:
            found = [
                replay(ledger, run),
                replay(ledger, run, loop=_agent(kind, elsewhere, nobody, policy)),
            ]
        assert not elsewhere.exists()
        assert (effects.read_bytes() if effects.exists() else b"") == done
        assert all(one.version == ledger.head(run) for one in found if one.ok)
    return died, found


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "policy"), cells(KINDS, ["retry", "fail", "ask"]))
def test_whatever_was_killed_replays_as_it_was(kind: str, policy: str, tmp_path: Path) -> None:
    """At every moment where it can die: fold and re-execution agree, and no handler is called."""
    attempts = set()
    for length in range(1, MOST):
        url = str(tmp_path / f"{length}.db")
        died, found = _killed_at(length, kind, url, tmp_path, policy)
        for one in found:
            assert one.divergence is None, f"killed at {length}: {one.divergence}"
            attempts.add(one.attempts)
        if not died:
            break
    assert attempts >= {0, 1, 2}
