"""A run belongs to the agent whose name is in its RunStarted: no other loop takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash
from tests.unit.runtime.loops import Goal, Planner, crash_in, interrupted
from turnledger.ledger import NEW, Ledger, RunStarted, new_run_id
from turnledger.projections import RunSummary, fold
from turnledger.runtime import (
    FilesystemCheckpointBackend,
    RecoveryConfig,
    Session,
    replay,
    replay_live,
    what_if,
)
from turnledger.runtime.errors import AgentMismatchError

STORES = ("memory", "sqlite")


class Untouched(Planner):
    """A loop none of whose own code may be called."""

    def create_session(self) -> Session:
        raise AssertionError("create_session was called")

    def create_prompt(self, request: Goal) -> Any:
        raise AssertionError("create_prompt was called")


def test_a_runs_agent_is_recorded_indexed_and_summarized(ledger: Ledger) -> None:
    """The name is in the first event, the run index and the summary; tags are beside it."""
    response, _ = Planner(ledger=ledger, name="support/triage").execute(Goal(), tags={"of": "acme"})
    assert isinstance(response.run_id, UUID)
    first = ledger.record(response.run_id, 1).event
    assert isinstance(first, RunStarted)
    assert (first.agent, first.tags) == ("support/triage", {"loop": "planner", "of": "acme"})
    assert [run.run_id for run in ledger.runs(agent="support/triage")] == [response.run_id]
    assert fold(ledger.read(response.run_id), RunSummary()).agent == "support/triage"


@pytest.mark.parametrize(("began", "other"), [("triage", "sales"), ("triage", ""), ("", "triage")])
def test_no_other_agent_recovers_or_replays_a_run(ledger: Ledger, began: str, other: str) -> None:
    """The refusal names run and agents, and comes before a claim and before the user's code."""
    run = interrupted(ledger, name=began)
    head, stranger = ledger.head(run), Untouched(ledger=ledger, name=other)
    assert not stranger.list_recoverable()
    for attempt in (
        lambda: stranger.recover(run),
        lambda: replay(ledger, run, loop=stranger),
        lambda: replay_live(ledger, run, stranger, live=["model"]),
    ):
        with pytest.raises(AgentMismatchError) as refused:
            attempt()
        assert (refused.value.found, refused.value.expected) == (began, other)
        assert str(run) in str(refused.value)
    assert ledger.head(run) == head
    assert len(list(ledger.runs())) == 1


def test_each_agent_recovers_its_own_runs(ledger: Ledger) -> None:
    """Two agents of one request type share a ledger: each lists, recovers and replays its own."""
    names = ("triage", "sales", "")
    runs = {name: interrupted(ledger, name=name) for name in names}
    for name, run in runs.items():
        loop = Planner(ledger=ledger, name=name)
        assert [found.run_id for found in loop.list_recoverable()] == [run]
        response, _ = loop.recover(run)
        assert response.run_id == run
        assert replay(ledger, run, loop=Planner(name=name)).check().attempts == 2


def test_forks_belong_to_the_agent_of_their_parent(ledger: Ledger) -> None:
    """A plain fork, a changed one and one of a live replay carry the name."""
    loop = Planner(ledger=ledger, name="triage")
    run = loop.execute(Goal())[0].run_id
    assert run is not None
    reply = next(r for r in ledger.read(run) if r.tag == "message.appended" and "moment" in r.data)
    children = (
        ledger.fork(run, at=ledger.head(run)),
        what_if(ledger, run, reply.version, {"/message/content": "Hm."}),
        replay_live(ledger, run, Planner(name="triage"), live=["model"]).fork,
    )
    assert [ledger.run(child).agent for child in children] == ["triage"] * 3


def test_an_older_fork_is_of_its_parents_agent(ledger: Ledger) -> None:
    """A fork whose RunStarted names no agent inherits it, in the fold and where it is replayed."""
    run = interrupted(ledger, name="triage")
    child, at = new_run_id(), ledger.head(run)
    ledger.append(child, RunStarted(parent=run, at=at, kind="fork"), expected_version=NEW)
    assert fold(ledger.read(child), RunSummary()).agent == "triage"
    with pytest.raises(AgentMismatchError):
        replay(ledger, child, loop=Planner())
    assert Planner(ledger=ledger, name="triage").recover(child, retry_in_doubt=True)


@pytest.mark.parametrize("in_ledger", [False, True], ids=["files", "files, then a ledger"])
def test_a_checkpoint_file_belongs_to_its_agent(tmp_path: Path, in_ledger: bool) -> None:
    """Without a ledger the name is in the checkpoint; a ledger that takes it over has it too."""
    recovery, run = RecoveryConfig(backend=FilesystemCheckpointBackend(tmp_path)), new_run_id()
    with pytest.raises(Crash):
        Planner(recovery=recovery, name="triage", in_tool=crash_in("c2")).execute(
            Goal(), run_id=run
        )
    ledger = Ledger.open("memory://") if in_ledger else None
    stranger = Untouched(recovery=recovery, ledger=ledger, name="sales")
    assert not stranger.list_recoverable()
    with pytest.raises(AgentMismatchError):
        stranger.recover(run)
    loop = Planner(recovery=recovery, ledger=ledger, name="triage")
    assert [found.run_id for found in loop.list_recoverable()] == [run]
    assert loop.recover(run)[0].run_id == run
    assert ledger is None or ledger.run(run).agent == "triage"
