"""Group commit: one thread commits the work of all that wait, with one transaction and one fsync.

A lone writer runs its own work on its own thread, without a queue. When several threads write at
once, the first (the leader) takes all the work that has queued up into one transaction. When it is
done it wakes those threads (its followers), and the first that still waits leads the next group.

Interrupts: Ctrl-C raises KeyboardInterrupt in the main thread, anywhere, but only where CPython
looks for signals: at the beginning of a Python function, after a call, and at the end of a turn of
a loop. So statements that must not be torn apart contain none of these between them (`+=` and
`del` instead of method calls, for example), and what has to be done in the end is written so that
it may be repeated, and is done a second time if an interrupt came the first time.
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
    """A caller's work, and its outcome."""

    __slots__ = ("done", "error", "result", "wake", "work")

    def __init__(self, work: Callable[[Tx], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        # Held until the caller shall go on: its work is done, or it is its turn to lead. A lock
        # of its own, because a Condition could stay locked after an interrupt.
        self.wake = Lock()
        self.wake.acquire()


class GroupCommit(Generic[Tx]):
    """Runs jobs in groups, one group at a time; each job has its own outcome."""

    def __init__(
        self,
        commit_alone: Callable[[Callable[[Tx], Any]], Any],
        commit_group: Callable[[list[Job[Tx]]], None],
        gather_seconds: float,
    ) -> None:
        self._commit_alone = commit_alone
        self._commit_group = commit_group
        # How long a leader waits, at most, for as many jobs as the last group had.
        self._gather_seconds = gather_seconds
        self._last_group = 1
        # How many jobs a leader still waits for, and the lock that it waits on.
        self._missing = 0
        self._gathered = Lock()
        # Guards the fields below. It is held for a few statements, never during a commit.
        self._mutex = Lock()
        self._waiting: deque[Job[Tx]] = deque()
        # Who commits now: a job, or an object that stands for a lone caller; None if no thread.
        self._leader: object = None

    def run(self, work: Callable[[Tx], Any]) -> Any:
        """Run work in a transaction, perhaps together with others'; its result."""
        # A lone caller needs no job: most programs write from one thread.
        job = Job(work) if self._last_group > 1 else None
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
                # Woken without being done: it is this thread's turn to lead.
                if not job.done:
                    self._lead(job)
        finally:
            # Not if another thread has done the job: then it is neither leader nor waiting.
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
        """Wait a moment for as many jobs as the last group had.

        Threads that were woken together come back together. Without the wait, the first one back
        would commit alone, and the others would wait for a whole fsync more.
        """
        gathered = Lock()
        gathered.acquire()
        with self._mutex:
            missing = self._last_group - 1
            if len(self._waiting) >= missing:
                return
            self._gathered = gathered
            self._missing = missing
        gathered.acquire(timeout=self._gather_seconds)
        self._missing = 0

    def _lead(self, first: Job[Tx]) -> None:
        self._gather()
        group = [first]
        followers: list[Job[Tx]] = []
        committed = False
        try:
            with self._mutex:
                while self._waiting and len(followers) < MAX_GROUP - 1:
                    # No call between the two: an interrupt there would leave a job in both
                    # lists or in none, and one in none is never woken.
                    followers += (self._waiting[0],)
                    del self._waiting[0]
                group += followers
                self._last_group = len(group)
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
        """Let the next job lead, and wake those whose work was done here. May be repeated."""
        self._step_down(first)
        while followers:
            job = followers[0]
            if not committed:
                job.error = StoreUnavailableError(
                    "The thread that was committing this append was interrupted, so the "
                    "outcome is unknown. Append the same events again, with the same ids."
                )
            # The only call comes last: an interrupt comes after the job was woken, and a second
            # pass goes on with the next one.
            job.done = True
            del followers[0]
            job.wake.release()

    def _step_down(self, me: object) -> None:
        """Stop being leader, or waiting to be: the next job that waits leads. May be repeated."""
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
