"""Sockets to a server: sends a request once, without or through a proxy.

httpx sends it where a proxy is in between. Without one the standard library does, in a third of
the processor time: of an append over HTTP, that is a part which counts.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import BoundedSemaphore
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx

# Sockets to the server: as many as an AsyncLedger has threads.
SOCKETS: Final = 64
# Seconds after which a socket without a request is not used again: it may be dead on the way.
IDLE_SECONDS: Final = 5.0
# Bytes of a body that is sent with its head.
SMALL: Final = 256 * 1024
# Bytes of an answer that are read at once.
PIECE: Final = 1024 * 1024
RETRY_AFTER: Final = "retry-after"
_PROXIED: Final = frozenset({"all", "http", "https"})


class Answer(NamedTuple):
    """The answer to a request; `retry_after` is the header of that name."""

    status: int
    content: bytes
    retry_after: str = ""


class NoAnswerError(Exception):
    """A request got no answer. What became of it is unknown."""


class NotReachedError(NoAnswerError):
    """The server was not reached."""


class Transport(Protocol):
    """Sends requests to one server, from any number of threads."""

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes | None,
        timeout: float,
    ) -> Answer:
        """Send a request once.

        Args:
            method: The method.
            target: Path and query, after the server's address.
            headers: The headers.
            content: The body.
            timeout: Seconds to wait for each step.

        Raises:
            NoAnswerError: There was no answer.
        """

    def close(self) -> None:
        """Close all sockets."""


def open_transport(url: str) -> Transport:
    """A transport to a server: through a proxy if the environment names one, as httpx reads it."""
    return Proxied(url) if getproxies().keys() & _PROXIED else Direct(url)


class Proxied:
    """Requests by httpx, which knows proxies, and which hosts are reached without.

    Args:
        url: The server.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        limits = httpx.Limits(max_connections=SOCKETS, max_keepalive_connections=SOCKETS)
        self._http = httpx.Client(limits=limits)

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes | None,
        timeout: float,
    ) -> Answer:
        try:
            answer = self._http.request(
                method, self._url + target, headers=headers, content=content, timeout=timeout
            )
        except httpx.ConnectError as error:
            raise NotReachedError(str(error)) from error
        except httpx.TransportError as error:
            raise NoAnswerError(str(error)) from error
        again = answer.headers.get(RETRY_AFTER, "")
        return Answer(answer.status_code, answer.content, again)

    def close(self) -> None:
        self._http.close()


class Direct:
    """Requests over a pool of sockets of its own.

    Args:
        url: The server.
    """

    def __init__(self, url: str) -> None:
        self._server = urlsplit(url)
        self._may_send = BoundedSemaphore(SOCKETS)
        # Connections without a request, and since when; the last used one is used next.
        self._idle: list[tuple[HTTPConnection, float]] = []
        self._tls = httpx.create_ssl_context() if self._server.scheme == "https" else None

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes | None,
        timeout: float,
    ) -> Answer:
        if not self._may_send.acquire(timeout=timeout):
            raise NoAnswerError(f"all of {SOCKETS} sockets are in use")
        try:
            connection = self._used(timeout) or self._new(timeout)
            try:
                is_sent = _request(connection, method, self._server.path + target, content, headers)
                response = connection.getresponse()
                _check(response)
                again = response.headers.get(RETRY_AFTER, "")
                answer = Answer(response.status, _content(response), again)
            except BaseException as error:  # what the socket still receives is of no use
                connection.close()
                if isinstance(error, OSError | HTTPException):
                    raise NoAnswerError(_said(error)) from error
                raise
        finally:
            self._may_send.release()
        if not is_sent:
            connection.close()
        elif connection.sock is not None:  # the server did not close it with its answer
            self._idle.append((connection, time.monotonic()))
        return answer

    def _used(self, timeout: float) -> HTTPConnection | None:
        """A connection of the pool that the server has not closed, or None."""
        while self._idle:
            try:
                connection, since = self._idle.pop()
            except IndexError:  # another thread took it
                return None
            if time.monotonic() - since < IDLE_SECONDS and not _is_readable(connection.sock):
                connection.sock.settimeout(timeout)
                return connection
            connection.close()
        return None

    def _new(self, timeout: float) -> HTTPConnection:
        host, port = self._server.hostname or "", self._server.port
        connection = (
            _InOnePiece(host, port, timeout=timeout)
            if self._tls is None
            else _TlsInOnePiece(host, port, timeout=timeout, context=self._tls)
        )
        try:
            connection.connect()
        except TimeoutError as error:
            raise NoAnswerError(_said(error)) from error
        except (OSError, UnicodeError) as error:  # the second for what can't be a host's name
            raise NotReachedError(_said(error)) from error
        return connection

    def close(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop()[0].close()


class _InOnePiece(HTTPConnection):
    """Sends the head of a request together with a small body: the server wakes up once."""

    _head = b""

    def send(self, data: Any) -> None:
        if not self._head:
            self._head = data
            return
        head, self._head = self._head, b""
        if len(data) <= SMALL:
            super().send(head + data)
        else:
            super().send(head)
            super().send(data)

    def getresponse(self) -> HTTPResponse:
        if self._head:  # there was no body
            head, self._head = self._head, b""
            super().send(head)
        return super().getresponse()


class _TlsInOnePiece(_InOnePiece, HTTPSConnection):
    """The same over TLS."""


def _request(
    connection: HTTPConnection,
    method: str,
    target: str,
    content: bytes | None,
    headers: Mapping[str, str],
) -> bool:
    """Send a request; False if the server stopped reading it, and may have said why."""
    try:
        connection.request(method, target, content, headers)
    except ConnectionError:
        return False
    return True


def _check(response: HTTPResponse) -> None:
    """Refuse an answer of which http.client can't tell the end: the next one would be part of it.

    It takes an interim answer (1xx) for the last one, a head that was cut off for a whole one
    without a body, and the first of two lengths.
    """
    if response.status < 200:
        raise HTTPException(f"the server sent an interim answer, {response.status}")
    if response.length is None and not response.chunked:
        raise HTTPException("the answer does not say how long it is")
    if len(response.headers.get_all("content-length", ())) > 1:
        raise HTTPException("the answer has several lengths")


def _content(response: HTTPResponse) -> bytes:
    """The body: a long one in pieces, since http.client takes the memory that a length asks for."""
    if response.length is not None and response.length <= PIECE:
        return response.read()
    parts = list(iter(lambda: response.read(PIECE), b""))
    if response.length:
        raise HTTPException(f"the answer ended {response.length} bytes too early")
    return b"".join(parts)


def _is_readable(one: socket.socket) -> bool:
    """Whether something has come, which without a request is the connection's end."""
    poll = select.poll()
    poll.register(one, select.POLLIN)
    return bool(poll.poll(0))


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
