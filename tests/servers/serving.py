"""Strict providers on loopback: real HTTP, real wire formats, and refusals as the real ones give.

A server has one `Wire`, which knows a provider's format: what it refuses and how an answer
looks, whole and as a stream. What to answer comes from a script, a function from what was
asked: it keeps nothing, so that a run that is resumed in another process goes on with the right
answer. A script may also answer with a fault.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, TypeAlias

from tests.servers.certificates import FewCertificates

# --- what a script answers, in no provider's words ----------------------------------


@dataclass(frozen=True)
class Call:
    """A tool call that the model makes; without an id the wire makes one up, if it has ids."""

    name: str
    arguments: str = "{}"
    call_id: str | None = None


@dataclass(frozen=True)
class Used:
    """Tokens. Input includes the cached ones, output those for reasoning."""

    input: int = 11
    output: int = 7
    cached: int = 3
    reasoning: int = 2


@dataclass(frozen=True)
class Answer:
    """A model's reply. `thinking` and `refusal` where the wire knows them."""

    text: str | None = None
    calls: tuple[Call, ...] = ()
    thinking: str | None = None
    refusal: str | None = None
    used: Used = field(default_factory=Used)
    # The wire's own word for why it ended; None is what goes with the answer.
    finish: str | None = None
    # Other choices beside the first, where the wire can have several.
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Status:
    """An error status, in the shape that the provider gives it."""

    code: int
    message: str = "a fault that was asked for"
    headers: dict[str, str] = field(default_factory=dict)
    # The provider's own word for the kind of error; None is the usual one of the status.
    kind: str | None = None


@dataclass(frozen=True)
class Hang:
    """No answer until the client goes away or the server is closed."""


@dataclass(frozen=True)
class Stall:
    """A stream that begins, and goes on only when the client is gone, or the server closed."""

    answer: Answer
    events: int = -2


@dataclass(frozen=True)
class CutBody:
    """An answer whose connection breaks in the middle of the body (or of the stream)."""

    answer: Answer


@dataclass(frozen=True)
class HalfStream:
    """A stream that ends in good order, but before the answer does."""

    answer: Answer
    events: int = 2


@dataclass(frozen=True)
class Raw:
    """Any body, as it stands: for answers that no provider should give."""

    body: bytes
    code: int = 200
    content_type: str = "application/json"


Scripted: TypeAlias = Answer | Status | Hang | Stall | CutBody | HalfStream | Raw


@dataclass(frozen=True)
class Asked:
    """A request that the server took: `turn` is the number of the reply that it asks for.

    `attempt` counts the requests for this turn that this server has seen, from 1.
    """

    turn: int
    attempt: int
    body: dict[str, Any]
    path: str
    streams: bool


Script: TypeAlias = Callable[[Asked], Scripted]


def replies(*answers: Scripted) -> Script:
    """Answer k to turn k."""
    return lambda asked: answers[asked.turn - 1]


# --- what a wire format is -------------------------------------------------------------


class Refused(Exception):  # noqa: N818 - a refusal is an answer here, no error
    """The request is none that the real provider takes: its status and words."""

    def __init__(self, status: int, message: str, kind: str | None = None, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.more = more


class Wire(ABC):
    """One provider's format, as its server sees it. Everything in it is pure."""

    @abstractmethod
    def check(self, method: str, path: str, headers: dict[str, str], body: Any) -> None:
        """Refused if the real provider would refuse it. Header names are in lower case."""

    @abstractmethod
    def streams(self, path: str, body: dict[str, Any]) -> bool:
        """Whether a request asks for a stream."""

    @abstractmethod
    def turn(self, body: dict[str, Any]) -> int:
        """The number of the reply that a request asks for: its assistant turns, and one."""

    @abstractmethod
    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        """The body of an answer."""

    @abstractmethod
    def stream(self, asked: Asked, answer: Answer) -> Sequence[bytes]:
        """The events of an answer as a stream: each is written as it stands."""

    @abstractmethod
    def error(
        self, status: int, message: str, kind: str | None = None, **more: Any
    ) -> dict[str, Any]:
        """The body of an error."""


# --- the server ---------------------------------------------------------------------------


class _QuietServer(ThreadingHTTPServer):
    """A client that hangs up is no trouble: some tests are about that."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class StrictServer:
    """A provider on a free port of the loopback interface; use it in a `with`."""

    def __init__(self, wire: Wire, script: Script) -> None:
        self.wire = wire
        self.script = script
        self.asked: list[Asked] = []
        self.refused: list[Refused] = []
        self.closing = Event()
        # A client waits for more, and it has closed its connection instead.
        self.waits, self.left = Event(), Event()
        self._few = FewCertificates()
        self._lock = Lock()
        self._attempts: dict[int, int] = {}
        self._http = _QuietServer(("127.0.0.1", 0), _handler_for(self))
        self._http.daemon_threads = True
        self._thread = Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """Without a path and without a slash at its end."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [asked.body for asked in self.asked]

    def __enter__(self) -> StrictServer:
        self._few.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._few.__exit__()
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def take(
        self, method: str, path: str, headers: dict[str, str], body: Any
    ) -> tuple[Asked, Scripted]:
        """What to answer; Refused if it is no request."""
        try:
            self.wire.check(method, path, headers, body)
        except Refused as refused:
            with self._lock:
                self.refused.append(refused)
            raise
        turn = self.wire.turn(body)
        with self._lock:
            attempt = self._attempts[turn] = self._attempts.get(turn, 0) + 1
            asked = Asked(turn, attempt, body, path, self.wire.streams(path, body))
            self.asked.append(asked)
        return asked, self.script(asked)


def _handler_for(server: StrictServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Else a body waits up to 40 ms for the client's word that it has the head.
        disable_nagle_algorithm = True

        def log_message(self, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            self._serve("POST")

        def do_GET(self) -> None:
            self._serve("GET")

        def _serve(self, method: str) -> None:
            length = int(self.headers.get("content-length") or 0)
            given = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                body = json.loads(given) if given else None
                asked, scripted = server.take(method, self.path, headers, body)
            except json.JSONDecodeError:
                self._send(400, server.wire.error(400, "The body is no JSON."))
            except Refused as no:
                self._send(no.status, server.wire.error(no.status, no.message, no.kind, **no.more))
            else:
                with contextlib.suppress(ConnectionError):
                    self._answer(asked, scripted)

        def _answer(self, asked: Asked, scripted: Scripted) -> None:
            match scripted:
                case Answer() if asked.streams:
                    self._stream(server.wire.stream(asked, scripted))
                case Answer():
                    self._send(200, server.wire.whole(asked, scripted))
                case Status(code, message, more, kind):
                    self._send(code, server.wire.error(code, message, kind), more)
                case Hang():
                    self._wait_until_left()
                    self._break()
                case Stall(answer, events):
                    try:
                        self._stream(server.wire.stream(asked, answer)[:events], ends=False)
                    except ConnectionError:  # it left before all of it was sent
                        server.left.set()
                        return
                    self._wait_until_left()
                    self._break()
                case CutBody(answer) if asked.streams:
                    events = server.wire.stream(asked, answer)
                    self._stream(events[: max(1, len(events) // 2)], ends=False)
                    self._break()
                case CutBody(answer):
                    body = json.dumps(server.wire.whole(asked, answer)).encode()
                    self._head(200, "application/json", {"content-length": str(len(body))})
                    self.wfile.write(body[: len(body) // 2])
                    self._break()
                case HalfStream(answer, events):
                    self._stream(server.wire.stream(asked, answer)[:events])
                case Raw(body, code, content_type):
                    self._head(code, content_type, {"content-length": str(len(body))})
                    self.wfile.write(body)

        def _head(self, code: int, content_type: str, more: dict[str, str]) -> None:
            self.send_response(code)
            self.send_header("content-type", content_type)
            for name, value in more.items():
                self.send_header(name, value)
            self.end_headers()

        def _send(self, code: int, body: Any, more: dict[str, str] | None = None) -> None:
            data = json.dumps(body).encode()
            self._head(code, "application/json", {"content-length": str(len(data)), **(more or {})})
            self.wfile.write(data)

        def _stream(self, events: Sequence[bytes], *, ends: bool = True) -> None:
            self._head(200, "text/event-stream", {"transfer-encoding": "chunked"})
            for event in events:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                self.wfile.flush()
            if ends:
                self.wfile.write(b"0\r\n\r\n")

        def _wait_until_left(self) -> None:
            """Wait until the client closes its connection, which `left` tells."""
            server.waits.set()
            while not server.closing.is_set():
                if select.select([self.connection], [], [], 0.02)[0]:
                    with contextlib.suppress(ConnectionError):
                        if self.connection.recv(1, socket.MSG_PEEK):
                            continue
                    server.left.set()
                    return

        def _break(self) -> None:
            """Reset the connection, as a machine that is gone does."""
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
            self.connection.close()

    return Handler
