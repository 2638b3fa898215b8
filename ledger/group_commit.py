"""Group commit: the first caller who waits commits for all who wait.

A lone writer runs its own work on its own thread, with no queue and no handing over.
When several threads write at once, one of them (the leader) takes all the work that has queued
up into one transaction, and one fsync serves them all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Event, Lock
from typing import Any, Generic, TypeVar

Tx = TypeVar("Tx")
MAX_GROUP = 256


class Job(Generic[Tx]):
    """A caller's work, and what came of it."""

    __slots__ = ("appointed", "done", "error", "result", "wake", "work")

    def __init__(self, work: Callable[[Tx], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.appointed = False
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
        self._gathered = Event()
        self._mutex = Lock()
        self._waiting: deque[Job[Tx]] = deque()
        self._leading = False

    def run(self, work: Callable[[Tx], Any]) -> Any:
        with self._mutex:
            follows, alone = self._leading, self._company == 1
            self._leading = True
            job = Job(work) if follows or not alone else None
            if follows and job is not None:
                self._join(job)
        if job is None:
            try:
                return self._commit_alone(work)
            finally:
                self._pass_on()
        try:
            if follows:
                job.wake.acquire()
        except BaseException:
            self._quit(job)
            raise
        if not job.done:
            self._lead(job)
        if job.error is not None:
            raise job.error
        return job.result

    def _join(self, job: Job[Tx]) -> None:
        self._waiting.append(job)
        if 0 < self._missing <= len(self._waiting):
            self._missing = 0
            self._gathered.set()

    def _gather(self) -> None:
        """Those who committed together come back together: give them a moment."""
        with self._mutex:
            self._gathered.clear()
            self._missing = self._company - 1
            if len(self._waiting) >= self._missing:
                self._missing = 0
                return
        self._gathered.wait(self._patience)
        self._missing = 0

    def _lead(self, first: Job[Tx]) -> None:
        group = [first]
        try:
            self._gather()
        except BaseException:
            self._pass_on()
            raise
        with self._mutex:
            while self._waiting and len(group) < MAX_GROUP:
                group.append(self._waiting.popleft())
            self._company = len(group)
        try:
            self._commit_group(group)
        finally:
            self._pass_on()
            for job in group[1:]:
                job.done = True
                job.wake.release()

    def _pass_on(self) -> None:
        """Wake one who waits to lead the next group."""
        with self._mutex:
            successor = self._waiting.popleft() if self._waiting else None
            self._leading = successor is not None
            if successor is not None:
                successor.appointed = True
        if successor is not None:
            successor.wake.release()

    def _quit(self, job: Job[Tx]) -> None:
        """A follower was interrupted (Ctrl-C): nobody may wait for it to lead."""
        with self._mutex:
            if job in self._waiting:
                self._waiting.remove(job)
                return
        if job.appointed:
            self._pass_on()
