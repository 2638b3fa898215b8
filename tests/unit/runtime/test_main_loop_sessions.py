"""What a run works on: its session, from run to run, and its resources, back and forth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash
from tests.unit.runtime.loops import ANSWER, Answer, Goal, Plan, Planner, asks, call, crash_in
from turnledger.ledger import InnerMessage, Ledger, RunStarted, new_run_id
from turnledger.projections import state_at
from turnledger.runtime import (
    FilesystemCheckpointBackend,
    LedgerCheckpointBackend,
    RecoveryConfig,
    Session,
    SnapshotableFilesystem,
    ToolContext,
)


class Keeping(Planner):
    """Reuses one session for all of its runs."""

    kept: Session | None = None

    def create_session(self) -> Session:
        if self.kept is None:
            self.kept = super().create_session()
        return self.kept


def started(ledger: Ledger, run_id: UUID) -> RunStarted:
    """How a run began itself."""
    own = next(record.event for record in ledger.read(run_id) if record.run_id == run_id)
    assert isinstance(own, RunStarted)
    return own


# --- a session over several runs -------------------------------------------------------


def test_a_session_that_is_used_again_is_continued(ledger: Ledger) -> None:
    """S2-11: the next run is a continuation: it keeps the slices, its conversation is fresh."""
    loop, runs = Keeping(ledger=ledger), [new_run_id(), new_run_id()]
    for run_id in runs:
        _, session = loop.execute(Goal(), run_id=run_id)
    first, second = (started(ledger, run_id) for run_id in runs)
    assert (first.kind, first.parent) == ("run", None)
    assert (second.kind, second.parent) == ("continuation", runs[0])
    assert len(session[Plan].all()) == 6
    assert state_at(ledger, runs[1]).conversation.history().to_list()
    said = [message for message in session.select_all(InnerMessage) if message.role == "system"]
    assert len({message.evaluation_id for message in said}) == len(said)
    assert state_at(ledger, runs[0]).summary.status == "completed"


def test_what_changed_between_two_runs_is_in_the_second(ledger: Ledger) -> None:
    """S2-11: a change outside of any run is recorded with the next one."""
    loop, run_id = Keeping(ledger=ledger), new_run_id()
    _, session = loop.execute(Goal())
    session[Plan].append(Plan("between"))
    loop.execute(Goal(), run_id=run_id)
    steps = [plan.step for plan in session[Plan].all()]
    assert steps == ["c1", "c2", "c3", "between", "c1", "c2", "c3"]
    assert ledger.verify(run_id).ok


def test_a_continuation_that_was_interrupted_is_recovered_elsewhere(ledger: Ledger) -> None:
    """S2-11, S2-23: another process has the slices of the runs before, and the rest of this one."""
    loop, run_id = Keeping(ledger=ledger), new_run_id()
    loop.execute(Goal())
    loop.in_tool = crash_in("c2")
    with pytest.raises(Crash):
        loop.execute(Goal(), run_id=run_id)
    other = Keeping(ledger=ledger)
    response, session = other.recover(run_id)
    assert response.output == Answer(3)
    assert [plan.step for plan in session[Plan].all()] == ["c1", "c2", "c3"] * 2
    assert other.ran == ["c2", "c3"]


def test_a_session_goes_on_after_a_run_that_failed(ledger: Ledger) -> None:
    """S2-11: what a failed run recorded stays in the session that is used again."""
    loop = Keeping([asks(call("c1")), ConnectionError("away")], ledger=ledger)
    with pytest.raises(Exception, match="away"):
        loop.execute(Goal())
    assert loop.kept is not None
    assert loop.kept[Plan].all() == (Plan("c1"),)
    loop._adapter._replies = [asks(call("c1")), ANSWER]  # type: ignore[attr-defined]
    loop.execute(Goal())
    assert loop.kept[Plan].all() == (Plan("c1"), Plan("c1"))


# --- resources -------------------------------------------------------------------------


@pytest.fixture(params=["ledger", "files"])
def new_loop(
    request: pytest.FixtureRequest, tmp_path: Path, ledger: Ledger
) -> Callable[..., Planner]:
    """Makes loops over one directory, that recover each other's runs."""

    def new(replies: Any = None, **options: Any) -> Planner:
        files = {"files": SnapshotableFilesystem(tmp_path / "work")}
        given = {} if replies is None else {"replies": replies}
        if request.param == "ledger":
            return Planner(ledger=ledger, resources=files, **given, **options)
        backend = FilesystemCheckpointBackend(tmp_path / "checkpoints")
        recovery = RecoveryConfig(backend=backend)
        return Planner(recovery=recovery, resources=files, **given, **options)

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "log").write_text("")
    return new


def writing(path: Path, *dies_in: str) -> Any:
    """Each tool adds a line; in some the process dies after that."""

    def work(context: ToolContext) -> None:
        assert set(context.resources or {}) == {"files"}
        with (path / "log").open("a") as log:
            log.write(f"{context.call_id}\n")
        if context.call_id in dies_in:
            (path / "half").write_text("written")
            raise Crash

    return work


def test_files_are_put_back_before_a_run_goes_on(
    new_loop: Callable[..., Planner], tmp_path: Path
) -> None:
    """S2-13, S2-18: what a tool wrote before its process died did not happen."""
    work, run_id = tmp_path / "work", new_run_id()
    with pytest.raises(Crash):
        new_loop(in_tool=writing(work, "c2")).execute(Goal(), run_id=run_id)
    assert (work / "log").read_text() == "c1\nc2\n"
    (work / "log").write_text("overwritten by somebody")
    new_loop(in_tool=writing(work)).recover(run_id)
    assert (work / "log").read_text() == "c1\nc2\nc3\n"
    assert not (work / "half").exists()


@pytest.mark.parametrize("again", [False, True])
def test_files_are_put_back_after_a_tool_that_failed(
    new_loop: Callable[..., Planner], tmp_path: Path, again: bool
) -> None:
    """S2-17: in a run that was recovered too."""
    work, run_id = tmp_path / "work", new_run_id()
    replies = [asks(call("c1")), asks(call("c2", "refuse")), asks(call("c3")), ANSWER]
    if again:
        with pytest.raises(Crash):
            new_loop(replies, in_tool=writing(work, "c1")).execute(Goal(), run_id=run_id)
        _, session = new_loop(replies, in_tool=writing(work)).recover(run_id)
    else:
        _, session = new_loop(replies, in_tool=writing(work)).execute(Goal(), run_id=run_id)
    assert (work / "log").read_text() == "c1\nc3\n"
    assert session[Plan].all() == (Plan("c1"), Plan("c3"))


def test_a_ledgers_checkpoint_has_the_files(tmp_path: Path, ledger: Ledger) -> None:
    """S2-13: a checkpoint that is derived from the ledger holds the session and the resources."""
    run_id, work = new_run_id(), tmp_path / "work"
    work.mkdir()
    loop = Planner(
        ledger=ledger,
        resources={"files": SnapshotableFilesystem(work)},
        in_tool=writing(work, "c2"),
    )
    with pytest.raises(Crash):
        loop.execute(Goal(), run_id=run_id)
    checkpoint = LedgerCheckpointBackend(ledger).load(run_id)
    assert checkpoint is not None
    assert [one.slice_type for one in checkpoint.composite_snapshot.session.slices]
    other = tmp_path / "elsewhere"
    other.mkdir()
    SnapshotableFilesystem(other).restore(checkpoint.composite_snapshot.resources["files"])
    assert (other / "log").read_text() == "c1\n"
