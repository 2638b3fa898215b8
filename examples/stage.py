"""The stage of examples/demo.py: claims that are checked, and processes that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from rich.console import Console

HERE = Path(__file__).resolve().parent
PROGRAM = "from turnledger.adapters.cli import main; main()"  # what `turnledger` runs
console = Console(highlight=False, markup=False, soft_wrap=True)


def tell(text: str) -> None:
    console.print(f"       {text}", style="dim")


def check(claim: str, holds: bool) -> None:
    """Print a claim that holds; end the demo at one that does not."""
    console.print(f"  {'ok  ' if holds else 'FALSE'} {claim}", style="green" if holds else "red")
    if not holds:
        sys.exit(1)


def refusal(kind: type[Exception], action: Callable[[], object]) -> str:
    """What is said when an action is refused; nothing if it is not."""
    try:
        action()
    except kind as error:
        return f"{kind.__name__}: {error}"
    return ""


class Stage:
    """A folder with a bank, a ledger in it or elsewhere, and processes that work on them."""

    def __init__(self, folder: Path, url: str = "", **settings: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.bank, self.still = folder, folder / "bank.txt", folder / "still"
        self.ledger = url or str(folder / "runs.db")
        own = {"DEMO_BANK": str(self.bank), "COLUMNS": "100", **settings}
        self._environment = {**os.environ, **own}

    def agent(self, run: UUID, *, stands_still: bool = False) -> subprocess.Popen[str]:
        """A process in which the agent works; it may stand still right after it has paid."""
        environment = dict(self._environment)
        if stands_still:
            environment["DEMO_STANDSTILL"] = str(self.still)
        return self.start([str(HERE / "demo.py"), "work", self.ledger, str(run)], environment)

    def kill_an_agent(self, run: UUID) -> int:
        """Kill an agent inside its payment; how its process ended."""
        with self.agent(run, stands_still=True) as agent:
            while not self.still.exists() and agent.poll() is None:
                time.sleep(0.01)
            agent.kill()
        return agent.returncode

    @contextmanager
    def server(self) -> Iterator[str]:
        """`turnledger serve` in a process of its own; yields its URL."""
        command = ["-c", PROGRAM, "serve", "--port", "0", "--db", self.ledger]
        server = self.start(command, self._environment, stderr=subprocess.PIPE)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            check(f"turnledger serve: {url or server.communicate()[1]}", url != "")
            yield url
        finally:
            server.terminate()
            server.communicate()

    def start(
        self, arguments: list[str], env: dict[str, str], stderr: int | None = None
    ) -> subprocess.Popen[str]:
        """A Python process in the folder."""
        command, pipe = [sys.executable, *arguments], subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=env, stdout=pipe, stderr=stderr, text=True
        )

    def turnledger(self, *arguments: str, cwd: Path = HERE) -> tuple[int, str]:
        """The command, in a process of its own: its exit code, and what it printed."""
        command = [sys.executable, "-c", PROGRAM, *arguments, "--db", self.ledger]
        done = subprocess.run(
            command, env=self._environment, cwd=cwd, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    def payments(self) -> list[str]:
        return self.bank.read_text().splitlines() if self.bank.exists() else []
