"""The distribution: what is built here installs elsewhere and runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_installs_into_an_empty_environment(tmp_path: Path) -> None:
    """The built wheel brings the four packages, their types and a command that works."""
    run(
        *(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation"),
        *("--quiet", "--wheel-dir", tmp_path),
        cwd=tmp_path,
    )
    (wheel,) = tmp_path.glob("turnledger-*.whl")
    names = ZipFile(wheel).namelist()
    packages = {"ledger", "projections", "runtime", "adapters"}
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == packages
    assert all(f"{package}/py.typed" in names for package in packages)
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    command = tmp_path / "venv/bin/turnledger"
    assert "append" in run(command, "--help", cwd=tmp_path)
    assert "runs" in run(command, "--db", "memory://", "runs", "--help", cwd=tmp_path)
    # The core is small: no extra came along, and PostgreSQL says what it needs.
    done = subprocess.run(
        [str(command), "--db", "postgresql://nobody@localhost/none", "runs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'turnledger[postgres]'" in done.stderr
