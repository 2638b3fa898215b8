"""Golden histories: runs of every kind, as files, and the states that they mean for ever.

The files in tests/replay/histories and the digests beside them are never regenerated to make
a test pass. A test that fails here says that this program reads an old run otherwise than the
one that wrote it: its checkpoints would no longer fit. Either that is a mistake, or the meaning
of a view has changed on purpose; then the view's `version` grows, and the half page in
docs/decisions that says why also says which digests it changed. recording.py made them.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.replay import recording
from tests.replay.recording import KINDS, digests, kept, opened, recorded, run_ids
from tests.replay.script import declarations
from turnledger.ledger import (
    CheckpointReached,
    EvaluationStarted,
    Ledger,
    Record,
    RunCompleted,
    export_runs,
)
from turnledger.ledger.events.types import EVENT_TYPES
from turnledger.ledger.events.upcasters import UPCASTERS
from turnledger.projections import RunState, state_at

ROOT = Path(__file__).parents[2]
DIGESTS: dict[str, dict[str, dict[str, Any]]] = json.loads(
    (recording.HISTORIES / "digests.json").read_text()
)
GOLDEN = kept()
NAMES = sorted(GOLDEN)


def runs_of(name: str) -> list[list[Record]]:
    """The records of each run of a history, its lineage included."""
    with opened(GOLDEN[name]) as ledger:
        return [list(ledger.read(run_id)) for run_id in run_ids(ledger)]


def fresh(declared: bool = True) -> RunState:
    return RunState.initial(declarations() if declared else None)


def fingerprint(state: RunState) -> tuple[int, str, str, str]:
    shown = json.dumps(state.to_json(), sort_keys=True)
    return state.version, state.state_digest, state.outcome_digest, shown


def test_there_are_histories_of_at_least_ten_kinds_and_each_has_its_digests() -> None:
    """Every event of the catalogue occurs in one of them, and every retired tag."""
    assert len(NAMES) >= 10
    assert set(DIGESTS) == set(NAMES) == set(KINDS)
    tags = {record.tag for name in NAMES for run in runs_of(name) for record in run}
    assert tags == {*EVENT_TYPES, *UPCASTERS}


@pytest.mark.parametrize("name", NAMES)
def test_a_history_can_be_imported_and_verified(name: str) -> None:
    """Its chain, its blobs and its index are whole, and it goes out as it came in."""
    with opened(GOLDEN[name]) as ledger:
        assert ledger.verify_all().ok
        out = BytesIO()
        export_runs(ledger, out)
        assert out.getvalue().splitlines()[1:] == GOLDEN[name].splitlines()[1:]


@pytest.mark.parametrize("name", NAMES)
def test_a_history_means_what_it_meant(name: str) -> None:
    """The digests of its states are those that are kept."""
    assert digests(GOLDEN[name]) == DIGESTS[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_prefix_folds(name: str) -> None:
    """To a state with JSON, digests, a history that can be sent, and pending calls."""
    for records in runs_of(name):
        for declared in (True, False):
            state = fresh(declared)
            for record in records:
                state = state.after([record])
                assert state.version == record.version
                assert fingerprint(state)
                assert state.history.for_send() or not len(state.history)
                assert len(state.tools.pending()) <= len(state.tools.calls)


@pytest.mark.parametrize("name", NAMES)
def test_folding_all_is_folding_in_two_halves(name: str) -> None:
    """Wherever it is cut, and whether or not the middle was looked at."""
    for records in runs_of(name):
        whole = fingerprint(fresh().after(records))
        for cut in range(len(records) + 1):
            middle = fresh().after(records[:cut])
            assert fingerprint(middle.after(records[cut:])) == whole
            assert middle.state_digest
            assert fingerprint(middle.after(records[cut:])) == whole


@pytest.mark.parametrize("name", NAMES)
def test_folding_all_is_folding_in_two_halves_through_pickle(name: str) -> None:
    """Wherever it is cut, a state that was pickled goes on to the same digests and JSON."""
    for records in runs_of(name):
        whole = fingerprint(RunState.initial().after(records))
        for cut in range(1, len(records) + 1):
            half = RunState.initial().after(records[:cut])
            end = pickle.loads(pickle.dumps(half)).after(records[cut:])
            assert fingerprint(end) == whole


@pytest.mark.parametrize("name", NAMES)
def test_each_checkpoint_holds_the_digests_of_the_state_before_it(name: str) -> None:
    """So a fold whose meaning changed is found at the first one."""
    found = 0
    for records in runs_of(name):
        state = fresh()
        for record in records:
            event = record.event
            if isinstance(event, CheckpointReached):
                assert event.state_digest == state.state_digest, record
                assert event.outcome_digest == state.outcome_digest, record
                found += 1
            if isinstance(event, RunCompleted):
                assert event.outcome_digest == state.outcome_digest, record
            state = state.after([record])
    assert found or name == "parked-and-abandoned"


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_another_process_with_another_hash_seed_comes_to_the_same(seed: str) -> None:
    """No digest and no JSON depends on the order of a set, or on an address."""
    program = (
        "import json, sys\n"
        "from tests.replay.recording import digests, kept\n"
        "json.dump({name: digests(content) for name, content in kept().items()}, sys.stdout)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == DIGESTS


@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_script_still_writes_what_it_wrote(name: str) -> None:
    """Line by line but for the header, which names the catalogue of today."""
    assert recorded(name).splitlines()[1:] == GOLDEN[name].splitlines()[1:]


def test_the_script_does_not_overwrite_golden_files() -> None:
    """Whoever wants new ones has to copy them there by hand, and to think."""
    with pytest.raises(SystemExit, match="never written anew"):
        recording.main(recording.HISTORIES)


def test_a_changed_history_is_noticed() -> None:
    """The checks above can fail: another event, another state."""
    with opened(GOLDEN["one-tool"]) as ledger:
        (run_id,) = run_ids(ledger)
        head = ledger.head(run_id)
        shorter = state_at(ledger, run_id, head - 1, declarations=declarations())
    end = DIGESTS["one-tool"][run_id]
    assert shorter.state_digest != end["state_digest"]
    assert shorter.outcome_digest != end["outcome_digest"]


# --- what they tell ------------------------------------------------------------------


def last_states(name: str) -> list[RunState]:
    """The state at the end of each run, in the order in which the runs began."""
    with opened(GOLDEN[name]) as ledger:
        runs = sorted(ledger.runs(), key=lambda run: run.started_at)
        return [state_at(ledger, run.run_id, declarations=declarations()) for run in runs]


@pytest.mark.parametrize(
    ("name", "statuses", "calls", "turns"),
    [
        ("no-tools", ["completed"], [[]], [2]),
        ("one-tool", ["completed"], [["completed"]], [4]),
        ("three-sequential-tools", ["completed"], [["completed"] * 3], [8]),
        ("three-parallel-tools", ["completed"], [["completed"] * 3], [4]),
        ("failing-tool", ["completed"], [["failed"] * 2], [4]),
        ("visibility-expansion", ["completed"], [["started", "completed"]], [4]),
        ("structured-output", ["completed"], [["completed"] * 2], [6]),
        ("reused-session", ["completed"] * 2, [["completed"], []], [4, 2]),
        ("fork", ["completed"] * 2, [["completed"] * 2, ["failed", "completed"]], [4, 4]),
        ("in-doubt-and-decided", ["completed"], [["completed"] * 2], [4]),
        ("approvals", ["completed"], [["completed", "completed", "failed", "completed"]], [4]),
        ("media", ["completed"], [["completed"]], [4]),
        ("parked-and-abandoned", ["parked", "abandoned"], [[], ["started"]], [1, 2]),
        ("retired-tag", ["completed"], [["completed"]], [4]),
        ("restored-state", ["completed"], [[]], [2]),
        ("overridden-prompt", ["completed"], [["completed"]], [4]),
    ],
)
def test_what_a_history_tells(
    name: str, statuses: list[str], calls: list[list[str]], turns: list[int]
) -> None:
    """How its runs ended, what became of their calls, and how long the conversation is."""
    states = last_states(name)
    assert [state.summary.status for state in states] == statuses
    found = [[call.status for call in state.tools.calls] for state in states]
    assert found == calls
    assert [len(state.history) for state in states] == turns


def test_nothing_waits_when_a_run_is_completed() -> None:
    """Not even the call that a superseded evaluation left open."""
    for name in NAMES:
        for state in last_states(name):
            if state.summary.status == "completed":
                assert state.tools.pending() == ()


def test_parallel_results_stand_in_the_order_of_their_calls() -> None:
    """They came in another."""
    (state,) = last_states("three-parallel-tools")
    texts = [block.content for block in state.history.to_list()[2].blocks]  # type: ignore[union-attr]
    assert texts == ["Lisbon: sunny", "Porto: sunny", "Faro: sunny"]
    assert [value.name for value in state.slices.all("Step")] == ["Faro", "Lisbon", "Porto"]


def test_a_continuation_has_the_slices_and_a_fork_the_conversation() -> None:
    """And neither the checkpoints nor the usage of its parent."""
    first, second = last_states("reused-session")
    assert second.slices.all("WorkspaceDigest") == first.slices.all("WorkspaceDigest") != ()
    assert second.usage.total.calls == 1
    parent, child = last_states("fork")
    assert child.history.to_list()[:2] == parent.history.to_list()[:2]
    assert (len(parent.slices.all("SentEmail")), len(child.slices.all("SentEmail"))) == (1, 0)
    assert child.usage.total.calls == 1


def test_the_amended_messages_read_as_they_were_amended() -> None:
    """The last one and the older one."""
    (state,) = last_states("structured-output")
    amended = [call.amended for call in state.tools.calls]
    assert amended == ["(a)", '{"answer": 42, "sources": ["a", "b"]}']
    results = [call.result for call in state.tools.calls]
    assert results == ["a long text about a", "a long text about b"]
    shown = json.dumps(state.to_json()["history"]["turns"])
    assert "a long text" not in shown


def test_media_are_in_the_history_and_in_the_ledger() -> None:
    """By the name of their bytes."""
    with opened(GOLDEN["media"]) as ledger:
        (run_id,) = run_ids(ledger)
        blocks = state_at(ledger, run_id).history.to_list()[0].blocks
        assert ledger.blob(blocks[1].blob or "") == recording.PICTURE  # type: ignore[union-attr]


def test_a_prompts_stream_tells_its_overrides_and_tags_and_the_run_which_it_used() -> None:
    """The run names a version that the stream still has, whatever came after it."""
    with opened(GOLDEN["overridden-prompt"]) as ledger:
        (prompt,) = ledger.runs(kind="prompt", prompt="demo/answer")
        (run,) = ledger.runs()
        now = state_at(ledger, prompt.run_id).prompt
        assert (set(now.overrides), now.tags) == ({"tone"}, {"stable": 4})
        events = [record.event for record in ledger.read(run.run_id)]
        (used,) = [one.overrides for one in events if isinstance(one, EvaluationStarted)]
        assert used is not None
        then = state_at(ledger, prompt.run_id, used.version).prompt
        assert set(then.overrides) == set(used.paths) == {"tone", "tool:search"}


def test_a_history_is_a_ledger_like_any_other(tmp_path: Path) -> None:
    """It goes on in a file where it was left."""
    with opened(GOLDEN["parked-and-abandoned"]) as ledger, Ledger.open(tmp_path / "x.db") as other:
        out = BytesIO()
        export_runs(ledger, out)
        assert recording.import_runs(other, BytesIO(out.getvalue())).imported > 0
        for run_id in run_ids(other):
            end = DIGESTS["parked-and-abandoned"][run_id]
            assert state_at(other, run_id).state_digest == end["state_digest_undeclared"]
