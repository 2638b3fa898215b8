"""`run`: a block of any program as a durable run; the same lines start, resume and replay it.

    with turnledger.run("order-17", ledger="runs.db") as run:
        receipt = pay(amount=120)  # a @turnledger.step

Entering: a new run begins; one that was interrupted or failed goes on; one that is completed
answers from its record and performs nothing. Leaving: the run is completed; an Exception is its
failure; anything else, Ctrl-C say, leaves it as it is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Token
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack
from uuid import UUID

from msgspec.structs import replace

from turnledger.ledger import (
    NEW,
    Event,
    InvalidInputError,
    Ledger,
    Record,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    StaleEpochError,
    ToolCallDecided,
)
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.clock import to_datetime
from turnledger.ledger.errors import error_message, short_repr
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.runs.append import Entry
from turnledger.ledger.runs.names import NAME_TAG, run_id_for
from turnledger.runtime.agent.run_control import at_the_disk
from turnledger.runtime.agent.traceback_text import traceback_text
from turnledger.runtime.agents.shared_ledgers import shared_ledger
from turnledger.runtime.errors import DecisionRequiredError, RecoveryError
from turnledger.runtime.journal.heartbeat import LEASE, LeaseHeartbeat, worker_name
from turnledger.runtime.journal.tool_scope import SCOPE, strand
from turnledger.runtime.replaying.divergence import Divergence
from turnledger.runtime.replaying.replay import ReplayDivergedError, check_chain
from turnledger.runtime.steps.current import Run
from turnledger.runtime.steps.errors import StepsOpenError
from turnledger.runtime.steps.outcome import NO_OUTCOME
from turnledger.runtime.steps.record.divergence import missing_step, other_end
from turnledger.runtime.steps.record.index import StepIndex
from turnledger.runtime.steps.record.recorder import Mode, Place, StepRecorder
from turnledger.runtime.steps.scope import StepScope, append_claimed, off_loop

P = ParamSpec("P")
R = TypeVar("R")
AnyLedger: TypeAlias = Ledger | str | os.PathLike[str]
# What began a run: the request type of a block's RunStarted, and of a workflow's.
BLOCK, WORKFLOW = "turnledger.block", "turnledger.workflow"
REPLAY_VARIABLE = "TURNLEDGER_REPLAY"


class Resuming(TypedDict, total=False):
    """How a run is gone on with.

    Attributes:
        retry_in_doubt: Perform steps in doubt again, whatever their policy; it is recorded.
        decided_by: Who consents to that.
        max_attempts: Park the run after so many attempts without progress.
        held: The claim of the run, if this worker has it already.
    """

    retry_in_doubt: bool
    decided_by: str
    max_attempts: int | None
    held: LeaseHeartbeat


class RunBlock:
    """A context manager around the steps of one run, for `with` and `async with`."""

    def __init__(
        self,
        ledger: Callable[[], Ledger],
        run_id: UUID,
        started: RunStarted,
        *,
        replay: bool = False,
        takes: Callable[[Any], object] | None = None,
        **resuming: Unpack[Resuming],
    ) -> None:
        """Prepare a block; entering it opens the run.

        Args:
            ledger: Gives the ledger, when it is entered.
            run_id: The run.
            started: Its first event, if it is new. If it is not, it must have been begun by an
                event of the same request type, agent and request.
            replay: Whether to perform nothing, and compare with the record.
            takes: Raises for a redacted request that the workflow can't take.
            resuming: How it is gone on with, if it was interrupted.
        """
        self._open_ledger, self.run_id, self._started = ledger, run_id, started
        self._replay, self._resuming, self._takes = replay, resuming, takes
        self._heartbeat: LeaseHeartbeat | None = None
        self._is_used = False
        self._token: Token[Any] | None = None
        self._recorder: StepRecorder | None = None
        # What a workflow returned, as JSON; recorded when the run is completed.
        self.output: Any = None
        self._completed: Entry | None = None
        # Whether a replay has ended as the run did, and else how it differs.
        self.agrees = False
        self.divergence: Divergence | None = None

    # --- entering ---

    def __enter__(self) -> Run:
        self._check_new()
        try:
            return self._entered(self._open())
        except BaseException:
            self._release()
            raise

    async def __aenter__(self) -> Run:
        self._check_new()
        try:
            recorder = await off_loop(self._open)
        except asyncio.CancelledError:
            await off_loop(self._release)
            raise
        return self._entered(recorder)

    def _check_new(self) -> None:
        if self._is_used:
            raise InvalidInputError("This block was entered already: make another one.")
        self._is_used = True

    def _entered(self, recorder: StepRecorder) -> Run:
        self._recorder = recorder
        scope = StepScope(recorder, Place("", strand()))
        self._token = SCOPE.set(scope)
        return Run(scope)

    def _open(self) -> StepRecorder:
        ledger = self._open_ledger()
        head = ledger.head(self.run_id)
        if self._replay:
            if not head:
                raise RecoveryError(
                    f"There is no run {self.run_id} to replay.", run_id=str(self.run_id)
                )
            check_chain(ledger, self.run_id)
            return self._reading(ledger, self._indexed(ledger), "replay")
        if not head:
            return self._begun(ledger)
        return self._resumed(ledger)

    def enqueue(self) -> UUID:
        """Record what the run begins with, and nothing else, for a worker to take; its id."""
        ledger = self._open_ledger()
        _, first = self._first(ledger)
        ledger.append(self.run_id, first, NEW)
        return self.run_id

    @property
    def redacted_request(self) -> Any:
        """The recorded request, if it was redacted; else None."""
        started = self._recorder.index.started if self._recorder is not None else None
        if started is None or started.request == self._started.request:
            return None
        return started.request

    def end_with(self, output: Any) -> Any:
        """Set what a workflow returned, JSON; the value as it will be recorded."""
        assert self._recorder is not None
        done = RunCompleted(output=output)
        self._completed = self._recorder.ledger.prepare(done, exact=("output",))
        made: Any = self._completed.event
        self.output = made.output
        return self.output

    def _first(self, ledger: Ledger) -> tuple[Any, Entry]:
        now = to_datetime(ledger.clock.micros())
        started = replace(self._started, requested_at=now, catalogue=CATALOGUE)
        takes = self._takes
        reads = None if takes is None else lambda made: takes(made.request)
        first = ledger.prepare(started, exact=("request",), takes=reads)
        return first.event, first

    def _begun(self, ledger: Ledger) -> StepRecorder:
        started, first = self._first(ledger)
        with at_the_disk():
            claim = ledger.begin(self.run_id, first, worker=worker_name(ledger), ttl=LEASE)
        return self._writing(ledger, StepIndex(started=started), LeaseHeartbeat(claim))

    def _resumed(self, ledger: Ledger) -> StepRecorder:
        index = StepIndex()
        reader = ledger.checked(self.run_id)
        for record in reader.read_on():
            index.take(record)
        self._check_begun(ledger, index)
        info = ledger.run(self.run_id)
        if info.status == "completed":
            return self._reading(ledger, index, "ended")
        self._check_status(info.status, index)
        held = self._resuming.get("held")
        if held is None:
            with at_the_disk():
                claim = ledger.claim(self.run_id, worker=worker_name(ledger), ttl=LEASE)
            held = LeaseHeartbeat(claim)
        recorder = self._writing(ledger, index, held)
        try:
            # Before this claim another worker may have had the run.
            for record in reader.read_on():
                index.take(record)
            status = ledger.run(self.run_id).status
            if status == "completed":
                self._release()
                return self._reading(ledger, index, "ended")
            self._check_status(status, index)
            self._count_attempt(recorder)
        except BaseException:
            self._release()
            raise
        return recorder

    def _count_attempt(self, recorder: StepRecorder) -> None:
        index = recorder.index
        attempt = index.attempts + 1 if index.progress_at_resume == index.progress else 1
        most = self._resuming.get("max_attempts")
        if most is not None and attempt > most:
            recorder.append([RunParked(reason="it got nowhere", attempts=attempt - 1)])
            raise RecoveryError(
                f"Run {self.run_id} is parked now: {attempt - 1} attempts made no progress.",
                run_id=str(self.run_id),
            )
        resumed = RunResumed(attempt=attempt, from_version=index.version, catalogue=CATALOGUE)
        recorder.append([resumed, *self._consent(index)])

    def _consent(self, index: StepIndex) -> Iterator[ToolCallDecided]:
        """Consent to perform the steps in doubt again, if it was given: for this attempt only."""
        for entry in index.entries.values() if self._resuming.get("retry_in_doubt") else ():
            if entry.outcome is None and entry.decision is None:
                yield ToolCallDecided(
                    call_id=entry.call_id,
                    decision="retry",
                    attempt=entry.attempts,
                    decided_by=self._resuming.get("decided_by", ""),
                    until_resumed=True,
                )

    def _check_status(self, status: str, index: StepIndex) -> None:
        run = str(self.run_id)
        if status == "waiting" and not self._resuming.get("retry_in_doubt"):
            waits = [e.call_id for e in index.entries.values() if e.in_doubt and not e.outcome]
            raise DecisionRequiredError(run, waits)
        if status in ("parked", "abandoned"):
            raise RecoveryError(
                f"Run {run} is {status}: it is not gone on with. Look with `turnledger log "
                f"{run}`; use another name to begin anew.",
                run_id=run,
            )

    def _indexed(self, ledger: Ledger) -> StepIndex:
        index = StepIndex()
        for record in ledger.read(self.run_id):
            index.take(record)
        self._check_begun(ledger, index)
        return index

    def _check_begun(self, ledger: Ledger, index: StepIndex) -> None:
        mine: Any = self._started
        if index.started is not None and index.started.request != mine.request:
            mine = ledger.redact(mine)  # as it is recorded with on_redacted="warn"
        check_begun_by(self.run_id, index.started, mine)

    def _reading(self, ledger: Ledger, index: StepIndex, mode: Mode) -> StepRecorder:
        return StepRecorder(ledger, self.run_id, index, _never, mode=mode)

    def _writing(self, ledger: Ledger, index: StepIndex, heartbeat: LeaseHeartbeat) -> StepRecorder:
        claim, self._heartbeat = heartbeat.claim, heartbeat
        heartbeat.__enter__()

        def check_claim() -> None:
            if heartbeat.lost:
                found = ledger.run(self.run_id).epoch
                raise StaleEpochError(str(self.run_id), epoch=claim.epoch, found=found)

        append = partial(append_claimed, ledger, self.run_id, claim)
        return StepRecorder(ledger, self.run_id, index, append, check_claim=check_claim)

    # --- leaving ---

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._leave()
        except BaseException:
            self._release()
            raise
        self._close(error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()
        await off_loop(partial(self._close, error))

    def _leave(self) -> None:
        assert self._token is not None
        with suppress(ValueError):  # it is left in another context than it was entered in
            SCOPE.reset(self._token)

    def _close(self, error: BaseException | None) -> None:
        recorder = self._recorder
        assert recorder is not None
        try:
            if error is None:
                self._complete(recorder)
            elif isinstance(error, Exception):
                self._fail(recorder, error)
        except ReplayDivergedError as differs:
            self.divergence = differs.divergence
            raise
        finally:
            recorder.close()
            for stream in list(recorder.streams.values()):
                stream.abandon()
            self._release()

    def _release(self) -> None:
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.__exit__(None, None, None)

    def _complete(self, recorder: StepRecorder) -> None:
        recorder.check()  # code may have caught what the run was halted by
        recorder.settle_streams(all_of_them=True)
        recorder.close()
        still_open = recorder.open_steps
        if recorder.mode == "live":
            # Code may have caught an interrupt that came in the middle of ours.
            still_open = still_open or recorder.index.without_outcome()
        if still_open:
            raise StepsOpenError(str(self.run_id), still_open)
        missing = recorder.index.unasked()
        if missing is not None:
            raise ReplayDivergedError(str(self.run_id), missing_step(recorder.index.whole(missing)))
        if recorder.mode == "live":
            unknown = recorder.index.undecided()
            if unknown:
                recorder.wait_for(unknown)
            recorder.append([self._completed or RunCompleted()])
            return
        self._compare(recorder, self.output)

    def _compare(self, recorder: StepRecorder, found: Any) -> None:
        index = recorder.index
        if index.completed is None and index.failure is None:
            return  # it was interrupted after its last step
        differs = other_end(index, found)
        if differs is not None:
            raise ReplayDivergedError(str(self.run_id), differs)
        self.agrees = True

    def _fail(self, recorder: StepRecorder, error: Exception) -> None:
        if isinstance(error, ReplayDivergedError):
            self.divergence = error.divergence
        if isinstance(error, NO_OUTCOME) or error is recorder.halted:
            return
        recorder.check()
        if recorder.mode != "live":
            self._compare(recorder, error)
            return
        failed = RunFailed(
            error_type=type(error).__name__,
            error_message=error_message(error),
            traceback=traceback_text(error, recorder.ledger.redact_text),
        )
        recorder.append([failed])


@explain_arguments
def run(
    name: str | UUID,
    *,
    ledger: AnyLedger,
    tags: Mapping[str, str] | None = None,
    replay: bool | None = None,
) -> RunBlock:
    """Open a durable run around a block of code, by name: `with run("order-17", ledger=...)`.

    Steps (`@step`, `run.step`) and calls of wrapped clients in the block are recorded. Running
    the same code again resumes an interrupted run: what is recorded is answered from the record,
    the rest is performed. `async with` does its disk work beside the event loop.

    Args:
        name: Names the run; `turnledger tools NAME` finds it. A UUID is its id.
        ledger: An open Ledger, a path or a URL.
        tags: Text by text, recorded with a new run; listings find runs by them.
        replay: Perform nothing, write nothing, and raise ReplayDivergedError at the first
            difference from the record. By default so if TURNLEDGER_REPLAY is set to 1.
    """
    text = str(name)
    started = RunStarted(request_type=BLOCK, tags={**(tags or {}), NAME_TAG: text})
    replays = os.environ.get(REPLAY_VARIABLE) == "1" if replay is None else replay
    if _replayed is not None:
        ledger, replays = _replayed.ledger, True
    block = RunBlock(partial(opened, ledger), run_id_for(text), started, replay=replays)
    if _replayed is not None:
        _replayed.blocks.append(block)
    return block


@dataclass(frozen=True)
class ReplayedScript:
    """A ledger that all blocks of a script replay from, and the blocks that it opened."""

    ledger: Ledger
    blocks: list[RunBlock]


# Not a context variable: a block that a script opens in a thread must not be performed either.
_replayed: ReplayedScript | None = None


@contextmanager
def replaying_from(ledger: Ledger) -> Iterator[ReplayedScript]:
    """While it is open, every block of this process replays from `ledger`, whichever it names."""
    global _replayed
    before, _replayed = _replayed, ReplayedScript(ledger, [])
    try:
        yield _replayed
    finally:
        _replayed = before


def opened(ledger: AnyLedger) -> Ledger:
    """An open ledger as it is; that at a path or URL, opened once in a process."""
    return ledger if isinstance(ledger, Ledger) else shared_ledger(ledger)


def _never(events: Sequence[Event | Entry], blobs: Iterable[bytes] = ()) -> Sequence[Record]:
    raise AssertionError("a replay writes nothing")


def check_begun_by(run_id: UUID, found: RunStarted | None, mine: RunStarted) -> None:
    """Refuse a run that something else began: another workflow, an agent, another input.

    Args:
        run_id: The run.
        found: Its first event; None if that is another.
        mine: The first event of such a run as it would be begun here.
    """
    if found is None:
        raise RecoveryError(f"Run {run_id} has no beginning: its first event is another.")
    # A request that was made without the workflow's code names no type.
    requested = found.request_id is not None and not found.request_type
    kind = mine.request_type if requested else found.request_type
    if (kind, found.agent) != (mine.request_type, mine.agent):
        raise RecoveryError(
            f"Run {run_id} was begun by {_beginner(found)}, and this is {_beginner(mine)}. Use "
            "another name, or what began the run.",
            run_id=str(run_id),
        )
    if mine.request_type == WORKFLOW and found.request != mine.request:
        raise RecoveryError(
            f"Run {run_id} was begun with another input: {short_repr(found.request)}, got "
            f"{short_repr(mine.request)}. Use another run id, or recover the run.",
            run_id=str(run_id),
        )


def _beginner(started: RunStarted) -> str:
    if started.request_type == BLOCK:
        return "a block, `with turnledger.run(...)`"
    if started.request_type == WORKFLOW:
        return f"the workflow {started.agent!r}"
    if started.agent:
        return f"the agent {started.agent!r}"
    return f"something else ({started.request_type or 'no request'})"
