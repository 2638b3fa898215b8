"""Warns about tool calls that run long: in the log and on the bus, every ten minutes.

A handler runs in the loop's own thread unless it has a time-out, so the loop can't look at the
clock meanwhile. One daemon thread watches all calls of the process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any

from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.projections import ToolCallView
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.events import ToolStillRunning

EVERY, LOOK = 600.0, 30.0  # seconds
logger = logger_of("turnledger.tools")


class _Running:
    """A call whose handler runs, and how many warnings it has had."""

    def __init__(self, context: EvaluationContext[Any], call: ToolCallView) -> None:
        self.context = context
        self.call = call
        self.since = time.monotonic()
        self.warnings = 0


class SlowCalls:
    """Watches running calls; its thread is started with the first of them.

    Args:
        every: Seconds of a call until each warning.
        look: How often the thread looks, in seconds: a call does not have to wake it.
    """

    def __init__(self, every: float = EVERY, look: float = LOOK) -> None:
        self._every = every
        self._look = look
        self._lock = Lock()
        self._running: set[_Running] = set()
        self._thread: Thread | None = None

    @contextmanager
    def watching(self, context: EvaluationContext[Any], call: ToolCallView) -> Iterator[None]:
        """Watch this call while the block runs."""
        one = _Running(context, call)
        with self._lock:
            self._running.add(one)
            if self._thread is None or not self._thread.is_alive():  # after a fork it is not
                self._thread = Thread(target=self._watch, name="turnledger-slow", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(one)

    def _watch(self) -> None:
        never = Event()
        while not never.wait(self._look):
            with self._lock:
                running = tuple(self._running)
            for one in running:
                if (seconds := time.monotonic() - one.since) >= self._every * (one.warnings + 1):
                    one.warnings += 1
                    _warn(one, seconds)


def _warn(one: _Running, seconds: float) -> None:
    context, call = one.context, one.call
    try:
        logger.warning(
            "tool %s has been running for %d minutes (call %s of run %s); "
            "MainLoopConfig.tool_timeout would end the wait",
            call.name,
            seconds // 60,
            call.call_id,
            context.journal.run_id,
        )
        context.bus.publish(
            ToolStillRunning(
                name=call.name,
                call_id=call.call_id,
                run_id=context.journal.run_id,
                session_id=context.session.session_id,
                seconds=seconds,
            )
        )
    except Exception:  # a bus of the user's: the other calls are watched all the same
        logger.exception("could not publish that tool %s still runs", call.name)


SLOW_CALLS = SlowCalls()
