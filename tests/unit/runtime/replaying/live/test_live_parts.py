"""Runs again with chosen parts live: what touches the world, what is from the record, the fork."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.agent import says
from tests.crash.agents import KINDS, Agent, Order, Pay, parallel_tools, pays, reply_of
from turnledger.ledger import InvalidInputError, Ledger, ModelReplied, new_run_id
from turnledger.projections import state_at
from turnledger.runtime import Reply, ScriptedAdapter, ToolContext, ToolInvoked, ToolResult
from turnledger.runtime.replaying.live.replay import LiveReplay, NotRecordedError, replay_live
from turnledger.runtime.replaying.replay import replay

# What each kind of agent pays, in order.
PAID = {
    "none": [],
    "one": ["a1"],
    "sequential": ["a1", "a2", "a3"],
    "parallel": ["a1", "a2", "a3"],
    "failing": ["a2"],
    "expansion": ["e1"],
    "structured": ["a1"],
    "reused": ["a1"],
}
PAYING = [kind for kind in KINDS if PAID[kind]]


def recorded(ledger: Ledger, kind: str, folder: Path) -> UUID:
    """A run of an agent that went well."""
    run = new_run_id()
    Agent(kind, folder / "first", ledger).execute(Order(), run_id=run)
    return run


def again(kind: str, folder: Path, ledger: Ledger, script: Any = None) -> Agent:
    """The same agent, whose effects go elsewhere; a script takes the place of its model's."""

    def reply(request: Any) -> Reply:
        return reply_of(kind, request.turn, request.system)

    adapter = ScriptedAdapter[Any](script or reply, parallel_tools=parallel_tools(kind))
    return Agent(kind, folder / "again", ledger, adapter=adapter)


def bytes_of(ledger: Ledger, run: UUID) -> list[Any]:
    """All of a run, as it is stored."""
    return [record.row for record in ledger.read(run)] + [ledger.run(run)]


def check_fork(ledger: Ledger, found: LiveReplay, kind: str, folder: Path) -> None:
    """It verifies, folds, and runs again from its own record."""
    assert ledger.verify(found.fork).ok
    assert state_at(ledger, found.fork).summary.status == found.status
    elsewhere = folder / "nowhere"
    with Ledger.open("memory://") as nobody:
        repeated = replay(ledger, found.fork, loop=Agent(kind, elsewhere, nobody))
    assert repeated.divergence is None, str(repeated.divergence)
    assert repeated.version == ledger.head(found.fork)
    assert replay(ledger, found.fork).ok
    assert not elsewhere.exists()


def used_in(ledger: Ledger, found: LiveReplay) -> list[int]:
    """The tokens of each reply in the fork's own part."""
    events = [record.event for record in ledger.read(found.fork, after=found.forked_at)]
    return [one.usage.output_tokens for one in events if isinstance(one, ModelReplied)]


class Stingy(Agent):
    """Pays nothing."""

    def _pay(self, params: Pay, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult("Paid nothing.")


def refused_model(request: Any) -> Reply:
    raise AssertionError("the model is asked")


# --- one tool --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PAYING)
def test_a_live_tool_runs_and_nothing_else(kind: str, ledger: Ledger, tmp_path: Path) -> None:
    """Only that tool's handler is called; the model and the other tools answer from the record."""
    run = recorded(ledger, kind, tmp_path)
    before = bytes_of(ledger, run)
    agent = again(kind, tmp_path, ledger, script=refused_model)
    found = replay_live(ledger, run, agent, live=["tool:pay"])
    assert sorted(agent.effects()) == PAID[kind]
    assert sorted(part.call_id for part in found.live) == PAID[kind]
    assert {part.what for part in found.live} == {"tool:pay"}
    assert "tool:pay" not in {part.what for part in found.recorded}
    assert found.status == "completed"
    assert found.response is not None
    assert bytes_of(ledger, run) == before
    same = state_at(ledger, found.fork).outcome_digest == state_at(ledger, run).outcome_digest
    assert same or kind == "parallel"  # there the order in which they end is anybody's guess
    assert found.first_difference is None or kind == "parallel"
    assert not any(used_in(ledger, found))
    check_fork(ledger, found, kind, tmp_path)


def test_another_tool_is_not_run(ledger: Ledger, tmp_path: Path) -> None:
    """With the failing tool live, the one that pays has its recorded outcome and state."""
    run = recorded(ledger, "failing", tmp_path)
    agent = again("failing", tmp_path, ledger, script=refused_model)
    found = replay_live(ledger, run, agent, live=["tool:refuse"])
    assert agent.effects() == []
    assert [part.call_id for part in found.recorded if part.what == "tool:pay"] == ["a2"]
    assert [part.call_id for part in found.live] == ["a1"]
    was, now = (state_at(ledger, one) for one in (run, found.fork))
    assert now.slices.all("Paid") == was.slices.all("Paid") != ()
    check_fork(ledger, found, "failing", tmp_path)


def test_sections_open_as_they_did(ledger: Ledger, tmp_path: Path) -> None:
    """A call that superseded its evaluation does so again, without its handler."""
    run = recorded(ledger, "expansion", tmp_path)
    found = replay_live(ledger, run, again("expansion", tmp_path, ledger), live=["model"])
    assert ("tool:open_sections", "o1") in [(p.what, p.call_id) for p in found.recorded]
    assert found.first_difference is None
    check_fork(ledger, found, "expansion", tmp_path)


def test_a_tool_that_does_something_else_parts_the_fork(ledger: Ledger, tmp_path: Path) -> None:
    """The result says where the fork first differs from its run."""
    run = recorded(ledger, "one", tmp_path)
    agent = Stingy("one", tmp_path / "again", ledger)
    found = replay_live(ledger, run, agent, live=["tool:pay"])
    assert found.first_difference is not None
    first = found.first_difference.first
    assert first is not None
    assert ledger.record(run, first).tag == "slice.event_applied"


# --- the model -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_live_model_is_answered_from_the_record(
    kind: str, ledger: Ledger, tmp_path: Path
) -> None:
    """It is asked from the first turn on, and no handler is called for what it asks again."""
    run = recorded(ledger, kind, tmp_path)
    before = bytes_of(ledger, run)
    agent = again(kind, tmp_path, ledger)
    found = replay_live(ledger, run, agent, live=["model"])
    assert agent.effects() == []
    assert {part.what for part in found.live} == {"model"}
    assert all(used_in(ledger, found))
    assert found.status == "completed"
    assert found.first_difference is None
    assert bytes_of(ledger, run) == before
    check_fork(ledger, found, kind, tmp_path)


def test_another_model_may_ask_in_another_way(ledger: Ledger, tmp_path: Path) -> None:
    """Calls with other ids, in another order, have the outcome of those with their arguments."""
    run = recorded(ledger, "sequential", tmp_path)
    script = [
        pays(("x1", "pay", 3), ("x2", "pay", 1)),
        says("Paid 4."),
    ]
    agent = again("sequential", tmp_path, ledger, script=script)
    found = replay_live(ledger, run, agent, live=["model"])
    given = [(part.call_id, part.recorded) for part in found.recorded]
    ends = {r.event.call_id: r.version for r in ledger.read(run) if r.tag == "tool_call.completed"}  # type: ignore[union-attr]
    assert given == [("x1", ends["a3"]), ("x2", ends["a1"])]
    assert [one.amount for one in state_of(ledger, found.fork)] == [3, 1]
    assert found.first_difference is not None
    assert agent.effects() == []


def state_of(ledger: Ledger, run: UUID) -> Any:
    declared = Agent("one", Path("unused"), ledger).loop_host.create_session().declarations
    return state_at(ledger, run, declarations=declared).slices.all("Paid")


@pytest.mark.parametrize(
    "asked",
    [("a2", "pay", 7), ("a9", "refuse", 2)],
    ids=["the same id with other arguments", "a tool that was never called"],
)
def test_what_is_not_on_record_stops_the_fork(
    asked: tuple[str, str, int], ledger: Ledger, tmp_path: Path
) -> None:
    """A typed error names the call and what would help; the fork can be recovered from there."""
    run = recorded(ledger, "sequential", tmp_path)
    before = bytes_of(ledger, run)
    script = [pays(("a1", "pay", 1)), pays(asked), says("Done.")]
    agent = again("sequential", tmp_path, ledger, script)
    with pytest.raises(NotRecordedError, match=f"--live tool:{asked[1]}") as caught:
        replay_live(ledger, run, agent, live=["model"])
    error = caught.value
    assert asked[0] in str(error)
    assert error.live == f"tool:{asked[1]}"
    assert agent.effects() == []
    assert bytes_of(ledger, run) == before
    assert ledger.verify(error.fork).ok
    (waiting,) = state_at(ledger, error.fork).tools.pending()
    assert (waiting.call_id, waiting.status) == (asked[0], "pending")
    assert ledger.worker_of(error.fork) is None
    assert agent.recover(error.fork)[0].text == "Done."


def test_each_outcome_is_given_once(ledger: Ledger, tmp_path: Path) -> None:
    """A model that asks twice for what happened once is not told twice that it happened."""
    run = recorded(ledger, "one", tmp_path)
    script = [pays(("a1", "pay", 1)), pays(("a2", "pay", 1)), says("Paid 2.")]
    with pytest.raises(NotRecordedError, match="a2"):
        replay_live(ledger, run, again("one", tmp_path, ledger, script=script), live=["model"])


def test_a_live_model_and_a_live_tool(ledger: Ledger, tmp_path: Path) -> None:
    """Both are asked: calls that are on no record run."""
    run = recorded(ledger, "failing", tmp_path)
    script = [pays(("a1", "refuse", 1), ("b1", "pay", 9)), says("Paid 9.")]
    agent = again("failing", tmp_path, ledger, script=script)
    found = replay_live(ledger, run, agent, live=["model", "tool:pay"])
    assert agent.effects() == ["b1"]
    assert [part.what for part in found.recorded] == ["tool:refuse"]
    check_fork(ledger, found, "failing", tmp_path)


# --- what can't be ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("live", "said"),
    [
        ([], "No live parts given"),
        (["tool:"], "expected `tool:NAME`"),
        (["search"], "expected `model` or `tool:NAME`"),
        (["tool:search"], "Its tools are: .*pay, refuse"),
    ],
)
def test_what_can_not_be_live_is_refused(
    kind: str, live: list[str], said: str, ledger: Ledger, tmp_path: Path
) -> None:
    """The error says what can be; no fork is made."""
    run = recorded(ledger, kind, tmp_path)
    with pytest.raises(InvalidInputError, match=said):
        replay_live(ledger, run, again(kind, tmp_path, ledger), live=live)
    assert len(list(ledger.runs())) == 1


def test_a_tool_that_was_never_called_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    """With the model's replies from the record it would never be called either."""
    run = recorded(ledger, "one", tmp_path)
    with pytest.raises(InvalidInputError, match="called in it: pay"):
        replay_live(ledger, run, again("one", tmp_path, ledger), live=["tool:refuse"])


# --- how far ---------------------------------------------------------------------------


def test_it_stops_where_it_is_told_to(ledger: Ledger, tmp_path: Path) -> None:
    """Up to a version: the fork stops where it would need an answer that was recorded later."""
    run = recorded(ledger, "sequential", tmp_path)
    second = next(r.version for r in ledger.read(run) if getattr(r.event, "call_id", "") == "a2")
    agent = again("sequential", tmp_path, ledger)
    found = replay_live(ledger, run, agent, live=["tool:pay"], until=second)
    assert agent.effects() == ["a1", "a2"]
    assert (found.status, found.first_difference) == ("stopped", None)
    assert state_at(ledger, found.fork).summary.status == "running"
    with pytest.raises(InvalidInputError, match="up to version 3"):
        replay_live(ledger, run, again("sequential", tmp_path, ledger), live=["tool:pay"], until=3)


def test_listeners_hear_of_live_parts_only(ledger: Ledger, tmp_path: Path) -> None:
    """The user's bus is told of the tool that ran, and of nothing else."""
    run = recorded(ledger, "failing", tmp_path)
    agent = again("failing", tmp_path, ledger)
    heard: list[Any] = []
    publish = agent._bus.publish
    agent._bus.publish = lambda event: heard.append(event) or publish(event)  # type: ignore[method-assign,func-returns-value]
    replay_live(ledger, run, agent, live=["tool:pay"])
    assert [type(event) for event in heard] == [ToolInvoked]
    assert heard[0].call_id == "a2"


def test_a_fork_with_live_parts_is_recovered_by_nobody(ledger: Ledger, tmp_path: Path) -> None:
    """A worker that recovers whatever it finds would have all of it live."""
    run = recorded(ledger, "sequential", tmp_path)

    def script(turn: int) -> Reply:
        return pays(("x1", "pay", 77)) if turn == 1 else says("Done.")

    agent = Agent(
        "sequential",
        tmp_path / "replayed",
        ledger,
        adapter=ScriptedAdapter(lambda request: script(request.turn)),
    )
    with pytest.raises(NotRecordedError) as caught:
        replay_live(ledger, run, agent, live=["model"])
    assert ledger.run(caught.value.fork).status == "running"
    assert [found.run_id for found in agent.list_recoverable()] == []
