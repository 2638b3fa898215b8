"""Lease heartbeats: a background thread prolongs a claim while its worker runs the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread
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


class LeaseHeartbeat:
    """Prolongs a claim while the block runs, and releases it at the end.

    If another worker takes the run, the epoch keeps this one from writing; `lost` is true then,
    before an append fails.
    """

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._over = Event()
        self.lost = False
        self._thread = Thread(target=self._beat, name="turnledger-lease", daemon=True)

    def _beat(self) -> None:
        # Three times in a lease of `ttl` microseconds: one heartbeat may fail or be late.
        while not self._over.wait(self._claim.ttl / 3e6):
            try:
                self._claim.heartbeat()
            except StaleEpochError:
                self.lost = True
                return
            except TurnledgerError as error:
                # The store is unavailable. The next beat tries again; the lease may run out.
                logger.warning(
                    "could not prolong the lease of run %s: %s", self._claim.run_id, error
                )

    def __enter__(self) -> LeaseHeartbeat:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        try:
            with at_the_disk():
                self._claim.release()
        except TurnledgerError as trouble:
            # What was done under the claim is on disk, and its lease expires by itself.
            logger.warning("could not release the lease of run %s: %s", self._claim.run_id, trouble)


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
        known: Gives the run's state by these declarations, once it is claimed; by default the
            journal reads the run.
    """
    if claim is None:
        with at_the_disk():
            claim = ledger.claim(run, worker=worker_name(ledger), ttl=lease)
    with LeaseHeartbeat(claim) as heartbeat:
        journal = Journal(
            ledger,
            run,
            declarations=declarations,
            claim=claim,
            clock=clock,
            known=known() if known is not None else None,
        )
        journal.is_lost = lambda: heartbeat.lost
        yield journal
