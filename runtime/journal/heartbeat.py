"""Lease heartbeats: prolong a claim in the background while its worker runs the run.

One thread of the process knows when each is due, so that a short run starts none. A heartbeat
itself has a thread for as long as it takes: a store that does not answer delays its own claims,
and no others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import inf
from threading import Condition, Lock, Thread
from types import TracebackType
from uuid import UUID

from turnledger.ledger import Claim, Clock, Ledger, StaleEpochError, TurnledgerError, new_run_id
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.projections import Declarations
from turnledger.runtime.agent.run_control import at_the_disk
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.journal.known import Known

LEASE = timedelta(seconds=60)
logger = logger_of("turnledger.lease")


class _Timer:
    """Has heartbeats made when they are due; its thread is started with the first of them."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._due: dict[LeaseHeartbeat, float] = {}
        # When the thread wakes up by itself.
        self._wakes = inf
        self._thread: Thread | None = None

    def add(self, heartbeat: LeaseHeartbeat, seconds: float) -> None:
        """Have a heartbeat made after so many seconds."""
        with self._changed:
            due = self._due[heartbeat] = time.monotonic() + seconds
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="turnledger-lease", daemon=True)
                self._thread.start()
            elif due < self._wakes:
                self._changed.notify()

    def remove(self, heartbeat: LeaseHeartbeat) -> None:
        with self._changed:
            self._due.pop(heartbeat, None)

    def _run(self) -> None:
        while True:
            for one in self._next():
                Thread(target=one.beat, name="turnledger-heartbeat", daemon=True).start()

    def _next(self) -> list[LeaseHeartbeat]:
        """Wait until some are due, and take them."""
        with self._changed:
            while not (due := [one for one, at in self._due.items() if at <= time.monotonic()]):
                self._wakes = min(self._due.values(), default=inf)
                rest = self._wakes - time.monotonic()
                self._changed.wait(None if rest == inf else max(rest, 0))
            self._wakes = 0  # it looks again before it waits
            for one in due:
                del self._due[one]
            return due


_TIMER = _Timer()
# A process that was forked has neither the thread nor its claims, and perhaps a held lock.
os.register_at_fork(after_in_child=_TIMER.__init__)  # type: ignore[misc]


class LeaseHeartbeat:
    """Prolongs a claim while the block runs, and releases it at the end.

    If another worker takes the run, the epoch keeps this one from writing; `lost` is true then,
    before an append fails. Blocks may be nested: the end of the outermost one releases it.
    """

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        # Held while a heartbeat is made.
        self._beating = Lock()
        self._over = False
        self._depth = 0
        self.lost = False

    def beat(self) -> None:
        """Prolong the claim, and have that done again; nothing after the block."""
        with self._beating:
            if self._over:
                return
            try:
                self.claim.heartbeat()
            except StaleEpochError:
                self.lost = True
                return
            except TurnledgerError as error:
                # The store is unavailable. The next beat tries again; the lease may run out.
                logger.warning(
                    "could not prolong the lease of run %s: %s", self.claim.run_id, error
                )
            self._wait()

    def _wait(self) -> None:
        # Three times in a lease of `ttl` microseconds: one heartbeat may fail or be late.
        _TIMER.add(self, self.claim.ttl / 3e6)

    def __enter__(self) -> LeaseHeartbeat:
        self._depth += 1
        if self._depth == 1:
            self._wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        with self._beating:
            self._over = True
        _TIMER.remove(self)
        try:
            with at_the_disk():
                self.claim.release()
        except TurnledgerError as trouble:
            # What was done under the claim is on disk, and its lease expires by itself.
            logger.warning("could not release the lease of run %s: %s", self.claim.run_id, trouble)


def worker_name(ledger: Ledger) -> str:
    """A worker's name for one claim: threads with the same ledger get different ones."""
    return f"{ledger.worker}/{str(new_run_id())[-6:]}"


@contextmanager
def claimed(
    ledger: Ledger,
    run: UUID,
    *,
    declarations: Declarations | None = None,
    clock: Clock | None = None,
    lease: timedelta = LEASE,
    claim: Claim | None = None,
    held: LeaseHeartbeat | None = None,
    known: Callable[[], Known] | None = None,
) -> Iterator[Journal]:
    """Claim a run, and open its journal until the block ends.

    Args:
        ledger: Where the run is.
        run: The run.
        declarations: The types of its session; None if its session state is not needed.
        clock: Gives event ids and times.
        lease: How long the claim lasts without a heartbeat.
        claim: A claim that this worker has already; without one the run is claimed here.
        held: The same, if it is being prolonged already.
        known: Gives the run's state by these declarations, once it is claimed; by default the
            journal reads the run.
    """
    if held is None:
        if claim is None:
            with at_the_disk():
                claim = ledger.claim(run, worker=worker_name(ledger), ttl=lease)
        held = LeaseHeartbeat(claim)
    with held as heartbeat:
        journal = Journal(
            ledger,
            run,
            declarations=declarations,
            claim=heartbeat.claim,
            clock=clock,
            known=known() if known is not None else None,
        )
        journal.is_lost = lambda: heartbeat.lost
        yield journal
