"""What must be true of a cell of the table: kills, replays and changed code."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.crash.driver import drive
from tests.faults.empty_network import without_network
from tests.frameworks.agents.shop import ANSWER, POLICIES, REPLIES, reply
from tests.frameworks.agents.table import FRAMEWORKS, WAYS, Cell
from tests.servers.serving import StrictServer, Used

# Of a run that is killed; one that is recorded for changes has a reply more.
TURNS = len(REPLIES) - 1
TOOLS = [call.name for one in REPLIES for call in one.calls]


def check_cell(cell: Cell, folder: Path, at: str = "") -> int:
    """Kill a cell's agent at one point, or at each of them in turn; how many died."""
    colour, stream = WAYS[cell.way]
    with StrictServer(FRAMEWORKS[cell.framework].wire(), reply) as server:
        told = drive(
            "tests.frameworks.agents.kills",
            seconds=400,
            framework=cell.framework,
            colour=colour,
            stream=stream,
            server=server.url,
            folder=str(folder),
            at=at,
        )
        assert [str(refused) for refused in server.refused] == []
        requests = len(server.asked)
    runs = told["runs"]
    _check_runs(runs)
    # Nothing is sent that is not on record. One more run is recorded for the changes.
    assert requests <= sum(run["asked"] for run in runs) + len(REPLIES)
    assert requests >= sum(run["replied"] for run in runs) + len(REPLIES)
    assert set(told["answers"]) == {ANSWER}
    assert (told["connections"], told["handlers"]) == ([], [])
    assert told["isolated"] == bool(without_network())
    changed = told["changed"].items()
    differing = {name: pair for name, pair in changed if pair[0] not in pair[1]}
    assert len(changed) >= 10
    assert differing == {}, differing
    return len(runs) - 1


def _check_runs(runs: list[dict[str, Any]]) -> None:
    whole = runs[-1]
    assert whole["died"] == ""
    assert sorted(whole["effects"]) == sorted(TOOLS)
    unknown = set()
    for run in runs:
        assert bool(run["died"]) == (run is not whole), run
        assert (run["status"], run["answer"]) == ("completed", ANSWER), run
        assert run["again"] == [], run
        assert run["replied"] == TURNS, run
        assert run["asked"] <= TURNS + 1, run
        # OpenAI counts no tokens of a stream unless that is asked for.
        assert run["tokens"] in (0, TURNS * Used().output), run
        _check_effects(run)
        if "mail" in run["doubts"]:  # the model was told that its outcome is unknown
            unknown.add(run["outcome"])
        else:
            assert run["outcome"] == whole["outcome"], run
    assert len(unknown) <= 1


def _check_effects(run: dict[str, Any]) -> None:
    done, starts, doubts = (Counter(run[name]) for name in ("effects", "starts", "doubts"))
    assert run["waited"] == ["pay:call_pay"] * ("pay" in doubts), run
    for name in TOOLS:
        assert done[name] <= starts[name] <= 1 + doubts[name], run
        assert done[name] == 1 or doubts[name], run
        if POLICIES[name] != "retry":
            assert done[name] <= 1, run
        if POLICIES[name] == "fail":
            assert starts[name] == 1, run
