"""What a user's type checker says: mypy --strict and pyright strict on a small project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = Path(__file__).parent / "typed_project"
# An output is of its own type, an input too, and a tool has its function's parameters.
WRONG = """

def wrong() -> None:
    result = talker.run(7)
    result.output.priority
    weather(city=7)
"""

pytestmark = [pytest.mark.full, pytest.mark.process]


def mypy(folder: Path) -> list[str]:
    """What mypy finds, with no settings but --strict."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "support.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}  # as if it were installed
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


def pyright(folder: Path) -> list[str]:
    """What pyright finds in its strict mode; it comes with its own node, and needs no network."""
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    python = ("--pythonpath", sys.executable)
    command = [sys.executable, "-m", "pyright", *python, "--outputjson"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] >= 1, done.stdout
    return [one["message"] for one in report["generalDiagnostics"]]


@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])
def test_a_users_project_has_no_errors_and_typed_outputs(
    checker: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    """No error in strict mode; `assert_type` holds the types; what is wrong is found."""
    project = tmp_path / "support.py"
    project.write_text((PROJECT / "support.py").read_text())
    assert checker(tmp_path) == []
    project.write_text(project.read_text() + WRONG)
    found = "\n".join(checker(tmp_path))
    for word in ('"run"', "priority", '"city"'):
        assert word in found, found
