"""A connection to PostgreSQL that waits for an answer, but not for ever.

First it asks the server to stop, which leaves nothing at work that nobody waits for; then it
takes the server for lost. It also hears when the server gave up waiting for a standby: that
is a mere warning, the commit counts as done, and it is gone if the standby takes over now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, Self, TypeVar

import psycopg
from psycopg import Connection
from psycopg.errors import Diagnostic

Result = TypeVar("Result")
# Beyond `wait`, in which the server itself ends a wait for a lock and says so: then it is
# asked to stop what it does, and then it is not waited for any more.
MOMENT = 1.0
MARGIN = 5.0
# Where the server says it, whatever language it speaks.
_WAITING = "SyncRepWaitForLSN"


class SilentServerError(psycopg.OperationalError):
    """No answer came in time; the connection was closed."""


class Line(Connection[tuple[Any, ...]]):
    """A connection with an end to its patience."""

    patience = inf
    # Whether a commit since this was last reset may be on this server alone.
    unconfirmed = False
    # After so many seconds without an answer, the server is asked to stop what it does.
    asks_to_stop_after = inf
    # Whether the server is still at work on what may take it long.
    _is_at_work: Callable[[], bool] | None = None

    def listen(self, wait: float) -> Self:
        """From now on: wait for this long, and mind what is said about standbys."""
        self.patience = wait + MARGIN
        self.asks_to_stop_after = wait + MOMENT
        self.add_notice_handler(self._hear)
        return self

    def _hear(self, notice: Diagnostic) -> None:
        if notice.source_function == _WAITING:
            self.unconfirmed = True

    def wait(self, gen: Generator[Any, Any, Result], *args: Any, **options: Any) -> Result:
        try:
            return super().wait(self._within(gen), *args, **options)
        except SilentServerError:
            self.close()
            raise

    def _within(self, gen: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        """The same conversation, ended when the other side has been silent for too long."""
        heard, asked_to_stop = time.monotonic(), False
        try:
            asked = next(gen)
            while True:
                ready = yield asked
                silent = time.monotonic() - heard
                if ready:
                    heard = time.monotonic()
                elif silent > self.patience:
                    if self._is_at_work is None or not self._is_at_work():
                        raise SilentServerError(f"no answer for {silent:.0f} seconds")
                    heard = time.monotonic()
                elif silent > self.asks_to_stop_after and not asked_to_stop:
                    asked_to_stop = True
                    with suppress(psycopg.Error):
                        self.cancel_safe(timeout=MARGIN - MOMENT)
                asked = gen.send(ready)
        except StopIteration as done:
            result: Result = done.value
            return result

    def confirmed(self, statement: str) -> bool:
        """Commit something, and whether a standby has it, and all before it."""
        self.unconfirmed = False
        self.execute(statement)
        return not self.unconfirmed

    @contextmanager
    def unhurried(self, is_at_work: Callable[[], bool]) -> Iterator[None]:
        """For what takes the server long while it says nothing; it is looked after meanwhile."""
        asks, self.asks_to_stop_after = self.asks_to_stop_after, inf
        self._is_at_work = is_at_work
        try:
            yield
        finally:
            self.asks_to_stop_after, self._is_at_work = asks, None
