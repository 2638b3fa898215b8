"""Lease heartbeats: a claim is prolonged by a thread of its own while a run is worked on."""

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


class KeptAlive:
    """Prolongs a claim while the block runs, and gives it back at its end.

    Should another worker take the run, the fence keeps this one from writing; `lost` says so
    before it tries.
    """

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._over = Event()
        self.lost = False
        self._thread = Thread(target=self._beat, name="turnledger-lease", daemon=True)

    def _beat(self) -> None:
        while not self._over.wait(self._claim.ttl / 3e6):
            try:
                self._claim.heartbeat()
            except StaleEpochError:
                self.lost = True
                return
            except TurnledgerError as error:
                # The store is away: it is tried again, and the lease may run out.
                logger.warning(
                    "the lease of run %s was not prolonged: %s", self._claim.run_id, error
                )

    def __enter__(self) -> KeptAlive:
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
            # What was done under it is on disk; the lease ends by itself.
            logger.warning(
                "the lease of run %s was not given back: %s", self._claim.run_id, trouble
            )


def worker_name(ledger: Ledger) -> str:
    """A name for one claim: not even another thread with the same ledger shares it."""
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
    """The journal of a run in the host's ledger, for as long as this worker has its claim.

    Args:
        host: The loop that works on the run.
        run: The run.
        session: Whose types and reducers fold the run; None if none are needed.
        claim: A claim that this worker has already; without one the run is claimed here.
        reader: What has read the run already: only what came since is read.
    """
    assert host.ledger is not None
    if claim is None:
        claim = host.ledger.claim(run, worker=worker_name(host.ledger), ttl=host.lease)
    with KeptAlive(claim):
        declared = session.declarations if session is not None else Declarations()
        known = None
        if reader is not None:
            reader.read_on()
            known = reader.declare(declared)
        yield Journal(
            host.ledger, run, declarations=declared, claim=claim, clock=host.clock, known=known
        )
