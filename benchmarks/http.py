"""Appends over HTTP, to a server in a process of its own, against Python's on the same store.

Both sides append the same events to the same file, with the same checks and the same flush, in
turns. The floor beside it is what HTTP takes in Python for nothing: httpx and an ASGI application
that only move as many bytes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec

from benchmarks.measuring import Result, family_cpu, speed
from benchmarks.workload import events
from turnledger.adapters.http import LedgerClient
from turnledger.ledger import ANY, Ledger, Tokens, new_run_id

BATCHES, BATCH = 20, 100
# Bytes of the answer to a batch.
ANSWER = 22_000
_SERVE = "from turnledger.adapters.cli import main; main()"
_BARE = """
import socket, sys, uvicorn
from uvicorn.config import Config

async def app(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    size = int(sys.argv[1])
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % size)]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": b" " * size})

listener = socket.socket(proto=socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY by this
listener.bind(("127.0.0.1", 0))
print("http://127.0.0.1:%d" % listener.getsockname()[1], flush=True)
config = Config(app, http="h11", ws="none", lifespan="off", log_level="error")
uvicorn.Server(config).run([listener])
"""


def measure(folder: Path) -> Iterator[Result]:
    path = folder / "http.db"
    with Ledger.open(path) as ledger:
        token = Tokens(ledger).new("writer").text
        serve = ("-c", _SERVE, "--db", str(path), "serve", "--port", "0")
        with _server(*serve) as url, LedgerClient(url, token) as client:
            ratio = speed(lambda: _append(client), lambda: _append(ledger), cpu=family_cpu)
        with _server("-c", _BARE, str(ANSWER)) as url, httpx.Client() as bare:
            moving = speed(lambda: _append(ledger), lambda: _move(bare, url)).median
    yield Result(
        "append over HTTP, one connection, batches of 100, against Python's",
        ratio,
        0.5,
        True,
        f"moving the bytes alone, by httpx and a bare application: {moving:.2f} of an append",
    )


def _append(ledger: Ledger) -> None:
    run = new_run_id()
    batch = list(events(BATCH))
    for _ in range(BATCHES):
        ledger.append(run, batch, ANY)


def _move(http: httpx.Client, url: str) -> None:
    body = msgspec.json.encode([{"type": "", "data": one} for one in events(BATCH)])
    for _ in range(BATCHES):
        assert len(http.post(url, content=body).content) == ANSWER


@contextmanager
def _server(*command: str) -> Iterator[str]:
    """The URL of a server, which it prints."""
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()
