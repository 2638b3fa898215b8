"""Wakes threads that wait for news, without a lock that an interrupted one could keep.

A `Condition` is held for a moment by whoever waits or notifies; Ctrl-C in that moment leaves it
held, and nobody notifies or waits any more.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock


class Bell:
    """Whoever waits is woken by the next ring, or when the time is up."""

    def __init__(self) -> None:
        self.waiting: set[Lock] = set()

    def wait(self, seconds: float) -> None:
        wake = Lock()
        wake.acquire()
        try:
            self.waiting.add(wake)
            wake.acquire(timeout=seconds)
        finally:
            self.waiting.discard(wake)

    def ring(self) -> None:
        for wake in tuple(self.waiting):
            with suppress(RuntimeError):  # rung twice before it woke
                wake.release()
