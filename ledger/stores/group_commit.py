"""Group commit: the first caller who waits commits for all who wait.

A lone writer runs its own work on its own thread, with no queue and no handing over.
When several threads write at once, one of them (the leader) takes all the work that has queued
up into one transaction, and one fsync serves them all.

Ctrl-C can come anywhere in here, but only where Python looks for it: at the beginning of a
function, after a call, at the end of a turn of a loop. What must not be torn apart has none of
these inside, and what must be done in the end is tried twice and may be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

from turnledger.ledger.errors import StoreUnavailableError

Tx = TypeVar("Tx")
MAX_GROUP = 256


class Job(Generic[Tx]):
    """A caller's work, and what came of it."""

    __slots__ = ("done", "error", "result", "wake", "work")

    def __init__(self, work: Callable[[Tx], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.wake = Lock()
        self.wake.acquire()


class GroupCommit(Generic[Tx]):
    """Runs jobs in groups, one group at a time, each job's outcome its own."""

    def __init__(
        self,
        commit_alone: Callable[[Callable[[Tx], Any]], Any],
        commit_group: Callable[[list[Job[Tx]]], None],
        patience: float,
    ) -> None:
        self._commit_alone = commit_alone
        self._commit_group = commit_group
        # How long a leader waits, at most, for as many as came together last time.
        self._patience = patience
        self._company = 1
        self._missing = 0
        self._gathered = Lock()
        self._mutex = Lock()
        self._waiting: deque[Job[Tx]] = deque()
        # Who commits just now: the job of one in company, or what stands for a lone caller.
        self._leader: object = None

    def run(self, work: Callable[[Tx], Any]) -> Any:
        job = Job(work) if self._company > 1 else None
        me: object = job or object()
        try:
            with self._mutex:
                leads = self._leader is None
                if leads:
                    self._leader = me
                else:
                    me = job = job or Job(work)
                    self._join(job)
            if job is None:
                result = self._commit_alone(work)
            else:
                if not leads:
                    job.wake.acquire()
                if not job.done:
                    self._lead(job)
        finally:
            if job is None or not job.done:
                try:
                    self._step_down(me)
                except BaseException:
                    self._step_down(me)
                    raise
        if job is None:
            return result
        if job.error is not None:
            raise job.error
        return job.result

    def _join(self, job: Job[Tx]) -> None:
        self._waiting.append(job)
        if 0 < self._missing <= len(self._waiting):
            self._missing = 0
            self._gathered.release()

    def _gather(self) -> None:
        """Those who committed together come back together: give them a moment."""
        gathered = Lock()
        gathered.acquire()
        with self._mutex:
            missing = self._company - 1
            if len(self._waiting) >= missing:
                return
            self._gathered = gathered
            self._missing = missing
        gathered.acquire(timeout=self._patience)
        self._missing = 0

    def _lead(self, first: Job[Tx]) -> None:
        self._gather()
        group = [first]
        followers: list[Job[Tx]] = []
        committed = False
        try:
            with self._mutex:
                while self._waiting and len(followers) < MAX_GROUP - 1:
                    followers += (self._waiting[0],)
                    del self._waiting[0]
                group += followers
                self._company = len(group)
            self._commit_group(group)
            committed = True
        finally:
            try:
                self._end_lead(first, followers, committed)
            except BaseException:
                self._end_lead(first, followers, committed)
                raise
        first.done = True

    def _end_lead(self, first: Job[Tx], followers: list[Job[Tx]], committed: bool) -> None:
        """Let the next one lead, and those whose work was done here go on. May be repeated."""
        self._step_down(first)
        while followers:
            job = followers[0]
            if not committed:
                job.error = StoreUnavailableError(
                    "The thread that was committing this append was interrupted, so the "
                    "outcome is unknown. Append the same events again, with the same ids."
                )
            job.done = True
            del followers[0]
            job.wake.release()

    def _step_down(self, me: object) -> None:
        """Nobody waits for this caller to lead any more. May be repeated."""
        with self._mutex:
            if self._leader is me:
                if self._waiting:
                    successor = self._waiting[0]
                    del self._waiting[0]
                    self._leader = successor
                    successor.wake.release()
                else:
                    self._leader = None
            elif me in self._waiting:
                self._waiting.remove(me)  # type: ignore[arg-type]
