"""Small projects with an agent and tests of its histories, and pytest run in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from uuid import UUID

from tests.shop_agent import Order, loop
from turnledger.ledger import Ledger, export_runs

AGENT = Path(__file__).with_name("shop_agent.py")
RUN = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
# As strict as a project can be: whatever the plugin does wrong is an error there.
STRICT = """\
[pytest]
addopts = --strict-markers --strict-config -p no:cacheprovider
filterwarnings = error
pythonpath = .
"""
# Plugins that only our own tests need. A project has none of them, and they load slowly.
FOREIGN_PLUGINS = "-p no:schemathesis -p no:hypothesispytest"


def agent_text(*changes: tuple[str, str]) -> str:
    """The text of the agent, with these pieces of it changed."""
    text = AGENT.read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{text.count(old)} x {old}"
        text = text.replace(old, new)
    return text


def recorded_history() -> bytes:
    """A run of the agent as a file."""
    content = BytesIO()
    with Ledger.open("memory://") as ledger:
        loop(ledger).execute(Order("tea"), run_id=RUN)
        export_runs(ledger, content, [RUN])
    return content.getvalue()


class Outcome:
    """What pytest said in a project."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.out = done.stdout + done.stderr

    def __str__(self) -> str:
        return self.out

    def report(self, test: str) -> str:
        """The report of a test that failed."""
        found = re.search(rf"^_+ {re.escape(test)} _+$\n(.*?)(?=^[_=]{{5}})", self.out, re.M | re.S)
        assert found is not None, self.out
        return found[1]


class Project:
    """A folder with an agent, histories and tests."""

    def __init__(self, folder: Path, python: Path | str = sys.executable) -> None:
        self.folder = folder
        self._python = python
        self.write("pytest.ini", STRICT)
        self.write("shop.py", agent_text())

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def pytest(self, *args: object) -> Outcome:
        """Run its tests, in a process of their own that knows nothing of the ones here."""
        ours = ("PYTEST", "COV_", "PYTHON")
        env = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        env["PYTEST_ADDOPTS"] = FOREIGN_PLUGINS
        done = subprocess.run(
            [str(self._python), "-m", "pytest", *map(str, args)],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return Outcome(done)
