"""Appends over HTTP, to a server in a process of its own, against Python's on the same store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring import Result, speed
from benchmarks.workload import events
from turnledger.adapters.http import LedgerClient
from turnledger.ledger import ANY, Ledger, Tokens, new_run_id

BATCHES, BATCH = 20, 100
_SERVE = "from turnledger.adapters.cli import main; main()"


def measure(folder: Path) -> Iterator[Result]:
    path = folder / "http.db"
    with Ledger.open(path) as ledger:
        token = Tokens(ledger).new("writer").text
        with _served(path) as url, LedgerClient(url, token) as client:
            ratio = speed(lambda: _append(client), lambda: _append(ledger))
    yield Result(
        "append over HTTP, one connection, batches of 100, against Python's", ratio, 0.5, True
    )


def _append(ledger: Ledger) -> None:
    run = new_run_id()
    batch = list(events(BATCH))
    for _ in range(BATCHES):
        ledger.append(run, batch, ANY)


@contextmanager
def _served(path: Path) -> Iterator[str]:
    """The URL of a server of the ledger."""
    command = [sys.executable, "-c", _SERVE, "--db", str(path), "serve", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()
