"""A connection of the server without a socket: bytes in, bytes out, in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from tests.unit.adapters.http.calling import Api
from turnledger.adapters.http.serving.connection import Connections, GuardedConnection
from turnledger.adapters.http.serving.limits import EndStreams, LimitBodies
from turnledger.adapters.http.serving.server import _config
from turnledger.adapters.http.serving.settings import Limits, Settings

# Seconds; far more than any answer takes.
PATIENCE = 20.0


class Answer(NamedTuple):
    """An answer, as it was sent."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Wire(asyncio.Transport):
    """The transport of one connection to an application.

    Args:
        api: The application.
        quick: Whether plain requests go around it.
        limits: Limits of the server.
    """

    def __init__(self, api: Api, *, quick: bool = True, limits: Limits | None = None) -> None:
        super().__init__()
        settings = Settings(limits=limits or Limits())
        self.bodies = LimitBodies(EndStreams(api.app), settings.limits)
        self.shared = Connections(self.bodies, api.app.quick if quick else None)
        self.connection = GuardedConnection(_config(self.bodies, settings), self.shared, {})
        self.written = b""
        self.is_closed = False
        self._changed = asyncio.Event()
        self.connection.connection_made(self)

    async def exchange(self, *pieces: bytes, answers: int = 1) -> list[Answer]:
        """Send these pieces, one after the other, and wait for so many answers or the end."""
        for piece in pieces:
            if self.is_closed:
                break
            self.connection.data_received(piece)
            await asyncio.sleep(0)
        await self.until(lambda: len(self.answers()) >= answers or self.is_closed)
        return self.answers()

    def answers(self) -> list[Answer]:
        """The whole answers that were written."""
        found, rest = [], self.written
        while b"\r\n\r\n" in rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            status, *lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            size = int(headers["content-length"])
            if len(rest) < size:
                break
            found.append(Answer(int(status.split()[1]), headers, rest[:size]))
            rest = rest[size:]
        return found

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, which writing or closing makes so."""
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    # --- what the connection calls ---

    def write(self, data: Any) -> None:
        self.written += data
        self._changed.set()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.connection.connection_lost(None)
            self._changed.set()

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def request_of(
    method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes = b""
) -> bytes:
    """A request, with the length of its body."""
    length = [("content-length", str(len(body)))] if body else []
    lines = [f"{method} {target} HTTP/1.1", *map(": ".join, (*headers, *length)), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body
