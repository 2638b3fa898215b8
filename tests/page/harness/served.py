"""`turnledger serve` as a process, and the session of its one-time link."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx

PROGRAM = "from turnledger.adapters.cli import main; main()"  # what `turnledger` runs
COOKIE = "turnledger"


class Served:
    """A ledger that a process serves on a port of its own, until it is left.

    Args:
        db: The ledger's file.
        log: Where its messages go; beside the ledger if not given.
        command: What starts the command, if not this Python.
        environment: Variables of the process beside or instead of those of this one.
    """

    def __init__(
        self,
        db: Path,
        log: Path | None = None,
        command: tuple[str | Path, ...] = (sys.executable, "-c", PROGRAM),
        **environment: str,
    ) -> None:
        self.db = db
        self.url = ""
        self._log = log or db.with_suffix(".log")
        self._command = command
        self._environment = {**os.environ, **environment}
        self._secret = ""
        # Pages that are open: they go before it does, since they would complain.
        self.visits: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        for close in list(self.visits):
            close()
        self.stop()

    def start(self) -> None:
        """Start it, on the port that it had before if it had one, and open its link."""
        port = self.url.rpartition(":")[2] or "0"
        arguments = ["serve", "--db", str(self.db), "--port", port]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*self._command, *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                text=True,
            )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, self._log.read_text()
        self._secret = self._session(self._link())

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal."""
        assert self._process.stdout is not None
        self._process.send_signal(number)
        self._process.wait()
        self._process.stdout.close()

    @property
    def cookies(self) -> list[dict[str, Any]]:
        """The session's cookie, as a browser's context takes it."""
        return [{"name": COOKIE, "value": self._secret, "url": self.url}]

    def get(self, path: str, **more: Any) -> httpx.Response:
        """The answer to a request of the session."""
        return self._with_session(httpx.get, path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        """The answer to a request of the session that changes something."""
        return self._with_session(httpx.post, path, **more)

    def _with_session(
        self, send: Callable[..., httpx.Response], path: str, **more: Any
    ) -> httpx.Response:
        headers = {"origin": self.url, "x-turnledger": "1", "cookie": f"{COOKIE}={self._secret}"}
        return send(f"{self.url}{path}", headers=headers, timeout=60, **more)

    def _link(self) -> str:
        """The link that it prints right after its address."""
        start = f"{self.url}/#code="
        while True:
            found = [line for line in self._log.read_text().splitlines(True) if start in line]
            if found and found[0].endswith("\n"):
                return found[0].strip()
            assert self._process.poll() is None, self._log.read_text()

    def _session(self, link: str) -> str:
        headers = {"origin": self.url, "x-turnledger": "1"}
        code = link.partition("#code=")[2]
        answer = httpx.post(f"{self.url}/v1/session", json={"code": code}, headers=headers)
        answer.raise_for_status()
        return answer.cookies[COOKIE]
