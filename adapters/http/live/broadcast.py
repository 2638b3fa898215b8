"""Broadcast: one follower of the ledger for the whole process, and a bounded queue a client.

A thread follows the ledger (`Ledger.tail`), which gives the records of all processes in order of
position, each once. It hands them to the event loop; there, and only there, clients join, leave
and get messages. A client that joins is told the position that was broadcast last: up to there it
reads the store, and everything above comes through its queue.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Condition, Thread
from threading import Event as Flag
from typing import Final

from turnledger.adapters.http.live.messages import Message
from turnledger.ledger import Ledger, LedgerClosedError
from turnledger.ledger.errors import error_message
from turnledger.ledger.redaction.safe_logging import logger_of

log: Final = logger_of("turnledger.http.live")
# The most that a queue holds, in messages and in bytes of their data.
QUEUE, QUEUE_BYTES = 2048, 1024 * 1024
# The most that the thread hands over at once. Clients are written to between two of these, so
# that one large append does not fill the queue of a client that keeps up.
HANDFUL, HANDFUL_BYTES = 256, 256 * 1024
# Seconds until a follower that lost the store tries again.
PAUSE = 1.0


class ClientQueue:
    """Bounded queue of the messages for one client.

    Args:
        run: Only messages of this run; None is the whole ledger.
        start: The position that was broadcast last when the client joined.
        on_end: Called when the broadcast closes it: the client was too slow, or the server stops.
    """

    def __init__(self, run: str | None, start: int, on_end: Callable[[], None]) -> None:
        self.run = run
        self.start = start
        self.is_closed = False
        self._on_end = on_end
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()

    def put(self, message: Message) -> None:
        """Add a message; a queue that has no room for it is closed."""
        if self.is_closed:
            return
        if len(self._messages) >= QUEUE or (
            self._messages and self._bytes + message.size > QUEUE_BYTES
        ):
            self.close()
            return
        self._messages.append(message)
        self._bytes += message.size
        self._filled.set()

    def take(self) -> list[Message]:
        """Remove all messages from the queue, and return them."""
        taken = list(self._messages)
        self._messages.clear()
        self._bytes = 0
        self._filled.clear()
        return taken

    async def wait(self) -> None:
        """Wait until there is a message."""
        await self._filled.wait()

    def close(self) -> None:
        """Drop the messages and end the stream; the client resumes after the last one it got."""
        if not self.is_closed:
            self.is_closed = True
            self.take()
            self._on_end()


class Broadcast:
    """Follows a ledger and hands its new records to all clients.

    Args:
        ledger: The ledger; it stays open.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queues: defaultdict[str | None, set[ClientQueue]] = defaultdict(set)
        # The position that was broadcast last: all records up to it can be read from the store.
        self.position = 0
        self._begun = asyncio.Event()
        self._thread: Thread | None = None
        self._stop = Flag()
        self._room = Condition()
        self._handful: list[Message] = []
        self._handful_bytes = 0

    # --- in the event loop ---

    async def begin(self) -> None:
        """Follow the ledger, if this is the first client; returns when `position` is known."""
        if self._thread is None:
            self._thread = Thread(
                target=self._follow,
                args=(asyncio.get_running_loop(),),
                name="turnledger-broadcast",
                daemon=True,
            )
            self._thread.start()
        await self._begun.wait()

    @contextmanager
    def join(self, run: str | None, on_end: Callable[[], None]) -> Iterator[ClientQueue]:
        """A queue that gets all messages above its `start`.

        Args:
            run: Only messages of this run; None is the whole ledger.
            on_end: Called when the queue is closed before the client leaves.
        """
        queue = ClientQueue(run, self.position, on_end)
        self._queues[run].add(queue)
        try:
            yield queue
        finally:
            self._queues[run].discard(queue)
            if not self._queues[run]:
                del self._queues[run]

    def publish(self, messages: Iterable[Message]) -> None:
        """Give messages to the clients that they are for."""
        for message in messages:
            self.position = message.position
            for key in (None, message.run):
                for queue in tuple(self._queues.get(key, ())):
                    queue.put(message)

    async def close(self) -> None:
        """End all clients' streams and the thread."""
        self._stop.set()
        self._end_clients()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _end_clients(self) -> None:
        for queue in [queue for queues in self._queues.values() for queue in queues]:
            queue.close()

    def _take_handful(self) -> None:
        with self._room:
            messages, self._handful, self._handful_bytes = self._handful, [], 0
            self._room.notify()
        self.publish(messages)
        self._begun.set()

    # --- in the thread ---

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        after: int | None = None
        while not self._stop.is_set():
            try:
                if after is None:
                    after = self._first(loop)
                for record in self._ledger.tail(after, follow=True, stop=self._stop):
                    after = record.position
                    self._hand_over(Message(record), loop)
            except LedgerClosedError:
                return
            except Exception as error:
                if loop.is_closed():
                    return
                # From the same place again: clients stay, and miss nothing.
                log.warning("Following the ledger is interrupted: %s", error_message(error))
                self._stop.wait(PAUSE)

    def _first(self, loop: asyncio.AbstractEventLoop) -> int:
        """Where to begin: just before the last record, so that it comes first.

        A follower gives only what a synchronous standby has confirmed: with that record, all
        before it is confirmed too, and clients can read it from the store.
        """
        last = self._ledger.store.last_position()
        if last is None:
            loop.call_soon_threadsafe(self._begun.set)
        return -1 if last is None else last - 1

    def _hand_over(self, message: Message, loop: asyncio.AbstractEventLoop) -> None:
        with self._room:
            while self._is_full() and not self._stop.is_set():
                self._room.wait(PAUSE)
            self._handful.append(message)
            self._handful_bytes += message.size
            is_first = len(self._handful) == 1
        if is_first:
            loop.call_soon_threadsafe(self._take_handful)

    def _is_full(self) -> bool:
        return len(self._handful) >= HANDFUL or self._handful_bytes >= HANDFUL_BYTES
