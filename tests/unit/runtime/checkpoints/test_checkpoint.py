"""Checkpoints as values, in files and in a ledger."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.agent import Crash
from tests.unit.runtime.loops import REPLIES, Answer, Goal, Plan, Planner, crash_in, interrupted
from turnledger.ledger import (
    CheckpointStored,
    InvalidInputError,
    InvalidRunIdError,
    Ledger,
    RunClaimedError,
    new_run_id,
)
from turnledger.projections import state_at
from turnledger.runtime import (
    AdapterResumeState,
    Checkpoint,
    CheckpointBackend,
    CheckpointCorruptedError,
    CheckpointPhase,
    CompositeSnapshot,
    ExecutionState,
    FilesystemCheckpointBackend,
    LedgerCheckpointBackend,
    PromptMismatch,
    RecoveryConfig,
    RecoveryError,
    Session,
)

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)


def checkpoint(run_id: UUID, **other: Any) -> Checkpoint:
    session = Session()
    session[Plan].append(Plan("one"))
    values: dict[str, Any] = {
        "run_id": run_id,
        "request_id": uuid4(),
        "created_at": NOW,
        "composite_snapshot": CompositeSnapshot(session.snapshot(), {"counter": {"n": 1}}),
        "request_payload": b'{"text": "tidy up"}',
        "request_type": "Goal",
        "tool_calls_completed": 2,
        "phase": CheckpointPhase.POST_TOOL,
        "adapter_state": b"\x00\xff",
        **other,
    }
    return Checkpoint(**values)


@pytest.fixture(params=["files", "ledger"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, ledger: Ledger) -> CheckpointBackend:
    if request.param == "files":
        return FilesystemCheckpointBackend(tmp_path / "new" / "folder")
    return LedgerCheckpointBackend(ledger)


def test_a_checkpoint_is_json_and_back() -> None:
    """S2-13: every field survives; what is no checkpoint is a CheckpointCorruptedError."""
    given = checkpoint(uuid4())
    again = Checkpoint.from_json(given.to_json())
    assert again.to_json() == given.to_json()
    assert (again.created_at, again.phase, again.adapter_state) == (
        NOW,
        CheckpointPhase.POST_TOOL,
        b"\x00\xff",
    )
    assert dict(again.composite_snapshot.resources) == {"counter": {"n": 1}}
    session = Session()
    session.install(Plan)
    session.restore(again.composite_snapshot.session)
    assert session[Plan].all() == (Plan("one"),)
    whole = given.to_json()
    for text in ("", "{}", "[]", whole[:-5], whole.replace("post_tool", "someday")):
        with pytest.raises(CheckpointCorruptedError):
            Checkpoint.from_json(text)


def test_the_phases_are_the_seeds() -> None:
    """S2-14: initialized, post_tool, completed, failed."""
    names = ["initialized", "post_tool", "completed", "failed"]
    assert [phase.value for phase in CheckpointPhase] == names


def test_what_an_adapter_resumes_from() -> None:
    """S2-19: the messages so far and the calls that are unanswered."""
    state = AdapterResumeState(conversation_prefix=(), pending_tool_calls=())
    assert (state.conversation_prefix, state.pending_tool_calls) == ((), ())


def test_an_execution_state_goes_back_to_its_snapshot() -> None:
    """S2-13: session and resources together."""

    class Counter:
        n = 1

        def snapshot(self) -> Any:
            return {"n": self.n}

        def restore(self, snapshot: Any, /) -> None:
            self.n = snapshot["n"]

    counter, session = Counter(), Session()
    state = ExecutionState(session=session, resources={"counter": counter})
    before = state.snapshot()
    session[Plan].append(Plan("later"))
    counter.n = 7
    state.restore(before)
    assert (session[Plan].all(), counter.n) == ((), 1)
    assert dict(before.resources) == {"counter": {"n": 1}}


# --- every backend ---------------------------------------------------------------------


def test_a_backend_saves_loads_deletes_and_lists(backend: CheckpointBackend) -> None:
    """S2-12, X6: the latest counts until it is deleted; deleting nothing is harmless."""
    run_id, other = new_run_id(), new_run_id()
    assert (backend.load(run_id), list(backend.list_incomplete())) == (None, [])
    backend.delete(run_id)
    backend.save(run_id, checkpoint(run_id, tool_calls_completed=1))
    latest = checkpoint(run_id, tool_calls_completed=2)
    backend.save(run_id, latest)
    backend.save(other, checkpoint(other, phase=CheckpointPhase.COMPLETED))
    found = backend.load(run_id)
    assert found is not None
    assert found.to_json() == latest.to_json()
    assert list(backend.list_incomplete()) == [run_id]
    backend.delete(run_id)
    backend.delete(run_id)
    assert (backend.load(run_id), list(backend.list_incomplete())) == (None, [])
    assert backend.load(other) is not None


def test_a_loop_keeps_its_checkpoints_at_its_interval(tmp_path: Path) -> None:
    """S2-15: every second completed tool is a checkpoint, and the ends are."""
    for interval, expected in ((1, [0, 1, 2, 3, 3]), (2, [0, 2, 3]), (5, [0, 3])):
        with Ledger.open("memory://") as ledger:
            run_id = new_run_id()
            config = RecoveryConfig(checkpoint_interval=interval, cleanup_on_success=False)
            Planner(ledger=ledger, recovery=config).execute(Goal(), run_id=run_id)
            entries = state_at(ledger, run_id).checkpoints.entries
            assert [entry.tool_calls_completed for entry in entries] == expected


@pytest.mark.parametrize("interval", [2, 3])
def test_between_checkpoints_nothing_is_lost(ledger: Ledger, tmp_path: Path, interval: int) -> None:
    """S2-15: whatever the interval, what a tool did is not done again."""
    for options in (
        {"ledger": ledger, "recovery": RecoveryConfig(checkpoint_interval=interval)},
        {
            "recovery": RecoveryConfig(
                backend=FilesystemCheckpointBackend(tmp_path), checkpoint_interval=interval
            )
        },
    ):
        run_id = new_run_id()
        with pytest.raises(Crash):
            Planner(in_tool=crash_in("c2"), **options).execute(Goal(), run_id=run_id)
        loop = Planner(**options)
        response, session = loop.recover(run_id)
        assert (response.output, loop.ran) == (Answer(3), ["c2", "c3"])
        assert len(session[Plan].all()) == 3


# --- files -----------------------------------------------------------------------------


def test_a_file_for_each_run(tmp_path: Path) -> None:
    """S2-20: `{run_id}.checkpoint.json`, with the checkpoint's own JSON in it."""
    run_id = new_run_id()
    given = checkpoint(run_id)
    FilesystemCheckpointBackend(root=tmp_path).save(run_id, given)
    (file,) = tmp_path.iterdir()
    assert file.name == f"{run_id}.checkpoint.json"
    assert json.loads(file.read_text()) == json.loads(given.to_json())


def test_a_corrupt_file_is_skipped_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """X10: the others are listed; loading the corrupt one says which file it is."""
    backend = FilesystemCheckpointBackend(tmp_path)
    good, bad, misnamed = new_run_id(), new_run_id(), new_run_id()
    backend.save(good, checkpoint(good))
    backend.save(misnamed, checkpoint(good))
    torn = tmp_path / f"{bad}.checkpoint.json"
    torn.write_bytes(b"\xff{")
    (tmp_path / "notes.checkpoint.json").write_text("hello")
    with caplog.at_level(logging.WARNING):
        assert list(backend.list_incomplete()) == [good]
    assert torn in backend.skipped
    assert len(backend.skipped) == 3
    assert str(torn) in caplog.text
    with pytest.raises(CheckpointCorruptedError, match=torn.name):
        backend.load(bad)
    with pytest.raises(CheckpointCorruptedError, match=str(good)):
        backend.load(misnamed)
    loop = Planner(recovery=RecoveryConfig(backend=backend, max_resume_age=timedelta(days=9999)))
    assert [one.run_id for one in loop.list_recoverable()] == [good]
    with pytest.raises(RecoveryError):
        loop.recover(bad)
    loop.abandon(bad)
    assert not torn.exists()


def _as_fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def _as_socket(path: Path, outside: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def _as_device(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def _as_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def _as_directory(path: Path, outside: Path) -> None:
    path.mkdir()


def _as_huge(path: Path, outside: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    "make", [_as_fifo, _as_socket, _as_device, _as_link, _as_directory, _as_huge]
)
def test_what_is_not_a_plain_file_is_skipped_and_reported(
    make: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither followed nor waited for nor read into memory; a link may lead to a good one."""
    backend, elsewhere = FilesystemCheckpointBackend(tmp_path / "in"), tmp_path / "out"
    good, bad = new_run_id(), new_run_id()
    backend.save(good, checkpoint(good))
    FilesystemCheckpointBackend(elsewhere).save(bad, checkpoint(bad))
    name = f"{bad}.checkpoint.json"
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    make(Path("in") / name, elsewhere / name)
    assert list(backend.list_incomplete()) == [good]
    assert set(backend.skipped) == {tmp_path / "in" / name}
    with pytest.raises(CheckpointCorruptedError, match=r"expected (a plain file|at most)"):
        backend.load(bad)
    if make is _as_directory:
        with pytest.raises(CheckpointCorruptedError, match="by hand"):
            backend.delete(bad)
    else:
        backend.delete(bad)
        assert list(backend.list_incomplete()) == [good]
        assert backend.skipped == {}
    assert FilesystemCheckpointBackend(elsewhere).load(bad) is not None


@pytest.mark.parametrize(
    "spelled",
    ["notes", "", "{}", "{0}", "urn:uuid:{1}", "{2}", "{{{1}}}", "\udcff"],
    ids=["text", "nothing", "braces", "hex", "urn", "upper case", "in braces", "odd bytes"],
)
def test_a_name_that_is_not_an_id_is_skipped_and_reported(spelled: str, tmp_path: Path) -> None:
    """Also one that Python takes for an id, but under which the run would not be found."""
    backend, run_id = FilesystemCheckpointBackend(tmp_path), new_run_id()
    name = spelled.format(run_id.hex, run_id, str(run_id).upper()) if "{" in spelled else spelled
    file = tmp_path / f"{name}.checkpoint.json"
    file.write_text(checkpoint(run_id).to_json())
    assert list(backend.list_incomplete()) == []
    assert set(backend.skipped) == {file}


@pytest.mark.parametrize("text", ["../out", "/etc/passwd", "..", "", "a/b", "\0", "x" * 300])
def test_a_run_id_given_as_text_can_not_leave_the_folder(text: Any, tmp_path: Path) -> None:
    """Neither to read nor to write nor to delete; an id as text is the id."""
    backend, run_id = FilesystemCheckpointBackend(tmp_path / "in"), new_run_id()
    backend.save(run_id, checkpoint(run_id))
    outside = tmp_path / "out.checkpoint.json"
    outside.write_text(checkpoint(run_id).to_json())
    before = sorted(tmp_path.rglob("*"))
    attempts: tuple[Callable[[], object], ...] = (
        lambda: backend.load(text),
        lambda: backend.delete(text),
        lambda: backend.save(text, checkpoint(run_id)),
    )
    for attempt in attempts:
        with pytest.raises(InvalidRunIdError):
            attempt()
    assert sorted(tmp_path.rglob("*")) == before
    as_text: Any = str(run_id).upper()
    assert backend.load(as_text) is not None


def test_a_checkpoint_that_would_not_be_read_again_is_not_saved(tmp_path: Path) -> None:
    """The one before it stays."""
    run_id = new_run_id()
    FilesystemCheckpointBackend(tmp_path).save(run_id, checkpoint(run_id))
    backend = FilesystemCheckpointBackend(tmp_path, max_bytes=2000)
    with pytest.raises(InvalidInputError, match="max_bytes"):
        backend.save(run_id, checkpoint(run_id, request_payload=bytes(2000)))
    assert backend.load(run_id) is not None


@pytest.mark.parametrize("private", [True, False])
def test_a_folder_of_checkpoints_is_for_its_owner_only(private: bool, tmp_path: Path) -> None:
    """Unless the setting leaves it to the umask; the files are private in any case."""
    before = os.umask(0o022)
    try:
        run_id, folder = new_run_id(), tmp_path / "new"
        FilesystemCheckpointBackend(folder, private=private).save(run_id, checkpoint(run_id))
    finally:
        os.umask(before)
    assert f"{folder.stat().st_mode:o}" == ("40700" if private else "40755")
    assert [f"{file.stat().st_mode:o}" for file in folder.iterdir()] == ["100600"]


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X10: if the disk fails in the middle, the file before it is still there, and no rest."""
    backend, run_id = FilesystemCheckpointBackend(tmp_path), new_run_id()
    first = checkpoint(run_id)
    backend.save(run_id, first)

    def full(handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        backend.save(run_id, checkpoint(run_id, tool_calls_completed=9))
    assert [file.name for file in tmp_path.iterdir()] == [f"{run_id}.checkpoint.json"]
    found = backend.load(run_id)
    assert found is not None
    assert found.to_json() == first.to_json()


def test_a_reader_has_one_checkpoint_whatever_is_saved_meanwhile(tmp_path: Path) -> None:
    """X10: the new file takes the place of the old one, whose bytes do not change."""
    backend, run_id = FilesystemCheckpointBackend(tmp_path), new_run_id()
    first = checkpoint(run_id)
    backend.save(run_id, first)
    with (tmp_path / f"{run_id}.checkpoint.json").open() as reader:
        backend.save(run_id, checkpoint(run_id, tool_calls_completed=9))
        assert reader.read() == first.to_json()


def test_files_alone_count_attempts_and_park(tmp_path: Path) -> None:
    """X10, X11: without a ledger the file says how often a run got nowhere."""
    config = RecoveryConfig(backend=FilesystemCheckpointBackend(tmp_path), max_attempts=2)
    run_id = new_run_id()
    with pytest.raises(Crash):
        Planner(recovery=config, in_tool=crash_in("c1")).execute(Goal(), run_id=run_id)
    for at in ("c1", "c2", "c2", "c2"):  # the first got nowhere; the second got further
        with pytest.raises(Crash):
            Planner(recovery=config, in_tool=crash_in(at)).recover(run_id)
    loop = Planner(recovery=config)
    assert loop.list_recoverable() == []
    with pytest.raises(RecoveryError, match="no progress"):
        loop.recover(run_id)


def test_files_alone_know_another_prompt(tmp_path: Path) -> None:
    """X11: a prompt that renders differently is refused, and the run waits for the right one."""
    config = RecoveryConfig(backend=FilesystemCheckpointBackend(tmp_path))
    run_id = new_run_id()
    with pytest.raises(Crash):
        Planner(recovery=config, in_tool=crash_in("c2")).execute(Goal(), run_id=run_id)
    for _ in range(5):
        with pytest.raises(PromptMismatch):
            Planner(recovery=config, title="Another task").recover(run_id)
    assert Planner(recovery=config).recover(run_id)[0].output == Answer(3)


def test_files_alone_go_on_with_the_recorded_prompt(tmp_path: Path) -> None:
    """The file has its text; accepting another one takes a ledger, and says so."""
    config = RecoveryConfig(backend=FilesystemCheckpointBackend(tmp_path))
    run_id, seen = new_run_id(), list[str]()
    with pytest.raises(Crash):
        Planner(recovery=config, in_tool=crash_in("c2")).execute(Goal(), run_id=run_id)

    def model(request: Any) -> Any:
        seen.append(request.system)
        return REPLIES[request.turn - 1]

    edited = Planner(model, recovery=config, title="Another task")
    with pytest.raises(InvalidInputError, match="needs a ledger"):
        edited.recover(run_id, prompt="accept")
    with pytest.raises(PromptMismatch, match="1 lines of text added, 1 removed") as caught:
        edited.recover(run_id)
    assert caught.value.difference is not None
    assert caught.value.difference.tools_added == ()  # the file does not name the tools
    assert edited.recover(run_id, prompt="recorded")[0].output == Answer(3)
    assert all("## Task\n" in text for text in seen)


@pytest.mark.parametrize("kept", [True, False])
def test_a_backend_that_fails_in_the_end_does_not_undo_the_run(tmp_path: Path, kept: bool) -> None:
    """X10: the answer is returned, and the run stays completed."""

    class Away(FilesystemCheckpointBackend):
        def delete(self, run_id: UUID) -> None:
            raise OSError("the disk is gone")

    run_id, backend = new_run_id(), Away(tmp_path)
    with Ledger.open("memory://") as ledger:
        loop = Planner(recovery=RecoveryConfig(backend=backend), ledger=ledger if kept else None)
        response, _ = loop.execute(Goal(), run_id=run_id)
        assert response.output == Answer(3)
        if kept:
            assert ledger.run(run_id).status == "completed"
        assert loop.list_recoverable() == []
    left = backend.load(run_id)
    assert left is not None
    assert left.phase is CheckpointPhase.COMPLETED


# --- the ledger ------------------------------------------------------------------------


def test_clearing_is_a_tombstone(ledger: Ledger) -> None:
    """X5, X6: after success load gives None, and the history of checkpoints stays."""
    run_id = new_run_id()
    Planner(ledger=ledger).execute(Goal(), run_id=run_id)
    assert LedgerCheckpointBackend(ledger).load(run_id) is None
    view = state_at(ledger, run_id).checkpoints
    phases = [entry.phase for entry in view.entries]
    assert (view.latest, phases) == (None, ["initialized", *["post_tool"] * 3, "completed"])


def test_a_given_checkpoint_is_kept_as_it_is(ledger: Ledger) -> None:
    """X9: an event of its own, whose id is the checkpoint's; its age is its own created_at."""
    backend, run_id = LedgerCheckpointBackend(ledger), new_run_id()
    given = checkpoint(run_id, request_payload=b"\xfe no JSON")
    backend.save(run_id, given)
    record = list(ledger.read(run_id))[-1]
    assert isinstance(record.event, CheckpointStored)
    assert (record.event.checkpoint, record.event.created_at) == (given.to_json(), NOW)
    latest, found = state_at(ledger, run_id).checkpoints.latest, backend.load(run_id)
    assert latest is not None
    assert latest.checkpoint_id == str(record.event_id)
    assert found is not None
    assert found.to_json() == given.to_json()


def test_the_loops_own_checkpoint_is_derived_from_the_events(ledger: Ledger) -> None:
    """X9: at the latest boundary, not at the head."""
    run_id = new_run_id()
    with pytest.raises(Crash):
        Planner(ledger=ledger, in_tool=crash_in("c3")).execute(Goal(), run_id=run_id)
    found = LedgerCheckpointBackend(ledger).load(run_id)
    assert found is not None
    assert (found.run_id, found.tool_calls_completed) == (run_id, 2)
    assert (found.phase, found.request_type) == (CheckpointPhase.POST_TOOL, "Goal")
    assert json.loads(found.request_payload) == {"text": "tidy up"}
    assert Checkpoint.from_json(found.to_json()).to_json() == found.to_json()
    every_second = RecoveryConfig(checkpoint_interval=2)
    between = LedgerCheckpointBackend(ledger).load(interrupted(ledger, "c2", recovery=every_second))
    assert between is not None
    assert between.composite_snapshot.session.slices == ()  # what c1 changed came after it


def test_a_worked_on_runs_checkpoints_are_its_workers(ledger: Ledger) -> None:
    """X7: nobody saves or deletes a checkpoint of a run that another is at."""
    backend, run_id = LedgerCheckpointBackend(ledger), new_run_id()
    backend.save(run_id, checkpoint(run_id))
    with ledger.claim(run_id, worker="somebody"):
        head = ledger.head(run_id)
        with pytest.raises(RunClaimedError):
            backend.save(run_id, checkpoint(run_id))
        with pytest.raises(RunClaimedError):
            backend.delete(run_id)
        assert ledger.head(run_id) == head
