"""Scenario: two workers and one run. One recovers it; the other is refused, or overtaken."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from tests.crash.agents import Agent, Order
from tests.crash.processes import Crew, Voice
from tests.crash.shared_memory import StartLine
from turnledger.ledger import Ledger, RunClaimedError, StaleEpochError
from turnledger.projections import state_at

RUNS = UUID("0b1c2d3e-4f50-4a61-8b72-9c83ad94be05")
# The holder is alive, though it stands still: only time voids its lease.
LEASE = timedelta(seconds=1)


def run(crew: Crew, *, url: str, folder: str, scene: str, rounds: int = 1) -> dict[str, Any]:
    """What became of each run, and what each worker was told."""
    return {"race": _race, "stop": _stop}[scene](crew, url, Path(folder), rounds)


def run_id(number: int) -> UUID:
    return uuid5(RUNS, str(number))


# --- two recover at the same moment ----------------------------------------------------


def _race(crew: Crew, url: str, folder: Path, rounds: int) -> dict[str, Any]:
    for number in range(rounds):
        victim = crew.start(f"victim {number}", _die, url, str(folder), number)
        crew.expect(victim, "dies")
        crew.kill(victim)
    line = StartLine(2)
    racers = [
        crew.start(f"racer {me}", _recover_all, url, str(folder), line, me, rounds)
        for me in range(2)
    ]
    told: list[list[Any]] = [[], []]
    for racer, [_, outcome] in crew.join(*racers):
        told[racers.index(racer)].append(outcome)
    return {"races": list(zip(*told, strict=True)), **_ends(crew, url, folder, rounds)}


def _die(voice: Voice, url: str, folder: str, number: int) -> None:
    def point(name: str) -> None:
        if name == "in tool a2, before":
            voice.say("dies")
            signal.pause()

    with Ledger.open(url) as ledger:
        agent = Agent("sequential", Path(folder) / str(number), ledger, point=point)
        agent.execute(Order(), run_id=run_id(number))


def _recover_all(
    voice: Voice, url: str, folder: str, line: StartLine, me: int, rounds: int
) -> None:
    """Whoever has a run waits within its tool until the other was refused."""

    def point(name: str) -> None:
        if name == "in tool a2, before":
            line.wait(me)

    with Ledger.open(url) as ledger:
        for number in range(rounds):
            agent = Agent("sequential", Path(folder) / str(number), ledger, point=point)
            line.wait(me)
            try:
                text = agent.recover(run_id(number))[0].text
            except RunClaimedError:
                line.wait(me)
                voice.say("race", "refused")
            else:
                voice.say("race", text)


# --- one stands still and is overtaken -------------------------------------------------


def _stop(crew: Crew, url: str, folder: Path, rounds: int) -> dict[str, Any]:
    told = []
    for number in range(rounds):
        holder = crew.start("holder", _hold, url, str(folder), number)
        crew.await_stop(holder)
        other = crew.start("other", _overtake, url, str(folder), number)
        [(_, [_, refused, text, head])] = crew.join(other)
        crew.resume(holder)
        [(_, [_, error])] = crew.join(holder)
        told.append({"refused": refused, "text": text, "head": head, "error": error})
    return {"rounds": told, **_ends(crew, url, folder, rounds)}


def _hold(voice: Voice, url: str, folder: str, number: int) -> None:
    def point(name: str) -> None:
        if name == "in tool a2, after":
            os.kill(os.getpid(), signal.SIGSTOP)

    with Ledger.open(url) as ledger:
        agent = _agent(ledger, folder, number, point)
        try:
            agent.execute(Order(), run_id=run_id(number))
        except StaleEpochError as error:
            voice.say("told", type(error).__name__)
        else:
            voice.say("told", "nothing")


def _overtake(voice: Voice, url: str, folder: str, number: int) -> None:
    with Ledger.open(url) as ledger:
        agent = _agent(ledger, folder, number, lambda name: None)
        refused = 0
        while True:
            try:
                text = agent.recover(run_id(number))[0].text
                break
            except RunClaimedError:
                refused += 1
                time.sleep(0.05)
        voice.say("told", refused, text, ledger.head(run_id(number)))


def _agent(ledger: Ledger, folder: str, number: int, point: Any) -> Agent:
    effects = Path(folder) / str(number)
    agent = Agent("sequential", effects, ledger, point=point, on_interrupt="fail")
    agent._lease = LEASE
    return agent


# --- how it ended ----------------------------------------------------------------------


def _ends(crew: Crew, url: str, folder: Path, rounds: int) -> dict[str, Any]:
    [(_, [_, found])] = crew.join(crew.start("checker", _look, url, str(folder), rounds))
    return {"ends": found}


def _look(voice: Voice, url: str, folder: str, rounds: int) -> None:
    found = []
    with Ledger.open(url) as ledger:
        assert ledger.verify_all().ok
        for number in range(rounds):
            run = run_id(number)
            effects = (Path(folder) / str(number)).read_text().splitlines()
            found.append(
                {
                    "status": state_at(ledger, run).summary.status,
                    "head": ledger.head(run),
                    "effects": [line.split()[0] for line in effects],
                    "worker": ledger.worker_of(run),
                }
            )
    voice.say("found", found)
