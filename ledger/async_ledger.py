"""AsyncLedger: the whole interface of a Ledger for asyncio, over a pool of threads of its own.

The pool is wide enough for group commit to work: tasks that append at once share one flush.
asyncio's own pool is too narrow for that, and its threads are everybody's.

Cancelling leaves no doubt. A call that has not begun never will. One that has begun runs to its
end before CancelledError is raised, so nothing goes on in the background; a note on the error says
how it ended, and appending the same drafts again returns what was written, flagged as a duplicate.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from itertools import islice
from threading import Event as Flag
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from turnledger.ledger.arguments import check_arguments
from turnledger.ledger.errors import InvalidInputError, LedgerClosedError, error_text
from turnledger.ledger.ledger import LONGEST_NAP, SHORTEST_NAP, Ledger
from turnledger.ledger.runs.record import Record
from turnledger.ledger.stores.base import PAGE

# Measured with 64 tasks that append to SQLite: 202 appends a second on 1 thread, 1,374 on 4,
# 3,495 on 16, 4,887 on 64.
THREADS = 64

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
            ended = (
                f"failed: {error_text(failure)}" if failure else f"gave {waiter.result()!r:.200}"
            )
            cancelled.add_note(f"The call had begun, and was waited for. It {ended}")
            raise

    # --- writing ---

    append = _awaited(Ledger.append)
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
