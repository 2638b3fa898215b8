"""Threads for the ledger's calls: appends, reads and folds each have a limit of their own.

A fold of a long run takes seconds of one thread. With its own limiter it never makes a page of
events wait, and one whose client has gone is told to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def end() -> None:
            if not ended.done():
                ended.set_result(None)

        def wake(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(end)

        under_way = self._appends.submit(call)
        under_way.add_done_callback(wake)
        try:
            await ended
        except asyncio.CancelledError:
            # The ledger is not closed under a call that writes.
            await asyncio.wait((asyncio.wrap_future(under_way),))
            raise
        return under_way.result()

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
