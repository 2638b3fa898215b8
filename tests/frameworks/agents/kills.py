"""Scenario: the shop's agent of one cell is SIGKILLed wherever it can die, and run again.

The moments are before and after each commit, in each tool before and after its effect, and in the
middle of streams. Then all runs are replayed without a network, and with changed code. Started by
`tests.crash.driver`; the model's server is the test's.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.crash.fuses import fuse, last_words, lay, warm_up
from tests.crash.processes import Crew, Voice
from tests.frameworks.agents.changes import CHANGES, RECORDED, expected
from tests.frameworks.agents.shop import IN_STREAM, Shop, call_of, effects_in, result_of
from tests.frameworks.agents.table import FRAMEWORKS
from turnledger.adapters.testing.no_network import no_network
from turnledger.ledger import (
    ANY,
    Ledger,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
    run_id_for,
)
from turnledger.projections import state_at
from turnledger.runtime import DecisionRequiredError
from turnledger.runtime.replaying.replay import ReplayDivergedError

MOST = 200
RECORDING = "recording"
OUTCOMES = (ModelReplied, ToolCallCompleted, ToolCallFailed)
Plan = dict[str, Any]


def run(
    crew: Crew,
    *,
    framework: str,
    colour: str,
    stream: bool,
    server: str,
    folder: str,
    at: str = "",
) -> dict[str, Any]:
    """What became of the runs, of their replays, and of replays with changed code.

    Args:
        crew: Starts the processes.
        framework: The row of the table.
        colour: "sync" or "async".
        stream: Whether replies are streamed.
        server: The address of the model's server.
        folder: An empty folder.
        at: The one point at which to die; by default, at each of them in turn.
    """
    plan: Plan = {
        "framework": framework,
        "colour": colour,
        "stream": stream,
        "server": server,
        "folder": folder,
    }
    _warm(plan, crew)
    deaths = _deaths(plan, crew, at)
    [(_, [_, facts])] = crew.join(crew.start("goes on", _go_on, plan, list(deaths)))
    runs = [{"died": died, **one} for died, one in zip(deaths.values(), facts, strict=True)]
    [(_, [_, replayed])] = crew.join(crew.start("replays", _replay, plan, list(deaths)))
    return {"runs": runs, **replayed}


def _deaths(plan: Plan, crew: Crew, at: str) -> dict[Any, str]:
    """Start the agent and let it die, at one moment after the other; the last one does not."""
    deaths = {}
    for moment in (at, 0) if at else range(1, MOST):
        words = last_words(crew, crew.start(f"dies at {moment}", _work, plan, moment))
        assert words, f"the process of moment {moment} ended without a word"
        deaths[moment] = words[-1][1] if words[-1][0] == "died" else ""
        if not deaths[moment]:
            return deaths
    raise AssertionError(f"not through after {MOST} moments")


def _warm(plan: Plan, crew: Crew) -> None:
    """Import what a run of the agent imports, once: the others are forked after it."""
    FRAMEWORKS[plan["framework"]].load()
    [(_, [_, modules])] = crew.join(crew.start("records", _record, plan))
    for name in modules:
        with suppress(Exception):
            import_module(name)
    warm_up()


def _name(moment: Any) -> str:
    return f"order-{moment}"


def _agent(plan: Plan, ledger: Ledger, name: str, point: Callable[[str], None], **more: Any) -> str:
    shop = Shop(plan["server"], ledger, name, _effects(plan, name), point, **more)
    return FRAMEWORKS[plan["framework"]].load()(shop, plan["colour"], plan["stream"])


def _effects(plan: Plan, name: str) -> Path:
    return Path(plan["folder"], f"{name}.effects")


def _ledger(plan: Plan) -> Ledger:
    return Ledger.open(Path(plan["folder"], "runs.db"))


# --- the processes ------------------------------------------------------------------------------


def _record(voice: Voice, plan: Plan) -> None:
    """Record a run with steps of the program's own, for replays with changed code."""
    before = set(sys.modules)
    with _ledger(plan) as ledger:
        _agent(plan, ledger, RECORDING, lambda name: None, wording=RECORDED)
    voice.say("modules", [name for name in sys.modules if name not in before])


def _work(voice: Voice, plan: Plan, moment: Any) -> None:
    """The first process, which dies."""
    point = fuse(voice, moment) if isinstance(moment, int) else _death(voice, moment)
    with _ledger(plan) as ledger:
        lay(ledger, point)
        _agent(plan, ledger, _name(moment), point)
    voice.say("done")


def _death(voice: Voice, moment: str) -> Callable[[str], None]:
    """Dies at the point of that name."""

    def point(name: str) -> None:
        if name == moment:
            voice.say("died", name)
            os.kill(os.getpid(), signal.SIGKILL)

    return point


def _go_on(voice: Voice, plan: Plan, moments: list[Any]) -> None:
    """The same program again, and a person's decisions, until each run has its answer."""
    with _ledger(plan) as ledger:
        voice.say("facts", [_answered(ledger, plan, _name(moment)) for moment in moments])


def _answered(ledger: Ledger, plan: Plan, name: str) -> dict[str, Any]:
    waited = list[str]()
    while True:
        try:
            answer = _agent(plan, ledger, name, lambda name: None)
            return {"answer": answer, "waited": waited, **_facts(ledger, plan, name)}
        except DecisionRequiredError as waits:
            assert ledger.run(run_id_for(name)).status == "waiting"
            for call_id in waits.call_ids:
                assert call_id not in waited
                waited.append(call_id)
                _decide(ledger, plan, name, call_id)
        except BaseException as error:
            error.add_note(f"going on with {name}")
            raise


def _decide(ledger: Ledger, plan: Plan, name: str, call_id: str) -> None:
    """What a person does: look whether it happened, and say so."""
    call = call_of(call_id)
    given = 120
    happened = call.name in effects_in(_effects(plan, name))
    starts = [
        one.event
        for one in ledger.read(run_id_for(name))
        if isinstance(one.event, ToolCallStarted) and one.event.call_id == call_id
    ]
    decided = ToolCallDecided(
        call_id=call_id,
        decision="completed" if happened else "retry",
        value=result_of(call.name, given) if happened else None,
        attempt=len(starts),
        decided_by="ann",
    )
    ledger.append(run_id_for(name), [decided], ANY)


def _facts(ledger: Ledger, plan: Plan, name: str) -> dict[str, Any]:
    run_id = run_id_for(name)
    assert ledger.verify(run_id).ok
    events = [record.event for record in ledger.read(run_id)]
    ended, again = set[str](), list[str]()
    for event in events:
        if isinstance(event, ModelCalled | ToolCallStarted) and event.call_id in ended:
            again.append(event.call_id)
        if isinstance(event, OUTCOMES) or (isinstance(event, ModelCallFailed) and event.final):
            ended.add(event.call_id)
    state = state_at(ledger, run_id)
    return {
        "status": state.summary.status,
        "outcome": state.outcome_digest,
        "effects": effects_in(_effects(plan, name)),
        "doubts": [one.name for one in events if isinstance(one, ToolCallInDoubt)],
        "starts": [one.name for one in events if isinstance(one, ToolCallStarted)],
        "asked": sum(isinstance(one, ModelCalled) for one in events),
        "replied": sum(isinstance(one, ModelReplied) and bool(one.call_id) for one in events),
        "tokens": state.usage.total.output_tokens,
        # Steps that were begun though their outcome was on record.
        "again": again,
    }


def _replay(voice: Voice, plan: Plan, moments: list[Any]) -> None:
    """Replay all runs with sockets refused, in an empty network where that can be had."""
    isolated = _leave_network()
    answers, came = [], list[str]()
    with _ledger(plan) as ledger, no_network() as attempts:
        heads = {info.run_id: ledger.head(info.run_id) for info in ledger.runs()}
        for name in map(_name, moments):
            done = effects_in(_effects(plan, name))
            answers.append(_agent(plan, ledger, name, came.append, replay=True))
            assert effects_in(_effects(plan, name)) == done
        # A run that is completed is answered from its record, too.
        answers.append(_agent(plan, ledger, _name(moments[-1]), came.append))
        changed = _changed(plan, ledger, came)
        assert {info.run_id: ledger.head(info.run_id) for info in ledger.runs()} == heads
    told = {
        "answers": answers,
        "changed": changed,
        "isolated": isolated,
        "connections": [str(one) for one in attempts],
        # Streams come from the record; all other points are in handlers.
        "handlers": [name for name in came if name != IN_STREAM],
    }
    voice.say("told", told)


def _changed(plan: Plan, ledger: Ledger, came: list[str]) -> dict[str, Any]:
    """What replays of the recorded run find with each change of the code, and what they must."""
    told = {}
    records = list(ledger.read(run_id_for(RECORDING)))
    for name, change in CHANGES.items():
        if FRAMEWORKS[plan["framework"]].own_run and change.is_of_a_step:
            continue
        wording = replace(RECORDED, **change.fields)
        try:
            _agent(plan, ledger, RECORDING, came.append, wording=wording, replay=True)
            found: Any = None
        except ReplayDivergedError as error:
            found = [error.divergence.version, error.divergence.cause]
        except BaseException as error:
            error.add_note(f"changed: {name}")
            raise
        told[name] = [found, expected(records, change)]
    return told


def _leave_network() -> bool:
    """Into a network namespace without any interface; whether the machine allowed that."""
    if sys.platform != "linux":
        return False
    user, network = 0x10000000, 0x40000000
    libc = ctypes.CDLL(None)
    left: bool = libc.unshare(network) == 0 or libc.unshare(user | network) == 0
    return left
