"""An SDK's async clients: one for each event loop, as their connections belong to one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

# Seconds until an event loop in another thread has closed its client.
PATIENCE = 5.0


class AsyncClients:
    """Makes a client at the first request of an event loop, and closes it with that loop.

    Args:
        make: Makes a client; called in a thread, as it reads certificates.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._held: dict[asyncio.AbstractEventLoop, _Held] = {}

    async def of_this_loop(self) -> Any:
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            client = await asyncio.to_thread(self._make)
            held = self._held.get(loop)  # another run may have made one meanwhile
            if held is not None:
                await _close(client)
                return held.client
            held = self._held[loop] = _Held(client, lambda: self._held.pop(loop, None))
            await held.open()
        return held.client

    def close(self) -> None:
        """Close all clients, from any thread.

        That of an event loop that runs in this thread is closed as soon as the loop goes on. One
        whose loop is closed went with it, and one whose loop stands still is left to its end.
        """
        for loop, held in list(self._held.items()):
            if loop.is_closed():
                del self._held[loop]
            elif loop is asyncio._get_running_loop():
                held.closing = loop.create_task(held.close())
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(held.close(), loop)
                with suppress(TimeoutError):
                    closing.result(PATIENCE)


class _Held:
    """A client whose event loop closes it when it shuts down: it does that to async generators."""

    def __init__(self, client: Any, forget: Callable[[], object]) -> None:
        self.client = client
        self.closing: asyncio.Task[None] | None = None
        self._generator = _closed_in_the_end(client, forget)

    async def open(self) -> None:
        """Have the event loop know of it."""
        await anext(self._generator)

    async def close(self) -> None:
        await self._generator.aclose()


async def _closed_in_the_end(
    client: Any, forget: Callable[[], object]
) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        forget()
        await _close(client)


async def _close(client: Any) -> None:
    close = getattr(client, "aclose", None) or getattr(client, "close", None)
    if close is not None:
        await close()
