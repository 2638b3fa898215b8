"""Clients that would wear a server out are refused or bounded, and it answers others meanwhile."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.unit.adapters.http.serving.talking import (
    PATIENCE,
    Server,
    is_closed,
    read_answer,
    read_until,
    serving,
)

MIB = 1024 * 1024
BODY = 4 * MIB
# A Python process with uvicorn has some 30 MiB; 500 connections add less than 20.
GROWTH = 64 * MIB


pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(
        head_seconds=1.0,
        body_seconds=1.0,
        body_rate=1000,
        body_bytes=BODY,
        write_seconds=1.0,
        connections=1000,
    ) as made:
        yield made


@pytest.fixture
def crowd(server: Server) -> Iterator[Callable[[int, str], list[socket.socket]]]:
    """Opens so many connections with the same request, which end with the test."""
    with ExitStack() as stack:
        yield lambda many, text: [stack.enter_context(server.send(text)) for _ in range(many)]


def trickle(server: Server, waiting: list[socket.socket], piece: bytes) -> None:
    """Send a byte on each connection again and again until the server has ended all."""
    until = time.monotonic() + PATIENCE
    left = waiting
    while left and time.monotonic() < until:
        for one in left:
            with suppress(ConnectionError):
                one.sendall(piece)
        server.open()
        left = [one for one in left if not is_closed(one)]
    assert left == []


def wait_for(server: Server, **wanted: int) -> None:
    """Until the application has so many open."""
    until = time.monotonic() + PATIENCE
    while (found := server.open()) != {"streams": 0, "bodies": 0, **wanted}:
        assert time.monotonic() < until, found


def test_a_body_of_a_gibibyte_is_refused_by_its_length(server: Server) -> None:
    """At once: nothing of it is read."""
    text = f"POST /body HTTP/1.1\nHost: localhost\nContent-Length: {1024 * MIB}\n\n"
    with server.send(text) as one:
        answer = read_answer(one)
    assert (answer.status, answer.problem) == (413, "too-large")


@pytest.mark.parametrize("length", [f"Content-Length: {1024 * MIB}", "Transfer-Encoding: chunked"])
def test_a_client_that_sends_a_gibibyte_all_the_same_is_cut_off(
    server: Server, length: str
) -> None:
    """It gets its answer, and never gets rid of the gibibyte; memory stays as it was."""
    before = server.memory()
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    with server.send(f"POST /body HTTP/1.1\nHost: localhost\n{length}\n\n") as one:
        sent = 0
        with suppress(ConnectionError):
            while sent < 1024 * MIB:
                sent += one.send(chunk)
        assert sent < 64 * MIB
        assert read_answer(one).status == 413
    assert server.open() == {"streams": 0, "bodies": 0}
    assert server.memory() - before < GROWTH


def test_200_heads_that_come_byte_by_byte_are_refused(
    server: Server, crowd: Callable[[int, str], list[socket.socket]]
) -> None:
    """However long a client goes on, its time ends."""
    waiting = crowd(200, "GET /")
    trickle(server, waiting, b"a")
    answers = [read_answer(one) for one in waiting]
    assert {(answer.status, answer.problem) for answer in answers} == {(408, "too-slow")}


def test_the_next_head_of_a_connection_has_the_same_time(server: Server) -> None:
    """It counts from its first byte, after an answered request too."""
    with server.send("GET /healthz HTTP/1.1\nHost: localhost\n\n") as one:
        read_until(one, b"}")
        one.sendall(b"GET /")
        trickle(server, [one], b"a")
        assert read_answer(one).status == 408


def test_200_bodies_that_come_byte_by_byte_are_refused(
    server: Server, crowd: Callable[[int, str], list[socket.socket]]
) -> None:
    """The application is told that its client has gone."""
    waiting = crowd(200, "POST /body HTTP/1.1\nHost: localhost\nContent-Length: 100000\n\n")
    trickle(server, waiting, b"x")
    answers = [read_answer(one) for one in waiting]
    assert {(answer.status, answer.problem) for answer in answers} == {(408, "too-slow")}
    wait_for(server, bodies=0)


def test_500_streams_are_open_and_close(
    server: Server, crowd: Callable[[int, str], list[socket.socket]]
) -> None:
    """They cost little, others are answered, and a client's end reaches the application."""
    before = server.memory()
    streams = crowd(500, "GET /stream HTTP/1.1\nHost: localhost\n\n")
    wait_for(server, streams=500)
    assert server.memory() - before < GROWTH
    for one in streams[:250]:
        one.close()
    wait_for(server, streams=250)
    assert all(one.recv(1) for one in streams[250:])
    for one in streams:
        one.close()
    wait_for(server, streams=0)


def test_a_client_that_never_reads_is_cut_off(
    server: Server, crowd: Callable[[int, str], list[socket.socket]]
) -> None:
    """What it does not read is not piled up, and its stream ends."""
    before = server.memory()
    deaf = crowd(20, "GET /flood HTTP/1.1\nHost: localhost\n\n")
    wait_for(server, streams=0)
    assert len(deaf) == 20
    assert server.memory() - before < GROWTH


def test_a_head_that_never_ends_is_refused(server: Server) -> None:
    """By its size, long before its time."""
    before = server.memory()
    with server.send("GET /healthz HTTP/1.1\nHost: localhost\n") as one:
        with suppress(ConnectionError):
            for _ in range(1000):
                one.sendall(b"X-Filler: " + b"x" * 65536 + b"\r\n")
        answer = read_answer(one)
    assert (answer.status, answer.problem) == (431, "head-too-large")
    assert server.memory() - before < GROWTH


@pytest.mark.parametrize(
    "text",
    [
        "\x16\x03\x01 hello, TLS\n\n",
        "GET / HTTP/1.1\n\n",
        "GET / HTTP/1.1\nHost: a\nHost: b\n\n",
        "POST /body HTTP/1.1\nHost: localhost\nContent-Length: 1\nContent-Length: 2\n\n",
        "POST /body HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\nnot a size\n",
    ],
)
def test_what_is_not_http_gets_a_problem(server: Server, text: str) -> None:
    """Also in the middle of a body, which the application is waiting for."""
    with server.send(text) as one:
        answer = read_answer(one)
    assert (answer.status, answer.problem) == (400, "bad-request")
    wait_for(server, bodies=0)


def test_beyond_the_limit_the_connection_that_waits_longest_goes() -> None:
    """Silent connections do not keep others out, and their number is bounded."""
    with serving(connections=20, head_seconds=PATIENCE) as server, ExitStack() as stack:
        silent = [stack.enter_context(server.connect()) for _ in range(100)]
        server.open()
        assert [is_closed(one) for one in silent] == [True] * 81 + [False] * 19


def test_where_no_connection_waits_the_new_one_is_refused() -> None:
    """Requests under way are not ended for others."""
    with serving(connections=5) as server, ExitStack() as stack:
        text = "GET /stream HTTP/1.1\nHost: localhost\n\n"
        streams = [stack.enter_context(server.send(text)) for _ in range(5)]
        assert all(one.recv(1) for one in streams)
        answer = server.get("/healthz")
        assert (answer.status, answer.problem) == (503, "server-full")
        assert answer.headers["retry-after"] == "1"
        streams[0].close()
        wait_for(server, streams=4)
