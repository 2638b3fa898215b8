"""Clients of event streams, and the processes around them: a server that is killed, and writers.

`python -m tests.crash.streaming URL RUN RUN COUNT` writes half of its events at once and the rest
when it is told to.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import msgspec

from turnledger.ledger import ANY, CustomEvent, Ledger, Tokens

ROOT = Path(__file__).parents[2]
END = "test.end"


SERVE = "from turnledger.adapters.cli import main; main()"


def _start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, *map(str, arguments)]
    pipe, silence = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=silence, text=True)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


class Server:
    """A server of a ledger, in a process that can be killed and started again."""

    def __init__(self, url: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            self._port = found.getsockname()[1]
        self.address = f"http://127.0.0.1:{self._port}"
        self._url = url
        with Ledger.open(url) as ledger:
            self.token = Tokens(ledger).new("reader").text
        self.is_up = asyncio.Event()
        self._process: subprocess.Popen[str] | None = None

    async def start(self) -> None:
        """Start it; returns when it answers."""
        options = ("serve", "--db", self._url, "--port", self._port)
        self._process = _start("-c", SERVE, *options)
        assert self._process.stdout is not None
        assert await asyncio.to_thread(self._process.stdout.readline) == f"{self.address}\n"
        self.is_up.set()

    async def kill(self) -> None:
        """SIGKILL."""
        self.is_up.clear()
        await asyncio.to_thread(self.end)

    def end(self) -> None:
        """SIGKILL, if it is still there."""
        if self._process is not None:
            _end(self._process)

    async def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.is_up.clear()
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(self._process.communicate)
        return self._process.returncode

    def client(self) -> httpx.AsyncClient:
        """A client with the token."""
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx.AsyncClient(base_url=self.address, headers=headers, timeout=60)


class Client:
    """Follows an event stream to its end, and leaves and comes back on the way.

    Args:
        server: The server.
        path: The stream's path.
        random: Decides when it leaves.
        most: Messages until it leaves, at most.
    """

    def __init__(self, server: Server, path: str, random: Random, most: int) -> None:
        self.path = path
        self.seen: list[tuple[int, str]] = []
        self.visits = 0
        self._server = server
        self._random = random
        self._most = most

    async def follow(self) -> None:
        """Until the last event came."""
        async with self._server.client() as http:
            while True:
                await self._server.is_up.wait()
                self.visits += 1
                try:
                    if await self._visit(http):
                        return
                except httpx.TransportError:
                    await asyncio.sleep(0.01)  # the server is down, or its port not yet open

    async def _visit(self, http: httpx.AsyncClient) -> bool:
        headers = {"last-event-id": str(self.seen[-1][0])} if self.seen else {}
        left = self._random.randint(1, self._most)
        async with http.stream("GET", self.path, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            async for message in messages(response):
                self.seen.append((message["position"], message["event_id"]))
                if message["data"].get("kind") == END:
                    return True
                left -= 1
                if not left:
                    return False
        return False


async def messages(response: httpx.Response) -> Any:
    """The data of each message; its id is the position in it."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *events, rest = (rest + chunk).split(b"\n\n")
        for event in events:
            fields = dict(line.partition(b": ")[::2] for line in event.split(b"\n"))
            if b"data" in fields:
                message = msgspec.json.decode(fields[b"data"])
                assert int(fields[b"id"]) == message["position"]
                yield message


@contextmanager
def writer(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that writes."""
    process = _start("-m", "tests.crash.streaming", *arguments)
    try:
        yield process
    finally:
        _end(process)


def write(url: str, own: str, shared: str, count: str) -> None:
    random = Random(own)
    left = int(count)
    half = left // 2
    with Ledger.open(url) as ledger:
        print("ready", flush=True)
        while left:
            size = min(random.randint(1, 20), left)
            events = [CustomEvent(kind="test.note", data=left - at) for at in range(size)]
            ledger.append(random.choice((own, shared)), events, ANY)
            left -= size
            if left < half:
                print("half", flush=True)
                sys.stdin.readline()
                half = 0


if __name__ == "__main__":
    write(*sys.argv[1:])
