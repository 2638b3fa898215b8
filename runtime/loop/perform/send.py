"""Sends a model request so that it can be cancelled, where the run has a thread of its own.

An adapter with `send_async` is awaited on the caller's event loop: cancelling closes its
connection. The `send` of any other runs in a thread that is left behind. Text comes to the run's
own thread in both cases, as listeners are called there.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any

from turnledger.runtime.agent.models.request import Sending
from turnledger.runtime.agent.run_control import (
    GRACE,
    RunCancelled,
    RunControl,
    current_run,
    in_thread,
    wait_for_one,
)
from turnledger.runtime.loop.context import Provider


def send(adapter: Provider, payload: Any, sending: Sending) -> Any:
    """Send a payload and return the provider's answer."""
    run = current_run()
    if run is None:
        return adapter.send(payload, sending)
    run.check()
    exchange = _Exchange(run, adapter, payload, sending)
    with run.on_cancel(exchange.abandon):
        try:
            return exchange.answer()
        except BaseException:
            exchange.abandon()
            raise


class _Exchange:
    """One request and its answer, which come about in another thread."""

    def __init__(self, run: RunControl, adapter: Provider, payload: Any, sending: Sending) -> None:
        self._run = run
        self._on_text = sending.on_text
        # Pieces of text, then None: the answer is there, or nobody waits for it any more.
        self._pieces: SimpleQueue[str | None] = SimpleQueue()
        self._abandoned = False
        if sending.on_text is not None:
            sending = replace(sending, on_text=self._take)
        self._done: Future[Any]
        self._cancel: Callable[[], object]
        # How long a cancelled one is waited for: an awaited one closes its connection.
        self._grace = 0.0
        self._begin(adapter, payload, sending)
        self._done.add_done_callback(lambda _: self._pieces.put(None))

    def _begin(self, adapter: Provider, payload: Any, sending: Sending) -> None:
        if adapter.sends_async:
            from turnledger.runtime.agent.tools.async_calls import (
                LoopCall,  # and with it asyncio
                callers_loop,
            )

            loop = callers_loop()
            if loop is not None:
                call = LoopCall(partial(adapter.send_async, payload, sending), loop)
                self._done, self._cancel, self._grace = call.done, call.cancel, GRACE
                return
        self._done = in_thread(partial(adapter.send, payload, sending), "turnledger-model")
        self._cancel = self._done.cancel

    def answer(self) -> Any:
        """The provider's answer; text is told in this thread until then."""
        while self._on_text is not None:
            with self._run.waiting():
                piece = self._pieces.get()
            if piece is None:
                break
            self._run.check()
            self._on_text(piece)
        wait_for_one([self._done], grace=self._grace)
        return self._done.result()

    def abandon(self) -> None:
        """Have it end: its answer is not wanted."""
        if not self._abandoned:
            self._abandoned = True
            self._cancel()
            self._pieces.put(None)

    def _take(self, text: str) -> None:
        if not self._abandoned:
            self._pieces.put(text)
        elif not self._grace:
            # In a thread that was left behind: so it leaves the stream, and closes the connection.
            raise RunCancelled("The run was cancelled: nobody waits for the answer.")
