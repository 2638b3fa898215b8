"""Scenario: an agent is SIGKILLed at every moment where it can die, and another process recovers.

The moments are before and after each commit and each claim, and inside each tool and each model
call. One victim dies at the first of them, the next at the second, until one gets through. With
`recoveries`, those who recover are killed too, one after the other, before one is left alone.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from tests.crash.agents import Agent, Clerk, Order, decide_approvals
from tests.crash.fuses import fuse, last_words, lay, warm_up
from tests.crash.operators import COMMANDS, Operator
from tests.crash.processes import Crew, Voice
from tests.crash.provided import import_all, provided, warm
from turnledger.ledger import Ledger, ResourceSnapshotted
from turnledger.ledger.runs.names import SERVES_TAG
from turnledger.projections import state_at
from turnledger.runtime import (
    DecisionRequiredError,
    FilesystemCheckpointBackend,
    RecoveryConfig,
    replay,
)
from turnledger.runtime.workspace import directory

RUNS = UUID("6f1d9a52-0f0e-4b77-9a0c-9b1f6a2f3c11")
MOST = 400
# What is asked for in the kinds that have several runs.
ORDERS = {
    "reused": [Order(), Order("beta")],
    "chat": [Order(), Order("beta"), Order("gamma")],
}


def run(
    crew: Crew,
    *,
    url: str,
    folder: str,
    kind: str,
    on_interrupt: str = "retry",
    recoveries: int = 0,
    files_only: bool = False,
    stride: int = 1,
    first: int = 1,
    provider: str = "",
    provider_url: str = "",
    stream: bool = False,
) -> dict[str, Any]:
    """What became of each run: where it died, its outcome, and what was done to the world."""
    plan = {
        "url": url,
        "kind": kind,
        "on_interrupt": on_interrupt,
        "files_only": files_only,
        "provider": provider,
        "provider_url": provider_url,
        "stream": stream,
    }
    warm_up()
    if provider:
        warm(provider)
        place = Path(folder) / "undisturbed"
        place.mkdir(parents=True)
        [(_, [_, modules])] = crew.join(crew.start("loads", _load, plan, str(place)))
        import_all(modules)
    told: list[dict[str, Any]] = []
    for step in range(first, MOST, stride):
        place = Path(folder) / f"{kind}-{on_interrupt}-{step}"
        place.mkdir(parents=True)
        victim = crew.start(f"dies at {step}", _begin, plan, str(place), step)
        words = last_words(crew, victim)
        done = words[-1][0] == "done"
        deaths = [] if done else [words[-1][1]]
        for number in range(recoveries if not done else 0):
            again = crew.start("dies too", _recover, plan, str(place), step, 2 + 3 * number)
            words = last_words(crew, again)
            if words and words[-1][0] == "died":
                deaths.append(words[-1][1])
        [(_, [_, outcome])] = crew.join(crew.start("recovers", _recover, plan, str(place), step, 0))
        told.append({"step": step, "deaths": deaths, **outcome})
        if done:
            return {"runs": told}
    raise AssertionError(f"not through after {MOST} steps")


def run_id(plan: dict[str, Any], step: int, number: int = 0) -> UUID:
    return uuid5(RUNS, f"{plan['kind']} {plan['on_interrupt']} {step} {number}")


# --- the processes -------------------------------------------------------------------


def _load(voice: Voice, plan: dict[str, Any], place: str) -> None:
    """Say what a run imports that the driver has not: SDKs load most when they are used."""
    before = set(sys.modules)
    with Ledger.open("memory://") as ledger:
        _agent(plan, place, ledger, lambda name: None).execute(Order())
    voice.say("modules", [name for name in sys.modules if name not in before])


def _agent(plan: dict[str, Any], place: str, ledger: Ledger | None, point: Any) -> Agent:
    tempfile.tempdir = place  # what a killed process leaves there is the test's
    recovery = RecoveryConfig(max_attempts=50)
    if plan["files_only"]:
        backend = _Counted(FilesystemCheckpointBackend(Path(place) / "checkpoints"), point)
        recovery = RecoveryConfig(backend=backend, max_attempts=50)
    if plan["kind"] in ("workspace", "optimized"):
        _lay_in_files(point)
        return Clerk(Path(place), ledger, kind=plan["kind"], point=point, recovery=recovery)
    if plan["kind"] in COMMANDS:
        return Operator(Path(place), ledger, kind=plan["kind"], point=point, recovery=recovery)
    return Agent(
        plan["kind"],
        Path(place) / "effects",
        ledger,
        on_interrupt=plan["on_interrupt"],
        point=point,
        recovery=recovery,
        adapter=provided(plan, point) if plan["provider"] else None,
    )


def _lay_in_files(point: Callable[[str], None]) -> None:
    """Before, in the middle of and after every file that a tool or a mount writes."""

    def write(name: str, parent: int, content: bytes, mode: int) -> None:
        point(f"before {name}")
        half = len(content) // 2
        whole(name, parent, content[:half], mode)
        point(f"in the middle of {name}")
        with open(os.open(name, os.O_WRONLY | os.O_APPEND, dir_fd=parent), "ab") as file:
            file.write(content[half:])
        point(f"after {name}")

    whole = directory._write
    vars(directory)["_write"] = write  # of this process, which dies here


class _Counted:
    """A checkpoint backend with a fuse before and after each save."""

    def __init__(self, backend: FilesystemCheckpointBackend, point: Callable[[str], None]) -> None:
        self._backend = backend
        self._point = point

    def save(self, run_id: UUID, checkpoint: Any) -> None:
        self._point("before save")
        self._backend.save(run_id, checkpoint)
        self._point("after save")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def _begin(voice: Voice, plan: dict[str, Any], place: str, step: int) -> None:
    point = fuse(voice, step)
    if plan["files_only"]:
        _work(plan, _agent(plan, place, None, point), step)
    else:
        with Ledger.open(plan["url"]) as ledger:
            lay(ledger, point)
            _work(plan, _agent(plan, place, ledger, point), step)
    voice.say("done")


def _work(plan: dict[str, Any], agent: Agent, step: int) -> None:
    if plan["kind"] == "approvals":
        _approved(agent, run_id(plan, step))
        return
    agent.execute(Order(), run_id=run_id(plan, step))
    if plan["kind"] == "reused":
        agent.execute(Order("beta"), run_id=run_id(plan, step, 1))
    if plan["kind"] == "chat":
        for number, order in enumerate(ORDERS["chat"][1:], 1):
            before = run_id(plan, step, number - 1)
            agent.execute(order, run_id=run_id(plan, step, number), continues=before)


def _approved(agent: Agent, run: UUID) -> str | None:
    """Begin a run or go on with it, and decide about its payments as often as it waits for that."""
    ledger = agent.loop_host.ledger
    assert ledger is not None
    while True:
        if ledger.head(run) and ledger.run(run).status == "completed":
            return None
        try:
            if ledger.head(run):
                return agent.recover(run)[0].text
            return agent.execute(Order(), run_id=run)[0].text
        except DecisionRequiredError as waits:
            if not waits.approvals:
                raise  # in doubt
            decide_approvals(ledger, run, waits.approvals)


def _wait_until_free(ledger: Ledger, run: UUID) -> None:
    """Until the store knows that the worker is dead: PostgreSQL sees its connection end."""
    while ledger.worker_of(run):
        pass  # each look is a transaction


def _recover(voice: Voice, plan: dict[str, Any], place: str, step: int, length: int) -> None:
    """Recover what there is, begin what there is not, and say how it ended."""
    point = fuse(voice, length)
    if plan["files_only"]:
        agent = _agent(plan, place, None, point)
        outcome = _finished(plan, agent, step, None)
        voice.say("outcome", outcome)
        return
    with Ledger.open(plan["url"]) as ledger:
        for number in range(len(ORDERS.get(plan["kind"], [Order()]))):
            _wait_until_free(ledger, run_id(plan, step, number))
        lay(ledger, point)
        agent = _agent(plan, place, ledger, point)
        if isinstance(agent, Clerk) and _has_files(ledger, run_id(plan, step)):
            shutil.rmtree(agent.host)  # as on another machine
        outcome = _finished(plan, agent, step, ledger)
        if plan["kind"] == "approvals":
            outcome["replayed"] = _replayed(plan, place, ledger, run_id(plan, step))
        if isinstance(agent, Clerk):
            outcome["divergence"] = _divergence(plan, place, ledger, run_id(plan, step))
        if plan["kind"] == "chat":
            outcome["divergence"] = _divergences(plan, place, ledger, step)
        voice.say("outcome", outcome)


def _finished(
    plan: dict[str, Any], agent: Agent, step: int, ledger: Ledger | None
) -> dict[str, Any]:
    """Each run of the plan, recovered, begun or left as it is; and what it all came to."""
    orders = ORDERS.get(plan["kind"], [Order()])
    told: dict[str, Any] = {"waited": False, "text": None, "outcome": "", "doubts": []}
    for number, order in enumerate(orders):
        run = run_id(plan, step, number)
        try:
            known = {found.run_id for found in agent.list_recoverable()}
            if plan["kind"] == "approvals":
                told["text"] = _approved(agent, run)
            elif run in known:
                told["text"] = agent.recover(run)[0].text
            elif number and plan["kind"] == "chat" and not _has_begun(agent, ledger, run):
                agent.execute(order, run_id=run, continues=run_id(plan, step, number - 1))
            elif not _has_begun(agent, ledger, run):
                if number and agent.session is None:
                    break  # the session that was to be used again died with its process
                agent.execute(order, run_id=run)
            told["status"] = "completed"
        except DecisionRequiredError:
            told["waited"], told["status"] = True, "waiting"
        if ledger is not None:
            assert ledger.verify(run).ok
            state = state_at(ledger, run)
            told["outcome"] += state.outcome_digest
            told["status"] = state.summary.status
            # An optimization is a run of its own, and there is one whatever died.
            for inner in ledger.runs():
                if inner.tags.get(SERVES_TAG) == str(run):
                    assert ledger.verify(inner.run_id).ok
                    told["outcome"] += state_at(ledger, inner.run_id).outcome_digest
            told["doubts"] += _doubts(ledger, run)
    return {**told, "effects": agent.effects()}


def _replayed(plan: dict[str, Any], place: str, ledger: Ledger, run: UUID) -> list[Any]:
    """What a replay finds; what its tools did, and what they were asked: nothing."""
    agent = _agent(plan, place, ledger, lambda name: None)
    before = agent.effects()
    found = replay(ledger, run, loop=agent).divergence
    assert agent.effects() == before
    return [*([found.summary] if found is not None else []), *agent.asked]


def _divergence(plan: dict[str, Any], place: str, ledger: Ledger, run: UUID) -> str:
    """What a replay finds that has neither files nor a host to read them from."""
    agent = _agent(plan, place, ledger, lambda name: None)
    assert isinstance(agent, Clerk)
    shutil.rmtree(agent.host)
    found = replay(ledger, run, loop=agent).divergence
    assert not any(agent.workspaces[-1].iterdir())
    return "" if found is None else found.summary


def _divergences(plan: dict[str, Any], place: str, ledger: Ledger, step: int) -> str:
    """What replays of all turns of a chat find; none calls a model or a handler."""

    def never(name: str) -> None:
        raise AssertionError(f"a replay came to {name}")

    agent = _agent(plan, place, ledger, never)
    runs = [run_id(plan, step, number) for number in range(len(ORDERS["chat"]))]
    found = [replay(ledger, run, loop=agent).divergence for run in runs]
    return " ".join(one.summary for one in found if one is not None)


def _has_begun(agent: Agent, ledger: Ledger | None, run: UUID) -> bool:
    """Without a ledger nothing is left of a completed run but what it did."""
    return bool(ledger.head(run)) if ledger is not None else bool(agent.effects())


def _has_files(ledger: Ledger, run: UUID) -> bool:
    records = ledger.read(run) if ledger.head(run) else ()
    return any(record.tag == ResourceSnapshotted.tag for record in records)


def _doubts(ledger: Ledger, run: UUID) -> list[str]:
    return [r.event.call_id for r in ledger.read(run) if r.tag == "tool_call.in_doubt"]  # type: ignore[union-attr]
