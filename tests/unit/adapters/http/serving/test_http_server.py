"""The server process: connections that are kept, a graceful stop, restarts, TLS and proxies."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fastapi import FastAPI
from fastapi.sse import EventSourceResponse

from tests.unit.adapters.http.serving.small_app import LONG, app
from tests.unit.adapters.http.serving.talking import (
    PATIENCE,
    Server,
    in_thread,
    read_all,
    read_answer,
    read_until,
    serving,
)
from turnledger.adapters.http.serving.connection import LINGER_SECONDS, _HangingUp

pytestmark = pytest.mark.process
GET = "GET {} HTTP/1.1\nHost: localhost\n\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(idle_seconds=1.0) as made:
        yield made


def test_a_connection_serves_many_requests_until_it_is_idle(server: Server) -> None:
    """Each answer has a date; then the server closes."""
    with server.send(GET.format("/unread")) as one:
        for _ in range(3):
            assert b"\r\ndate: " in read_until(one, b"answered")
            one.sendall(GET.format("/unread").replace("\n", "\r\n").encode())
        read_until(one, b"answered")
        assert read_all(one) == b""


def test_the_head_of_an_answer_is_written_with_its_body() -> None:
    """The client wakes up once; a head that nothing follows at once is not kept back."""
    head, written = b"HTTP/1.1 200 OK\r\n\r\n", list[bytes]()

    async def answer() -> None:
        connection: Any = SimpleNamespace(loop=asyncio.get_running_loop(), hang_up=None)
        transport: Any = SimpleNamespace(write=written.append)
        together = _HangingUp(transport, connection)
        together.write(head)
        together.write(b"body")
        together.write(head)
        await asyncio.sleep(0)
        together.write(b"an event of a stream")

    asyncio.run(answer())
    assert written == [head + b"body", head, b"an event of a stream"]


def test_requests_that_are_sent_at_once_are_answered_in_order(server: Server) -> None:
    """The second waits inside the server, with its body, and is not taken for a slow head."""
    post = "POST /body HTTP/1.1\nHost: localhost\nContent-Length: {}\n\n{}"
    with server.send(GET.format("/unread") + post.format(3, "abc") + GET.format("/none")) as one:
        got = read_until(one, b"no such path")
    assert re.findall(rb"HTTP/1.1 (\d+)", got) == [b"200", b"200", b"404"]


def test_an_answer_without_reading_the_body_arrives_whole(server: Server) -> None:
    """Closing at once would reset the connection, and the client would lose the answer."""
    with server.send("POST /unread HTTP/1.1\nHost: localhost\nContent-Length: 9999999\n\n") as one:
        one.sendall(b"x" * 1_000_000)
        assert read_answer(one).body == b"answered"


def test_a_client_is_asked_for_its_body_only_when_it_is_read(server: Server) -> None:
    """`Expect: 100-continue`, which curl sends: a refused body need not be sent."""
    text = "POST /body HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Length: {}\n\n"
    with server.send(text.format(3)) as one:
        read_until(one, b"HTTP/1.1 100 Continue\r\n\r\n")
        one.sendall(b"abc")
        read_until(one, b"\r\n\r\n3")
    with server.send(text.format(1 << 30)) as one:
        assert read_answer(one).status == 413


def test_it_runs_and_stops_in_another_thread() -> None:
    """As tests and programs with a server inside want it; signals stay theirs."""
    handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    with in_thread(app) as url:
        assert httpx.get(f"{url}/unread").text == "answered"
        assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == handlers
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/unread")


def test_an_event_stream_of_fastapi_is_ended_properly() -> None:
    """Its generator is told, and the client sees the end of the answer."""
    fastapi, ended = FastAPI(), []

    @fastapi.get("/events", response_class=EventSourceResponse)
    async def events() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with ExitStack() as stack:
        with in_thread(fastapi) as url:
            port = int(url.rpartition(":")[2])
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            one.sendall(GET.format("/events").replace("\n", "\r\n").encode())
            read_until(one, b"data: 1\n\n\r\n")
        assert read_all(one) == b"0\r\n\r\n"
    assert ended == [True]


def test_a_slow_reader_gets_all_of_a_long_answer() -> None:
    """After the server has closed its side too: the time is for reading nothing."""
    with (
        serving(write_seconds=5.0) as server,
        server.send("GET /long HTTP/1.1\nHost: localhost\nConnection: close\n\n") as one,
    ):
        size, until = 0, time.monotonic() + 2 * LINGER_SECONDS
        while time.monotonic() < until:
            size += len(one.recv(65536))
            server.open()
        size += len(read_all(one))
    assert size > LONG


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_streams_and_answers_what_is_under_way(number: int) -> None:
    """A stream has its proper end, an append its answer; the application's lifespan is last."""
    post = "POST /body HTTP/1.1\nHost: localhost\nContent-Length: 10\n\n12345"
    with (
        serving() as server,
        server.send(GET.format("/stream")) as stream,
        server.send(GET.format("/unread")) as idle,
        server.send(post) as append,
    ):
        stream.recv(1)
        read_until(idle, b"answered")
        while server.open() != {"streams": 1, "bodies": 1}:
            pass
        server.process.send_signal(number)
        assert read_all(stream).endswith(b"\r\n0\r\n\r\n")
        assert read_all(idle) == b""
        append.sendall(b"67890")
        assert read_answer(append).body == b"10"
        with pytest.raises(ConnectionError):
            server.connect()
        assert server.end() == (0, "stopped\n", "")


def test_a_stop_does_not_wait_for_ever() -> None:
    """A request that does not end is cut off after its time, or by a second signal."""
    for seconds, signals in ((0.1, 1), (PATIENCE, 2)):
        with serving(stop_seconds=seconds) as server, server.send(GET.format("/asleep")) as one:
            server.open()  # was accepted later, so the other is under way
            for _ in range(signals):
                server.process.send_signal(signal.SIGTERM)
                wait_until_closed(server)
            read_all(one)
            said = "Stopping: 1 requests under way were cut off.\n"
            assert server.end() == (0, "stopped\n", said)


def wait_until_closed(server: Server) -> None:
    """Until it accepts no connection, which is the first thing that a stop does."""
    with suppress(ConnectionError):
        while True:
            server.connect().close()


def test_the_port_is_free_again_at_once() -> None:
    """Connections of a killed server do not keep the next one from starting."""
    with serving() as first, first.send(GET.format("/stream")) as stream:
        stream.recv(1)
        first.process.kill()
        first.process.wait()
        with serving(port=first.address[1]) as second:
            assert second.url == first.url
            assert second.open()["streams"] == 0


def test_a_second_server_on_the_port_is_refused(server: Server) -> None:
    """Two would answer by turns, each with streams and sessions of its own."""
    code = (
        "from turnledger.adapters.http.serving.listener import listen\n"
        "from turnledger.adapters.http.serving.settings import Settings\n"
        f"listen(Settings(port={server.address[1]}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ListenError: Can't listen on 127.0.0.1:" in done.stderr
    assert "another process listens there" in done.stderr


def test_it_listens_on_ipv6() -> None:
    """A URL has the address in brackets."""
    if not socket.has_ipv6:
        pytest.fail("this Python has no IPv6")
    with serving(host="::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert httpx.get(f"{server.url}/unread").text == "answered"


def test_headers_of_a_proxy_are_believed_only_behind_one(server: Server) -> None:
    """Else any client could say that its connection is safe, or come from elsewhere."""
    headers = {"x-forwarded-proto": "https"}
    assert httpx.get(f"{server.url}/scheme", headers=headers).text == "http"
    with serving(behind_proxy=True) as other:
        assert httpx.get(f"{other.url}/scheme", headers=headers).text == "https"


def test_tls(tmp_path: Path) -> None:
    """By certificate and key; clients that do not speak it, or stay silent, get nothing."""
    certificate, key = new_certificate(tmp_path)
    with serving(tls=[str(certificate), str(key)], head_seconds=1.0) as server:
        trusted = ssl.create_default_context(cafile=str(certificate))
        assert server.url.startswith("https://127.0.0.1:")
        assert httpx.get(f"{server.url}/scheme", verify=trusted).text == "https"
        with server.send(GET.format("/unread")) as plain:
            assert b"answered" not in read_all(plain)
        with server.connect() as silent:
            assert read_all(silent) == b""
        assert httpx.get(f"{server.url}/unread", verify=trusted).text == "answered"


def new_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    today = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files
