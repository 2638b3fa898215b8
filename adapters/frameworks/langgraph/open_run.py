"""Open run: a thread's run while a graph is invoked, claimed, with its steps.

A thread is one run, and each invocation of its graph claims it, goes on with it, and leaves it
completed or failed; the next one resumes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from uuid import UUID

from langgraph.errors import GraphBubbleUp

from turnledger.ledger import (
    Claim,
    Event,
    Ledger,
    Record,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    StaleEpochError,
)
from turnledger.ledger.errors import error_message
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.runs.append import Entry
from turnledger.runtime.errors import DecisionRequiredError, RecoveryError
from turnledger.runtime.journal.heartbeat import LEASE, LeaseHeartbeat, worker_name
from turnledger.runtime.replaying.replay import ReplayDivergedError, check_chain
from turnledger.runtime.steps.outcome import NO_OUTCOME
from turnledger.runtime.steps.record.divergence import missing_step
from turnledger.runtime.steps.record.index import StepIndex
from turnledger.runtime.steps.record.recorder import (
    DECIDED_FAILED,
    UNKNOWN_OUTCOME,
    Place,
    StepRecorder,
)
from turnledger.runtime.steps.scope import StepScope, append_claimed
from turnledger.runtime.steps.spec import step_id

# The key of a scope's memory with the ids of replies that the middleware recorded.
REPLIES = "langgraph.replies"
# Failures that nothing may be made of by trying again.
_SETTLED = (UNKNOWN_OUTCOME, DECIDED_FAILED)
# Neither has failed by these: nothing is recorded, and the run can be gone on with.
_GOES_ON = (*NO_OUTCOME, GraphBubbleUp)


class OpenRun:
    """A run whose steps are recorded, or replayed, by this process."""

    # The saver records the messages.
    is_saved = True

    def __init__(self, recorder: StepRecorder, heartbeat: LeaseHeartbeat | None = None) -> None:
        self.recorder = recorder
        self.run = str(recorder.run_id)
        # Tasks of a graph run in threads of their own: which step comes first is not known.
        self.scope = StepScope(recorder, Place())
        # The version of the checkpoint whose tasks run: their steps come after it.
        self.since = 0
        self.is_closed = False
        self._heartbeat = heartbeat
        self._lock = Lock()
        self._busy = 0
        self._error: BaseException | None = None
        self._leaving = False

    @property
    def is_replay(self) -> bool:
        return self.recorder.mode == "replay"

    # --- opening ---

    @classmethod
    def claimed(cls, ledger: Ledger, run: str, started: RunStarted) -> OpenRun:
        """Claim a run, and resume it if it was used before; or begin it.

        Args:
            ledger: The ledger.
            run: The run.
            started: Its first event, if it is new.
        """
        worker = worker_name(ledger)
        if not ledger.head(run):
            claim = ledger.begin(run, started, worker=worker, ttl=LEASE)
        else:
            claim = ledger.claim(run, worker=worker, ttl=LEASE)
        try:
            index = _index(ledger, run)
            _check_status(ledger, run, index)
        except BaseException:
            claim.release()
            raise
        return cls._writing(ledger, claim, index)

    @classmethod
    def _writing(cls, ledger: Ledger, claim: Claim, index: StepIndex) -> OpenRun:
        run_id = UUID(claim.run_id)
        heartbeat = LeaseHeartbeat(claim)
        heartbeat.__enter__()

        def check_claim() -> None:
            if heartbeat.lost:
                found = ledger.run(run_id).epoch
                raise StaleEpochError(str(run_id), epoch=claim.epoch, found=found)

        append = partial(append_claimed, ledger, run_id, claim)
        recorder = StepRecorder(ledger, run_id, index, append, check_claim=check_claim)
        opened = cls(recorder, heartbeat)
        recorder.memory[REPLIES] = _reply_ids(index)
        has_ended = index.completed is not None or index.failure is not None
        if has_ended:
            # An invocation that failed is over, and the next one tries again what failed in it.
            for entry in index.entries.values():
                if entry.outcome is not None and entry.outcome.error_type not in _SETTLED:
                    entry.performed = True
        if has_ended or index.entries:
            attempt = 1 if has_ended else index.attempts + 1
            resumed = RunResumed(attempt=attempt, from_version=index.version, catalogue=CATALOGUE)
            recorder.append([resumed])
        return opened

    @classmethod
    def replayed(cls, ledger: Ledger, run: UUID) -> OpenRun:
        """Open a run for replay: nothing is performed, and nothing is written."""
        if not ledger.head(run):
            raise RecoveryError(f"There is no run {run} to replay.", run_id=str(run))
        check_chain(ledger, run)
        return cls(StepRecorder(ledger, run, _index(ledger, str(run)), _never, mode="replay"))

    # --- using ---

    @contextmanager
    def busy(self) -> Iterator[OpenRun]:
        """A step under way. An exception that leaves it closes the run after the last of them."""
        with self._lock:
            self._busy += 1
        try:
            yield self
        except BaseException as error:
            self._error = self._error or error
            raise
        finally:
            with self._lock:
                self._busy -= 1
                is_last = not self._busy
            if is_last and (self._error is not None or self._leaving):
                self.close(self._error)

    def leave(self) -> None:
        """Release the run when no step is under way: its graph has stopped, and may go on."""
        with self._lock:
            self._leaving = True
            if self._busy:
                return
        self.close(None)

    def key(self, name: str, base: str) -> str:
        """The key of a step: `base`, which an earlier step of the thread may have had too."""
        entries, number, key = self.recorder.index.entries, 1, base
        while (entry := entries.get(step_id("", name, key, 0))) is not None:
            number += 1
            following = f"{base}~{number}"
            if self.is_replay:
                over = entry.asked and entry.outcome is not None and not entry.outcome.failed
                if not over or step_id("", name, following, 0) not in entries:
                    break
            elif entry.version > self.since:
                break
            key = following
        return key

    # --- closing ---

    def close(self, error: BaseException | None, *, completed: bool = False) -> None:
        """Release the run; completed, or failed with an error.

        Args:
            error: What an invocation of the graph ended with, if it did.
            completed: Whether it came to its end.
        """
        if self.is_closed or self.is_replay:
            return
        self.is_closed = True
        try:
            if completed:
                self.recorder.append([RunCompleted()])
            elif isinstance(error, Exception) and not isinstance(error, _GOES_ON):
                failed = RunFailed(
                    error_type=type(error).__name__, error_message=error_message(error)
                )
                self.recorder.append([failed])
        finally:
            if self._heartbeat is not None:
                self._heartbeat.__exit__(None, None, None)

    def compare(self) -> None:
        """ReplayDivergedError if a replay came to its end without a recorded step."""
        self.recorder.check()
        missing = self.recorder.index.unasked()
        if missing is not None:
            raise ReplayDivergedError(self.run, missing_step(missing))


def _index(ledger: Ledger, run: str) -> StepIndex:
    index = StepIndex()
    for record in ledger.checked(run).read_on():
        index.take(record)
    return index


def recorded_replies(ledger: Ledger, run: str) -> set[str]:
    """The ids of the messages in the model replies that a run's steps recorded."""
    return _reply_ids(_index(ledger, run))


def _reply_ids(index: StepIndex) -> set[str]:
    found = set()
    places = [
        one.outcome.value
        for one in index.entries.values()
        if one.kind == "model" and one.outcome is not None
    ]
    while places:
        place = places.pop()
        if isinstance(place, dict):
            if isinstance(place.get("id"), str):  # of a tool call, too
                found.add(place["id"])
            places += place.values()
        elif isinstance(place, list):
            places += place
    return found


def _check_status(ledger: Ledger, run: str, index: StepIndex) -> None:
    status = ledger.run(run).status
    if status == "waiting":
        waits = [one.call_id for one in index.entries.values() if one.in_doubt and not one.outcome]
        raise DecisionRequiredError(run, waits)
    if status in ("parked", "abandoned"):
        raise RecoveryError(
            f"Run {run} is {status}: it is not gone on with. Look with `turnledger log {run}`; "
            "use another thread id to begin anew.",
            run_id=run,
        )


def _never(events: Sequence[Event | Entry], blobs: Iterable[bytes] = ()) -> Sequence[Record]:
    raise AssertionError("a replay writes nothing")
