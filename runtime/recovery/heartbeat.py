"""A lease that lives as long as the work under it: heartbeats from a thread of their own."""

from __future__ import annotations

from threading import Event, Thread
from types import TracebackType

from turnledger.ledger import Claim, StaleEpochError, TurnledgerError
from turnledger.ledger.redaction.safe_logging import logger_of

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
