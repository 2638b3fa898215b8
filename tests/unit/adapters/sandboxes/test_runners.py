"""Runners in real sandboxes: input, output, environment, and how a command ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrices import further
from tests.sandboxes import RUNNERS, working_runner
from turnledger.adapters.sandboxes import PodmanRunner, bubblewrap
from turnledger.ledger import InvalidInputError
from turnledger.runtime.workspace import (
    LIMITS,
    SandboxCommand,
    SandboxOutcome,
    SandboxRunner,
    SandboxUnavailableError,
)

pytestmark = pytest.mark.process


@pytest.fixture(params=further(*RUNNERS))
def runner(request: pytest.FixtureRequest) -> SandboxRunner:
    return working_runner(request.param)


def shell(
    runner: SandboxRunner, directory: Path, command: str, seconds: int = 20
) -> SandboxOutcome:
    return runner.run(directory, SandboxCommand(("sh", "-c", command), timeout_seconds=seconds))


def test_a_command_works_in_the_workspace(runner: SandboxRunner, tmp_path: Path) -> None:
    """It reads and writes its files, and its output, errors and exit code come back."""
    (tmp_path / "in.txt").write_text("in")
    outcome = shell(runner, tmp_path, "pwd; cat in.txt; cat in.txt > out.txt; echo bad >&2; exit 3")
    assert outcome == SandboxOutcome(exit_code=3, stdout="/workspace\nin", stderr="bad\n")
    assert (tmp_path / "out.txt").read_text() == "in"


def test_files_that_were_written_since_can_be_changed(
    runner: SandboxRunner, tmp_path: Path
) -> None:
    """Whichever user wrote them: this process, or a command."""
    shell(runner, tmp_path, "mkdir folder; echo one > folder/file")
    (tmp_path / "folder" / "other").write_text("two\n")
    outcome = shell(runner, tmp_path, "cat folder/file >> folder/other && cat folder/other")
    assert outcome == SandboxOutcome(exit_code=0, stdout="two\none\n")


def test_a_program_is_read_from_standard_input(runner: SandboxRunner, tmp_path: Path) -> None:
    """With modules of the workspace, and without traces of having imported them."""
    (tmp_path / "shop.py").write_text("price = 7")
    command = SandboxCommand(("python3", "-B", "-"), "import shop\nprint(shop.price, 'ä')")
    assert runner.run(tmp_path, command) == SandboxOutcome(exit_code=0, stdout="7 ä\n")
    assert [path.name for path in tmp_path.iterdir()] == ["shop.py"]


def test_the_environment_of_the_host_is_not_there(
    runner: SandboxRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor its user: the command has no name for it, and no group."""
    monkeypatch.setenv("API_KEY", "secret")
    outcome = shell(runner, tmp_path, "env; id -u; id -G")
    assert "secret" not in outcome.stdout
    assert "\n0\n" not in outcome.stdout


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_of_long_output_the_beginning_is_kept(
    runner: SandboxRunner, tmp_path: Path, stream: str
) -> None:
    """Half of the limit for each stream, cut between characters; the command goes on."""
    program = f"import sys; print('a' + 'ä' * 10**6, file=sys.{stream}); open('end', 'w')"
    outcome = runner.run(tmp_path, SandboxCommand(("python3", "-"), program))
    kept = getattr(outcome, stream)
    assert outcome.truncated
    assert kept == "a" + "ä" * (len(kept) - 1)
    # podman's runner has a line of its own before that.
    assert LIMITS.output_bytes // 2 - 40 <= len(kept.encode()) <= LIMITS.output_bytes // 2
    assert (tmp_path / "end").exists()


def test_output_within_the_limit_is_whole(runner: SandboxRunner, tmp_path: Path) -> None:
    """To the last byte."""
    half = LIMITS.output_bytes // 2
    outcome = shell(runner, tmp_path, f"head -c {half} /dev/zero | tr '\\0' x")
    assert (outcome.stdout, outcome.truncated) == ("x" * half, False)


def test_a_signal_is_told_as_a_shell_tells_it(runner: SandboxRunner, tmp_path: Path) -> None:
    """128 and its number."""
    assert shell(runner, tmp_path, "kill -9 $$").exit_code == 137


def test_a_time_out_is_told_and_output_before_it_is_kept(
    runner: SandboxRunner, tmp_path: Path
) -> None:
    """The command is stopped with everything that it started."""
    outcome = shell(runner, tmp_path, "echo before; sleep 60 & sleep 60", seconds=1)
    assert (outcome.stdout, outcome.stopped, outcome.timed_out) == ("before\n", "1 s", True)


def test_a_program_that_is_missing_is_told(runner: SandboxRunner, tmp_path: Path) -> None:
    """As a shell tells it."""
    assert shell(runner, tmp_path, "no-such-program").exit_code == 127


def test_a_sandbox_that_can_not_start_is_told(runner: SandboxRunner, tmp_path: Path) -> None:
    """It is not taken for a command that failed."""
    with pytest.raises(SandboxUnavailableError, match="missing"):
        shell(runner, tmp_path / "missing", "true")


def test_what_bwrap_says_itself_is_not_taken_for_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the system's programs it can't start any, and that is told."""
    runner = working_runner("bubblewrap")
    monkeypatch.setattr(bubblewrap, "_OTHERS", ())
    with pytest.raises(SandboxUnavailableError, match="bwrap could not start the command: bwrap:"):
        shell(runner, tmp_path, "true")


@pytest.mark.parametrize("image", ["", "--privileged", "a\nb"])
def test_an_image_has_a_name(image: str) -> None:
    """It is not taken for an option."""
    with pytest.raises(InvalidInputError, match="Invalid image"):
        PodmanRunner(image)


def test_a_directory_with_any_name_is_a_workspace(runner: SandboxRunner, tmp_path: Path) -> None:
    """Spaces, quotes, commas and what looks like an option."""
    directory = tmp_path / "--bind a,b=\"c\" 'ä' $HOME"
    directory.mkdir()
    outcome = shell(runner, directory, "echo works > file && cat file")
    assert outcome == SandboxOutcome(exit_code=0, stdout="works\n")
