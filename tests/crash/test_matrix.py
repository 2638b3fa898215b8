"""Agents are SIGKILLed at every moment where they can die; what is recovered ends the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.agents import KINDS, Agent, Order, Pay
from tests.crash.driver import drive
from tests.matrices import cells, further
from tests.postgres import new_database
from tests.soaking import Search
from turnledger.ledger import Ledger, new_run_id
from turnledger.projections import state_at
from turnledger.runtime import ToolContext, ToolResult
from turnledger.runtime.loop.perform.tool_in_doubt import UNKNOWN

PAYMENTS = {
    "none": [],
    "one": ["a1"],
    "sequential": ["a1", "a2", "a3"],
    "parallel": ["a1", "a2", "a3"],
    "failing": ["a2"],
    "expansion": ["e1"],
    "structured": ["a1"],
    "reused": ["a1", "a1@beta"],
    "chat": ["a1", "a1@beta", "a1@gamma"],
    "approvals": ["a1", "a2", "a4"],
}


def matrix(url: str, folder: Path, kind: str, **plan: Any) -> list[dict[str, Any]]:
    told = drive("matrix", seconds=240, url=url, folder=str(folder), kind=kind, **plan)
    runs: list[dict[str, Any]] = told["runs"]
    return runs


def check_all_end_alike(runs: list[dict[str, Any]], kind: str) -> None:
    """All runs end as the last one, which nobody killed."""
    *killed, undisturbed = runs
    assert undisturbed["deaths"] == []
    assert undisturbed["status"] == "completed"
    assert sorted(undisturbed["effects"]) == PAYMENTS[kind]
    for run in killed:
        assert run["deaths"], run
        assert run["status"] == "completed", run
        # Of two runs in one session the second is not begun by another process.
        assert undisturbed["outcome"].startswith(run["outcome"] or "?"), run
        # A tool runs again only if nobody knew how it had ended.
        done = [call for call in run["effects"] if call.partition("@")[0] not in run["doubts"]]
        assert sorted(done) == sorted(set(done)), run
        is_half = len(run["outcome"]) < len(undisturbed["outcome"])
        assert set(run["effects"]) == set(PAYMENTS[kind][:1] if is_half else PAYMENTS[kind]), run


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_killed_anywhere_ends_as_if_it_had_not_been(
    kind: str, file_url: str, tmp_path: Path
) -> None:
    """Before and after each commit, in each tool and in each model call."""
    runs = matrix(file_url, tmp_path, kind)
    check_all_end_alike(runs, kind)
    assert len(runs) > 8


@pytest.mark.parametrize("stride", further(3, 1))
def test_a_chat_that_was_killed_in_any_turn_goes_on_as_if_it_had_not_been(
    stride: int, file_url: str, tmp_path: Path
) -> None:
    """Three turns, the last recovered and the rest begun; each replays with no effect."""
    runs = matrix(file_url, tmp_path, "chat", stride=stride)
    check_all_end_alike(runs, "chat")
    assert {run["divergence"] for run in runs} == {""}
    assert len(runs) > 15


@pytest.mark.parametrize("stride", further(9, 2))
def test_the_same_of_a_chat_on_postgresql(stride: int, server_url: str, tmp_path: Path) -> None:
    """At some moments of its three turns."""
    check_all_end_alike(matrix(server_url, tmp_path, "chat", stride=stride), "chat")


def check_files_end_alike(runs: list[dict[str, Any]], *paths: str) -> None:
    """The same outcome and files as in the run that nobody killed; replays do not diverge."""
    *killed, undisturbed = runs
    expected = list(paths or ("a/", "c.txt", "host/prices.txt"))
    assert [one.split()[0] for one in undisturbed["effects"]] == expected
    assert undisturbed["divergence"] == ""
    for run in killed:
        assert run["deaths"], run
        assert run["status"] == "completed", run
        assert run["divergence"] == "", run
        assert run["outcome"] == undisturbed["outcome"], run
        assert run["effects"] == undisturbed["effects"], run


def test_a_run_that_was_killed_while_it_wrote_files_ends_with_the_same_ones(
    file_url: str, tmp_path: Path
) -> None:
    """Recovered in another, empty folder, without the host's files if they were on record.

    At every fifth moment; half-written files are among them.
    """
    runs = matrix(file_url, tmp_path, "workspace", first=3, stride=5)
    check_files_end_alike(runs)
    assert any("in the middle of" in death for run in runs for death in run["deaths"])


@pytest.mark.full
@pytest.mark.parametrize("recoveries", [0, 3])
def test_the_same_at_every_moment(recoveries: int, file_url: str, tmp_path: Path) -> None:
    """Also if those who recover are killed too."""
    runs = matrix(file_url, tmp_path, "workspace", recoveries=recoveries)
    check_files_end_alike(runs)
    middles = {one for run in runs for one in run["deaths"] if "in the middle of" in one}
    assert middles == {
        "in the middle of .turnledger-restoring",
        "in the middle of b.txt",
        "in the middle of c.txt",
    }


@pytest.mark.full
def test_the_same_with_files_on_postgresql(server_url: str, tmp_path: Path) -> None:
    """Where blobs are in another store."""
    check_files_end_alike(matrix(server_url, tmp_path, "workspace", first=2, stride=3))


@pytest.mark.parametrize("stride", further(13, 1))
def test_a_run_that_was_killed_while_it_was_optimized_goes_on_with_the_same_optimization(
    stride: int, file_url: str, tmp_path: Path
) -> None:
    """At the boundaries of either run: one digest, one outcome, the same files."""
    runs = matrix(file_url, tmp_path, "optimized", first=7, stride=stride)
    check_files_end_alike(runs)
    # What runs in the optimization, and its own begin and end.
    deaths = {run["deaths"][0] for run in runs[:-1]}
    assert stride > 1 or {"before begin", "after release", "in the middle of seen"} <= deaths


@pytest.mark.parametrize("kind", further("parallel", "sequential", "expansion"))
def test_the_same_on_postgresql(kind: str, server_url: str, tmp_path: Path) -> None:
    """At every fourth moment; the soak has all of them."""
    runs = matrix(server_url, tmp_path, kind, stride=4)
    check_all_end_alike(runs, kind)


@pytest.mark.parametrize("kind", further("parallel", "sequential"))
def test_those_who_recover_may_be_killed_too(kind: str, file_url: str, tmp_path: Path) -> None:
    """Five times in a row."""
    runs = matrix(file_url, tmp_path, kind, recoveries=5, stride=3)
    check_all_end_alike(runs, kind)
    assert max(len(run["deaths"]) for run in runs) == 6


@pytest.mark.parametrize(
    ("kind", "policy"), cells(["one", "sequential", "parallel"], ["fail", "ask"])
)
def test_what_must_not_happen_twice_happens_at_most_once(
    kind: str, policy: str, file_url: str, tmp_path: Path
) -> None:
    """Whoever died where: a payment in doubt is told to be unknown, or a person is asked."""
    runs = matrix(file_url, tmp_path, kind, on_interrupt=policy)
    for run in runs:
        assert len(run["effects"]) == len(set(run["effects"])), run
        if run["doubts"] and policy == "ask":
            assert (run["waited"], run["status"]) == (True, "waiting"), run
        else:
            assert run["status"] == "completed", run
    assert any(run["doubts"] for run in runs)
    if policy == "fail":
        for run in runs:
            assert run["outcome"] == outcome_if_unknown(tmp_path, kind, run["doubts"]), run


@pytest.mark.parametrize(
    ("policy", "recoveries", "stride"),
    [
        ("retry", 0, 4),
        pytest.param("retry", 0, 1, marks=pytest.mark.full),
        pytest.param("ask", 0, 1, marks=pytest.mark.full),
        pytest.param("retry", 3, 2, marks=pytest.mark.full),
        pytest.param("ask", 3, 2, marks=pytest.mark.full),
    ],
)
def test_a_run_that_waits_for_approval_may_be_killed_anywhere(
    policy: str, recoveries: int, stride: int, file_url: str, tmp_path: Path
) -> None:
    """Before and after the question, while it waits, between decisions, and in an approved call.

    A payment is made once; again only by another approval. Replays ask nothing and run nothing.
    """
    plan: dict[str, Any] = {"on_interrupt": policy, "recoveries": recoveries, "stride": stride}
    runs = matrix(file_url, tmp_path, "approvals", **plan)
    for run in runs:
        assert run["replayed"] == [], run
        assert "a3" not in run["effects"], run
        if policy == "ask":
            assert len(run["effects"]) == len(set(run["effects"])), run
            assert run["status"] == ("waiting" if run["doubts"] else "completed"), run
    if policy == "retry":
        check_all_end_alike(runs, "approvals")
    deaths = {run["deaths"][0] for run in runs[:-1]}
    everywhere = {"asked about 2", "in tool a2, after", "in tool a4, before", "after append"}
    assert stride > 1 or everywhere <= deaths


def outcome_if_unknown(folder: Path, kind: str, calls: list[str]) -> str:
    """The outcome of a run that nobody killed, but whose tool said that it does not know."""

    class Unsure(Agent):
        def _pay(self, params: Pay, *, context: ToolContext) -> ToolResult[Any]:
            if context.call_id in calls:
                return ToolResult(UNKNOWN, success=False)
            return super()._pay(params, context=context)

    run = new_run_id()
    with Ledger.open("memory://") as ledger:
        agent = Unsure(kind, folder / f"effects of {run}", ledger, on_interrupt="fail")
        agent.execute(Order(), run_id=run)
        return state_at(ledger, run).outcome_digest


@pytest.mark.parametrize("policy", ["retry", "fail", "ask"])
def test_checkpoint_files_alone_are_enough_to_recover(policy: str, tmp_path: Path) -> None:
    """No ledger: what the backend last saved is what is gone on from."""
    runs = matrix("", tmp_path, "sequential", files_only=True, on_interrupt=policy)
    for run in runs:
        if policy != "retry":
            assert len(run["effects"]) == len(set(run["effects"])), run
        if not run["waited"]:
            assert set(run["effects"]) <= {"a1", "a2", "a3"}
    assert runs[-1]["effects"] == ["a1", "a2", "a3"]


@pytest.mark.parametrize("kind", further("expansion", "parallel", "failing", "structured"))
def test_files_are_enough_for_every_kind_of_agent(kind: str, tmp_path: Path) -> None:
    """X11: whatever it was at when it was killed, everything is done, and said, in the end."""
    runs = matrix("", tmp_path, kind, files_only=True)
    for run in runs:
        assert set(run["effects"]) == set(PAYMENTS[kind]), run
    assert len({run["text"] for run in runs} - {None}) <= 1


@pytest.mark.soak
def test_all_of_it_on_postgresql(server: str, tmp_path: Path) -> None:
    """Every moment of every agent."""
    search = Search("moments-postgresql", goal={"agents": len(KINDS)})
    for number in search.rounds(share=0.02):
        kind = KINDS[number % len(KINDS)]
        with search.blaming(kind):
            runs = matrix(new_database(server), tmp_path / str(number), kind)
            check_all_end_alike(runs, kind)
        search.count(agents=1, moments=len(runs))
    assert search.problems == []
