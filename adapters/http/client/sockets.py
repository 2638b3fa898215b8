"""Sockets to a server: sends a request once, without or through a proxy.

httpx sends it where a proxy is in between. Without one it goes over sockets of the standard
library, in a fifth of the processor time: of an append over HTTP, that is a part which counts.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import cached_property
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPMessage,
    HTTPResponse,
    HTTPSConnection,
)
from threading import BoundedSemaphore
from typing import Final, NamedTuple, Protocol
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
_NOT_IN_TARGET: Final = re.compile(r"[^!-~]")
# The head of an answer that is not long, on a connection that stays: what decides about its end
# is there once. A name in other letters, or a value that is not plain text, is left to http.client.
_OTHER: Final = rb"(?:(?!connection|content-length|transfer-encoding)[a-z-]+: [ -~]*\r\n){0,20}"
_PLAIN: Final = re.compile(
    rb"HTTP/1\.1 (20[01]) [ -~]*\r\n"
    + _OTHER
    + rb"content-length: ([0-9]{1,6})\r\n"
    + _OTHER
    + rb"\r\n"
)
_NO_HEADERS: Final = HTTPMessage()


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
        # Sockets without a request, and since when; the last used one is used next.
        self._idle: list[tuple[socket.socket, float]] = []
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
            one = self._used(timeout) or self._new(timeout)
            try:
                head = self._head(method, target, headers, content)
                is_sent = _send(one, head, content)
                with closing(_Response(one, method=method)) as response:
                    response.begin()
                    again = response.getheader(RETRY_AFTER, "")
                    answer = Answer(response.status, _content(response), again)
            except BaseException as error:  # what the socket still receives is of no use
                one.close()
                if isinstance(error, OSError | HTTPException):
                    raise NoAnswerError(_said(error)) from error
                raise
        finally:
            self._may_send.release()
        if is_sent and not response.will_close:
            self._idle.append((one, time.monotonic()))
        else:
            one.close()
        return answer

    def _used(self, timeout: float) -> socket.socket | None:
        """A socket of the pool that the server has not closed, or None."""
        while self._idle:
            try:
                one, since = self._idle.pop()
            except IndexError:  # another thread took it
                return None
            if time.monotonic() - since < IDLE_SECONDS and not _is_readable(one):
                one.settimeout(timeout)
                return one
            one.close()
        return None

    def _new(self, timeout: float) -> socket.socket:
        host, port = self._server.hostname or "", self._server.port
        connection = (
            HTTPConnection(host, port, timeout=timeout)
            if self._tls is None
            else HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        )
        try:
            connection.connect()
        except TimeoutError as error:
            raise NoAnswerError(_said(error)) from error
        except (OSError, UnicodeError) as error:  # the second for what can't be a host's name
            raise NotReachedError(_said(error)) from error
        made: socket.socket = connection.sock
        return made

    def _head(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None
    ) -> bytes:
        """The head of a request; ValueError for a header that would be several lines."""
        where = self._server.path + target
        if _NOT_IN_TARGET.search(where):
            raise HTTPException(f"the address {where!r} has characters that no address has")
        lines = [
            f"{method} {where} HTTP/1.1",
            f"host: {self._host}",
            "accept-encoding: identity",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        if content is not None or method == "POST":
            lines.append(f"content-length: {len(content or b'')}")
        if any("\n" in line or "\r" in line for line in lines):
            raise ValueError("Invalid header: it has a line break.")
        return "\r\n".join((*lines, "", "")).encode("latin-1")

    @cached_property
    def _host(self) -> str:
        """The server's name and port, without the port that its scheme has anyway."""
        name, port = self._server.hostname or "", self._server.port
        if ":" in name:
            name = f"[{name.partition('%')[0]}]"
        if not name.isascii():
            name = name.encode("idna").decode()
        usual = 80 if self._tls is None else 443
        return name if port in (None, usual) else f"{name}:{port}"

    def close(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop()[0].close()


def _send(one: socket.socket, head: bytes, content: bytes | None) -> bool:
    """Send a request; False if the server stopped reading it, and may have said why.

    The head goes together with a small body: the server wakes up once.
    """
    try:
        if content is None or len(content) <= SMALL:
            one.sendall(head + (content or b""))
        else:
            one.sendall(head)
            one.sendall(content)
    except ConnectionError:
        return False
    return True


class _Response(HTTPResponse):
    """An answer whose head is read by one expression, if it is as the server writes most of them.

    http.client, which has a parser of mails for it, takes many times as long. It reads all others.
    """

    def begin(self) -> None:
        plain = _PLAIN.match(self.fp.peek())
        if plain is None:
            super().begin()
            _check(self)
            return
        self.fp.read(plain.end())
        self.status, self.length = int(plain[1]), int(plain[2])
        self.headers, self.chunked, self.will_close = _NO_HEADERS, False, False


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
