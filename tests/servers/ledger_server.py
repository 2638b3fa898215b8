"""A ledger served over HTTP on a real socket, by a thread of this process, and calls of it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from queue import Queue
from threading import Thread
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import httpx
import msgspec

from tests.servers.certificates import FewCertificates
from turnledger.adapters.http.app import App
from turnledger.adapters.http.serving.listener import listen
from turnledger.adapters.http.serving.server import serve
from turnledger.adapters.http.serving.settings import Settings
from turnledger.ledger import Ledger, Tokens

# Seconds; far more than any call takes.
PATIENCE = 60.0


class LedgerServer:
    """Serves a ledger until it is left; the ledger stays open. Calls have a reader's token.

    Args:
        ledger: The ledger.
        port: Its port; 0 for a free one.
    """

    def __init__(self, ledger: Ledger, port: int = 0) -> None:
        self.ledger = ledger
        self.app = App(ledger)
        self.tokens = Tokens(ledger)
        settings = Settings(port=port)
        listener = listen(settings)
        self.url = listener.url
        self._few = FewCertificates()
        self._ready: Queue[Callable[[], None]] = Queue()
        self._thread = Thread(
            target=serve,
            args=(self.app, listener, settings),
            kwargs={"quick": self.app.quick, "on_ready": self._ready.put},
            name="ledger server",
        )

    def __enter__(self) -> Self:
        self._few.__enter__()
        self._thread.start()
        self._stop = self._ready.get(timeout=PATIENCE)
        return self

    def __exit__(self, *raised: object) -> None:
        self._few.__exit__()
        self._stop()
        self._thread.join()

    def token(self, role: Literal["reader", "writer", "admin"] = "admin") -> str:
        """A new token."""
        return self.tokens.new(role).text

    @cached_property
    def reader(self) -> str:
        """The token of the calls."""
        return self.token("reader")

    @property
    def headers(self) -> dict[str, str]:
        """The header with it."""
        return {"authorization": f"Bearer {self.reader}"}

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=self.headers, timeout=PATIENCE)

    @contextmanager
    def stream(self, path: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
        """The messages of an event stream: their fields, `data` decoded; comments are ''."""
        with httpx.stream(
            "GET", f"{self.url}{path}", headers={**self.headers, **headers}, timeout=PATIENCE
        ) as response:
            if response.status_code != 200:
                response.read()
            response.raise_for_status()
            yield _messages(response)

    def connect(self, path: str) -> socket.socket:
        """A connection that has asked for something and has read nothing yet."""
        split = urlsplit(self.url)
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENCE)
        connection.connect((split.hostname, split.port))
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.reader}\r\n"
        connection.sendall(f"{head}\r\n".encode())
        return connection


def _messages(response: httpx.Response) -> Iterator[dict[str, Any]]:
    rest = b""
    for chunk in response.iter_bytes():
        *messages, rest = (rest + chunk).split(b"\n\n")
        for message in messages:
            lines = (line.partition(b": ") for line in message.split(b"\n"))
            fields: dict[str, Any] = {name.decode(): value.decode() for name, _, value in lines}
            if "data" in fields:
                fields["data"] = msgspec.json.decode(fields["data"])
            yield fields


@contextmanager
def served_ledger() -> Iterator[LedgerServer]:
    """A server of an empty ledger in memory."""
    with Ledger.open("memory://") as ledger, LedgerServer(ledger) as server:
        yield server
