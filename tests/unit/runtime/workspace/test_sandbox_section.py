"""PodmanSandboxSection over a runner double: commands, their results, and what becomes of files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import Deed, RunnerDouble
from tests.unit.runtime.workspace.agents import Clerk, Job, uses
from turnledger.adapters.sandboxes import find
from turnledger.ledger import InvalidInputError, Ledger, ToolCallFailed
from turnledger.runtime import SnapshotableFilesystem, ToolContext, replay
from turnledger.runtime.workspace import (
    PodmanSandboxSection,
    SandboxCommand,
    SandboxOutcome,
    SandboxUnavailableError,
    VfsToolsSection,
    default_runner,
)

MORE = "(There was more output: only its beginning is here.)"


def section_of(deeds: Mapping[str, Deed]) -> tuple[PodmanSandboxSection, RunnerDouble]:
    runner = RunnerDouble(deeds)
    return PodmanSandboxSection(runner=runner), runner


def call(section: PodmanSandboxSection, root: Path, name: str, **arguments: Any) -> Any:
    tool = next(tool for tool in section.tools if tool.name == name)
    context = ToolContext(resources={"workspace": SnapshotableFilesystem(root)})
    return tool.handler(tool.params_type(**arguments), context=context)


def errors_in(ledger: Ledger) -> list[str]:
    """What the failed calls of the only run were told."""
    (run,) = ledger.runs()
    events = (record.event for record in ledger.read(run.run_id))
    return [event.error_message for event in events if isinstance(event, ToolCallFailed)]


def writes(name: str, text: str, **outcome: Any) -> Deed:
    """A deed that writes a file and ends so."""

    def deed(directory: Path) -> SandboxOutcome:
        (directory / name).write_text(text)
        return SandboxOutcome(**{"exit_code": 0, **outcome})

    return deed


def test_it_has_the_file_tools_and_two_of_its_own() -> None:
    """A sandbox is a workspace, and more."""
    names = [tool.name for tool in VfsToolsSection().tools]
    tools = [tool.name for tool in PodmanSandboxSection().tools]
    assert tools == [*names, "shell_execute", "evaluate_python"]


def test_a_command_is_for_the_shell_and_a_program_for_python(tmp_path: Path) -> None:
    """The runner gets the words of the model and the time that it allows, in the workspace."""
    seen: list[Path] = []

    def deed(directory: Path) -> SandboxOutcome:
        seen.append(directory)
        return SandboxOutcome(exit_code=0)

    section, runner = section_of({"make": deed, "print(1)": deed})
    call(section, tmp_path, "shell_execute", command="make", timeout_seconds=7)
    call(section, tmp_path, "evaluate_python", code="print(1)")
    assert runner.commands == [
        SandboxCommand(("sh", "-c", "make"), "", 7),
        SandboxCommand(("python3", "-B", "-"), "print(1)", 30),
    ]
    assert seen == [tmp_path, tmp_path]


@pytest.mark.parametrize(
    ("outcome", "success", "text"),
    [
        (SandboxOutcome(exit_code=0), True, "Exit code 0.\n\nNo output."),
        (
            SandboxOutcome(exit_code=2, stdout="one\ntwo\n", stderr="bad\n"),
            False,
            "Exit code 2.\n\nOutput:\none\ntwo\n\nErrors:\nbad",
        ),
        (
            SandboxOutcome(exit_code=137, stdout="y", truncated=True, stopped="3 seconds"),
            False,
            f"Stopped: more than 3 seconds.\n\nOutput:\ny\n\n{MORE}",
        ),
        (
            SandboxOutcome(exit_code=0, stopped="3 seconds", timed_out=True),
            False,
            "Stopped: more than 3 seconds.\n\nNo output.",
        ),
    ],
)
def test_a_result_says_how_the_command_ended(
    tmp_path: Path, outcome: SandboxOutcome, success: bool, text: str
) -> None:
    """Its exit code or its limit, and its output; only exit code 0 is a success."""
    section, _ = section_of({"make": lambda _: outcome})
    result = call(section, tmp_path, "shell_execute", command="make")
    assert (result.success, result.message) == (success, text)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"command": "x" * 4097}, "4,097 characters: expected at most 4,096"),
        ({"command": "a\0b"}, "expected Unicode text"),
        ({"command": "\ud800"}, "expected Unicode text"),
        ({"command": "make", "timeout_seconds": 0}, "expected 1 to 120"),
        ({"command": "make", "timeout_seconds": 121}, "expected 1 to 120"),
    ],
)
def test_a_command_beyond_the_limits_is_not_executed(
    tmp_path: Path, arguments: dict[str, Any], why: str
) -> None:
    """The model is told what is expected."""
    section, runner = section_of({})
    result = call(section, tmp_path, "shell_execute", **arguments)
    assert not result.success
    assert why in result.message
    assert runner.commands == []


@pytest.mark.parametrize("argv", [(), ("sh", 1), "sh", None])
def test_a_command_has_a_program(argv: Any) -> None:
    """Anything else is refused when the command is made."""
    with pytest.raises(InvalidInputError):
        SandboxCommand(argv)


def test_the_longest_command_is_executed(tmp_path: Path) -> None:
    """4,096 characters, whatever they are in bytes, for 120 seconds."""
    longest = "ä" * 4096
    section, runner = section_of({longest: lambda _: SandboxOutcome(exit_code=0)})
    call(section, tmp_path, "shell_execute", command=longest, timeout_seconds=120)
    assert len(runner.commands) == 1


def test_what_a_failed_command_did_to_files_is_undone(tmp_path: Path, ledger: Ledger) -> None:
    """The next command finds the files as they were; a successful one's are kept and recorded."""
    seen: list[list[str]] = []

    def look(directory: Path) -> SandboxOutcome:
        seen.append(sorted(path.name for path in directory.iterdir()))
        return SandboxOutcome(exit_code=0)

    section, _ = section_of(
        {
            "good": writes("good.txt", "1"),
            "bad": writes("bad.txt", "2", exit_code=1),
            "slow": writes("slow.txt", "3", exit_code=0, stopped="30 seconds"),
            "look": look,
        }
    )
    asked = [("shell_execute", {"command": name}) for name in ("good", "bad", "slow", "look")]
    loop = Clerk(uses(*asked), tmp_path / "files", section, ledger=ledger)
    loop.execute(Job())
    assert seen == [["good.txt"]]


def test_a_link_out_of_the_workspace_fails_the_command(tmp_path: Path, ledger: Ledger) -> None:
    """It can't be recorded, so the command has failed, and the link is gone."""

    def link(directory: Path) -> SandboxOutcome:
        (directory / "link").symlink_to("/etc/passwd")
        return SandboxOutcome(exit_code=0)

    section, _ = section_of({"link": link})
    replies = uses(("shell_execute", {"command": "link"}))
    loop = Clerk(replies, tmp_path / "files", section, ledger=ledger)
    loop.execute(Job())
    assert ["out of the directory" in error for error in errors_in(ledger)] == [True]
    assert list((tmp_path / "files").iterdir()) == []


def test_a_replay_executes_no_command(tmp_path: Path, ledger: Ledger) -> None:
    """It finds the outcome in the ledger, whatever a command would do now."""
    section, runner = section_of({"good": writes("good.txt", "1", stdout="a\0b\ufffd\x1b[2J")})
    replies = uses(("shell_execute", {"command": "good"}))
    loop = Clerk(replies, tmp_path / "files", section, ledger=ledger)
    loop.execute(Job())
    replayed = Clerk(replies, tmp_path / "elsewhere", section, ledger=ledger)
    (run,) = ledger.runs()
    replay(ledger, run.run_id, loop=replayed).check()
    assert len(runner.commands) == 1


def test_where_no_sandbox_works_nothing_is_executed(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both tools fail and say why in each trial; the trials are made once, and not before."""
    trials = []

    class Broken:
        def __init__(self, name: str) -> None:
            self.name = name

        def run(self, directory: Path, command: SandboxCommand) -> SandboxOutcome:
            trials.append(self.name)
            raise SandboxUnavailableError(f"{self.name} is broken")

    monkeypatch.setattr(find, "PodmanRunner", lambda: Broken("podman"))
    monkeypatch.setattr(find, "BubblewrapRunner", lambda: Broken("bubblewrap"))
    find._found.cache_clear()
    section = PodmanSandboxSection()
    assert trials == []
    asked = [("shell_execute", {"command": "touch x"}), ("evaluate_python", {"code": "1"})]
    loop = Clerk(uses(*asked), tmp_path / "files", section, ledger=ledger)
    loop.execute(Job())
    find._found.cache_clear()
    errors = errors_in(ledger)
    assert len(errors) == 2
    for error in errors:
        for words in ("podman is broken", "bubblewrap is broken", "the package bubblewrap"):
            assert words in error
    assert trials == ["podman", "bubblewrap"]


def test_the_default_runner_is_found_among_the_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an import of adapters in runtime."""
    runner = RunnerDouble({})
    monkeypatch.setattr(find, "_found", lambda: runner)
    assert default_runner() is runner
