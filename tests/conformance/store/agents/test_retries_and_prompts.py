"""Rejected outputs and changed prompts on every store: what is read back is what was recorded."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, says
from tests.unit.runtime.loops import ANSWER, Answer, Goal, Planner, crash_in, interrupted
from turnledger.ledger import (
    EvaluationStarted,
    Ledger,
    MessageAppended,
    OutputRejected,
    RunResumed,
    new_run_id,
)
from turnledger.projections import state_at
from turnledger.runtime import MainLoopConfig, PromptMismatch, replay


def events(ledger: Ledger, run: UUID, kind: type) -> list[Any]:
    return [record.event for record in ledger.read(run) if isinstance(record.event, kind)]


def check(ledger: Ledger, run: UUID, loop: Planner) -> None:
    """The run replays as it is, its chain holds, and its row is that of its records."""
    assert replay(ledger, run).ok
    found = replay(ledger, run, loop=loop)
    assert (found.divergence, found.version) == (None, ledger.head(run)), str(found.divergence)
    assert ledger.verify(run).ok
    assert ledger.run(run).status == state_at(ledger, run).summary.status == "completed"


def test_a_rejected_output_is_recorded_with_its_question(ledger: Ledger) -> None:
    """Both in one commit, and a recovery goes on after them."""
    run = new_run_id()

    def dies(request: Any) -> Any:
        if request.turn == 1:
            return says("three")
        raise Crash

    config = MainLoopConfig(output_retries=1)
    with pytest.raises(Crash):
        Planner(dies, ledger=ledger, config=config).execute(Goal(), run_id=run)
    (rejected,) = events(ledger, run, OutputRejected)
    record = next(r for r in ledger.read(run) if isinstance(r.event, OutputRejected))
    asked = ledger.record(run, record.version + 1)
    assert isinstance(asked.event, MessageAppended)
    assert asked.event.message.message_id == rejected.asked_id
    assert asked.commit == record.commit
    loop = Planner([ANSWER, ANSWER], ledger=ledger, config=config)
    assert loop.recover(run)[0].output == Answer(3)
    check(ledger, run, Planner([], ledger=ledger))


@pytest.mark.parametrize("prompt", ["recorded", "accept"])
def test_a_changed_prompt_is_gone_on_with(ledger: Ledger, prompt: Any) -> None:
    """Refused without a choice and without a trace; killed again, it needs no second choice."""
    run = interrupted(ledger, "c3")
    before = ledger.head(run)
    with pytest.raises(PromptMismatch):
        Planner(ledger=ledger, title="Another").recover(run)
    assert ledger.head(run) == before
    edited = {"title": "Another", "ledger": ledger}
    with pytest.raises(Crash):
        Planner(in_tool=crash_in("c3"), **edited).recover(run, prompt=prompt, decided_by="ann")
    assert [one.prompt_by for one in events(ledger, run, RunResumed)] == ["ann"]
    goes_on = Planner(lambda request: ANSWER, **edited)
    if prompt == "accept":
        assert goes_on.recover(run)[0].output == Answer(3)
    else:
        with pytest.raises(PromptMismatch):
            goes_on.recover(run)
        assert goes_on.recover(run, prompt=prompt)[0].output == Answer(3)
    assert goes_on.ran == ["c3"]
    begun = events(ledger, run, EvaluationStarted)
    assert [one.accepted for one in begun] == [False, True][: 1 + (prompt == "accept")]
    check(ledger, run, Planner([], **edited))
