"""A line to PostgreSQL that can be cut, at the very moment that a test chooses."""

from __future__ import annotations

import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from types import TracebackType
from typing import Self

from tests.postgres import ROOT

SOCKET = ".s.PGSQL.5432"
READY = b"Z\x00\x00\x00\x05"


class Proxy:
    """Passes everything on, between clients and the server's socket in a folder.

    After `cut(mark, how)` the first message that contains the mark breaks its connection:
    "before" the server gets it; "after" the server has answered, and the client has not
    heard; or "silently", before, and the server never learns that the client is gone.
    A mark in `then` breaks one more connection, before the server gets it.
    """

    def __init__(self, folder: str) -> None:
        self._server = f"{folder}/{SOCKET}"
        self._home = tempfile.TemporaryDirectory(prefix="tl", dir=ROOT)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._home.name}/{SOCKET}")
        self._listener.listen()
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._sockets: list[socket.socket] = []
        self._order: tuple[bytes, str, bool] | None = None
        self._next: tuple[bytes, str, bool] | None = None
        self._refusing = False
        self.cuts = 0
        self._start(self._accept)

    def url(self, url: str) -> str:
        """The same database, through this proxy."""
        return url.replace(str(Path(self._server).parent), self._home.name)

    def cut(
        self, mark: bytes, how: str, *, then: bytes | None = None, then_refuse: bool = False
    ) -> None:
        self._next = None if then is None else (then, "before", False)
        self._order = (mark, how, then_refuse)

    def accept_again(self) -> None:
        self._refusing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _hang_up(self._listener)
        for each in self._sockets:
            _hang_up(each)
        for thread in self._threads:
            thread.join(30)
        for each in (self._listener, *self._sockets):
            each.close()
        self._home.cleanup()

    def _start(self, target: object, *arguments: socket.socket) -> None:
        thread = Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                if self._refusing:
                    _hang_up(client)
                    continue
                server = socket.socket(socket.AF_UNIX)
                self._sockets.append(server)
                server.connect(self._server)
                self._start(self._to_server, client, server)
                self._start(self._to_client, server, client)

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := client.recv(1 << 20):
                how = self._cut_now(chunk)
                if how == "after":
                    # The other direction sees the answer, and finds nobody to give it to.
                    _hang_up(client)
                    server.sendall(chunk)
                    return
                if how is not None:
                    _hang_up(client)
                    if how == "before":
                        _hang_up(server)
                    return
                server.sendall(chunk)
            _hang_up(server)

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while chunk := server.recv(1 << 20):
                try:
                    client.sendall(chunk)
                except OSError:
                    if READY in chunk:
                        break
        _hang_up(server)
        _hang_up(client)

    def _cut_now(self, chunk: bytes) -> str | None:
        with self._lock:
            if self._order is None or self._order[0] not in chunk:
                return None
            _, how, self._refusing = self._order
            self._order, self._next = self._next, None
            self.cuts += 1
            return how


def _hang_up(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
