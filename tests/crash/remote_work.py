"""Scenario: a worker with a URL and a token is SIGKILLed inside a payment; another goes on."""

from __future__ import annotations

import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from tests.crash.agents import Agent, Order
from tests.crash.processes import Crew, Voice
from turnledger.adapters.http import LedgerClient
from turnledger.ledger import RunClaimedError
from turnledger.projections import state_at

RUNS = UUID("4f1d2c3b-5a69-4788-9e0f-a1b2c3d4e5f6")
# The dead worker's lease has no process behind it: only time ends it.
LEASE = timedelta(seconds=1)
# When the worker dies, by what happens to a call whose outcome is unknown.
MOMENTS = {"in tool a2, before": "retry", "in tool a2, after": "fail"}


def run(crew: Crew, *, server: str, token: str, folder: str) -> dict[str, Any]:
    """What became of each run."""
    told = {}
    for moment in MOMENTS:
        arguments = (server, token, folder, moment)
        victim = crew.start("victim", _die, *arguments)
        crew.expect(victim, "dies")
        crew.kill(victim)
        other = crew.start("other", _recover, *arguments)
        [(_, [_, outcome])] = crew.join(other)
        told[moment] = outcome
    return told


def _die(voice: Voice, server: str, token: str, folder: str, moment: str) -> None:
    def point(name: str) -> None:
        if name == moment:
            voice.say("dies")
            signal.pause()

    with LedgerClient(server, token) as ledger:
        _agent(ledger, folder, moment, point).execute(Order(), run_id=uuid5(RUNS, moment))


def _recover(voice: Voice, server: str, token: str, folder: str, moment: str) -> None:
    with LedgerClient(server, token) as ledger:
        agent = _agent(ledger, folder, moment, lambda name: None)
        run = uuid5(RUNS, moment)
        dead = ledger.store.lease(str(run))
        while True:
            try:
                agent.recover(run)
                break
            except RunClaimedError:
                time.sleep(0.02)
        found = {
            "status": state_at(ledger, run).summary.status,
            "effects": agent.effects(),
            "epochs": [one.event.epoch for one in ledger.read(run) if one.tag == "run.claimed"],  # type: ignore[union-attr]
            "left a lease": dead is not None,
            "worker": ledger.worker_of(run),
            "sound": ledger.verify(run).ok,
        }
    voice.say("told", found)


def _agent(ledger: LedgerClient, folder: str, moment: str, point: Any) -> Agent:
    effects = Path(folder) / moment.replace(" ", "-")
    policy = MOMENTS[moment]
    return Agent("sequential", effects, ledger, point=point, on_interrupt=policy, lease=LEASE)
