"""Group commit: one thread commits the work of all that wait, with one transaction and one fsync.

A lone writer runs its own work on its own thread, without a queue. When several threads write at
once, the first (the leader) takes all the work that has queued up into one transaction, and the
first that still waits leads the next group. A caller may bring many jobs: it then waits once.

Waking: a thread whose work was done wakes the next one, so that few at a time want the
interpreter's lock (GIL). Woken all at once by the leader, they would all wait for that lock, and
each of them would ask for it again every 5 ms, which costs most where other programs want the
processor as well.

Interrupts: Ctrl-C raises KeyboardInterrupt in the main thread, anywhere, but only where CPython
looks for signals: at the beginning of a Python function, after a call, and at the end of a turn of
a loop. So statements that must not be torn apart contain none of these between them (`+=` and
`del` instead of method calls, for example), and what has to be done in the end is written so that
it may be repeated, and is done a second time if an interrupt came the first time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Generic, TypeVar

from turnledger.ledger.errors import StoreUnavailableError

Tx = TypeVar("Tx")
MAX_GROUP = 256


class Job(Generic[Tx]):
    """Work in a transaction, and its outcome."""

    __slots__ = ("error", "result", "work")

    def __init__(self, work: Callable[[Tx], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None

    def begin(self) -> bool:
        """Whether it is still wanted; called once, just before its group is committed."""
        return True


class Caller(Generic[Tx]):
    """A thread that waits until its jobs are done, or until it is its turn to lead."""

    __slots__ = ("done", "has_left", "jobs", "next", "wake")

    def __init__(self, jobs: Sequence[Job[Tx]]) -> None:
        self.jobs = jobs
        self.done = False
        # Whether the thread went on, or was interrupted: then it wakes no other one.
        self.has_left = False
        # The one that it has to wake when it goes on, because the same leader did its jobs.
        self.next: Caller[Tx] | None = None
        # Held until the thread shall go on. A lock of its own, because a Condition could stay
        # locked after an interrupt. It is used once, so releasing it twice is harmless.
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
        # How long a leader waits, at most, for as many callers as the last group had.
        self._gather_seconds = gather_seconds
        self._last_group = 1
        # How many callers a leader still waits for, and the lock that it waits on.
        self._missing = 0
        self._gathered = Lock()
        # Guards the fields below. It is held for a few statements, never during a commit.
        self._mutex = Lock()
        self._waiting: deque[Caller[Tx]] = deque()
        # Who commits now: a caller, or an object that stands for a lone one; None if no thread.
        self._leader: object = None

    def run(self, work: Callable[[Tx], Any]) -> Any:
        """Run work in a transaction, perhaps together with others'; its result."""
        if self._last_group == 1:
            # A lone caller needs no job: most programs write from one thread.
            me, result = object(), None
            try:
                with self._mutex:
                    leads = self._leader is None
                    if leads:
                        self._leader = me
                if leads:
                    result = self._commit_alone(work)
            finally:
                try:
                    self._step_down(me)
                except BaseException:
                    self._step_down(me)
                    raise
            if leads:
                return result
        job = Job(work)
        self.run_all((job,))
        if job.error is not None:
            raise job.error
        return job.result

    def run_all(self, jobs: Sequence[Job[Tx]]) -> None:
        """Run jobs in one transaction, perhaps together with others'; the outcome is in each."""
        me = Caller(jobs)
        try:
            with self._mutex:
                leads = self._leader is None
                if leads:
                    self._leader = me
                else:
                    self._join(me)
            if not leads:
                me.wake.acquire()
            # Woken without being done: it is this thread's turn to lead.
            if not me.done:
                self._lead(me)
        finally:
            try:
                self._leave(me)
            except BaseException:
                self._leave(me)
                raise

    def _join(self, caller: Caller[Tx]) -> None:
        self._waiting.append(caller)
        if 0 < self._missing <= len(self._waiting):
            self._missing = 0
            self._gathered.release()

    def _gather(self) -> None:
        """Wait a moment for as many callers as the last group had.

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

    def _lead(self, first: Caller[Tx]) -> None:
        self._gather()
        callers = [first]
        committed = False
        try:
            with self._mutex:
                size = len(first.jobs)
                while self._waiting and size < MAX_GROUP:
                    # No call between the two: an interrupt there would leave a caller in both
                    # lists or in none, and one in none is never woken.
                    callers += (self._waiting[0],)
                    del self._waiting[0]
                    size += len(callers[-1].jobs)
                self._last_group = len(callers)
            group = [job for caller in callers for job in caller.jobs if job.begin()]
            if group:
                self._commit_group(group)
            committed = True
        finally:
            try:
                self._end_lead(callers, committed)
            except BaseException:
                self._end_lead(callers, committed)
                raise

    def _end_lead(self, callers: list[Caller[Tx]], committed: bool) -> None:
        """Let the next caller lead, and wake the first whose jobs were done. May be repeated."""
        first, *followers = callers
        self._step_down(first)
        if not committed:
            for job in [job for caller in followers for job in caller.jobs]:
                job.error = StoreUnavailableError(
                    "The thread that was committing this append was interrupted, so the "
                    "outcome is unknown. Append the same events again, with the same ids."
                )
        following: Caller[Tx] | None = None
        with self._mutex:
            # From the last to the first: each has its next one before it can go on.
            for caller in reversed(followers):
                if not caller.has_left:
                    caller.next = following
                    caller.done = True
                    following = caller
        _wake(following)

    def _leave(self, me: Caller[Tx]) -> None:
        """Stop leading or waiting, and wake the next one, if there is one. May be repeated."""
        if not me.done:  # otherwise it is neither leader nor waiting
            self._step_down(me)
        with self._mutex:
            me.has_left = True
        _wake(me.next)

    def _step_down(self, me: object) -> None:
        """Stop being leader, or waiting to be: the next caller leads. May be repeated."""
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


def _wake(caller: Caller[Any] | None) -> None:
    if caller is not None:
        with suppress(RuntimeError):  # woken already
            caller.wake.release()
