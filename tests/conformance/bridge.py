"""A synchronous bridge to asynchronous ledgers, so that one suite tests both kinds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from threading import Event as Flag
from threading import Thread
from typing import Any, Self, TypeVar

from tests.conformance.ledger_like import METHODS
from turnledger.ledger import Claim

R = TypeVar("R")
# Seconds between looks at a follower's `stop`.
LOOK = 0.005
_DONE = object()


class LoopThread:
    """An event loop in a thread of its own, which runs the coroutines of other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="event loop under test")
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """What the coroutine gives or raises."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def end(self, items: AsyncGenerator[Any, None]) -> None:
        """Close a generator soon; without a wait, since its reader may be collected anywhere."""
        if self._loop.is_running():
            asyncio.run_coroutine_threadsafe(items.aclose(), self._loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Bridge:
    """A LedgerLike over an asynchronous ledger: each call is a coroutine on the loop.

    Args:
        ledger: An AsyncLedger, or what has its methods.
        loop: Where its coroutines run.
    """

    def __init__(self, ledger: Any, loop: LoopThread) -> None:
        self._ledger = ledger
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in METHODS:
            raise AttributeError(f"{name} is not of the surface that LedgerLike lists")
        method = getattr(self._ledger, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = method(*args, **kwargs)
            if isinstance(made, AsyncGenerator):
                return self._iterate(made)
            result = self._loop.run(made)
            if isinstance(result, Claim):
                result._ledger = self  # its own methods come through here, too
            return result

        return call

    def tail(self, *args: Any, stop: Flag | None = None, **kwargs: Any) -> Iterator[Any]:
        """As `Ledger.tail`. An asynchronous follower has no `stop`: it is cancelled and closed."""
        return self._iterate(self._ledger.tail(*args, **kwargs), stop)

    def _iterate(self, items: AsyncGenerator[Any, None], stop: Flag | None = None) -> Iterator[Any]:
        try:
            while (item := self._loop.run(_next(items, stop))) is not _DONE:
                yield item
        finally:
            self._loop.end(items)

    def close(self) -> None:
        self._loop.run(self._ledger.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


async def _next(items: AsyncGenerator[Any, None], stop: Flag | None) -> Any:
    """The next item, or _DONE at the end or once `stop` is set."""
    if stop is None:
        return await anext(items, _DONE)
    step = asyncio.ensure_future(anext(items, _DONE))
    while not stop.is_set():
        await asyncio.wait([step], timeout=LOOK)
        if step.done():
            return step.result()
    step.cancel()
    await asyncio.wait([step])
    return _DONE
