"""Awaits coroutines from the loop's thread, which is synchronous: `async def` tools, and models.

They run on the event loop of the caller (`on_loop`), where there is one, so that they can use its
connections; else on one background loop of this process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError as NeverBegunError
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from functools import cache
from threading import Thread
from typing import Any, Generic, TypeVar

from turnledger.ledger.errors import InvalidInputError
from turnledger.runtime.agent.run_control import RunCancelled, current_run
from turnledger.runtime.agent.tools.tool import Tool

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


def callers_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of the caller; None if it has none."""
    return _CALLERS_LOOP.get()


class LoopCall(Generic[R]):
    """A coroutine on an event loop that another thread runs, with this thread's context variables.

    `done` gets its outcome when its task has ended, also one that was cancelled.
    """

    def __init__(
        self, function: Callable[[], Coroutine[Any, Any, R]], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Have it begun; RuntimeError if the event loop is closed.

        Args:
            function: Makes the coroutine, in the event loop's thread.
            loop: The event loop.
        """
        self.done: Future[R] = Future()
        self._function = function
        self._loop = loop
        self._context = copy_context()
        self._task: asyncio.Task[R] | None = None
        loop.call_soon_threadsafe(self._begin)

    def cancel(self) -> None:
        """Cancel it: it never begins, or its task is cancelled."""
        if not self.done.cancel():
            with suppress(RuntimeError):  # the event loop is closed, and with it all tasks ended
                self._loop.call_soon_threadsafe(self._cancel)

    def _begin(self) -> None:
        if not self.done.set_running_or_notify_cancel():
            return
        self._task = self._loop.create_task(self._function(), context=self._context)
        self._task.add_done_callback(self._settle)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _settle(self, task: asyncio.Task[R]) -> None:
        if task.cancelled():
            self.done.set_exception(asyncio.CancelledError("The task was cancelled."))
        elif error := task.exception():
            self.done.set_exception(error)
        else:
            self.done.set_result(task.result())


def result_of(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine to its end, with the context variables of this thread.

    An interrupt of the waiting thread (Ctrl-C) cancels it, and so does a cancelled run, which
    waits for its task to end. InvalidInputError if this thread runs the event loop that would
    have to run it: it would wait for itself.
    """
    loop = _CALLERS_LOOP.get() or _background_loop()
    if _running_loop() is loop:
        coroutine.close()
        raise InvalidInputError(
            "An async tool can't be run from the event loop's own thread: it would wait for "
            "itself. Run the agent in a thread of its own."
        )
    try:
        call = LoopCall(lambda: coroutine, loop)
    except RuntimeError:
        coroutine.close()
        raise
    run = current_run()
    with run.on_cancel(call.cancel) if run is not None else nullcontext():
        try:
            return call.done.result()
        except NeverBegunError:
            coroutine.close()
            raise RunCancelled("The run was cancelled before the tool began.") from None
        except BaseException:
            call.cancel()
            raise


def refuse_in_running_loop(tools: Iterable[Tool[Any, Any]]) -> None:
    """InvalidInputError if this thread runs an event loop, and one of the tools is async.

    A synchronous run would stop the event loop until its end, and what the tool shares with the
    program's tasks with it.
    """
    if _running_loop() is None:
        return
    names = [tool.name for tool in tools if getattr(tool, "is_async", False)]
    if names:
        raise InvalidInputError(
            f"Async tools ({', '.join(names)}) can't be run by `run` where an event loop is "
            "running: it would stop the loop until the run ends. Await `arun` instead."
        )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@cache
def _background_loop() -> asyncio.AbstractEventLoop:
    """An event loop in a thread that ends with the process."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="turnledger-async-tools", daemon=True).start()
    return loop


# A process that was forked has the event loop without its thread.
os.register_at_fork(after_in_child=_background_loop.cache_clear)
