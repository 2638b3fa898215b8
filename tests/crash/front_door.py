"""Scenario: a process that uses an `Agent` is SIGKILLed at every moment where it can die.

The moments are before and after each commit and claim, and inside each tool and model call. The
agent has a chat of three turns, or a tool that needs approval; its tools are sync, async or both,
and it is run by `run` or by `arun`. Another process goes on with what there is, as a program that
is started again would: it recovers the last turn, decides what waits, and begins what is missing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from tests.agent import calls, says
from tests.crash.fuses import fuse, last_words, lay, warm_up
from tests.crash.matrix import MOST, RUNS
from tests.crash.processes import Crew, Voice
from turnledger import Agent, ToolContext, tool
from turnledger.ledger import Ledger
from turnledger.projections import PendingTools, TextBlock, fold, state_at
from turnledger.runtime import DecisionRequiredError, Reply, Request
from turnledger.runtime.agents.result import RunResult
from turnledger.runtime.recovery.approvals import approve

INPUTS = ("Pay one.", "Pay two.", "Pay three.")


def run(
    crew: Crew, *, url: str, folder: str, way: str, tools: str, kind: str, stride: int = 1
) -> dict[str, Any]:
    """What became of each: where it died, its outcome, and what was paid."""
    plan = {"url": url, "way": way, "tools": tools, "kind": kind}
    warm_up()
    told: list[dict[str, Any]] = []
    for step in range(1, MOST, stride):
        place = Path(folder) / f"{way}-{tools}-{kind}-{step}"
        place.mkdir(parents=True)
        victim = crew.start(f"dies at {step}", _work, plan, str(place), step, step)
        words = last_words(crew, victim)
        done = words[-1][0] == "outcome"
        goes_on = crew.start("goes on", _work, plan, str(place), step, 0)
        [(_, [_, outcome])] = crew.join(goes_on)
        told.append({"step": step, "death": None if done else words[-1][1], **outcome})
        if done:
            return {"runs": told}
    raise AssertionError(f"not through after {MOST} steps")


def _work(voice: Voice, plan: dict[str, str], place: str, step: int, length: int) -> None:
    """Bring all turns to their end, whatever a process before this one has done of them."""
    point = fuse(voice, length)
    with Ledger.open(plan["url"]) as ledger:
        lay(ledger, point)
        agent = _agent(plan, Path(place) / "effects", ledger, point)
        before: UUID | None = None
        outcome = ""
        doubts: list[str] = []
        inputs = INPUTS if plan["kind"] == "chat" else INPUTS[:1]
        for number, text in enumerate(inputs):
            turn = uuid5(RUNS, f"{sorted(plan.items())} {step} {number}")
            _finish(plan, agent, ledger, turn, text, before)
            outcome += state_at(ledger, turn).outcome_digest
            before = turn
        assert before is not None
        assert ledger.verify(before).ok
        for record in ledger.read(before):
            if record.tag == "tool_call.in_doubt":
                doubts.append(record.event.call_id)  # type: ignore[union-attr]
        divergence = _replayed(plan, ledger, before)
        voice.say(
            "outcome",
            {
                "outcome": outcome,
                "doubts": doubts,
                "divergence": divergence,
                "effects": (Path(place) / "effects").read_text().split(),
            },
        )


def _finish(
    plan: dict[str, str],
    agent: Agent[str, str],
    ledger: Ledger,
    turn: UUID,
    text: str,
    before: UUID | None,
) -> None:
    """Begin a turn, or go on with it, until it is completed; a person says yes to everything."""
    while True:
        try:
            if not ledger.head(turn):
                _by(plan, agent.run, agent.arun, text, run_id=turn, continues=before)
            elif ledger.run(turn).status != "completed":
                _by(plan, agent.recover, agent.arecover, turn)
            return
        except DecisionRequiredError as waits:
            for call in fold(ledger.read(turn), PendingTools()).pending():
                if call.call_id in waits.call_ids:
                    approve(ledger, turn, call.call_id, by="ann")


def _by(
    plan: dict[str, str],
    sync: Callable[..., RunResult[str]],
    asynchronous: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> None:
    if plan["way"] == "run":
        sync(*args, **kwargs)
    else:
        asyncio.run(asynchronous(*args, **kwargs))


def _replayed(plan: dict[str, str], ledger: Ledger, turn: UUID) -> str:
    """What a replay finds, in which a tool or a model that is called would be an error."""

    def refuse(name: str) -> None:
        raise AssertionError(f"a replay came to {name}")

    found = _agent(plan, Path(os.devnull), ledger, refuse).replay(turn, ledger=ledger).divergence
    return "" if found is None else str(found)


def _agent(
    plan: dict[str, str], effects: Path, ledger: Ledger, point: Callable[[str], None]
) -> Agent[str, str]:
    """An agent that pays in each turn, with real effects: a line in a file, on disk."""

    def pay(call_id: str) -> str:
        point(f"in tool {call_id}, before")
        handle = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{call_id}\n".encode())
        os.fsync(handle)
        os.close(handle)
        point(f"in tool {call_id}, after")
        return "Paid."

    needs_approval = plan["kind"] == "approval"

    @tool(needs_approval=needs_approval, on_interrupt="retry")
    def pay_now(context: ToolContext) -> str:
        """Pay at once."""
        return pay(context.call_id)

    @tool(needs_approval=needs_approval, on_interrupt="retry")
    async def pay_later(context: ToolContext) -> str:
        """Pay without waiting for it."""
        await asyncio.sleep(0)
        return pay(context.call_id)

    used = {"sync": ["pay_now"], "async": ["pay_later"], "mixed": ["pay_now", "pay_later"]}

    def model(request: Request) -> Reply:
        asked = (block for turn in request.turns if turn.role == "user" for block in turn.blocks)
        number = sum(isinstance(block, TextBlock) for block in asked)
        point(f"in model call {request.turn} of turn {number}")
        if request.turn == 1:
            names = used[plan["tools"]]
            return calls(*((f"t{number}-{name}", name, "{}") for name in names))
        return says(f"Paid in turn {number}.")

    return Agent(
        "crash/payer",
        model=model,
        instructions="Pay.",
        tools=[pay_now, pay_later],
        ledger=ledger,
    )
