"""Runs the synchronous loop for asyncio: a thread for each run, few of them at work at once.

`async def` tools and models that can be awaited run on the caller's event loop. Everything else of
the loop stays as it is: there is no second copy of it.

Cancelling: the loop begins nothing further, an awaited tool or model is cancelled, and a handler
that can't be is left behind with its call in doubt. CancelledError is raised when the run's claim
is released, so that `recover` may follow at once. A commit that is under way ends first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from threading import Thread
from typing import Final, TypeVar

from turnledger.ledger.errors import error_text
from turnledger.runtime.agent.run_control import RunCancelled, RunControl, new_thread
from turnledger.runtime.agent.tools.async_calls import on_loop

R = TypeVar("R")
EventT = TypeVar("EventT")


async def run_async(work: Callable[[], R]) -> R:
    """Run `loop.execute`, `loop.recover` or the like in a thread, with the caller's context.

    Cancelling this task cancels the run, and waits until its claim is released.
    """
    control = RunControl()
    loop = asyncio.get_running_loop()

    def run() -> R:
        with on_loop(loop):
            return control.run(work)

    ended, thread = new_thread(run, "turnledger-run")
    _starter().submit(_start, thread, ended)
    outcome = asyncio.wrap_future(ended)
    try:
        return await asyncio.shield(outcome)
    except asyncio.CancelledError as cancelled:
        if not outcome.done():
            control.cancel()
            await _ended(outcome)
        failure = outcome.exception()
        if failure is None:
            cancelled.add_note("The run had reached its end: nothing is left to recover.")
        elif not isinstance(failure, RunCancelled | asyncio.CancelledError):
            cancelled.add_note(f"The run had ended: {error_text(failure)}")
        raise


async def stream_async(
    work: Callable[[Callable[[EventT], None]], object],
) -> AsyncGenerator[EventT, None]:
    """Run `work` as `run_async` does, and yield what it gives to the function that it gets.

    What `work` raises is raised after its last event. Leaving the generator early cancels the
    run: close it (`contextlib.aclosing`) to wait until its claim is released. Events wait in
    memory for a caller that is slow, at most the text of the run; the run does not wait for it.
    """
    events: asyncio.Queue[EventT | _End] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def tell(event: EventT) -> None:
        loop.call_soon_threadsafe(events.put_nowait, event)

    task = asyncio.create_task(run_async(partial(work, tell)))
    task.add_done_callback(lambda _: events.put_nowait(_END))
    try:
        while not isinstance(event := await events.get(), _End):
            yield event
        await task
    finally:
        task.cancel()
        await _ended(task)


@cache
def _starter() -> ThreadPoolExecutor:
    """Starts threads: each start waits for the new thread, and would hold the event loop up."""
    return ThreadPoolExecutor(1, "turnledger-starter")


# A process that was forked has the executor without its thread.
os.register_at_fork(after_in_child=_starter.cache_clear)


def _start(thread: Thread, ended: Future[R]) -> None:
    try:
        thread.start()
    except BaseException as error:  # the process may have no more threads
        ended.set_exception(error)


class _End:
    """Marks the end of a stream's events."""


_END: Final = _End()


async def _ended(future: asyncio.Future[R]) -> None:
    """Wait until it is done, however often the waiting task is cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()  # it is retrieved, whoever wants it
