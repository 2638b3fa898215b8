"""Mounts: files of the host are copied when a run starts, recorded, and never read again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash
from tests.unit.runtime.checkpoints.test_filesystem import contents
from tests.unit.runtime.workspace.agents import Clerk, Job, uses
from turnledger.ledger import InvalidInputError, Ledger, new_run_id
from turnledger.runtime import (
    ExecutionState,
    PromptEvaluationError,
    Reply,
    ScriptedAdapter,
    Session,
    SnapshotableFilesystem,
    Tool,
    ToolContext,
    ToolResult,
    WorkspaceError,
    replay,
)
from turnledger.runtime.workspace import HostMount, VfsToolsSection, mounts

EDIT = uses(
    ("edit_file", {"file_path": "/host/a.txt", "old_string": "one", "new_string": "two"}),
    ("write_file", {"file_path": "/new.txt", "content": "new"}),
)
EDITED = {
    "host": "directory",
    "host/a.txt": (b"two", False),
    "host/bin": "directory",
    "host/bin/run": (b"#!", True),
    "host/empty": "directory",
    "host/link": ("link", "bin/run"),
    "new.txt": (b"new", False),
}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A directory of the host, with one of everything that can be mounted."""
    host = tmp_path / "host"
    (host / "bin").mkdir(parents=True)
    (host / "empty").mkdir()
    (host / "a.txt").write_text("one")
    (host / "bin/run").write_text("#!")
    (host / "bin/run").chmod(0o755)
    (host / "link").symlink_to("bin/run")
    return host


@pytest.fixture
def ledger() -> Ledger:
    return Ledger.open("memory://")


def mounted(host: Path, **more: Any) -> VfsToolsSection:
    return VfsToolsSection(mounts=[HostMount(host, **more)], allowed_host_roots=[host.parent])


def crashing(replies: list[Reply], turn: int) -> Callable[[Any], Reply]:
    """A model that ends the process when it is asked for this turn."""

    def reply(request: Any) -> Reply:
        if request.turn == turn:
            raise Crash
        return replies[request.turn - 1]

    return reply


def crashed(ledger: Ledger, host: Path, root: Path, turn: int = 2) -> UUID:
    """A run that was interrupted before this turn."""
    run = new_run_id()
    with pytest.raises(Crash):
        Clerk(crashing(EDIT, turn), root, mounted(host), ledger=ledger).execute(Job(), run_id=run)
    return run


def test_a_mount_is_copied_with_links_permissions_and_empty_directories(
    ledger: Ledger, host: Path, tmp_path: Path
) -> None:
    """What the agent does to the copy is not done to the host."""
    Clerk(EDIT, tmp_path / "w", mounted(host), ledger=ledger).execute(Job())
    assert contents(tmp_path / "w") == EDITED
    assert (host / "a.txt").read_text() == "one"


def test_a_mount_goes_where_it_is_told(ledger: Ledger, host: Path, tmp_path: Path) -> None:
    """A file or a directory, at any path; the prompt names that one and not the host's."""
    section = VfsToolsSection(
        mounts=[HostMount(host / "a.txt", "docs/b.txt"), HostMount(str(host / "bin"), "/")],
        allowed_host_roots=[str(tmp_path)],
    )
    loop = Clerk(uses(), tmp_path / "w", section, ledger=ledger)
    loop.execute(Job())
    assert sorted(contents(tmp_path / "w")) == ["docs", "docs/b.txt", "run"]
    text = loop.create_prompt(Job()).render().text
    assert "- `/docs/b.txt`\n- `/`" in text
    assert str(tmp_path) not in text


def test_a_recovery_elsewhere_needs_no_file_of_the_host(
    ledger: Ledger, host: Path, tmp_path: Path
) -> None:
    """In another, empty folder, with the host's files gone: they are on record."""
    run = crashed(ledger, host, tmp_path / "w")
    shutil.rmtree(host)
    loop = Clerk(crashing(EDIT, 0), tmp_path / "other", mounted(host), ledger=ledger)
    loop.recover(run)
    assert contents(tmp_path / "other") == EDITED


def test_a_recovery_does_not_copy_again(ledger: Ledger, host: Path, tmp_path: Path) -> None:
    """What has changed on the host since is not seen."""
    run = crashed(ledger, host, tmp_path / "w")
    (host / "a.txt").write_text("changed")
    (host / "added").write_text("")
    Clerk(crashing(EDIT, 0), tmp_path / "w", mounted(host), ledger=ledger).recover(run)
    assert contents(tmp_path / "w") == EDITED


def test_a_fork_does_not_copy_again(ledger: Ledger, host: Path, tmp_path: Path) -> None:
    """It goes on from the recorded files."""
    run = crashed(ledger, host, tmp_path / "w", turn=3)
    shutil.rmtree(host)
    fork = ledger.fork(run, ledger.head(run))
    Clerk(crashing(EDIT, 0), tmp_path / "fork", mounted(host), ledger=ledger).recover(fork)
    assert contents(tmp_path / "fork") == EDITED


def test_a_replay_reads_nothing_of_the_host_and_writes_no_file(
    ledger: Ledger, host: Path, tmp_path: Path
) -> None:
    """Of a run that was interrupted and recovered: it does not diverge."""
    run = crashed(ledger, host, tmp_path / "w")
    Clerk(crashing(EDIT, 0), tmp_path / "w", mounted(host), ledger=ledger).recover(run)
    shutil.rmtree(host)
    loop = Clerk(crashing(EDIT, 1), tmp_path / "replayed", mounted(host), ledger=ledger)
    assert replay(ledger, run, loop=loop).divergence is None
    assert not list((tmp_path / "replayed").iterdir())


def test_the_next_run_of_a_session_gets_the_hosts_files_of_its_time(
    ledger: Ledger, host: Path, tmp_path: Path
) -> None:
    """A run that starts copies; other files of the workspace stay."""
    session = Session()

    class Reused(Clerk):
        def create_session(self) -> Session:
            return session

    Reused(EDIT, tmp_path / "w", mounted(host), ledger=ledger).execute(Job())
    (host / "a.txt").write_text("later")
    Reused(uses(), tmp_path / "w", mounted(host), ledger=ledger).execute(Job())
    assert contents(tmp_path / "w") == {**EDITED, "host/a.txt": (b"later", False)}


def missing(host: Path) -> None:
    shutil.rmtree(host)


def link_out(host: Path) -> None:
    (host / "secret").symlink_to("/etc/passwd")


def link_up(host: Path) -> None:
    (host / "bin/up").symlink_to("../../sibling")


def is_link_out(host: Path) -> None:
    shutil.rmtree(host)
    host.symlink_to("/etc")


def pipe(host: Path) -> None:
    os.mkfifo(host / "pipe")


def deep(host: Path) -> None:
    (host / "/".join("x" * 40)).mkdir(parents=True)


def large(host: Path) -> None:
    with (host / "large").open("wb") as file:
        file.truncate(mounts.MOST_BYTES)


def many(host: Path) -> None:
    for number in range(50):
        (host / str(number)).write_text("")


FAULTS = {
    missing: "does not exist",
    link_out: "a link leads out of the mount",
    link_up: "a link leads out of the mount",
    is_link_out: "a link leads outside",
    pipe: "is neither a file nor a directory",
    deep: "deeper than 32 directories",
    large: "larger than",
    many: "more than 50 files",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mount_that_can_not_be_copied_ends_the_run_before_anything_runs(
    fault: Callable[[Path], None],
    ledger: Ledger,
    host: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a typed error; no model is asked, nothing is copied, and a replay agrees."""
    monkeypatch.setattr(mounts, "MOST_FILES", 50)
    fault(host)
    run = new_run_id()
    loop = Clerk(crashing(EDIT, 1), tmp_path / "w", mounted(host), ledger=ledger)
    with pytest.raises(PromptEvaluationError, match=FAULTS[fault]) as failed:
        loop.execute(Job(), run_id=run)
    assert isinstance(failed.value.__cause__, WorkspaceError)
    assert failed.value.phase == "request"
    assert not list((tmp_path / "w").iterdir())
    again = Clerk(crashing(EDIT, 1), tmp_path / "w", mounted(host), ledger=ledger)
    assert replay(ledger, run, loop=again).divergence is None


def test_a_run_whose_mount_failed_can_be_recovered_once_it_is_there(
    ledger: Ledger, host: Path, tmp_path: Path
) -> None:
    """It copies then, and not before: nothing was on record."""
    run, away = new_run_id(), host.rename(tmp_path / "away")
    loop = Clerk(EDIT, tmp_path / "w", mounted(host), ledger=ledger)
    with pytest.raises(PromptEvaluationError):
        loop.execute(Job(), run_id=run)
    away.rename(host)
    loop.recover(run)
    assert contents(tmp_path / "w") == EDITED


@pytest.mark.parametrize("roots", [(), ("host/bin",), ("hos",), ("other",)])
def test_a_mount_outside_of_the_allowed_roots_is_refused(
    ledger: Ledger, host: Path, tmp_path: Path, roots: tuple[str, ...]
) -> None:
    """Also if there are none, or one whose name only begins alike."""
    allowed = [tmp_path / root for root in roots]
    section = VfsToolsSection(mounts=[HostMount(host)], allowed_host_roots=allowed)
    with pytest.raises(PromptEvaluationError, match="not within one of the allowed_host_roots"):
        Clerk(EDIT, tmp_path / "w", section, ledger=ledger).execute(Job())


def test_a_loop_without_a_workspace_fails_before_anything_runs(ledger: Ledger) -> None:
    """The error says what to give the loop."""
    with pytest.raises(PromptEvaluationError, match="no resource 'workspace'"):
        Clerk(EDIT, None, ledger=ledger).execute(Job())


def test_an_evaluation_without_a_loop_copies_too(host: Path, tmp_path: Path) -> None:
    """When the resources of its session are recorded for the first time."""
    (tmp_path / "w").mkdir()
    resources = {"workspace": SnapshotableFilesystem(tmp_path / "w")}
    state = ExecutionState(session=Session(), resources=resources)
    prompt = Clerk(EDIT, None, mounted(host)).create_prompt(Job())
    ScriptedAdapter[Any](EDIT).evaluate(prompt, execution_state=state)
    assert contents(tmp_path / "w") == EDITED


def test_what_a_failed_tool_wrote_is_undone(ledger: Ledger, tmp_path: Path) -> None:
    """Its files go, a file that it removed comes back, and the next tool sees neither."""

    def spoil(*, context: ToolContext) -> ToolResult[None]:
        root = context.resources["workspace"].root
        (root / "spoilt").write_text("half")
        (root / "kept").unlink()
        return ToolResult("It failed.", success=False)

    tool = Tool[None, None](name="spoil", description="Spoil it.", handler=spoil)
    replies = uses(("write_file", {"file_path": "kept", "content": "k"}), ("spoil", {}), ("ls", {}))
    loop = Clerk(replies, tmp_path / "w", tools=[tool], ledger=ledger)
    response, _ = loop.execute(Job())
    assert response.tool_results[-1].result.message == "kept (1 bytes)"
    assert contents(tmp_path / "w") == {"kept": (b"k", False)}


def test_a_clone_is_an_equal_section_for_another_prompt(host: Path) -> None:
    """The same text and tools, and the same mounts."""
    section = mounted(host)
    clone = section.clone()
    digests = {
        Clerk([], None, one).create_prompt(Job()).render().digest for one in (section, clone)
    }
    assert len(digests) == 1
    assert clone is not section
    assert (type(clone), clone.mounts, clone.allowed_host_roots) == (
        VfsToolsSection,
        section.mounts,
        section.allowed_host_roots,
    )


@pytest.mark.parametrize("path", [".", "/", "a/..", "a/."])
def test_a_mount_without_a_name_must_say_where_it_goes(path: str) -> None:
    """As the place would depend on the folder that the program runs in."""
    with pytest.raises(WorkspaceError, match="with mount_path"):
        HostMount(path)


def test_invalid_mounts_and_roots_are_refused_when_the_section_is_made() -> None:
    """By type, without a look at the host."""
    wrong: Any
    for wrong in (None, b"x", "a\0b", 3):
        with pytest.raises(InvalidInputError, match="expected a path"):
            HostMount(wrong)
        with pytest.raises(InvalidInputError):
            VfsToolsSection(allowed_host_roots=[wrong])
    for wrong in (["x"], [None], 3):
        with pytest.raises((InvalidInputError, TypeError)):
            VfsToolsSection(mounts=wrong)
    with pytest.raises(InvalidInputError, match="expected a list of directories"):
        VfsToolsSection(allowed_host_roots="/tmp")
    with pytest.raises(WorkspaceError):
        HostMount("a", "../b")
