"""Forks that go on: to another outcome, and never by doing again what may have happened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash
from tests.crash.agents import KINDS, Agent, Order
from tests.unit.runtime.forks import Asked, check_fork, message_of, own_tags, rows, version_of
from tests.unit.runtime.loops import (
    ANSWER,
    REPLIES,
    USAGE,
    Answer,
    Goal,
    Plan,
    Planner,
    asks,
    call,
    crash_in,
    interrupted,
    simulated_crash,
)
from turnledger.ledger import (
    ANY,
    Ledger,
    MessageAppended,
    RunClaimedError,
    RunFailed,
    SliceEventApplied,
    ToolCallDecided,
    new_run_id,
)
from turnledger.projections import state_at
from turnledger.runtime import (
    CheckpointNotFoundError,
    DecisionRequiredError,
    RecoveryConfig,
    RecoveryError,
    Reply,
    RequestTypeMismatchError,
    Session,
    what_if,
)


def thinking(request: Any) -> Reply:
    """A model that does three steps, unless it hears of Porto: then it answers at once."""
    said = f"{request.system} {request.history.to_list()}"
    if "Porto" in said:
        return Reply(text='{"steps": 7}', usage=USAGE)
    return REPLIES[request.turn - 1]


@pytest.fixture
def run(ledger: Ledger) -> UUID:
    """A whole run of three steps."""
    run_id = new_run_id()
    assert Asked(thinking, ledger=ledger).execute(Goal(), run_id=run_id)[0].output == Answer(3)
    return run_id


@pytest.mark.parametrize("role", ["system", "user", "tool"])
def test_another_text_leads_to_another_outcome(ledger: Ledger, run: UUID, role: str) -> None:
    """The system's, the user's or a tool's; the parent's outcome stays."""
    before, outcome = rows(ledger, run), state_at(ledger, run).outcome_digest
    fork = what_if(ledger, run, message_of(ledger, run, role), {"/message/content": "Porto!"})
    loop = Asked(thinking, ledger=ledger)
    assert loop.recover(fork)[0].output == Answer(7)
    assert loop.ran == []
    assert ledger.run(fork).status == "completed"
    assert ledger.verify(fork).ok
    assert state_at(ledger, fork).outcome_digest != outcome
    assert rows(ledger, run) == before
    with pytest.raises(RecoveryError, match="completed"):
        loop.recover(fork)


def test_another_value_leads_to_another_outcome(ledger: Ledger, run: UUID) -> None:
    """The model is told the value, and the session has what the tool had changed."""
    at = version_of(ledger, run, "tool_call.completed", number=2)
    fork = what_if(ledger, run, at, {"/value": {"city": "Porto"}})
    loop = Asked(thinking, ledger=ledger)
    response, session = loop.recover(fork)
    assert response.output == Answer(7)
    assert loop.ran == []
    assert session[Plan].all() == (Plan("c1"), Plan("c2"))


def test_another_reply_leads_to_another_outcome(ledger: Ledger, run: UUID) -> None:
    """Other calls are made, or none; the first reply that is asked for is the one after."""
    at = message_of(ledger, run, "assistant", 2)
    turns: list[int] = []

    def counted(request: Any) -> Reply:
        turns.append(request.turn)
        return thinking(request)

    other = what_if(ledger, run, at, {"/message/tool_calls/0/arguments": '{"name": "new"}'})
    loop = Asked(counted, ledger=ledger)
    response, session = loop.recover(other)
    assert response.output == Answer(3)
    assert session[Plan].all() == (Plan("c1"), Plan("new"), Plan("c3"))
    assert (loop.ran, turns) == (["c2", "c3"], [3, 4])
    none = what_if(ledger, run, at, {"/message/tool_calls": [], "/message/content": '{"steps": 1}'})
    loop = Asked(counted, ledger=ledger)
    assert loop.recover(none)[0].output == Answer(1)
    assert (loop.ran, turns) == ([], [3, 4])


def test_what_a_provider_parsed_of_another_reply_is_not_the_answer(ledger: Ledger) -> None:
    """A changed text is parsed itself."""
    run = new_run_id()
    reply = replace(ANSWER, parsed={"steps": 3})
    loop = Planner([reply], ledger=ledger)
    loop.execute(Goal(), run_id=run)
    at = message_of(ledger, run, "assistant")
    fork = what_if(ledger, run, at, {"/message/content": '{"steps": 5}'})
    assert loop.recover(fork)[0].output == Answer(5)


def test_another_request_leads_to_another_prompt(ledger: Ledger, run: UUID) -> None:
    """The fork begins anew, with the session that a run begins with."""
    fork = what_if(ledger, run, 1, {"/request/text": "go to Porto"})

    class Seeding(Asked):
        def create_session(self) -> Session:
            session = super().create_session()
            session[Plan].seed([Plan("seed")])
            return session

    loop = Seeding(thinking, ledger=ledger)
    response, session = loop.recover(fork)
    assert response.output == Answer(7)
    assert session[Plan].all() == (Plan("seed"),)
    assert "go to Porto" in state_at(ledger, fork).history.system
    assert ledger.run(run).status == "completed"


@pytest.mark.parametrize("at", [1, 2])
def test_a_fork_before_the_beginning_begins_as_the_run_did(
    ledger: Ledger, tmp_path: Path, at: int
) -> None:
    """With what the session starts with, once."""
    agent = Agent("one", tmp_path / "effects", ledger)
    run = new_run_id()
    agent.execute(Order(), run_id=run)
    fork = ledger.fork(run, at)
    agent.recover(fork)
    seeds = [
        record.event.operation
        for record in ledger.read(fork)
        if isinstance(record.event, SliceEventApplied)
    ]
    assert seeds == ["seed", "apply"]
    assert state_at(ledger, fork).outcome_digest == state_at(ledger, run).outcome_digest


@pytest.mark.parametrize("kind", KINDS)
def test_every_fork_of_every_kind_of_loop_can_be_run(
    ledger: Ledger, tmp_path: Path, kind: str
) -> None:
    """Whichever message is changed, the fork comes to an end, once open calls are decided."""
    agent = Agent(kind, tmp_path / "effects", ledger)
    run = new_run_id()
    agent.execute(Order(), run_id=run)
    for record in list(ledger.read(run)):
        if not isinstance(record.event, MessageAppended):
            continue
        message = record.event.message
        text = '{"paid": 9, "note": "changed"}'
        if message.role == "system":
            text = f"{message.content}\n\nThink."
        fork = what_if(ledger, run, record.version, {"/message/content": text})
        loop = Agent(kind, tmp_path / "effects", ledger)
        try:
            loop.recover(fork)
        except DecisionRequiredError as error:
            decide(ledger, fork, *error.call_ids)
            loop.recover(fork)
        assert ledger.run(fork).status == "completed", record
        assert ledger.verify(fork).ok


# --- what may have happened ------------------------------------------------------------


def decide(ledger: Ledger, run_id: UUID, *calls: str) -> None:
    """Have these run again."""
    decisions = [ToolCallDecided(call_id=one, decision="retry") for one in calls]
    ledger.append(run_id, decisions, ANY)


@pytest.mark.parametrize("policy", ["retry", "fail", "ask"])
def test_a_call_that_was_open_there_is_not_run_again_by_itself(ledger: Ledger, policy: str) -> None:
    """Whatever its tool says: a person decides, and nothing is written before."""
    run = interrupted(ledger)
    fork = ledger.fork(run, ledger.head(run))
    before = rows(ledger, fork)
    loop = Planner(ledger=ledger, on_interrupt=policy)
    with pytest.raises(DecisionRequiredError, match="c2") as caught:
        loop.recover(fork)
    assert caught.value.call_ids == ("c2",)
    assert rows(ledger, fork) == before
    decide(ledger, fork, "c2")
    assert loop.recover(fork)[0].output == Answer(3)
    assert loop.ran == ["c2", "c3"]
    assert ledger.run(run).status == "running"


def test_what_was_decided_for_the_parent_is_not_run_again_in_the_fork(ledger: Ledger) -> None:
    """A retry is once; that it is known how the call ended holds for both."""
    run = interrupted(ledger)
    decide(ledger, run, "c2")
    fork = ledger.fork(run, ledger.head(run))
    known = what_if(
        ledger, run, ledger.head(run), {"/decision": "completed", "/value": "it is done"}
    )
    loop = Planner(ledger=ledger)
    with pytest.raises(DecisionRequiredError, match="c2"):
        loop.recover(fork)
    assert loop.recover(known)[0].output == Answer(3)
    assert loop.ran == ["c3"]
    of_known = ledger.fork(known, ledger.run(known).parent_version + 2)
    assert loop.recover(of_known)[0].output == Answer(3)
    decide(ledger, fork, "c2")
    assert loop.recover(fork)[0].output == Answer(3)
    assert loop.ran == ["c3", "c3", "c2", "c3"]


def test_the_parent_itself_goes_by_its_tools_policy(ledger: Ledger) -> None:
    """A fork of it changes nothing about that."""
    run = interrupted(ledger)
    ledger.fork(run, ledger.head(run))
    loop = Planner(ledger=ledger)
    assert loop.recover(run)[0].output == Answer(3)
    assert loop.ran == ["c2", "c3"]


def test_a_fork_that_was_interrupted_itself_asks_too(ledger: Ledger, run: UUID) -> None:
    """It is an experiment: nothing in it happens twice unbidden."""
    fork = what_if(ledger, run, message_of(ledger, run, "assistant"), {"/message/content": "Hm."})
    loop = Asked(thinking, ledger=ledger)
    with simulated_crash(loop, "c2"):
        loop.recover(fork)
    with pytest.raises(DecisionRequiredError, match="c2"):
        loop.recover(fork)
    assert loop.list_recoverable() == []
    decide(ledger, fork, "c2")
    (found,) = loop.list_recoverable()
    assert found.run_id == fork
    assert loop.recover(found)[0].output == Answer(3)


def test_a_fork_that_another_worker_runs_is_that_workers(ledger: Ledger, run: UUID) -> None:
    """A call that somebody is at is not in doubt."""
    fork = ledger.fork(run, version_of(ledger, run, "tool_call.started"))
    decide(ledger, fork, "c1")

    def look(context: Any) -> None:
        if context.call_id == "c1":
            with pytest.raises(RunClaimedError):
                Asked(thinking, ledger=ledger).recover(fork)

    loop = Asked(thinking, ledger=ledger, in_tool=look)
    assert loop.recover(fork)[0].output == Answer(3)
    assert loop.ran == ["c1", "c2", "c3"]


# --- which can be run ------------------------------------------------------------------


def test_a_fork_is_listed_once_somebody_has_run_it(ledger: Ledger, run: UUID) -> None:
    """Before that it was not interrupted; then it is like any other, with its parent's request."""
    fork = what_if(ledger, run, message_of(ledger, run, "tool"), {"/message/content": "Hm."})

    def dies(request: Any) -> Reply:
        raise Crash

    loop = Asked(dies, ledger=ledger)
    assert loop.list_recoverable() == []
    with pytest.raises(Crash):
        loop.recover(fork)
    (found,) = loop.list_recoverable()
    assert found.run_id == fork
    assert str(found.request_id) == state_at(ledger, run).summary.request_id
    assert Asked(thinking, ledger=ledger, request_type=str).list_recoverable() == []
    assert Asked(thinking, ledger=ledger).recover(found)[0].output == Answer(3)


def test_a_fork_of_a_failed_run_can_be_run(ledger: Ledger) -> None:
    """Its status is its own."""
    run = new_run_id()
    loop = Planner([asks(call("c1")), ValueError("no")], ledger=ledger)
    with pytest.raises(Exception, match="no"):
        loop.execute(Goal(), run_id=run)
    assert ledger.run(run).status == "failed"
    assert isinstance(ledger.record(run, ledger.head(run) - 1).event, RunFailed)
    for fork in (
        ledger.fork(run, ledger.head(run)),
        what_if(ledger, run, message_of(ledger, run, "tool"), {"/message/content": "Porto"}),
    ):
        assert Planner(thinking, ledger=ledger).recover(fork)[0].output is not None
        assert ledger.run(fork).status == "completed"
    assert ledger.run(run).status == "failed"


def test_a_fork_of_a_parked_run_has_attempts_of_its_own(ledger: Ledger) -> None:
    """Its parent's, which got nowhere, do not count."""
    run = interrupted(ledger)
    loop = Planner(ledger=ledger, in_tool=crash_in("c2"), recovery=RecoveryConfig(max_attempts=1))
    with pytest.raises(Crash):
        loop.recover(run)
    with pytest.raises(RecoveryError, match="parked"):
        loop.recover(run)
    fork = ledger.fork(run, ledger.head(run))
    decide(ledger, fork, "c2")
    loop.in_tool = lambda context: None
    assert loop.recover(fork)[0].output == Answer(3)


def test_a_fork_of_a_completed_run_at_its_end_gives_its_answer(ledger: Ledger, run: UUID) -> None:
    """Nothing is left to do, and nothing is asked."""
    fork = ledger.fork(run, ledger.head(run))
    loop = Asked([], ledger=ledger)
    assert loop.recover(fork)[0].output == Answer(3)
    assert "model.called" not in own_tags(ledger, fork)


def test_a_fork_of_another_loops_run_is_refused_before_anything_is_made(
    ledger: Ledger, run: UUID
) -> None:
    """The request that counts is the parent's."""
    fork = ledger.fork(run, ledger.head(run))
    of_fork = ledger.fork(fork, 2)
    for one in (fork, of_fork):
        before = rows(ledger, one)
        with pytest.raises(RequestTypeMismatchError):
            Planner(ledger=ledger, request_type=str).recover(one)
        assert rows(ledger, one) == before


def test_a_fork_without_anything_asked_is_no_run_of_a_loop(ledger: Ledger) -> None:
    """An abandoned run's fork can be run, one of nothing can't."""
    run = interrupted(ledger, "c1")
    loop = Planner(ledger=ledger)
    loop.abandon(run)
    with pytest.raises(CheckpointNotFoundError):
        loop.recover(run)
    fork = what_if(ledger, run, message_of(ledger, run, "assistant"), {"/message/content": "Hm."})
    assert check_fork(ledger, fork) == 0
    assert loop.recover(fork)[0].output == Answer(3)
