"""A server in a process or a thread, and raw connections to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from turnledger.adapters.http.serving.listener import listen
from turnledger.adapters.http.serving.server import serve
from turnledger.adapters.http.serving.settings import Settings

# Far more than anything here takes; a server that hangs ends the test.
PATIENCE = 60.0
APP = Path(__file__).with_name("small_app.py")


class Answer(NamedTuple):
    """The head of an answer, and what came after it until the connection was closed."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> str:
        """The name of the problem that it is."""
        assert self.headers["content-type"] == "application/problem+json"
        document = json.loads(self.body)
        assert document["status"] == self.status
        return str(document["type"].rpartition(":")[2])


class Server:
    """A server in a process of its own."""

    def __init__(self, **settings: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(APP), json.dumps(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        split = urlsplit(self.url)
        assert split.port is not None, self.process.communicate()[1]
        self.address = split.hostname, split.port

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=PATIENCE)

    def send(self, text: str) -> socket.socket:
        """A connection with a request, its lines ended as HTTP wants them."""
        connection = self.connect()
        connection.sendall(text.replace("\n", "\r\n").encode())
        return connection

    def get(self, path: str) -> Answer:
        with self.send(f"GET {path} HTTP/1.1\nHost: localhost\nConnection: close\n\n") as one:
            return read_answer(one)

    def open(self) -> dict[str, int]:
        """What the application has open; that it answers is part of most tests."""
        answer = self.get("/healthz")
        assert answer.status == 200
        found: dict[str, int] = json.loads(answer.body)
        return found

    def memory(self) -> int:
        """Resident bytes of the process."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> tuple[int, str, str]:
        """Wait until it has ended: its exit code, and what it printed since it was ready."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@contextmanager
def serving(**settings: Any) -> Iterator[Server]:
    server = Server(**settings)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


@contextmanager
def in_thread(app: ASGIApp, settings: Settings | None = None) -> Iterator[str]:
    """A server of an application in another thread of this process: its URL."""
    settings = settings or Settings(port=0)
    ready: SimpleQueue[Callable[[], None]] = SimpleQueue()
    listener = listen(settings)
    thread = Thread(target=partial(serve, app, listener, settings, on_ready=ready.put))
    thread.start()
    stop = ready.get(timeout=PATIENCE)
    try:
        yield listener.url
    finally:
        stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = bytearray()
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionError:
        pass
    return bytes(found)


def read_until(connection: socket.socket, end: bytes) -> bytes:
    """What comes until these bytes are the last of it."""
    found = b""
    while not found.endswith(end):
        piece = connection.recv(65536)
        assert piece, found
        found += piece
    return found


def read_answer(connection: socket.socket) -> Answer:
    head, _, body = read_all(connection).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(status.split()[1]), headers, body)


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has answered, or has closed; nothing is waited for."""
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) is not None
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        connection.settimeout(PATIENCE)
