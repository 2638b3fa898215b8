"""AsyncLedger: the whole interface of a Ledger for asyncio, over a pool of threads of its own.

Tasks that append at once share one thread and one flush: their appends go into a queue, a thread
of the pool takes all that are in it, and hands the outcomes back to a loop in one call. Everything
else is a call in a thread of its own; asyncio's own pool is too narrow, and its threads are
everybody's.

Cancelling leaves no doubt. A call that has not begun never will. One that has begun runs to its
end before CancelledError is raised, so nothing goes on in the background; a note on the error says
how it ended, and appending the same drafts again returns what was written, flagged as a duplicate.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial, wraps
from itertools import islice
from threading import Event as Flag
from threading import Lock
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from turnledger.ledger.arguments import check_arguments
from turnledger.ledger.errors import (
    InvalidInputError,
    LedgerClosedError,
    StoreUnavailableError,
    error_text,
)
from turnledger.ledger.ledger import LONGEST_NAP, SHORTEST_NAP, Appended, Ledger, drafts_of
from turnledger.ledger.runs.append import AppendRequest, append
from turnledger.ledger.runs.append_request import Appendable, Expected, Known, RunId, build_request
from turnledger.ledger.runs.record import Record
from turnledger.ledger.runs.transaction import Transaction
from turnledger.ledger.stores.base import PAGE
from turnledger.ledger.stores.group_commit import MAX_GROUP, Job

# Calls other than appends that may run at once; on PostgreSQL they wait for the network.
THREADS = 64
# How many threads append for tasks at once: one encodes while the other one's flush is under way.
APPENDERS = 2

P = ParamSpec("P")
R = TypeVar("R")


def _awaited(
    method: Callable[Concatenate[Ledger, P], R],
) -> Callable[Concatenate[AsyncLedger, P], Coroutine[Any, Any, R]]:
    """A method of Ledger as a coroutine of AsyncLedger."""

    @wraps(method)
    async def awaited(self: AsyncLedger, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.call(partial(_of(self.ledger, method), *args, **kwargs))

    return awaited


def _paged(
    method: Callable[Concatenate[Ledger, P], Iterator[R]],
) -> Callable[Concatenate[AsyncLedger, P], AsyncGenerator[R, None]]:
    """A method of Ledger that iterates as an async generator: a page is one call."""

    @wraps(method)
    async def paged(
        self: AsyncLedger, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[R, None]:
        size: Any = kwargs.get("page_size", PAGE)
        items = await self.call(partial(_of(self.ledger, method), *args, **kwargs))

        def next_page() -> list[R]:
            first = list(islice(items, 1))  # a generator checks its arguments, `size` too, by then
            return first and [*first, *islice(items, size - 1)]

        while page := await self.call(next_page):
            for item in page:
                yield item

    return paged


def _of(ledger: Ledger, method: Callable[Concatenate[Ledger, P], R]) -> Callable[P, R]:
    """The method of this ledger, which may be of a class of its own."""
    bound: Callable[P, R] = getattr(ledger, method.__name__)
    return bound


class _OnePage(Flag):
    """A stop flag for `Ledger.tail`: ends a follower after its first read."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = False

    def is_set(self) -> bool:
        before, self._asked = self._asked, True
        return before


class _Append(Job[Transaction]):
    """An append of a task: what is asked, and the future that the task waits for."""

    __slots__ = ("ask", "context", "ended", "loop", "request", "settled", "waiter")

    def __init__(self, ask: Callable[[], AppendRequest], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(self._refuse)
        self.ask = ask
        self.context: Context = copy_context()
        self.loop = loop
        self.request: AppendRequest | None = None
        # The first to take it decides: the append begins, or was cancelled before.
        self.settled = Lock()
        # Only the loop's thread uses these.
        self.ended = False
        self.waiter: asyncio.Future[None] = loop.create_future()

    @staticmethod
    def _refuse(tx: Transaction) -> None:
        raise RuntimeError("An append was begun before it was encoded.")

    def begin(self) -> bool:
        return self.settled.acquire(blocking=False)

    def is_encoded(self, ledger: Ledger) -> bool:
        """Encode the events; False if they are refused, and the error is noted."""
        try:
            self.request = self.context.run(self.ask)
        except BaseException as error:
            self.error = error
            self.begin()
            return False
        self.work = partial(append, request=self.request, clock=ledger.clock)
        return True

    def end(self) -> None:
        """Let the task go on. In the loop's thread."""
        self.ended = True
        if not self.waiter.done():
            self.waiter.set_result(None)

    async def outcome(self, ledger: Ledger) -> Appended:
        """Wait for what becomes of it, also when cancelled once it has begun."""
        try:
            await self.waiter
        except asyncio.CancelledError as cancelled:
            if self.begin():
                raise
            while not self.ended:
                self.waiter = self.loop.create_future()
                with suppress(asyncio.CancelledError):
                    await self.waiter  # it has begun: there is nothing to do but to wait
            _note(cancelled, self.error, self.result if self.error else self._appended(ledger))
            raise
        if self.error is not None:
            if isinstance(self.error, StoreUnavailableError) and self.request is not None:
                self.error.drafts = drafts_of(self.request)
            raise self.error
        return self._appended(ledger)

    def _appended(self, ledger: Ledger) -> Appended:
        assert self.request is not None
        return Appended(self.result, self.request.entries, ledger.codec)


class _Appends:
    """The appends of tasks that wait for a thread, which takes all of them at once."""

    def __init__(self, ledger: Ledger, pool: ThreadPoolExecutor) -> None:
        self._ledger = ledger
        self._pool = pool
        # Guards the fields below; held for a few statements.
        self._mutex = Lock()
        self._waiting: deque[_Append] = deque()
        self._threads = 0

    def add(self, one: _Append) -> None:
        """Queue an append. RuntimeError if the pool is shut down."""
        with self._mutex:
            self._waiting.append(one)
            starts = self._threads < APPENDERS
            self._threads += starts
        if starts:
            try:
                self._pool.submit(self._commit)
            except RuntimeError:
                with self._mutex:
                    self._threads -= 1
                raise

    def _commit(self) -> None:
        """Commit what waits, once; another call in the pool's queue does the rest, in its turn."""
        with self._mutex:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_GROUP))]
        encoded = [one for one in taken if one.is_encoded(self._ledger)]
        try:
            if encoded:
                self._ledger.store.write_all(encoded)
        except BaseException as error:
            for one in encoded:
                one.begin()
                one.error = one.error or type(error)(*error.args)
        loops: dict[asyncio.AbstractEventLoop, list[_Append]] = {}
        for one in taken:
            loops.setdefault(one.loop, []).append(one)
        for loop, ended in loops.items():
            with suppress(RuntimeError):  # the loop was closed: no task waits any more
                loop.call_soon_threadsafe(_end_all, ended)
        with self._mutex:
            if not self._waiting:
                self._threads -= 1
                return
        try:
            self._pool.submit(self._commit)
        except RuntimeError:
            self._commit()  # the pool was shut down: what still waits is told so by the store


def _appends_to_store(ledger: Ledger) -> bool:
    """Whether an append does nothing but write to the store: a client of a server sends it."""
    given: Any = ledger.append, ledger._append
    return [getattr(one, "__func__", None) for one in given] == [Ledger.append, Ledger._append]


def _end_all(ended: list[_Append]) -> None:
    for one in ended:
        one.end()


def _note(cancelled: BaseException, failure: BaseException | None, result: object) -> None:
    ended = f"failed: {error_text(failure)}" if failure else f"gave {result!r:.200}"
    cancelled.add_note(f"The call had begun, and was waited for. It {ended}")


class Opening:
    """An AsyncLedger to be: `await` it, or enter it with `async with`."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, AsyncLedger]]) -> None:
        self._make = make
        self._made: AsyncLedger | None = None

    def __await__(self) -> Generator[Any, None, AsyncLedger]:
        return self._make().__await__()

    async def __aenter__(self) -> AsyncLedger:
        self._made = await self._make()
        return self._made

    async def __aexit__(self, *raised: object) -> None:
        if self._made is not None:
            await self._made.close()


class AsyncLedger:
    """A ledger for asyncio: every method of Ledger, awaited; what iterates is an async generator.

        async with AsyncLedger.open("runs.db") as ledger:
            await ledger.append(run, event, expected_version=NEW)
            async for record in ledger.read(run):
                ...

    It may be used by several event loops, and the Ledger beneath it by threads at the same time.

    Args:
        ledger: An open ledger.
        threads: How many calls may run at once.
    """

    @check_arguments
    def __init__(self, ledger: Ledger, *, threads: int = THREADS) -> None:
        if not 1 <= threads <= 1000:
            raise InvalidInputError(f"Invalid threads {threads}: expected 1 to 1,000.")
        self.ledger = ledger
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="turnledger")
        self._appends = _Appends(ledger, self._pool)

    @classmethod
    @check_arguments
    def open(
        cls, url: str | os.PathLike[str], *, threads: int = THREADS, **settings: Any
    ) -> Opening:
        """Open a ledger: `await AsyncLedger.open(url)`, or `async with AsyncLedger.open(url)`.

        Args:
            url: A path or `sqlite:///file`, `postgresql://...`, or `memory://`.
            threads: How many calls may run at once.
            settings: As for `Ledger.open`.
        """

        async def make() -> AsyncLedger:
            opened = await asyncio.to_thread(partial(Ledger.open, url, **settings))
            try:
                return cls(opened, threads=threads)
            except BaseException:
                opened.close()
                raise

        return Opening(make)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the ledger, and the pool once the calls that run have ended; again is harmless."""
        try:
            await self.call(self.ledger.close)
        except LedgerClosedError:
            pass  # the pool was shut down by an earlier `close`
        finally:
            self._pool.shutdown(wait=False)

    async def call(self, work: Callable[[], R]) -> R:
        """Run a function of the ledger's in the pool, with the caller's context variables.

        What takes a Ledger is called so: `await ledger.call(lambda: state_at(ledger.ledger, run))`.
        """
        try:
            future = self._pool.submit(copy_context().run, work)
        except RuntimeError as error:  # the pool is shut down
            raise LedgerClosedError("This ledger was closed. Open it again.") from error
        waiter = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(waiter)
        except asyncio.CancelledError as cancelled:
            if future.cancel():
                raise
            while not waiter.done():
                try:
                    await asyncio.wait([waiter])
                except asyncio.CancelledError:
                    continue  # it has begun: there is nothing to do but to wait
            failure = waiter.exception()
            _note(cancelled, failure, None if failure else waiter.result())
            raise

    # --- writing ---

    @wraps(Ledger.append)
    async def append(
        self,
        run_id: RunId,
        events: Appendable | Iterable[Appendable],
        expected_version: int | Expected,
        epoch: int | None = None,
        *,
        blobs: Iterable[bytes] = (),
        known: Known = "refuse",
    ) -> Appended:
        """Append events to a run; appends of tasks at the same time share a thread and a flush.

        Args:
            run_id: The run.
            events: As for `Ledger.append`, and so are the others.
            expected_version: The version that the run must have, NEW or ANY.
            epoch: The epoch of the worker's claim, if the run is claimed.
            blobs: Bytes that the events name by `blob_name`.
            known: What becomes of events whose ids are recorded already.
        """
        ledger = self.ledger
        if not _appends_to_store(ledger):
            given = partial(ledger.append, run_id, events, expected_version, epoch)
            return await self.call(partial(given, blobs=blobs, known=known))
        ask = partial(
            build_request,
            run_id,
            events,
            expected_version,
            epoch,
            blobs,
            ledger.codec,
            ledger.clock,
            known,
        )
        one = _Append(ask, asyncio.get_running_loop())
        try:
            self._appends.add(one)
        except RuntimeError as error:  # the pool is shut down
            raise LedgerClosedError("This ledger was closed. Open it again.") from error
        return await one.outcome(ledger)

    fork = _awaited(Ledger.fork)
    continuation = _awaited(Ledger.continuation)

    # --- reading ---

    read = _paged(Ledger.read)
    runs = _paged(Ledger.runs)
    record = _awaited(Ledger.record)
    head = _awaited(Ledger.head)
    run = _awaited(Ledger.run)
    blob = _awaited(Ledger.blob)

    async def tail(
        self, after: int = 0, *, follow: bool = False, page_size: int = PAGE
    ) -> AsyncGenerator[Record, None]:
        """All records of the ledger after a position, in order, none missed, none twice.

        Args:
            after: Records with a higher position than this.
            follow: Wait for more, from any process, until the generator is closed. No thread is
                held meanwhile.
            page_size: How many records are read from the store at a time.
        """
        nap = SHORTEST_NAP
        while True:
            read = partial(
                self.ledger.tail, after, follow=follow, stop=_OnePage(), page_size=page_size
            )
            page = await self.call(lambda read=read: list(read()))  # type: ignore[misc]
            for record in page:
                yield record
            if page:
                after, nap = page[-1].position, SHORTEST_NAP
            elif follow:
                await asyncio.sleep(nap)
                nap = min(nap * 2, LONGEST_NAP)
            else:
                return

    # --- claims ---

    claim = _awaited(Ledger.claim)
    begin = _awaited(Ledger.begin)
    resume_claim = _awaited(Ledger.resume_claim)
    enqueue = _awaited(Ledger.enqueue)
    claim_next = _awaited(Ledger.claim_next)
    worker_of = _awaited(Ledger.worker_of)
    heartbeat = _awaited(Ledger.heartbeat)
    release = _awaited(Ledger.release)

    # --- keeping ---

    verify = _awaited(Ledger.verify)
    verify_all = _awaited(Ledger.verify_all)
    rebuild_index = _awaited(Ledger.rebuild_index)
    rebase = _awaited(Ledger.rebase)
