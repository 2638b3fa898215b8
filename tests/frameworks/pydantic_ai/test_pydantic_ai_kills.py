"""A pydantic-ai agent that is SIGKILLed anywhere ends as if it had not been.

The script (`agent_script`) dies before and after everything that it writes to the ledger, and
inside of each tool, before and after its effect; the same script is then run again.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.frameworks.pydantic_ai import agent_script
from tests.frameworks.pydantic_ai.agent_script import LOOK, NAME, PAY, SEND, WAYS, Plan, reply
from tests.servers.openai_chat import OpenAIChat
from tests.servers.serving import StrictServer
from turnledger.adapters.cli import turnledger as command
from turnledger.ledger import (
    Ledger,
    ModelCalled,
    ToolCallInDoubt,
    ToolCallStarted,
    run_id_for,
)

OUTPUT = "Order 17 is paid."
POLICIES = ("retry", "fail", "ask")
MOST = 60
# Imports pydantic-ai once; each script is a process of its own.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([agent_script.__name__])


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[tuple[Plan, StrictServer]]:
    """A plan in an empty folder, and the server that it talks to."""
    with StrictServer(OpenAIChat(), reply) as server:
        effects = tmp_path / "effects"
        effects.touch()
        yield (
            Plan(ledger=str(tmp_path / "runs.db"), server=server.url, effects=str(effects)),
            server,
        )
        assert server.refused == []


def script(plan: Plan) -> dict[str, Any] | None:
    """What the script printed; None if it was killed."""
    ours, theirs = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=agent_script.work, args=(plan, theirs))
    process.start()
    theirs.close()
    try:
        told: dict[str, Any] | None = ours.recv()
    except EOFError:
        told = None
    process.join(60)
    assert process.exitcode == (0 if told is not None else -signal.SIGKILL)
    ours.close()
    return told


def to_its_end(plan: Plan) -> dict[str, Any]:
    """Run the script again and decide what it waits for, until it has its output."""
    for _ in range(3):
        told = script(plan)
        assert told is not None
        if told.get("error") != "DecisionRequiredError":
            return told
        decide = ["--db", plan.ledger, "resolve", NAME, "pay:call_pay"]
        decided = CliRunner().invoke(
            command, [*decide, "--completed", '"Paid 120, says the bank."']
        )
        assert decided.exit_code == 0, decided.output
    raise AssertionError("it waits again for what was decided")


def check(plan: Plan, server: StrictServer) -> None:
    """Nothing that is recorded was done again, and a replay does nothing at all."""
    told = to_its_end(plan)
    assert told["output"].strip() == OUTPUT, told
    done = Counter(Path(plan.effects).read_text().split())
    with Ledger.open(plan.ledger) as ledger:
        found = [record.event for record in ledger.read(run_id_for(NAME))]
    doubts = {one.name for one in found if isinstance(one, ToolCallInDoubt)}
    starts = Counter(one.name for one in found if isinstance(one, ToolCallStarted))
    for name in (PAY, LOOK, SEND):
        assert done[name] == 1 or name in doubts, name
        assert done[name] <= starts[name], name
    if plan.policy != "retry":
        assert starts[PAY] == 1
    asked = Counter(one.turn for one in server.asked)
    called = Counter(one.call_id for one in found if isinstance(one, ModelCalled))
    assert set(called) == {f"orders.model#{turn}" for turn in asked}
    assert all(count <= called[f"orders.model#{turn}"] for turn, count in asked.items())
    replayed = script(replace(plan, replay=True))
    assert replayed is not None
    assert replayed["output"].strip() == OUTPUT, replayed
    assert replayed["refused"] == []
    assert Counter(Path(plan.effects).read_text().split()) == done


def test_killed_inside_a_tool(plan: tuple[Plan, StrictServer]) -> None:
    """A payment is never made twice: the run waits, and goes on with what a person decided."""
    given, server = replace(plan[0], way="run", policy="ask"), plan[1]
    assert script(replace(given, dies_in=f"{PAY}, after its effect")) is None
    check(given, server)
    told = CliRunner().invoke(command, ["--db", given.ledger, "-o", "json", "messages", NAME])
    assert "says the bank" in json.dumps(json.loads(told.stdout))


@pytest.mark.full
@pytest.mark.parametrize(("way", "policy"), list(zip(WAYS, cycle(POLICIES), strict=False)))
def test_killed_anywhere(way: str, policy: str, plan: tuple[Plan, StrictServer]) -> None:
    """At each point of the script, whichever way the agent is run."""
    for place in range(1, MOST):
        folder = Path(plan[0].ledger).parent / str(place)
        folder.mkdir()
        (folder / "effects").touch()
        with StrictServer(OpenAIChat(), reply) as server:
            given = Plan(
                ledger=str(folder / "runs.db"),
                server=server.url,
                effects=str(folder / "effects"),
                way=way,
                policy=policy,
            )
            told = script(replace(given, dies_at=place))
            check(given, server)
        if told is not None:
            assert place > 20
            return
    raise AssertionError(f"not through after {MOST} points")
