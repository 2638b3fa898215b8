"""Parallel work on all runs, in portions, by this process or any `concurrent.futures.Executor`."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Thread, Timer
from typing import TypeVar

from turnledger.ledger import InvalidInputError, Ledger, StoreUnavailableError
from turnledger.ledger.integrity.verify import every_run
from turnledger.ledger.runs.lineage import NO_END, Segment
from turnledger.ledger.stores.open import without_secrets

T = TypeVar("T")

# Events of a portion: many, so that handing it over costs little, with enough for all workers.
LARGEST_PORTION, SMALLEST_PORTION = 20_000, 500
PORTIONS_PER_WORKER = 8
# Portions that are on their way at once, for each worker.
IN_FLIGHT = 4
# Seconds that a worker keeps a ledger open for the next portion. Opening costs as much as folding
# a thousand events, and a cluster's worker would hold connections for as long as it lives.
LINGER = 5.0


# The own records of some runs, without what they share with their parents.
Portion = Sequence[Segment]
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
    """The results of a task for each portion of all runs, in the order of the portions.

    Args:
        ledger: The ledger whose runs these are.
        task: What to do with a portion. For an executor it must be picklable.
        executor: Does the work; None for this process, or `workers` new ones. One that loses a
            worker may run its task again: tasks only read, and each result is given once.
        workers: How many processes to start if more than 1, or how many the executor has.
        progress: Called with the number of events that are done, and of all.
    """
    if workers < 1:
        raise InvalidInputError(f"Invalid number of workers {workers}: expected 1 or more.")
    _check_executor(executor)
    total = sum(row.length for row in every_run(ledger.store))
    largest = max(min(total // (workers * PORTIONS_PER_WORKER), LARGEST_PORTION), SMALLEST_PORTION)
    done = 0
    with _pool(executor, workers) as pool:
        portions = _portions(ledger, largest)
        for size, result in _results(ledger, task, portions, pool, workers):
            done += size
            if progress is not None:
                progress(min(done, total), total)
            yield result


def _check_executor(executor: object) -> None:
    if executor is not None and not isinstance(executor, Executor):
        kind = type(executor)
        raise InvalidInputError(
            f"Invalid executor: got a {kind.__module__}.{kind.__qualname__}, expected a "
            "concurrent.futures.Executor. Pass a ThreadPoolExecutor, a ProcessPoolExecutor, or "
            "client.get_executor(pure=False) of a dask.distributed Client."
        )


def _portions(ledger: Ledger, largest: int) -> Iterator[list[Segment]]:
    portion: list[Segment] = []
    size = 0
    for row in every_run(ledger.store):
        # By a damaged row, all of the run's records are read: positions say where to stop.
        until = row.version if row.length > 0 else NO_END
        portion.append(Segment(row.run_id, row.parent_version if row.length > 0 else 0, until))
        size += row.length
        if size >= largest:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _size(portion: Portion) -> int:
    return sum(span.until - span.after for span in portion if span.until < NO_END)


def _results(
    ledger: Ledger,
    task: Task[T],
    portions: Iterator[list[Segment]],
    pool: Executor | None,
    workers: int,
) -> Iterator[tuple[int, T]]:
    if pool is None:
        for portion in portions:
            yield _size(portion), task(ledger, portion)
        return
    source = _source(ledger, pool)
    pending: deque[tuple[int, Future[T]]] = deque()
    try:
        for portion in portions:
            pending.append((_size(portion), pool.submit(_work, source, task, portion)))
            if len(pending) >= workers * IN_FLIGHT:
                size, future = pending.popleft()
                yield size, future.result()
        while pending:
            size, future = pending.popleft()
            yield size, future.result()
    finally:
        for _, future in pending:
            future.cancel()


# --- workers -----------------------------------------------------------------------


def _source(ledger: Ledger, pool: Executor) -> Ledger | str:
    """The ledger itself for threads of this process, its URL for other processes.

    Only processes that this one starts get a password, through their pipe. A cluster shows and
    logs what its tasks are called with.
    """
    if isinstance(pool, ThreadPoolExecutor):
        return ledger
    if not ledger.url or ledger.url.startswith("memory:"):
        raise InvalidInputError(
            "Other processes can't open a ledger in memory. Use one worker, or a "
            "ThreadPoolExecutor."
        )
    return ledger.url if isinstance(pool, ProcessPoolExecutor) else without_secrets(ledger.url)


@contextmanager
def _pool(executor: Executor | None, workers: int) -> Iterator[Executor | None]:
    """The given executor, or new processes if several workers are wanted, or None."""
    if executor is not None or workers == 1:
        yield executor
        return
    # Not forked: a ledger does not survive a fork, and other threads may hold locks.
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_serve) as pool:
        yield pool


# Open ledgers that no task uses just now, and what will close them.
_Idle = list[tuple[Ledger, Timer]]
# By process id and URL: an entry that a fork inherited belongs to the parent.
_idle: dict[tuple[int, str], _Idle] = {}


def _serve() -> None:
    """Initializer of a worker process: leave Ctrl-C to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _work(source: Ledger | str, task: Task[T], portion: Portion) -> T:
    if not isinstance(source, str):
        return task(source, portion)
    idle = _idle.setdefault((os.getpid(), source), [])
    try:
        ledger, closing = idle.pop()
        closing.cancel()
    except IndexError:
        ledger = _opened(source)
    try:
        return task(ledger, portion)
    finally:
        _set_aside(ledger, idle)


def _set_aside(ledger: Ledger, idle: _Idle) -> None:
    """Keep an open ledger for the next task, and close it if none comes soon."""

    def close() -> None:
        # In one step: who removes it owns it.
        with suppress(ValueError):
            idle.remove(entry)
            ledger.close()

    timer = Timer(LINGER, close)
    timer.daemon = True
    entry = (ledger, timer)
    idle.append(entry)
    timer.start()


def _opened(url: str) -> Ledger:
    try:
        return Ledger.open(url, create=False)
    except StoreUnavailableError as error:
        if "password" not in str(error):
            raise
        raise StoreUnavailableError(
            f"{error} This is a worker process, whose tasks carry no password: set PGPASSWORD, "
            "PGPASSFILE or PGSERVICE in the environment of the workers."
        ) from error
