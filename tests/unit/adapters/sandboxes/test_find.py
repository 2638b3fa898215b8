"""Which sandbox is used: the first that has executed a trial command."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import RunnerDouble
from turnledger.adapters.sandboxes import BubblewrapRunner, PodmanRunner, trial
from turnledger.adapters.sandboxes.find import first_that_works
from turnledger.runtime.workspace import SandboxCommand, SandboxOutcome, SandboxUnavailableError

WORKS = SandboxOutcome(exit_code=0, stdout="it works\n")


class Trying(RunnerDouble):
    """A runner whose trial ends so, or raises."""

    def __init__(self, name: str, ends: SandboxOutcome | Exception) -> None:
        super().__init__({})
        self.name = name
        self._ends = ends

    def run(self, directory: Path, command: SandboxCommand) -> SandboxOutcome:
        self.commands.append(command)
        if isinstance(self._ends, Exception):
            raise self._ends
        return self._ends


def test_the_first_that_works_is_used_and_no_other_is_tried() -> None:
    """One that is broken is passed over."""
    broken = Trying("one", SandboxUnavailableError("no such program"))
    works, other = Trying("two", WORKS), Trying("three", WORKS)
    assert first_that_works([broken, works, other]) is works
    assert other.commands == []


def test_what_failed_in_each_is_told_with_the_packages_to_install() -> None:
    """A person can repair it with that."""
    told = first_that_works(
        [
            Trying("podman", SandboxUnavailableError("image not known")),
            Trying("bubblewrap", SandboxOutcome(exit_code=1, stderr="No permissions\n")),
        ]
    )
    assert isinstance(told, str)
    for words in (
        "the package podman",
        "the package bubblewrap",
        "podman: image not known",
        "bubblewrap: The trial command ended with exit code 1: No permissions",
    ):
        assert words in told


@pytest.mark.parametrize(
    "ends",
    [
        SandboxOutcome(exit_code=0, stdout=""),
        SandboxOutcome(exit_code=1, stdout="it works\n"),
        SandboxOutcome(exit_code=137, stopped="30 seconds"),
    ],
)
def test_a_trial_that_did_not_do_what_it_should_has_failed(ends: SandboxOutcome) -> None:
    """Whatever its exit code is."""
    assert trial(Trying("one", ends))


@pytest.mark.process
@pytest.mark.parametrize("kind", [BubblewrapRunner, PodmanRunner])
def test_a_program_that_is_not_installed_has_failed_its_trial(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the name of the program."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("os.defpath", "/nowhere")
    assert "can't be started" in trial(kind())


def test_a_trial_leaves_nothing_behind() -> None:
    """Neither if it works nor if it raises."""
    before = set(Path(tempfile.gettempdir()).glob("turnledger-sandbox-*"))
    trial(Trying("one", WORKS))
    with pytest.raises(ZeroDivisionError):
        trial(Trying("two", ZeroDivisionError()))
    assert set(Path(tempfile.gettempdir()).glob("turnledger-sandbox-*")) <= before
