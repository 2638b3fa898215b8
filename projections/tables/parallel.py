"""Work on all runs, in portions: here, or by any `concurrent.futures.Executor`.

Runs are independent of each other. A task takes a ledger and a portion of the runs and gives
something small; whoever executes it elsewhere opens the ledger there, once a process.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import NamedTuple, TypeVar

from turnledger.ledger import InvalidInputError, Ledger
from turnledger.ledger.integrity.verify import every_run

T = TypeVar("T")

# Events of a portion: many, so that handing it over costs little, but enough portions for all.
LARGEST_PORTION, SMALLEST_PORTION = 20_000, 500
PORTIONS_PER_WORKER = 8
# Portions that are on their way at once, for each worker.
IN_FLIGHT = 4


class Span(NamedTuple):
    """A run's own records, after < version <= until: what it shares with its parent is not its."""

    run_id: str
    after: int
    until: int


Portion = Sequence[Span]
Task = Callable[[Ledger, Portion], T]
# How many events are done, and how many there are.
Progress = Callable[[int, int], None]


def over_runs(
    ledger: Ledger,
    task: Task[T],
    *,
    executor: Executor | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Generator[T, None, None]:
    """What a task comes to for each portion of all runs, in the order of the portions.

    Without an executor `workers` processes are started, or none for one. With one, `workers`
    is how many it has; the task must be something that can be pickled.
    """
    if workers < 1:
        raise InvalidInputError("workers is 1 or more.")
    total = sum(row.version - row.parent_version for row in every_run(ledger.store))
    largest = max(min(total // (workers * PORTIONS_PER_WORKER), LARGEST_PORTION), SMALLEST_PORTION)
    done = 0
    with _workforce(executor, workers) as staff:
        answers = _answers(ledger, task, _portions(ledger, largest), staff, workers)
        for size, answer in answers:
            done += size
            if progress is not None:
                progress(min(done, total), total)
            yield answer


def _portions(ledger: Ledger, largest: int) -> Iterator[list[Span]]:
    portion: list[Span] = []
    size = 0
    for row in every_run(ledger.store):
        portion.append(Span(row.run_id, row.parent_version, row.version))
        size += row.version - row.parent_version
        if size >= largest:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _size(portion: Portion) -> int:
    return sum(span.until - span.after for span in portion)


def _answers(
    ledger: Ledger,
    task: Task[T],
    portions: Iterator[list[Span]],
    staff: Executor | None,
    workers: int,
) -> Iterator[tuple[int, T]]:
    if staff is None:
        for portion in portions:
            yield _size(portion), task(ledger, portion)
        return
    source = _source(ledger, staff)
    under_way: deque[tuple[int, Future[T]]] = deque()
    try:
        for portion in portions:
            under_way.append((_size(portion), staff.submit(_work, source, task, portion)))
            if len(under_way) >= workers * IN_FLIGHT:
                size, answer = under_way.popleft()
                yield size, answer.result()
        while under_way:
            size, answer = under_way.popleft()
            yield size, answer.result()
    finally:
        for _, answer in under_way:
            answer.cancel()


# --- who does it -------------------------------------------------------------------


def _source(ledger: Ledger, staff: Executor) -> Ledger | str:
    """The ledger itself for threads of this process, for all others what they open it by."""
    if isinstance(staff, ThreadPoolExecutor):
        return ledger
    if not ledger.url or ledger.url.startswith("memory:"):
        raise InvalidInputError(
            "A ledger in memory is this process's alone: other processes can't open it. "
            "Use one worker, or a ThreadPoolExecutor."
        )
    return ledger.url


@contextmanager
def _workforce(executor: Executor | None, workers: int) -> Iterator[Executor | None]:
    """The executor that was given, or processes of our own where several workers are wanted."""
    if executor is not None or workers == 1:
        yield executor
        return
    # Not forked: a ledger does not survive that, and threads may hold any lock.
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_serve) as pool:
        yield pool


def _serve() -> None:
    """A worker of ours leaves Ctrl-C to its parent, and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


# The ledgers that this process has opened to work on them, by process and URL: what a fork
# left here is not ours.
_opened: dict[tuple[int, str], Ledger] = {}


def _work(source: Ledger | str, task: Task[T], portion: Portion) -> T:
    if not isinstance(source, str):
        return task(source, portion)
    place = (os.getpid(), source)
    ledger = _opened.get(place)
    if ledger is None:
        ledger = _opened[place] = Ledger.open(source, create=False)
    return task(ledger, portion)
