"""A ledger in memory behind the real server, which runs in a thread of this process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Queue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from turnledger.adapters.http.app import App
from turnledger.adapters.http.serving.listener import listen
from turnledger.adapters.http.serving.server import serve
from turnledger.adapters.http.serving.settings import Settings
from turnledger.ledger import Ledger, Tokens

# Far more than anything here takes.
PATIENCE = 60.0


class ServedLedger:
    """The application, its ledger, and a token of a reader."""

    def __init__(self, ledger: Ledger, url: str, app: App) -> None:
        self.ledger, self.url, self.app = ledger, url, app
        self.tokens = Tokens(ledger)
        self.token = self.tokens.new("reader").text
        self.headers = {"authorization": f"Bearer {self.token}"}

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
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
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
def served_ledger() -> Iterator[ServedLedger]:
    settings = Settings(port=0)
    ready: Queue[Callable[[], None]] = Queue()
    with Ledger.open("memory://") as ledger, listen(settings) as listener:
        app = App(ledger)
        thread = Thread(
            target=serve, args=(app, listener, settings), kwargs={"on_ready": ready.put}
        )
        thread.start()
        stop = ready.get(timeout=PATIENCE)
        try:
            yield ServedLedger(ledger, listener.url, app)
        finally:
            stop()
            thread.join()
