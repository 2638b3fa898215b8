"""The distribution: what is built here installs elsewhere and runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

from tests.projects import RUN, Project, agent_text

ROOT = Path(__file__).parents[2]


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Installed(NamedTuple):
    """An environment that has the built wheel, its dependencies, and nothing else."""

    wheel: Path
    python: Path
    command: Path


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None], /) -> Path:
    """A folder that is made once for all workers that pytest has."""
    base = factory.getbasetemp()
    # A worker's folder is in the folder of all of them.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            make(folder)
            (folder / "ready").touch()
    return folder


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, built here and installed elsewhere."""
    folder = once(tmp_path_factory, "installed-wheel", _install)
    (wheel,) = folder.glob("turnledger-*.whl")
    programs = folder / "venv/bin"
    return Installed(wheel, programs / "python", programs / "turnledger")


def _install(folder: Path) -> None:
    run(
        *(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation"),
        *("--quiet", "--wheel-dir", folder),
        cwd=folder,
    )
    (wheel,) = folder.glob("turnledger-*.whl")
    new_environment(folder / "venv", wheel)


def new_environment(folder: Path, *packages: object) -> None:
    """An environment that has these packages and nothing else."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=ROOT)
    install(folder, *packages)


def install(folder: Path, *packages: object) -> None:
    """Install packages into an environment, by the pip of this one."""
    pip = (sys.executable, "-m", "pip", "--python", folder)
    # Compiling what is never imported would take most of the time.
    run(*pip, "install", "--quiet", "--no-compile", *packages, cwd=folder)


@pytest.fixture(scope="session")
def python_with_pytest(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a copy of that environment, with pytest added."""

    def add_pytest(folder: Path) -> None:
        shutil.copytree(installed.python.parents[1], folder / "venv", symlinks=True)
        # The script that was copied starts the Python of the first environment.
        (folder / "venv/bin/turnledger").unlink()
        install(folder / "venv", "pytest")

    return once(tmp_path_factory, "wheel-and-pytest", add_pytest) / "venv/bin/python"


def test_a_wheel_installs_into_an_empty_environment(installed: Installed, tmp_path: Path) -> None:
    """The built wheel brings the four packages, their types and a command that works."""
    wheel, python, command = installed
    names = ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"turnledger"}
    assert "turnledger/py.typed" in names
    for package in ("ledger", "projections", "runtime", "adapters"):
        assert f"turnledger/{package}/__init__.py" in names
    assert "append" in run(command, "--help", cwd=tmp_path)
    assert "runs" in run(command, "--db", "memory://", "runs", "--help", cwd=tmp_path)
    # The core is small: no extra came along, and PostgreSQL says what it needs.
    pip = (sys.executable, "-m", "pip", "--python", python)
    listed = run(*pip, "list", "--format", "freeze", cwd=tmp_path).lower().split()
    found = {line.partition("==")[0] for line in listed}
    assert {"turnledger", "click"} <= found
    assert not found & {"pytest", "httpx", "fastapi", "psycopg", "openai", "anthropic"}
    done = subprocess.run(
        [str(command), "--db", "postgresql://nobody@localhost/none", "runs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'turnledger[postgres]'" in done.stderr


def test_a_bug_becomes_a_test_in_a_project_of_its_own(
    installed: Installed, python_with_pytest: Path, tmp_path: Path
) -> None:
    """The installed command writes it, it passes there, and fails after a change of one line."""
    _, python, command = installed
    project = Project(tmp_path, python_with_pytest)
    run(python, "shop.py", "runs.db", RUN, cwd=tmp_path)
    run(command, "export", RUN, "--test", "tests/test_bug.py", "--app", "shop:loop", cwd=tmp_path)
    passed = project.pytest("-q")
    assert "1 passed" in passed.out, passed.out
    project.write("shop.py", agent_text(("Look up a stock.", "Look up the stock.")))
    failed = project.pytest("-q")
    assert failed.code == 1
    report = failed.report("test_bug")
    assert "version 5 (evaluation.started): tool schema changed: stock" in report
    assert f"Run {RUN} of tests/histories/test_bug.jsonl differs from its record there." in report
