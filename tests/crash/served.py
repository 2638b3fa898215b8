"""`turnledger serve` as a process that can be killed and started again on the same port."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from turnledger.ledger import Ledger, Tokens

_COMMAND = "from turnledger.adapters.cli import main; main()"


class ServedLedger:
    """A server of a ledger, in a process of its own.

    Args:
        url: The ledger.
    """

    def __init__(self, url: str) -> None:
        self._ledger = url
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        with Ledger.open(url) as ledger:
            self.token = Tokens(ledger).new("writer").text

    def start(self) -> None:
        """Start it, and wait until it answers; again on the port that it had."""
        port = self.url.rpartition(":")[2] or "0"
        arguments = ["--db", self._ledger, "serve", "--port", port]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the server did not start"

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        assert self._process is not None
        with self._process as process:
            process.kill()


@contextmanager
def served(url: str) -> Iterator[ServedLedger]:
    """A server that runs until the block ends."""
    server = ServedLedger(url)
    server.start()
    try:
        yield server
    finally:
        server.kill()
