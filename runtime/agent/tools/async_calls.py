"""Awaits coroutines of `async def` tools from the loop's thread, which is synchronous.

They run on the event loop of the caller (`on_loop`), where there is one, so that they can use its
connections; else on one background loop of this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from threading import Thread
from typing import Any, TypeVar

from turnledger.ledger.errors import InvalidInputError

R = TypeVar("R")

_CALLERS_LOOP: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar(
    "turnledger_loop", default=None
)


@contextmanager
def on_loop(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Within this context, coroutines run on this event loop, which another thread runs."""
    token = _CALLERS_LOOP.set(loop)
    try:
        yield
    finally:
        _CALLERS_LOOP.reset(token)


def result_of(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine to its end, with the context variables of this thread.

    An interrupt of the waiting thread (Ctrl-C) cancels it. InvalidInputError if this thread runs
    the event loop that would have to run it: it would wait for itself.
    """
    loop = _CALLERS_LOOP.get() or _background_loop()
    if _is_running_here(loop):
        coroutine.close()
        raise InvalidInputError(
            "An async tool can't be run from the event loop's own thread: it would wait for "
            "itself. Run the agent in a thread of its own."
        )
    done: Future[R] = Future()
    context = copy_context()

    def begin() -> None:
        task = loop.create_task(coroutine, context=context)
        task.add_done_callback(settle)
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(task.cancel))

    def settle(task: asyncio.Task[R]) -> None:
        if done.cancelled():
            return
        if task.cancelled():
            done.set_exception(asyncio.CancelledError("The tool's task was cancelled."))
        elif error := task.exception():
            done.set_exception(error)
        else:
            done.set_result(task.result())

    loop.call_soon_threadsafe(begin)
    try:
        return done.result()
    except BaseException:
        done.cancel()
        raise


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


@cache
def _background_loop() -> asyncio.AbstractEventLoop:
    """An event loop in a thread that ends with the process."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="turnledger-async-tools", daemon=True).start()
    return loop
