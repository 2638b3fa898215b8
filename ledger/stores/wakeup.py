"""Wakes threads waiting for new events.

Uses one Lock per waiter instead of a Condition, so that Ctrl-C cannot leave a lock held: a
Condition is held for a moment by every thread that waits or notifies, and an interrupt in that
moment would block all later ones.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock


class Wakeup:
    """Threads that wait are woken by the next `wake_all`, or when their time is up."""

    def __init__(self) -> None:
        self.waiting: set[Lock] = set()

    def wait(self, seconds: float) -> None:
        """Wait for the next `wake_all`, for some seconds at most."""
        wake = Lock()
        wake.acquire()
        try:
            self.waiting.add(wake)
            wake.acquire(timeout=seconds)
        finally:
            self.waiting.discard(wake)

    def wake_all(self) -> None:
        """Wake every thread that waits now."""
        for wake in tuple(self.waiting):
            with suppress(RuntimeError):  # woken twice before it ran
                wake.release()
