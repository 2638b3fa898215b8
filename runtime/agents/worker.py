"""`Worker`: takes runs of agents from the queue of a ledger, and runs them to their end.

The queue is the run index: requested runs, and interrupted ones. A run is taken by claiming it,
and goes on as any recovery does. Several workers share the work, in any number of processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Protocol

from turnledger.ledger import (
    ANY,
    AppendRefusedError,
    Claim,
    EventDecodeError,
    IntegrityFailureError,
    InvalidInputError,
    Ledger,
    RunFailed,
    StoreUnavailableError,
    TurnledgerError,
)
from turnledger.ledger.errors import error_message, error_text
from turnledger.ledger.ledger import MOST_EXCLUDED
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.runtime.agent.traceback_text import traceback_text
from turnledger.runtime.agents.async_runs import run_async
from turnledger.runtime.errors import DecisionRequiredError
from turnledger.runtime.journal.heartbeat import LEASE, LeaseHeartbeat, worker_name

# Seconds that one look into the queue waits for a run. A drain waits for it, too.
WAIT = 5.0
# Seconds between looks at a ledger that can't be reached, at first and at most.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.25, 15.0
logger = logger_of("turnledger.worker")
# These say nothing about the run: its claim was lost, or its ledger.
_NOT_ITS_FAULT = (AppendRefusedError, StoreUnavailableError)
# Nothing is written to a damaged run, nor to a fork whose calls in doubt nobody has decided about.
_NOT_WRITTEN_TO = (IntegrityFailureError, EventDecodeError, DecisionRequiredError)


class Job(Protocol):
    """What a worker runs: an Agent, a workflow, or another with a name whose runs it can take."""

    @property
    def name(self) -> str:
        """The name that its runs belong to."""

    def take(self, held: LeaseHeartbeat, ledger: Ledger) -> object:
        """Run a run to its end, in a thread; its claim is held."""


class Worker:
    """Takes runs from a ledger's queue, as many at once as it is told, until it is stopped.

    Args:
        ledger: The ledger; it stays open.
        jobs: The agents and workflows whose runs it takes.
        concurrency: How many runs at once.
        lease: How long a claim lasts without a heartbeat.
        tell: Called with a line of text about what was taken, how it ended, and outages.
    """

    def __init__(
        self,
        ledger: Ledger,
        jobs: Sequence[Job],
        *,
        concurrency: int = 1,
        lease: timedelta = LEASE,
        tell: Callable[[str], None] = logger.info,
    ) -> None:
        self._jobs = {job.name: job for job in jobs}
        if not all(self._jobs) or not self._jobs:
            raise InvalidInputError("A worker takes runs of agents that have a name.")
        if concurrency < 1 or lease <= timedelta(0):
            raise InvalidInputError("A worker needs a concurrency and a lease above 0.")
        self._ledger = ledger
        self._lease = lease
        self._tell = tell
        self._free = asyncio.Semaphore(concurrency)
        self._stopping = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        # Runs that it could not go on with: it does not take them again.
        self._left: dict[str, None] = {}
        # One look into the queue at a time: threads of the default pool may all be at work.
        self._picker = ThreadPoolExecutor(1, "turnledger-queue")

    async def work(self) -> None:
        """Take and run runs until `stop`; then wait for those that it has begun."""
        try:
            while not self._stopping.is_set():
                await self._free.acquire()
                claim = await self._next()
                if claim is None:
                    self._free.release()
                    continue
                task = asyncio.create_task(self._run(claim))
                self._running.add(task)
                task.add_done_callback(self._ended)
            if self._running:
                self._tell(f"Draining: {len(self._running)} runs are under way.")
        finally:
            while self._running:
                await asyncio.wait(self._running)
            self._picker.shutdown(wait=False)

    def stop(self) -> None:
        """Take no more runs. A second call also cancels those under way, which stay resumable."""
        if self._stopping.is_set():
            for task in self._running:
                task.cancel()
        self._stopping.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._free.release()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._tell(f"A run ended in an error of the worker: {error_text(error)}")

    # --- the queue ---

    async def _next(self) -> Claim | None:
        """The next run; None if it was stopped meanwhile."""
        loop, pause, is_away = asyncio.get_running_loop(), SHORTEST_PAUSE, False
        while not self._stopping.is_set():
            try:
                claim = await loop.run_in_executor(self._picker, self._look)
            except StoreUnavailableError as error:
                if not is_away:
                    self._tell(f"The ledger can't be reached, trying again: {error}")
                is_away = True
                await self._pause(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            if is_away:
                self._tell("The ledger can be reached again.")
            pause, is_away = SHORTEST_PAUSE, False
            if claim is not None and self._stopping.is_set():
                await loop.run_in_executor(self._picker, claim.release)
            elif claim is not None:
                return claim
        return None

    def _look(self) -> Claim | None:
        return self._ledger.claim_next(
            list(self._jobs),
            worker=worker_name(self._ledger),
            ttl=self._lease,
            wait=WAIT,
            exclude=list(self._left),
            on_damage=self._leave,
        )

    async def _pause(self, seconds: float) -> None:
        """Wait so long, or until it is stopped."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _leave(self, run: str, error: BaseException) -> None:
        """Do not take a run again, and name it."""
        if len(self._left) >= MOST_EXCLUDED:
            del self._left[next(iter(self._left))]
        self._left[run] = None
        self._tell(f"Run {run} is left alone: {error_text(error)}")

    # --- a run ---

    async def _run(self, claim: Claim) -> None:
        try:
            await run_async(partial(self._take, claim))
        except asyncio.CancelledError:
            self._tell(f"Run {claim.run_id} was stopped: another worker can take it.")

    def _take(self, claim: Claim) -> None:
        run = claim.run_id
        with LeaseHeartbeat(claim) as held:
            try:
                job = self._jobs[self._ledger.run(run).agent]
                self._tell(f"Run {run} of {job.name} taken, epoch {claim.epoch}.")
                job.take(held, self._ledger)
            except Exception as error:
                self._settle(claim, error)
            else:
                self._tell(f"Run {run} completed.")

    def _settle(self, claim: Claim, error: Exception) -> None:
        """Say how a run ended that did not complete, and keep it from being taken for ever."""
        run = claim.run_id
        try:
            status = self._ledger.run(run).status
            if isinstance(error, DecisionRequiredError) and status == "waiting":
                self._tell(f"Run {run} waits for a decision: {error_message(error)}")
            elif status != "running" or isinstance(error, _NOT_ITS_FAULT):
                self._tell(f"Run {run} ended, {status}: {error_text(error)}")
            elif isinstance(error, _NOT_WRITTEN_TO):
                self._leave(run, error)
            else:
                self._fail(claim, error)
        except TurnledgerError as trouble:
            self._tell(f"Run {run} ended: {error_text(error)}; {error_text(trouble)}")

    def _fail(self, claim: Claim, error: Exception) -> None:
        """Record why this program can't go on with a run: a person can, by `recover`."""
        failed = RunFailed(
            error_type=type(error).__name__,
            error_message=error_message(error),
            traceback=traceback_text(error, self._ledger.redact_text),
        )
        self._ledger.append(claim.run_id, failed, ANY, claim.epoch)
        self._tell(f"Run {claim.run_id} failed: {error_text(error)}")
