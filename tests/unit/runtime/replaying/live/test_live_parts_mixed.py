"""Live parts beside recorded ones: in one turn, over the same files, with limits and listeners."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.crash.agents import Agent, Order
from tests.unit.runtime.loops import (
    ANSWER,
    REPLIES,
    Answer,
    Goal,
    Plan,
    Planner,
    Step,
    asks,
    call,
    simulated_crash,
)
from turnledger.ledger import ANY, InvalidInputError, Ledger, ToolCallDecided, new_run_id
from turnledger.projections import state_at
from turnledger.runtime import (
    DeadlineExceededError,
    DecisionRequiredError,
    MainLoopConfig,
    MarkdownSection,
    Prompt,
    PromptEvaluationError,
    PromptMismatch,
    PromptTemplate,
    Reply,
    ScriptedAdapter,
    Session,
    SnapshotableFilesystem,
    Tool,
    ToolContext,
    ToolInvoked,
)
from turnledger.runtime.replaying.live.replay import LiveReplay, replay_live
from turnledger.runtime.replaying.replay import replay

MIXED = [asks(call("c1"), call("r1", "refuse"), call("c2"), call("r2", "refuse")), ANSWER]


def wide(ledger: Ledger, replies: Sequence[Any], width: int, **options: Any) -> Planner:
    loop = Planner(replies, ledger=ledger, **options)
    loop._adapter = ScriptedAdapter(replies, parallel_tools=width)
    return loop


def recorded(loop: Planner) -> UUID:
    run = new_run_id()
    loop.execute(Goal(), run_id=run)
    return run


def check(ledger: Ledger, found: LiveReplay, loop: Planner) -> None:
    ran = list(loop.ran)
    assert ledger.verify(found.fork).ok
    repeated = replay(ledger, found.fork, loop=loop)
    assert repeated.divergence is None, str(repeated.divergence)
    assert repeated.version == ledger.head(found.fork)
    assert loop.ran == ran


# --- one turn --------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("tool", ["step", "refuse"])
def test_a_turn_is_partly_live(tool: str, width: int, ledger: Ledger) -> None:
    """Side by side, some calls run and the others end as they did; the fork replays."""
    run = recorded(wide(ledger, MIXED, width))
    called: list[str] = []
    loop = wide(ledger, MIXED, width, in_tool=lambda context: called.append(context.call_id))
    found = replay_live(ledger, run, loop, live=[f"tool:{tool}"])
    mine, theirs = (["c1", "c2"], ["r1", "r2"]) if tool == "step" else (["r1", "r2"], ["c1", "c2"])
    assert sorted(called) == mine
    assert sorted(part.call_id for part in found.live) == mine
    assert sorted(part.call_id for part in found.recorded if part.call_id) == theirs
    plans = state_at(ledger, found.fork, declarations=declared(loop)).slices.all("Plan")
    assert sorted(plan.step for plan in plans) == ["c1", "c2"]
    check(ledger, found, loop)


def declared(loop: Planner) -> Any:
    return loop.loop_host.create_session().declarations


# --- files -----------------------------------------------------------------------------


class Filer(Planner):
    """Writes files, and says which there are."""

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        folder.mkdir()
        self.folder = folder
        replies = [
            asks(call("a", "write")),
            asks(call("b", "list")),
            asks(call("c", "write")),
            ANSWER,
        ]
        super().__init__(
            replies, ledger=ledger, resources={"files": SnapshotableFilesystem(folder)}
        )

    def create_prompt(self, request: Goal) -> Prompt[Any]:
        tools = [
            Tool[Step, Any](name=name, description="Files.", handler=handler)
            for name, handler in (("write", self._write), ("list", self._list))
        ]
        section = MarkdownSection[Goal](title="Files", template="${text}", key="f", tools=tools)
        return Prompt(PromptTemplate(ns="tests", key="files", sections=[section])).bind(request)

    def _write(self, params: Step, *, context: ToolContext) -> str:
        self.ran.append(context.call_id)
        (self.folder / params.name).write_text(params.name)
        return "Written."

    def _list(self, params: Step, *, context: ToolContext) -> str:
        return ", ".join(sorted(path.name for path in self.folder.iterdir()))


def test_a_live_tool_finds_the_files_of_recorded_ones(ledger: Ledger, tmp_path: Path) -> None:
    """What a recorded tool wrote is there for the live one, and on the fork's record."""
    run = recorded(Filer(tmp_path / "one", ledger))
    loop = Filer(tmp_path / "two", ledger)
    found = replay_live(ledger, run, loop, live=["tool:list"])
    assert loop.ran == []
    said = [call.result for call in state_at(ledger, found.fork).tools.calls]
    assert said == ["Written.", "a", "Written."]
    assert sorted(path.name for path in loop.folder.iterdir()) == ["a", "c"]
    assert found.first_difference is None
    check(ledger, found, loop)


def test_files_stay_as_they_are_without_a_live_tool(ledger: Ledger, tmp_path: Path) -> None:
    """With the model alone live nothing is written anywhere."""
    run = recorded(Filer(tmp_path / "one", ledger))
    loop = Filer(tmp_path / "two", ledger)
    found = replay_live(ledger, run, loop, live=["model"])
    assert found.status == "completed"
    assert list(loop.folder.iterdir()) == []
    check(ledger, found, loop)


# --- ends ------------------------------------------------------------------------------


def test_a_recorded_failure_of_the_model_ends_the_fork_too(ledger: Ledger) -> None:
    """The fork's failure is its outcome, not the replay's."""
    replies = [REPLIES[0], RuntimeError("out of order")]
    run = new_run_id()
    with pytest.raises(PromptEvaluationError):
        Planner(replies, ledger=ledger).execute(Goal(), run_id=run)
    loop = Planner(REPLIES, ledger=ledger)
    found = replay_live(ledger, run, loop, live=["tool:step"])
    assert loop.ran == ["c1"]
    assert found.status == "failed"
    assert isinstance(found.error, PromptEvaluationError)
    assert "out of order" in str(found.error)
    assert found.first_difference is None
    check(ledger, found, loop)


def test_time_that_was_up_in_a_recorded_tool_is_up_again(ledger: Ledger) -> None:
    """A tool that ended the run ends the fork, without being called."""

    def late(context: ToolContext) -> None:
        if context.call_id == "c2":
            raise DeadlineExceededError("too late")

    class Later(Planner):
        def _refuse(self, params: Step, *, context: ToolContext) -> Any:
            return "No."

    replies = [asks(call("r1", "refuse")), asks(call("c2")), ANSWER]
    run = new_run_id()
    with pytest.raises(PromptEvaluationError, match="too late"):
        Later(replies, ledger=ledger, in_tool=late).execute(Goal(), run_id=run)
    loop = Later(replies, ledger=ledger)
    found = replay_live(ledger, run, loop, live=["tool:refuse"])
    assert (found.status, found.first_difference, loop.ran) == ("failed", None, [])
    assert "too late" in str(found.error)
    check(ledger, found, loop)


def test_a_loop_whose_session_is_in_use_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    """Its session would be moved to the fork, and the program would go on there."""
    agent, run = Agent("reused", tmp_path / "first", ledger), new_run_id()
    agent.execute(Order(), run_id=run)
    with pytest.raises(InvalidInputError, match="another loop"):
        replay_live(ledger, run, agent, live=["model"])
    assert len(list(ledger.runs())) == 1


def test_a_tool_that_is_new_may_be_live_with_the_model(ledger: Ledger, tmp_path: Path) -> None:
    """It is in no record, but the loop has it now."""
    run = recorded(Planner(REPLIES, ledger=ledger))
    replies = [asks(call("a", "write")), ANSWER]

    class Newer(Filer):
        def create_prompt(self, request: Goal) -> Prompt[Any]:
            template = PromptTemplate[Answer](
                ns="tests", key="plan", sections=super().create_prompt(request).template.sections
            )
            return Prompt(template).bind(request)

    loop = Newer(tmp_path / "new", ledger)
    loop._adapter = ScriptedAdapter(replies)
    found = replay_live(ledger, run, loop, live=["model", "tool:write"])
    assert (found.status, loop.ran) == ("completed", ["a"])


@pytest.mark.parametrize("live", ["model", "tool:step"])
@pytest.mark.parametrize("decision", ["completed", "failed", "retry"])
def test_what_a_person_decided_is_on_record_too(decision: Any, live: str, ledger: Ledger) -> None:
    """A call that was in doubt has the outcome that it was given; if it is live, it runs."""
    first, run = Planner(ledger=ledger, on_interrupt="ask"), new_run_id()
    with simulated_crash(first, "c2"):
        first.execute(Goal(), run_id=run)
    with pytest.raises(DecisionRequiredError):
        first.recover(run)
    ledger.append(run, ToolCallDecided(call_id="c2", decision=decision, text="So it is."), ANY)
    first.recover(run)
    loop = Planner(ledger=ledger, on_interrupt="ask")
    found = replay_live(ledger, run, loop, live=[live])
    assert found.status == "completed"
    assert loop.ran == ([] if live == "model" else ["c1", "c2", "c3"])
    same = [one.result for one in state_at(ledger, run).tools.calls] == [
        one.result for one in state_at(ledger, found.fork).tools.calls
    ]
    assert same == (live == "model" or decision == "retry")
    check(ledger, found, loop)


def test_limits_are_off(ledger: Ledger) -> None:
    """The time of the run is over; a live tool has no deadline."""
    config = MainLoopConfig(deadline=timedelta(hours=1))
    run = recorded(Planner(REPLIES, ledger=ledger, config=config))
    seen: list[Any] = []
    loop = Planner(
        REPLIES, ledger=ledger, config=config, in_tool=lambda context: seen.append(context.deadline)
    )
    assert replay_live(ledger, run, loop, live=["tool:step"]).status == "completed"
    assert seen == [None, None, None]


def test_another_prompt_needs_a_live_model(ledger: Ledger) -> None:
    """A conversation can't go on with another prompt; one that begins anew can."""
    run = recorded(Planner(REPLIES, ledger=ledger))
    loop = Planner(REPLIES, ledger=ledger, title="Other task")
    with pytest.raises(PromptMismatch) as caught:
        replay_live(ledger, run, loop, live=["tool:step"])
    assert "The fork is" in caught.value.__notes__[0]
    found = replay_live(ledger, run, loop, live=["model"])
    assert (found.status, loop.ran) == ("completed", [])
    assert found.first_difference is not None


# --- who hears of it -------------------------------------------------------------------


def test_a_listener_may_object_to_a_live_tool(ledger: Ledger) -> None:
    """What the user's listeners say about a tool that runs counts as ever."""
    run = recorded(Planner(REPLIES, ledger=ledger))
    loop = Planner(REPLIES, ledger=ledger)

    def object_to(event: ToolInvoked) -> None:
        raise ValueError("no")

    loop._bus.subscribe(ToolInvoked, object_to)
    found = replay_live(ledger, run, loop, live=["tool:step"])
    said = [call.result for call in state_at(ledger, found.fork).tools.calls]
    assert all(text is not None and text.startswith("Not accepted") for text in said)
    assert len(said) == 3


class Watched(Planner):
    """A loop whose session is observed."""

    def create_session(self) -> Session:
        session = super().create_session()
        session.observe(Plan, lambda old, new: self.heard.append(new))
        return session


def test_observers_of_the_session_hear_nothing(ledger: Ledger) -> None:
    """State that comes from the record is no news."""
    watched = Watched(REPLIES, ledger=ledger)
    run = recorded(watched)
    assert watched.heard
    loop = Watched(REPLIES, ledger=ledger)
    assert replay_live(ledger, run, loop, live=["model"]).status == "completed"
    assert loop.heard == []


# --- runs that go on from others -------------------------------------------------------


def test_a_continuation_runs_again(ledger: Ledger, tmp_path: Path) -> None:
    """It keeps the state that it went on from; what happened before it is not its own."""
    agent = Agent("reused", tmp_path / "first", ledger)
    agent.execute(Order())
    run = new_run_id()
    agent.execute(Order("beta"), run_id=run)
    for live, effects in (("tool:pay", ["a1@beta"]), ("model", [])):
        other = Agent("reused", tmp_path / live[:4], ledger)
        found = replay_live(ledger, run, other, live=live)
        assert other.effects() == effects
        assert found.first_difference is None
        assert state_at(ledger, found.fork).slices.all("Paid") == state_at(ledger, run).slices.all(
            "Paid"
        )
        with Ledger.open("memory://") as nobody:
            loop = Agent("reused", tmp_path / "nowhere", nobody)
            assert replay(ledger, found.fork, loop=loop).check()


def test_a_fork_runs_again_from_where_it_is_its_own(ledger: Ledger) -> None:
    """What it shares with its parent stays as it is."""
    first = recorded(Planner(REPLIES, ledger=ledger))
    second = next(r.version for r in ledger.read(first) if getattr(r.event, "call_id", "") == "c2")
    loop = Planner(REPLIES, ledger=ledger)
    at = max(r.version for r in ledger.read(first, until=second) if r.tag == "model.called")
    run = ledger.fork(first, at)
    loop.recover(run)
    loop = Planner(REPLIES, ledger=ledger)
    found = replay_live(ledger, run, loop, live=["tool:step"])
    assert loop.ran == ["c2", "c3"]
    assert found.forked_at > at
    check(ledger, found, loop)


def test_one_that_was_partly_live_runs_again(ledger: Ledger) -> None:
    """A fork that was made like this has a record like any other."""
    run = recorded(wide(ledger, MIXED, 2))
    once = replay_live(ledger, run, wide(ledger, MIXED, 2), live=["tool:step"])
    loop = wide(ledger, MIXED, 2)
    twice = replay_live(ledger, once.fork, loop, live=["tool:refuse"])
    assert loop.ran == []
    assert twice.status == "completed"
    check(ledger, twice, loop)


def test_a_model_may_say_something_else_at_the_end(ledger: Ledger) -> None:
    """The comparison shows the first thing that is not the same."""
    run = recorded(Planner(REPLIES, ledger=ledger))
    other = Reply(text='{"steps": 4}')
    loop = Planner([*REPLIES[:3], other], ledger=ledger)
    found = replay_live(ledger, run, loop, live=["model"])
    assert found.first_difference is not None
    assert found.first_difference.second is not None
    assert ledger.record(found.fork, found.first_difference.second).tag == "message.appended"
    assert found.response is not None
    assert found.response.output.steps == 4
