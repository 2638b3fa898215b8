"""Connection of the server: uvicorn's HTTP/1.1 protocol with the limits that it lacks.

uvicorn waits for a head as long as a client sends a byte now and then, for a client that reads
nothing, and takes any number of connections. Timers here end those. The times and sizes of
bodies are limited where they are read (`limits.py`).
"""

from __future__ import annotations

import re
import sys
from asyncio import Transport
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Any, Protocol, cast

import h11
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.serving.limits import LimitBodies, full, refusal

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from uvicorn.config import Config

# A connection with unread input is not closed at once: the kernel would reset it, and the client
# might never see the answer. For so long what still comes is read and dropped, up to this much.
LINGER_SECONDS = 2.0
LINGER_BYTES = 1024 * 1024
_HEAD = b"HTTP/1."
# Bytes of a body that is written with its head.
_SMALL = 256 * 1024
# h11 repeats the line that it refuses, which may have a token in it.
_QUOTED = re.compile(r":? (bytearray\(|b['\"]).*", re.DOTALL)


class Plain(Protocol):
    """The head of a plain request."""

    @property
    def size(self) -> int:
        """Bytes of the request, its head included."""


class Quick(Protocol):
    """Answers plain requests in place of h11 and the application."""

    def head(self, data: bytes) -> Plain | None:
        """The head of the plain request that begins here; None if it is not plain."""

    def answer(
        self, head: Any, request: bytes, answered: Callable[[Response | None], None]
    ) -> None:
        """Answer a whole request: `answered` is called later, in the event loop.

        With None it leaves the request to the application.
        """


class Connections(ServerState):
    """The open connections of a server, and what they share.

    Args:
        bodies: The bodies under way, and the limits of the server.
        quick: Answers plain requests.
    """

    def __init__(self, bodies: LimitBodies, quick: Quick | None) -> None:
        super().__init__()
        self.bodies, self.limits = bodies, bodies.limits
        self.quick = quick
        # Those whose request's head is not complete, the one that waits longest first.
        self.waiting: dict[GuardedConnection, None] = {}

    def guarded(self) -> tuple[GuardedConnection, ...]:
        """The open connections; uvicorn's type of them names its own classes."""
        return cast("tuple[GuardedConnection, ...]", tuple(self.connections))

    def make_room(self, new: GuardedConnection) -> None:
        """Keep to the limit: close the one that has waited longest, or refuse the new one."""
        if len(self.connections) <= self.limits.connections:
            return
        oldest = next(iter(self.waiting))
        if oldest is new:
            new.refuse(full(f"The server has {self.limits.connections} connections."))
        else:
            oldest.abort()


class GuardedConnection(H11Protocol):
    """HTTP/1.1 connection with limits.

    Args:
        config: uvicorn's settings, with the application.
        shared: The open connections.
        app_state: State of the application's lifespan.
    """

    server_state: Connections

    def __init__(self, config: Config, shared: Connections, app_state: dict[str, Any]) -> None:
        super().__init__(config, shared, app_state)
        self._limits = shared.limits
        self._timer: TimerHandle | None = None  # for the head, then for hanging up
        self._write_timer: TimerHandle | None = None
        self._hung_up = False
        self._dropped = 0  # bytes that came since
        self._early = b""  # what h11 is not given: a plain request, and what came after it
        self._plain = 0  # bytes of the plain request that is being answered
        self._is_last = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self._socket = transport
        self._written = _HangingUp(transport, self)
        super().connection_made(cast(Transport, self._written))
        self._await_head()
        self.server_state.make_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._hung_up = True
        if not self._plain:
            self._hold(b"")
        self._head_came()
        self._stop_write_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._hung_up:
            self._drop(len(data))
            return
        self._hold(self._early + data)
        if self._plain:
            if len(self._early) > self._plain + self._limits.head_bytes:
                self.flow.pause_reading()
            return
        if not self._is_plain():
            self._give_to_h11()
        self._watch_head()

    def _hold(self, data: bytes) -> None:
        self.server_state.bodies.held += len(data) - len(self._early)
        self._early = data

    def _give_to_h11(self) -> None:
        data = self._early
        self._hold(b"")
        self.server_state.default_headers = _date_header(int(time()))
        super().data_received(data)

    # --- plain requests ----------------------------------------------------------------

    def _is_plain(self) -> bool:
        """Whether what came is a plain request or the beginning of one; a whole one is answered."""
        quick = self.server_state.quick
        if quick is None or not self._is_idle():
            return False
        head = quick.head(self._early)
        size = len(self._early)
        if head is None or size > head.size or not self.server_state.bodies.have_room(head.size):
            return False
        self._unset_keepalive_if_required()
        if size == head.size:
            self._plain = size
            quick.answer(head, self._early, self._answered)
        return True

    def _is_idle(self) -> bool:
        """Whether all that came before was answered, and is being read by the client."""
        is_new = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        return is_new and not self._is_answering() and not self.flow.write_paused

    def _answered(self, response: Response | None) -> None:
        size, self._plain = self._plain, 0
        if self._hung_up:
            self._hold(b"")
            return
        if response is None:
            self._give_to_h11()
        else:
            self._hold(self._early[size:])
            self._socket.write(_text(response))
            self.on_response_complete()
        if self._is_last:
            self.shutdown()
        elif self._early:
            self.data_received(b"")

    # --- answers of the application ------------------------------------------------------

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()  # it was answered without its body, which may be endless
        super().on_response_complete()
        if not self._hung_up and self._is_answering():  # the next request was there already
            self._head_came()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # --- time of the head ------------------------------------------------------------

    def _watch_head(self) -> None:
        if self._plain or self._is_answering():
            self._head_came()
        elif self._timer is None and not self._hung_up:
            self._await_head()

    def _await_head(self) -> None:
        self.server_state.waiting[self] = None
        self._timer = self.loop.call_later(self._limits.head_seconds, self._head_is_late)

    def _head_came(self) -> None:
        self.server_state.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        if self._early:  # only the body is; its time begins
            self._give_to_h11()
            self._watch_head()
            return
        if not self.conn.trailing_data[0]:  # nothing came that could be answered
            self.hang_up()
            return
        seconds = self._limits.head_seconds
        detail = f"The head of the request did not come within {seconds:g} seconds."
        self.refuse(ProblemError(problems.TOO_SLOW, detail))

    # --- time of writing -------------------------------------------------------------

    def pause_writing(self) -> None:
        """Called when much is written that the client has not read."""
        super().pause_writing()
        self._await_reader(self._socket.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Called when the client has read most of it."""
        self._stop_write_timer()
        super().resume_writing()

    def _await_reader(self, left: int) -> None:
        seconds = self._limits.write_seconds
        self._write_timer = self.loop.call_later(seconds, self._check_reader, left)

    def _check_reader(self, before: int) -> None:
        left = self._socket.get_write_buffer_size()
        if left < before:  # it is slow, but reads
            self._await_reader(left)
        else:
            self.abort()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # --- closing ---------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Called while h11's error for malformed input is handled; it has the fitting status."""
        error = sys.exception()
        said = _QUOTED.sub("", str(error))
        kind, detail = problems.BAD_REQUEST, f"Malformed HTTP/1.1 request: {said}."
        if getattr(error, "error_status_hint", 400) == problems.HEAD_TOO_LARGE.status:
            kind = problems.HEAD_TOO_LARGE
            detail = f"The head of a request has at most {self._limits.head_bytes} bytes."
        self.refuse(ProblemError(kind, detail))

    def refuse(self, problem: ProblemError) -> None:
        """Answer for the application, if nothing is answered yet, and close."""
        if self._hung_up:
            return
        cycle = self.cycle
        if self._is_answering():
            cycle.disconnected = True  # what the application may still send goes nowhere
            cycle.message_event.set()
        if not self._is_answering() or not cycle.response_started:
            self._written.write(_text(refusal(problem), (b"connection", b"close")))
        self.hang_up()

    def shutdown(self) -> None:
        """Begin to stop: close now, or when the request under way is answered."""
        if self._plain:
            self._is_last = True
            return
        if self._early:
            self._give_to_h11()
        if self._is_answering():
            self.cycle.keep_alive = False
        else:
            self.hang_up()

    def hang_up(self) -> None:
        """Close; what was written may still be read, for a moment."""
        if self._hung_up:
            return
        self._hung_up = True
        self._written.flush()
        self._head_came()
        self._unset_keepalive_if_required()
        self._linger()
        if self._input_is_read() or not self._socket.can_write_eof():
            self._socket.close()
        else:
            self._socket.resume_reading()
            self._socket.write_eof()

    def _linger(self, before: int = sys.maxsize) -> None:
        left = self._socket.get_write_buffer_size()
        if left == 0:
            self._timer = self.loop.call_later(LINGER_SECONDS, self.abort)
        elif left < before:
            self._timer = self.loop.call_later(self._limits.write_seconds, self._linger, left)
        else:
            self.abort()

    def _drop(self, size: int) -> None:
        self._dropped += size
        if self._dropped > LINGER_BYTES:
            self._socket.pause_reading()

    def _input_is_read(self) -> bool:
        if self.conn.their_state is h11.IDLE:
            return not self.conn.trailing_data[0]
        return self.conn.their_state not in (h11.SEND_BODY, h11.ERROR)

    def abort(self) -> None:
        """Cut the connection off, whatever is not yet written."""
        self._head_came()
        self._socket.abort()


class _HangingUp:
    """Transport whose `close` hangs up, as uvicorn closes in many places.

    The head of an answer goes with what is written after it in the same turn of the event loop: a
    client that waits for it wakes up once.
    """

    def __init__(self, transport: Transport, connection: GuardedConnection) -> None:
        self._transport = transport
        self.close: Callable[[], None] = connection.hang_up
        self._connection = connection
        self._head = b""

    def write(self, data: bytes) -> None:
        if not self._head and data.startswith(_HEAD):
            self._head = data
            self._connection.loop.call_soon(self.flush)
            return
        head, self._head = self._head, b""
        if head and len(data) > _SMALL:  # no second copy of what is large
            self._transport.write(head)
            head = b""
        self._transport.write(head + data if head else data)

    def flush(self) -> None:
        """Write a head that nothing has followed."""
        if self._head:
            self.write(b"")

    def is_closing(self) -> bool:
        return self._connection._hung_up or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@lru_cache(maxsize=1)
def _date_header(second: int) -> list[tuple[bytes, bytes]]:
    return [(b"date", formatdate(second, usegmt=True).encode())]


def _text(response: Response, *more: tuple[bytes, bytes]) -> bytes:
    """An answer that is not streamed, as it is sent."""
    headers = (*_date_header(int(time())), *more, *response.raw_headers)
    status = HTTPStatus(response.status_code)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), *map(b": ".join, headers)]
    return b"\r\n".join((*lines, b"", bytes(response.body)))
