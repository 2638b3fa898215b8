"""Threads for the ledger's calls: appends, reads and folds each have a limit of their own.

A fold of a long run takes seconds of one thread. With its own limiter it never makes a page of
events wait, and one whose client has gone is told to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Event as Flag
from typing import TypeVar

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request

R = TypeVar("R")

# Appends wait for a flush that they share (group commit): many of them, cheap.
APPENDS, READS, FOLDS = 64, 16, 2


class ClientGoneError(Exception):
    """The client disconnected before its answer was ready; no answer is sent."""


class Work:
    """Runs calls of the ledger in threads."""

    def __init__(self) -> None:
        self._appends = ThreadPoolExecutor(APPENDS, "append")
        self._reads = CapacityLimiter(READS)
        self._folds = CapacityLimiter(FOLDS)

    async def append(self, call: Callable[[], R]) -> R:
        """A call that writes, or that takes a lock for a moment."""
        # By hand: anyio, and asyncio with a shield, need more turns of the event loop.
        ended: asyncio.Future[Future[R]] = asyncio.get_running_loop().create_future()

        def end(done: Future[R]) -> None:
            if not ended.done():
                ended.set_result(done)

        self.start_append(call, end)
        return (await ended).result()

    def start_append(self, call: Callable[[], R], ended: Callable[[Future[R]], None]) -> None:
        """Begin such a call; `ended` is called in the event loop."""
        loop = asyncio.get_running_loop()

        def wake(done: Future[R]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended, done)

        self._appends.submit(call).add_done_callback(wake)

    async def close(self) -> None:
        """Wait for the calls that write: the ledger is not closed under them."""
        begun, self._appends = self._appends, ThreadPoolExecutor(APPENDS, "append")
        await to_thread.run_sync(begun.shutdown)

    async def read(self, call: Callable[[], R]) -> R:
        """A call that reads a bounded number of rows."""
        return await to_thread.run_sync(call, limiter=self._reads)

    async def fold(self, request: Request, call: Callable[[Flag], R]) -> R:
        """A call that may read a whole run. Its flag is set when the client has gone.

        Raises:
            ClientGoneError: The client went away.
        """
        gone = Flag()
        result: list[R] = []
        failed: list[Exception] = []
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                while (await request.receive())["type"] != "http.disconnect":
                    pass
                gone.set()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            try:
                result.append(await to_thread.run_sync(partial(call, gone), limiter=self._folds))
            except Exception as error:
                failed.append(error)  # raised below: a task group would wrap it
            tasks.cancel_scope.cancel()
        if gone.is_set():
            raise ClientGoneError
        if failed:
            raise failed[0]
        return result[0]
