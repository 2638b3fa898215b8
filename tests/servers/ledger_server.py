"""A ledger served over HTTP on a real socket, by a thread of this process."""

from __future__ import annotations

from collections.abc import Callable
from queue import Queue
from threading import Thread
from typing import Literal, Self

from turnledger.adapters.http.app import App
from turnledger.adapters.http.serving.listener import listen
from turnledger.adapters.http.serving.server import serve
from turnledger.adapters.http.serving.settings import Settings
from turnledger.ledger import Ledger, Tokens


class LedgerServer:
    """Serves a ledger until it is left; the ledger stays open.

    Args:
        ledger: The ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        settings = Settings(port=0)
        listener = listen(settings)
        self.url = listener.url
        self._ready: Queue[Callable[[], None]] = Queue()
        self._thread = Thread(
            target=serve,
            args=(App(ledger), listener, settings),
            kwargs={"on_ready": self._ready.put},
            name="ledger server",
        )

    def token(self, role: Literal["reader", "writer", "admin"] = "admin") -> str:
        """A new token."""
        return Tokens(self.ledger).new(role).text

    def __enter__(self) -> Self:
        self._thread.start()
        self._stop = self._ready.get(timeout=60)
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop()
        self._thread.join()
