"""Sockets of a client: used again, given up when they are dead, and left to httpx for a proxy."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from tests.servers.ledger_server import LedgerServer
from tests.unit.adapters.http.serving.test_http_server import new_certificate, serving
from turnledger.adapters.http import LedgerClient
from turnledger.adapters.http.client import sockets
from turnledger.adapters.http.client.sockets import (
    Answer,
    Direct,
    NoAnswerError,
    NotReachedError,
    Transport,
    open_transport,
)
from turnledger.ledger import NEW, CustomEvent, Ledger, RunStarted, new_run_id

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Talk = Callable[[socket.socket], None]


def ask(transport: Transport, content: bytes | None = None, timeout: float = 60) -> Answer:
    return transport.send("POST" if content else "GET", "/path", {}, content, timeout)


@contextmanager
def server(*talks: Talk) -> Iterator[str]:
    """A server that handles its first connections so, one after another."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for talk in talks:
                with listener.accept()[0] as one:
                    talk(one)

        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join()


def request(one: socket.socket) -> bytes:
    """A request, whole."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += one.recv(1 << 20)
    head, _, body = found.partition(b"\r\n\r\n")
    size = re.search(rb"(?i)content-length: (\d+)", head)
    while size is not None and len(body) < int(size[1]):
        body += one.recv(1 << 20)
    return head + b"\r\n\r\n" + body


def answers(count: int, answer: bytes = OK) -> Talk:
    def talk(one: socket.socket) -> None:
        for _ in range(count):
            request(one)
            one.sendall(answer)

    return talk


def test_a_socket_is_used_again() -> None:
    """Three requests need one connection; small and large bodies come whole."""
    seen = []

    def talk(one: socket.socket) -> None:
        for _ in range(3):
            seen.append(request(one).partition(b"\r\n\r\n")[2])
            one.sendall(OK)

    with server(talk) as url:
        transport = Direct(url)
        bodies = [None, b"small", b"x" * 1_000_000]
        assert [ask(transport, body) for body in bodies] == [Answer(200, b"ok")] * 3
        transport.close()
    assert seen == [b"", b"small", b"x" * 1_000_000]


def test_a_socket_that_the_server_has_closed_is_not_used() -> None:
    """Neither one that it closed while idle nor one that it said it would close."""
    closing = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    with server(answers(1), answers(1, closing), answers(1)) as url:
        transport = Direct(url)
        ask(transport)
        ((idle, _),) = transport._idle
        assert idle.recv(1) == b""  # until the end has come; it is still readable
        assert [ask(transport).content for _ in range(2)] == [b"ok", b"ok"]
        transport.close()


def test_an_old_socket_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something on the way may have forgotten it."""
    monkeypatch.setattr(sockets, "IDLE_SECONDS", 0.0)
    with server(answers(1), answers(1)) as url:
        transport = Direct(url)
        assert [ask(transport).content for _ in range(2)] == [b"ok", b"ok"]
        transport.close()


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKS = HEAD + b"transfer-encoding: chunked\r\n\r\n"
NO_ANSWERS = {
    "none": b"",
    "cut": OK[:-1],
    "not HTTP": b"SSH-2.0\r\n",
    "cut head": OK[:20],
    "cut before the body": OK[:36],
    "an interim one": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 4\r\n\r\nokok",
    "a negative length": HEAD + b"content-length: -1\r\n\r\nok",
    "a length of 1 TB": HEAD + b"content-length: 1099511627776\r\n\r\nok",
    "a length beyond 64 bits": HEAD + b"content-length: 99999999999999999999\r\n\r\nok",
    "a chunk of 1 TB": CHUNKS + b"10000000000\r\nok",
    "a chunk without a size": CHUNKS + b"zz\r\nok",
    "1,000 headers": HEAD + b"x: y\r\n" * 1_000 + b"content-length: 2\r\n\r\nok",
    "a header of 100 kB": HEAD + b"x: " + b"y" * 100_000,
}


@pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_half_an_answer_is_none(answer: bytes) -> None:
    """The error says so, and the socket is given up."""
    with server(answers(1, answer)) as url:
        transport = Direct(url)
        with pytest.raises(NoAnswerError):
            ask(transport)
        assert not transport._idle


@pytest.mark.parametrize(
    ("head", "is_kept"),
    [
        ("x-a: b\r\ncontent-length: 4\r\nx-c: d", True),
        ("Content-Length: 4", True),
        ("content-length: 4\r\nconnection: close", False),
        ("content-length: 4\r\nCONNECTION: close", False),
        ("content-length: 1\r\ntransfer-encoding: chunked", True),
        ("Transfer-Encoding: chunked\r\ncontent-length: 1", True),
        ("x-a: b\r\n\tcontent-length: 1\r\ncontent-length: 4", True),
    ],
)
def test_every_head_is_read_as_the_standard_library_reads_it(head: str, is_kept: bool) -> None:
    """Where an answer ends, and whether the socket stays, in whatever order and letters."""
    body = b"4\r\nokay\r\n0\r\n\r\n" if "chunked" in head else b"okay"
    with server(answers(1, HEAD + head.encode() + b"\r\n\r\n" + body)) as url:
        transport = Direct(url)
        assert ask(transport) == Answer(200, b"okay")
        assert len(transport._idle) == is_kept
        transport.close()


def test_a_head_that_comes_in_pieces_is_read() -> None:
    """The first piece alone does not say where the answer ends."""

    def talk(one: socket.socket) -> None:
        request(one)
        for place in range(len(OK)):
            one.sendall(OK[place : place + 1])

    with server(talk) as url:
        transport = Direct(url)
        assert ask(transport) == Answer(200, b"ok")
        transport.close()


def test_no_header_and_no_address_can_hold_a_second_line() -> None:
    """The text could add a header or a request of its own; nothing is sent."""
    seen = []

    def talk(one: socket.socket) -> None:
        seen.append(one.recv(1))

    for target, headers, error in (
        ("/path", {"turnledger-claim-key": "key\r\nturnledger-epoch: 7"}, ValueError),
        ("/path", {"turnledger-claim-key": "key\nturnledger-epoch: 7"}, ValueError),
        ("/path HTTP/1.1\r\nx: y", {}, NoAnswerError),
    ):
        with server(talk) as url, pytest.raises(error):
            Direct(url).send("GET", target, headers, None, 60)
    assert seen == [b"", b"", b""]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://Ledger.example", "ledger.example"),
        ("http://ledger.example:80", "ledger.example"),
        ("http://ledger.example:8321/base", "ledger.example:8321"),
        ("http://[::1]:8321", "[::1]:8321"),
        ("http://bücher.example", "xn--bcher-kva.example"),
    ],
)
def test_the_host_header_is_the_servers_name(url: str, host: str) -> None:
    """With its port unless the scheme has it anyway: servers refuse other names."""
    assert Direct(url)._host == host


def test_a_long_answer_is_read_in_pieces() -> None:
    """Of a known length and in chunks; the socket is used again."""
    long = b"x" * (2 * sockets.PIECE + 1)
    sized = HEAD + b"content-length: %d\r\n\r\n%b" % (len(long), long)
    chunked = CHUNKS + b"%x\r\n%b\r\n0\r\n\r\n" % (len(long), long)

    def talk(one: socket.socket) -> None:
        for answer in (sized, chunked, OK):
            answers(1, answer)(one)

    with server(talk) as url:
        transport = Direct(url)
        assert [ask(transport).content for _ in range(3)] == [long, long, b"ok"]
        transport.close()


def test_an_answer_before_the_end_of_a_request_is_read() -> None:
    """A server may refuse a body that it has not read; the socket is not used again."""
    refused = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno"

    def refuse(one: socket.socket) -> None:
        while b"\r\n\r\n" not in one.recv(1 << 20):
            pass
        one.sendall(refused)  # and the end, with the body unread: the client's socket is reset

    with server(refuse, answers(1)) as url:
        transport = Direct(url)
        assert ask(transport, b"x" * 50_000_000) == Answer(413, b"no")
        assert not transport._idle
        assert ask(transport) == Answer(200, b"ok")
        transport.close()


def test_a_silent_server_is_not_waited_for_longer_than_asked() -> None:
    """By the time of each request, not that of the connection's first."""

    def talk(one: socket.socket) -> None:
        answers(1)(one)
        request(one)
        assert one.recv(1) == b""  # until the client gives up

    with server(talk) as url:
        transport = Direct(url)
        ask(transport)
        with pytest.raises(NoAnswerError, match="timed out"):
            ask(transport, timeout=0.05)


def test_a_server_that_is_not_there_was_not_reached() -> None:
    """Which a caller can tell from a lost answer."""
    for url in ("http://127.0.0.1:1", "http://no..name", f"http://{'a' * 64}.example"):
        with pytest.raises(NotReachedError):
            ask(Direct(url))


def test_no_more_sockets_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads beyond it wait for one, and all get their answers."""
    monkeypatch.setattr(sockets, "SOCKETS", 2)
    with Ledger.open("memory://") as ledger, LedgerServer(ledger) as served:
        transport = Direct(served.url)
        with ThreadPoolExecutor(16) as threads:
            found = [threads.submit(ask, transport) for _ in range(64)]
        assert {one.result().status for one in found} == {404}
        assert len(transport._idle) <= 2
        transport.close()


def test_tls_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that nobody trusts is refused; SSL_CERT_FILE names one to trust."""
    certificate, key = new_certificate(tmp_path)
    with serving(tls=[str(certificate), str(key)]) as server:
        with pytest.raises(NotReachedError, match="CERTIFICATE_VERIFY_FAILED"):
            ask(Direct(server.url))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        transport = Direct(server.url)
        found = transport.send("GET", "/scheme", {}, None, 60)
        transport.close()
    assert (found.status, found.content) == (200, b"https")


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the whole address; NO_PROXY leaves a host out."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    assert isinstance(open_transport("http://ledger.example"), Direct)
    seen = []

    def proxy(one: socket.socket) -> None:
        seen.append(request(one).partition(b"\r\n")[0])
        one.sendall(OK)

    with server(proxy) as url:
        monkeypatch.setenv("HTTP_PROXY", url)
        transport = open_transport("http://ledger.example")
        assert ask(transport) == Answer(200, b"ok")
        transport.close()
    assert seen == [b"GET http://ledger.example/path HTTP/1.1"]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with pytest.raises(NotReachedError):
        ask(open_transport("http://ledger.example"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Ledger.open("memory://") as ledger, LedgerServer(ledger) as served:
        with LedgerClient(served.url, served.token()) as client:
            run = new_run_id()
            client.append(run, [RunStarted(), CustomEvent(kind="a.b")], NEW)
        assert ledger.head(run) == 2
