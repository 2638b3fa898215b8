"""Group commit: the first caller who waits commits for all who wait.

A lone writer runs its own work on its own thread and pays one lock. When several
threads write at once, one of them (the leader) takes all the work that has queued
up into one transaction, and one fsync serves them all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

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
        self.wake: Lock | None = None


class GroupCommit(Generic[Tx]):
    """Runs jobs in groups, one group at a time, each job's outcome its own."""

    def __init__(self, commit_group: Callable[[list[Job[Tx]]], None]) -> None:
        self._commit_group = commit_group
        self._mutex = Lock()
        self._waiting: deque[Job[Tx]] = deque()
        self._leading = False

    def run(self, work: Callable[[Tx], Any]) -> Any:
        job = Job(work)
        with self._mutex:
            follows = self._leading
            if follows:
                job.wake = Lock()
                job.wake.acquire()
                self._waiting.append(job)
            else:
                self._leading = True
        if follows:
            assert job.wake is not None
            job.wake.acquire()
        if not job.done:
            self._lead(job)
        if job.error is not None:
            raise job.error
        return job.result

    def _lead(self, first: Job[Tx]) -> None:
        group = [first]
        with self._mutex:
            while self._waiting and len(group) < MAX_GROUP:
                group.append(self._waiting.popleft())
        try:
            self._commit_group(group)
        finally:
            with self._mutex:
                successor = self._waiting.popleft() if self._waiting else None
                self._leading = successor is not None
            if successor is not None and successor.wake is not None:
                successor.wake.release()
            for job in group[1:]:
                job.done = True
                if job.wake is not None:
                    job.wake.release()
