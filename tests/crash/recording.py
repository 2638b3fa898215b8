"""How a worker of the crash tests writes: announced, made until it is known, acknowledged.

Whatever the ledger answers that it should not answer is an AssertionError here.
"""

from __future__ import annotations

import signal
import time
from typing import Any

from tests.crash.attempts import Attempt
from tests.crash.processes import Voice
from turnledger.ledger import (
    ANY,
    NEW,
    Appended,
    Claim,
    ConcurrentAppendError,
    Draft,
    Ledger,
    RunClaimedError,
    RunNotFoundError,
    StaleEpochError,
    StoreBusyError,
    StoreUnavailableError,
    import_runs,
)

# An expectation in a message: a version, 0 for a new run, ANYWHERE for any.
ANYWHERE = -1
# How long PostgreSQL may take to notice that a client is dead; the ttl is a minute.
NOTICED = 10.0


class Recording:
    """A worker's ledger, and the claims that it holds."""

    def __init__(self, voice: Voice, ledger: Ledger, worker: str, dead: set[str]) -> None:
        self.ledger = ledger
        self.claims: dict[str, Claim] = {}
        self._voice = voice
        self._worker = worker
        self._dead = dead
        self._notices_death_at_once = "postgresql" not in ledger.url
        # Ctrl-C reaches the ledger's code, and not what is said of it.
        self._may_be_interrupted = False
        signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, number: int, frame: Any) -> None:
        if self._may_be_interrupted:
            self._may_be_interrupted = False
            raise KeyboardInterrupt

    def record(
        self,
        kind: str,
        run: str,
        first: str,
        count: int,
        expected: int,
        epoch: int | None = None,
        *,
        alone: bool = False,
    ) -> int | None:
        """Append until it is known what became of it; the run's version, or None if refused."""
        attempt = Attempt(kind, run, first, count)
        self._voice.say("trying", kind, run, first, count, expected, epoch)
        if kind == "import":
            return self._import(attempt)
        drafts, blobs = attempt.drafts, attempt.blobs
        while True:
            try:
                appended = self._append(run, drafts, expected, epoch, blobs)
            except ConcurrentAppendError as conflict:
                _must(conflict.expected == expected != conflict.found, conflict)
                _must(not alone, conflict)
                self._voice.say("counted", "conflicts")
                expected = conflict.found
            except StaleEpochError:
                self._voice.say("refused", first)
                return None
            except StoreBusyError:
                raise
            except StoreUnavailableError:
                self._voice.say("counted", "outcome unknown")
            except KeyboardInterrupt:
                self._voice.say("counted", "interrupted in an append")
            else:
                break
        ids, versions = attempt.ids, [record.version for record in appended.records]
        version = appended.version - count + 1
        assert [str(record.event_id) for record in appended.records] == ids
        assert versions == list(range(version, version + count)), versions
        assert appended.duplicate or expected in (ANYWHERE, version - 1), (expected, versions)
        self._voice.say("recorded", first, version, appended.duplicate)
        return appended.version

    def _append(
        self, run: str, drafts: list[Draft], expected: int, epoch: int | None, blobs: list[bytes]
    ) -> Appended:
        """In here, and nowhere else, a SIGINT raises KeyboardInterrupt."""
        try:
            self._may_be_interrupted = True
            return self.ledger.append(run, drafts, _expectation(expected), epoch, blobs=blobs)
        finally:
            self._may_be_interrupted = False

    def _import(self, attempt: Attempt) -> int | None:
        file = attempt.export()
        while True:
            try:
                report = import_runs(self.ledger, file)
            except StoreBusyError:
                raise
            except StoreUnavailableError:
                self._voice.say("counted", "outcome unknown")
                file.seek(0)
            else:
                break
        assert report.imported in (0, attempt.count), report
        self._voice.say("recorded", attempt.first, 1, report.imported == 0)
        return attempt.count

    def fork(self, child: str, parent: str, at: int) -> None:
        self._voice.say("forking", child, parent, at)
        while True:
            try:
                self.ledger.fork(parent, at, child=child)
            except ConcurrentAppendError as conflict:
                # The predecessor's fork was recorded after all, and is found now.
                _must((conflict.expected, conflict.found) == (0, at + 1), conflict)
            except StoreBusyError:
                raise
            except StoreUnavailableError:
                self._voice.say("counted", "outcome unknown")
                continue
            break
        self._voice.say("forked", child)

    def claim(self, run: str) -> Claim | None:
        self._voice.say("claiming", run)
        noticed_by = time.monotonic() + NOTICED
        while True:
            try:
                claim = self.ledger.claim(run, worker=self._worker)
            except RunNotFoundError:
                self._voice.say("unclaimed", run)
                return None
            except RunClaimedError as error:
                if error.worker not in self._dead:
                    self._voice.say("unclaimed", run)
                    return None
                # It is dead, and yet has the run.
                _must(not self._notices_death_at_once, error)
                _must(time.monotonic() < noticed_by, error)
                self._voice.say("counted", "asked again for a dead worker's run")
            except StoreBusyError:
                raise
            except StoreUnavailableError:
                self._voice.say("counted", "outcome unknown")
            else:
                break
        self.claims[run] = claim
        self._voice.say("claimed", run)
        return claim

    def release(self, run: str) -> None:
        self.claims.pop(run).release()
        self._voice.say("released", run)


def _must(holds: bool, error: Exception) -> None:
    if not holds:
        raise AssertionError(f"The ledger should not have said this: {error}") from error


def _expectation(expected: int) -> Any:
    return {ANYWHERE: ANY, 0: NEW}.get(expected, expected)
