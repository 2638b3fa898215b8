"""Runs `make test` on every declared Python that is at hand: pyenv's and those on PATH.

Each has a virtual environment of its own, `.venv-3.12`. A declared Python that is not at hand
is named; the exit code is 1 if any suite failed or no Python was found.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYENV = Path.home() / ".pyenv" / "versions"


def declared() -> list[str]:
    """The versions that pyproject.toml declares, such as "3.12"."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pattern = re.compile(r"Programming Language :: Python :: (3\.\d+)")
    return [found[1] for text in project["classifiers"] if (found := pattern.fullmatch(text))]


def interpreter(version: str) -> str | None:
    """A working interpreter of a version."""
    of_pyenv = sorted(map(str, PYENV.glob(f"{version}.*/bin/python")), reverse=True)
    for candidate in (*of_pyenv, f"python{version}"):
        try:
            command = [candidate, "-c", "import ssl, sqlite3, venv"]
            if subprocess.run(command, capture_output=True).returncode == 0:
                return candidate
        except OSError:
            continue
    return None


def main() -> int:
    """Run the suites one after another, and print an outcome for each version."""
    outcomes, passed = {}, []
    for version in declared():
        python = interpreter(version)
        if python is None:
            outcomes[version] = "not at hand"
            continue
        began = time.monotonic()
        command = ["make", "test", f"PYTHON={python}", f"VENV=.venv-{version}"]
        passed.append(subprocess.run(command, cwd=ROOT).returncode == 0)
        minutes = (time.monotonic() - began) / 60
        outcomes[version] = f"{'passed' if passed[-1] else 'FAILED'} in {minutes:.1f} minutes"
    for version, outcome in outcomes.items():
        print(f"Python {version}: {outcome}")
    return 0 if passed and all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
