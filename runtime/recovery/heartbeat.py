"""Lease heartbeats: a background thread prolongs a claim while its worker runs the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from types import TracebackType
from uuid import UUID

from turnledger.ledger import Claim, Ledger, StaleEpochError, TurnledgerError, new_run_id
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.projections import Declarations
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.loop.host import LoopHost
from turnledger.runtime.recovery.run_reader import RunReader
from turnledger.runtime.session.session import Session

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
            self._claim.release()
        except TurnledgerError as trouble:
            # What was done under the claim is on disk, and its lease expires by itself.
            logger.warning("could not release the lease of run %s: %s", self._claim.run_id, trouble)


def worker_name(ledger: Ledger) -> str:
    """A worker's name for one claim: threads with the same ledger get different ones."""
    return f"{ledger.worker}/{str(new_run_id())[-6:]}"


@contextmanager
def claimed(
    host: LoopHost,
    run: UUID,
    session: Session | None = None,
    *,
    claim: Claim | None = None,
    reader: RunReader | None = None,
) -> Iterator[Journal]:
    """Claim a run of the host's ledger, and open its journal until the block ends.

    Args:
        host: The loop that runs the run.
        run: The run.
        session: Its declarations fold the run's session state; None if that is not needed.
        claim: A claim that this worker has already; without one the run is claimed here.
        reader: A reader that has read the run up to here; only what came since is read.
    """
    assert host.ledger is not None
    if claim is None:
        claim = host.ledger.claim(run, worker=worker_name(host.ledger), ttl=host.lease)
    with LeaseHeartbeat(claim) as heartbeat:
        declared = session.declarations if session is not None else Declarations()
        known = None
        if reader is not None:
            reader.read_on()
            known = reader.declare(declared)
        journal = Journal(
            host.ledger, run, declarations=declared, claim=claim, clock=host.clock, known=known
        )
        journal.is_lost = lambda: heartbeat.lost
        yield journal
