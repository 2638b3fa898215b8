"""Agents made at random, that fail and die at random, and people who decide at random.

Whatever came of a run, it runs again: folded and re-executed, whole and up to every version.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any
from uuid import UUID

import pytest

from tests.agent import USAGE, Crash
from tests.matrices import further
from tests.replay.farm import Farm
from tests.replay.shepherd import DONE, Flock, Job, Sheep
from turnledger.ledger import ANY, CustomEvent, InnerMessage, TurnledgerError, new_run_id
from turnledger.ledger import ToolCallDecided as Decided
from turnledger.runtime import (
    DeadlineExceededError,
    DecisionRequiredError,
    PromptEvaluationError,
    PromptRendered,
    RecoveryConfig,
    Reply,
    Session,
    ToolCall,
    ToolContext,
    ToolInvoked,
    ToolResult,
)

SECTIONS = ("rams", "ewes")


class ThrottledOut(Exception):  # noqa: N818 - as a provider may call it
    """A model call that may be made again."""

    retryable = True


class Chance:
    """Everything that is decided by lot for one agent. What it is to be is fixed by its number."""

    def __init__(self, number: int, farm: Farm) -> None:
        self._number = number
        self._farm = farm
        self._lots = Random(number)
        self._made = 0
        self.width = self._lots.choice((1, 1, 2, 3))
        self.policy = self._lots.choice(("retry", "fail", "ask"))
        self.listens = self._lots.choice((False, False, True))
        self.interval = self._lots.choice((1, 1, 2))
        self.turns = self._lots.randint(1, 4)
        self.calm = False
        self.sessions: list[Session] = []
        self.run: UUID = new_run_id()

    def once(self, *what: Any) -> Random:
        """Lots that are the same whenever the same is asked."""
        return Random(f"{self._number} {what}")

    def again(self) -> Random:
        """Lots that are others each time."""
        self._made += 1
        return Random(f"{self._number} again {self._made}")

    # --- the model ---

    def reply(self, request: Any) -> Reply:
        lots = self.again()
        if not self.calm and lots.random() < 0.15:
            raise lots.choice((ThrottledOut("slow down"), ThrottledOut(), Crash(), OSError("gone")))
        opened = sum(f"All about {one}" in request.system for one in SECTIONS)
        if request.turn > self.turns:
            return DONE
        lots = self.once("reply", request.turn, opened)
        calls = [self._call(lots, request.turn, place) for place in range(lots.randint(0, 4))]
        return Reply(text="Well.", tool_calls=tuple(calls), usage=USAGE)

    def _call(self, lots: Random, turn: int, place: int) -> ToolCall:
        call_id = f"c{turn}{place}"
        if lots.random() < 0.1:
            key = lots.choice((*SECTIONS, "goats"))
            wanted = f'{{"section_keys": ["{key}"], "reason": "look"}}'
            return ToolCall(call_id, "open_sections", wanted)
        name = lots.choice(("count", "count", "weigh", "weigh", "shear"))
        return ToolCall(call_id, name, lots.choice(('{"name": "x"}', "{}", "{}", "[]", "{")))

    # --- tools and listeners ---

    def handler(self, params: Flock, context: ToolContext) -> Any:
        lots = self.again()
        if lots.random() < 0.2:
            self._farm.ledger.append(self.run, CustomEvent(kind="test.note", data=1), ANY)
        for _ in range(lots.randint(0, 2)):
            self._change(context.session, lots)
        fate = lots.random()
        if self.calm or fate < 0.6:
            return ToolResult("Done.", value={"n": lots.randint(0, 9)})
        if fate < 0.7:
            return ToolResult("It can't be.", success=False)
        if fate < 0.8:
            raise RuntimeError("the gate is shut")
        if fate < 0.83:
            raise DeadlineExceededError("no time left")
        if fate < 0.9:
            raise Crash
        return None

    def _change(self, session: Session, lots: Random) -> None:
        match lots.randrange(6):
            case 0 | 1:
                session[Sheep].append(Sheep(f"s{lots.randint(0, 9)}"))
            case 2:
                session[Sheep].seed([Sheep("a"), Sheep("b")])
            case 3:
                session[Sheep].clear()
            case 4:
                session.restore(session.snapshot())
            case _:
                said = session[InnerMessage].all()[-1]
                session[InnerMessage].append(
                    InnerMessage(
                        role="user",
                        content="psst",
                        evaluation_id=said.evaluation_id,
                        sequence=said.sequence + 1,
                        turn=said.turn,
                        prompt_ns=said.prompt_ns,
                        prompt_key=said.prompt_key,
                    )
                )

    def invoked(self, event: ToolInvoked) -> None:
        lots = self.again()
        if lots.random() < 0.3:
            self.sessions[-1][Sheep].append(Sheep("noted"))
        if lots.random() < 0.2:
            raise RuntimeError("I object")

    def rendered(self, event: PromptRendered) -> None:
        if self.again().random() < 0.3:
            self.sessions[-1][Sheep].append(Sheep("rendered"))

    def prepare(self, session: Session) -> None:
        session.install(Sheep)
        if self.once("seed").random() < 0.5:
            session[Sheep].seed([Sheep("dolly")])
        self.sessions.append(session)

    # --- all of it ---

    def options(self) -> dict[str, Any]:
        return {
            "replies": self.reply,
            "handler": self.handler,
            "on_interrupt": self.policy,
            "summarised": SECTIONS,
            "session": self.prepare,
            "recovery": RecoveryConfig(max_attempts=9, checkpoint_interval=self.interval),
            "adapter_options": {"parallel_tools": self.width},
            "listeners": (
                {ToolInvoked: self.invoked, PromptRendered: self.rendered} if self.listens else {}
            ),
        }


def _goes_on(farm: Farm, chance: Chance, run: UUID) -> None:
    """Recover it as often as it takes, with decisions where they are asked for."""
    chance.run = run
    for attempt in range(12):
        chance.calm = attempt > 5
        if farm.ledger.run(run).status in ("completed", "parked", "abandoned"):
            return
        try:
            farm.loop().recover(run)
        except DecisionRequiredError as waits:
            for call_id in waits.call_ids:
                decision: Any = chance.again().choice(("completed", "failed", "retry"))
                farm.ledger.append(run, Decided(call_id=call_id, decision=decision), ANY)
        except (Crash, PromptEvaluationError):
            continue
        except TurnledgerError:
            return


def _lives(farm: Farm, number: int) -> list[UUID]:
    """The life of one agent: its run, and perhaps a fork of it."""
    chance = Chance(number, farm)
    farm.options = chance.options()
    run = chance.run
    with suppress(Crash, PromptEvaluationError, DecisionRequiredError):
        farm.loop().execute(Job(), run_id=run)
    lots = chance.again()
    if lots.random() < 0.1:
        farm.loop().abandon(run, reason="no use")
        return [run]
    runs = [run]
    if lots.random() < 0.4:
        with suppress(TurnledgerError):
            runs.append(farm.ledger.fork(run, at=lots.randint(1, farm.ledger.head(run))))
    for one in runs:
        _goes_on(farm, chance, one)
    return runs


@pytest.mark.parametrize("tens", further(*range(6)))
def test_whatever_came_of_a_run_it_runs_again(farm: Farm, tens: int) -> None:
    """Ten agents each; the number of the one that does not is told."""
    for number in range(10 * tens, 10 * tens + 10):
        for run in _lives(farm, number):
            try:
                farm.check(run)
            except AssertionError as error:
                error.add_note(f"agent {number}, run {run}: {farm.tags(run)}")
                raise
