"""`RunControl`: cancels a run that has a thread of its own, and limits how many work at once.

A run under an event loop (`runtime.agents.async_runs`) has one in its context. The loop's code
asks for it where it would wait: for the model, a handler, a retry, the disk. There the thread
gives its permit to another run, and wakes up when the run is cancelled. Without a control in the
context, as in `MainLoop.execute`, each function here is the plain wait.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from threading import Lock, Semaphore, Thread, get_ident
from typing import Any, TypeVar

R = TypeVar("R")

# Measured with 200 runs: the more threads work at once, the longer an event loop waits for the
# interpreter's lock.
AT_WORK = 2
# How many write at once: enough to share flushes of the disk. Without a limit, all that wake up
# together after a flush hold the event loop up (docs/decisions/020).
AT_THE_DISK = 4
# Seconds that handlers of a cancelled run get to end: the claim is released within a second.
GRACE = 0.5


class RunCancelled(BaseException):
    """The run was cancelled: it begins nothing further, and can be recovered."""


class RunHalted(BaseException):
    """A step in a tool's handler ended the run for now: it waits, say. `error` says so.

    Not an Exception, so that no handler takes it for a failure of its call: that is in doubt.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Permits:
    """So many runs at work at once; the others wait in the order in which they came."""

    def __init__(self, count: int) -> None:
        self._lock = Lock()
        self._free = count
        self._waiting: deque[RunControl] = deque()

    def acquire(self, run: RunControl) -> None:
        """Wait for a permit; a cancelled run goes on without one, so that it ends soon."""
        with self._lock:
            if run.is_cancelled:
                return
            if self._free:
                self._free -= 1
                run.has_permit = True
                return
            self._waiting.append(run)
        run.turn.acquire()

    def release(self, run: RunControl) -> None:
        """Give the permit back, if it has one: to the run that has waited longest."""
        with self._lock:
            if not run.has_permit:
                return
            run.has_permit = False
            if self._waiting:
                following = self._waiting.popleft()
                following.has_permit = True
                following.turn.release()
            else:
                self._free += 1

    def excuse(self, run: RunControl) -> None:
        """Let a cancelled run go on that waits for a permit."""
        with self._lock:
            if run in self._waiting:
                self._waiting.remove(run)
                run.turn.release()


PERMITS = Permits(AT_WORK)
_DISK = Semaphore(AT_THE_DISK)
# A process that was forked has none of the runs that hold these.
for _made, _count in ((PERMITS, AT_WORK), (_DISK, AT_THE_DISK)):
    os.register_at_fork(after_in_child=partial(_made.__init__, _count))  # type: ignore[misc]


class RunControl:
    """One run in a thread of its own: its permit, and whether it is cancelled."""

    def __init__(self, permits: Permits = PERMITS) -> None:
        self._permits = permits
        self._lock = Lock()
        self._thread: int | None = None
        self._callbacks: set[Callable[[], object]] = set()
        # Done when the run is cancelled.
        self.cancelled: Future[None] = Future()
        # `Permits` has these: released when the run gets a permit, and whether it has one.
        self.turn = Lock()
        self.turn.acquire()
        self.has_permit = False

    @property
    def is_cancelled(self) -> bool:
        return self.cancelled.done()

    def run(self, work: Callable[[], R]) -> R:
        """Do the work in this thread with a permit; RunCancelled if it was cancelled before."""
        self._thread = get_ident()
        token = _CURRENT.set(self)
        try:
            self._permits.acquire(self)
            self.check()
            return work()
        finally:
            self._permits.release(self)
            _CURRENT.reset(token)

    def cancel(self) -> None:
        """Have the run end as soon as it can; from any thread, any number of times."""
        with self._lock:
            if self.is_cancelled:
                return
            self.cancelled.set_result(None)
            callbacks, self._callbacks = self._callbacks, set()
        self._permits.excuse(self)
        for callback in callbacks:
            callback()

    def check(self) -> None:
        """RunCancelled if the run is cancelled: before an effect."""
        if self.is_cancelled:
            raise RunCancelled("The run was cancelled. Recover it to go on.")

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Without the permit within the block, if this is the run's own thread."""
        if get_ident() != self._thread:
            yield
            return
        self._permits.release(self)
        try:
            yield
        finally:
            self._permits.acquire(self)

    @contextmanager
    def on_cancel(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call this if the run is cancelled within the block, in the thread that cancels it."""
        with self._lock:
            is_late = self.is_cancelled
            if not is_late:
                self._callbacks.add(callback)
        if is_late:
            callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.discard(callback)


_CURRENT: ContextVar[RunControl | None] = ContextVar("turnledger_run", default=None)


def current_run() -> RunControl | None:
    """The control of the run that this code belongs to; None if it runs in a caller's thread."""
    return _CURRENT.get()


def check_cancelled() -> None:
    """RunCancelled if the run that this code belongs to is cancelled."""
    run = _CURRENT.get()
    if run is not None:
        run.check()


@contextmanager
def at_the_disk() -> Iterator[None]:
    """A block in which this thread waits for the ledger, and lets another run work."""
    run = _CURRENT.get()
    if run is None:
        yield
        return
    with run.waiting(), _DISK:
        yield


def wait_for_one(
    futures: Collection[Future[R]], timeout: float | None = None, *, grace: float = GRACE
) -> set[Future[R]]:
    """Wait until one of them is done; gives those that are.

    Args:
        futures: What to wait for.
        timeout: Seconds to wait; None is any time.
        grace: Seconds that all of them get when the run is cancelled. Then it is RunCancelled.
    """
    run = _CURRENT.get()
    if run is None:
        return wait(futures, timeout, FIRST_COMPLETED).done
    with run.waiting():
        either: list[Future[Any]] = [*futures, run.cancelled]
        wait(either, timeout, FIRST_COMPLETED)
        if run.is_cancelled:
            wait(futures, grace)
            run.check()
    return {one for one in futures if one.done()}


def in_thread(work: Callable[[], R], name: str) -> Future[R]:
    """Do the work in a thread of its own; see `new_thread`."""
    future, thread = new_thread(work, name)
    thread.start()
    return future


def new_thread(work: Callable[[], R], name: str) -> tuple[Future[R], Thread]:
    """A thread that is to be started, with this thread's context variables, and its outcome.

    A future that is cancelled before the thread has begun is never begun. It is a daemon thread:
    work that never returns must not keep the program from ending.
    """
    future: Future[R] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    return future, Thread(target=copy_context().run, args=(run,), name=name, daemon=True)


def interruptible(work: Callable[[], R], name: str) -> R:
    """Do the work here; under an event loop in a thread that is left behind upon a cancel."""
    if _CURRENT.get() is None:
        return work()
    future = in_thread(work, name)
    wait_for_one([future], grace=0)
    return future.result()
