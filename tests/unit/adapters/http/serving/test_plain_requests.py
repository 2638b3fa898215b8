"""Plain requests, which h11 never sees: whole or in pieces, at a stop, and with a client that goes.

The same bytes have the same answers on a connection that gives all of them to the application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from threading import Event as Flag
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.adapters.http.calling import Api
from tests.unit.adapters.http.wire import Answer, Wire, request_of
from turnledger.adapters.http.serving.settings import Limits
from turnledger.ledger import CustomEvent

RUN = UUID(int=7)
MANY = 6


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as made:
        yield made


def append(token: str, number: int, *more: tuple[str, str]) -> bytes:
    """An append of one event, which is plain unless its headers are not."""
    event = CustomEvent(kind="shop.note", data="x" * number)
    body = msgspec.json.encode([{"type": "custom", "data": event, "event_id": UUID(int=number)}])
    headers = [
        ("Host", "localhost"),
        ("Authorization", f"Bearer {token}"),
        ("Content-Type", "application/json"),
        *more,
    ]
    return request_of("POST", f"/v1/runs/{RUN}/events?expect=any", headers, body)


def without(request: bytes, name: bytes) -> bytes:
    head, end, body = request.partition(b"\r\n\r\n")
    lines = [one for one in head.split(b"\r\n") if not one.startswith(name + b":")]
    return b"\r\n".join(lines) + end + body


def in_chunks(request: bytes, *more: bytes) -> bytes:
    head, _, body = without(request, b"content-length").partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    lines += [b"Transfer-Encoding: chunked", *more, b"", b"%x" % len(body), body, b"0", b"", b""]
    return b"\r\n".join(lines)


REQUESTS: dict[str, Callable[[Api], bytes]] = {
    "plain": lambda api: append(api.token, 1),
    "plain, again": lambda api: append(api.token, 1),
    "plain, with what httpx sends": lambda api: append(
        api.token, 2, ("Accept", "*/*"), ("Accept-Encoding", "gzip"), ("Connection", "keep-alive")
    ),
    "refused by the ledger": lambda api: append(api.token, 3, ("If-Match", '"99"')),
    "no token": lambda api: without(append(api.token, 4), b"Authorization"),
    "unknown token": lambda api: append(f"tl_{'0' * 12}_{'0' * 64}", 4),
    "wrong role": lambda api: append(api.token_of("reader"), 4),
    "revoked token": lambda api: append(revoked(api), 4),
    "not plain": lambda api: append(api.token, 5, ("Pragma", "no-cache")),
    "another host": lambda api: append(api.token, 6).replace(b"localhost", b"evil.example"),
    "no host": lambda api: without(append(api.token, 6), b"Host"),
    "a host twice": lambda api: append(api.token, 6, ("Host", "localhost")),
    "another site": lambda api: append(api.token, 6, ("Origin", "https://evil.example")),
    "no site": lambda api: append(api.token, 6, ("Origin", "null")),
    "a form of another site": lambda api: append(api.token, 6, ("Sec-Fetch-Site", "cross-site")),
    "a cookie": lambda api: append(api.token, 6, ("Cookie", "turnledger=x"), ("X-Turnledger", "1")),
    "two lengths": lambda api: append(api.token, 7, ("Content-Length", "5")),
    "in chunks": lambda api: in_chunks(append(api.token, 8)),
    "in chunks, with a length": lambda api: in_chunks(append(api.token, 8), b"Content-Length: 5"),
    "a folded header": lambda api: append(api.token, 9, ("Accept", "a\r\n b")),
    "a bare line feed": lambda api: append(
        api.token, 9, ("Accept", "a\nOrigin: https://evil.test")
    ),
    "space before the colon": lambda api: append(api.token, 9, ("Origin ", "https://evil.test")),
    "old version": lambda api: append(api.token, 9).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "it closes": lambda api: append(api.token, 9, ("Connection", "close")),
    "another path": lambda api: request_of("GET", "/healthz", [("Host", "localhost")]),
    "nonsense": lambda api: b"\x16\x03\x01\r\n\r\n",
}


def revoked(api: Api) -> str:
    made = api.tokens.new("writer")
    api.tokens.revoke(made.token.id)
    return made.text


def said(answers: list[Answer]) -> list[Any]:
    """The answers, without what differs between two ledgers."""
    return [(one.status, sorted(one.headers), _without(one.json())) for one in answers]


def _without(found: Any) -> Any:
    if isinstance(found, dict):
        varies = ("digest", "recorded_at")
        return {key: _without(one) for key, one in found.items() if key not in varies}
    return [_without(one) for one in found] if isinstance(found, list) else found


class Sent(NamedTuple):
    """A request: where it is cut, and whether the next one comes in the same piece as its end."""

    name: str
    cuts: list[int] = []
    goes_on: bool = False


def pieces_of(requests: list[Sent], api: Api) -> list[bytes]:
    pieces, begun = [], b""
    for one in requests:
        text = REQUESTS[one.name](api)
        places = [0, *sorted(cut % len(text) for cut in one.cuts), len(text)]
        first, *rest = [text[a:b] for a, b in pairwise(places)]
        pieces += [begun + first, *rest]
        begun = pieces.pop() if one.goes_on else b""
    return [one for one in (*pieces, begun) if one]


def exchanged(requests: list[Sent], *, quick: bool) -> Any:
    """The answers to these requests, whether the connection was closed, and the rows."""
    with Api() as api:

        async def exchange() -> Any:
            wire = Wire(api, quick=quick, limits=Limits(head_seconds=3600))
            pieces = pieces_of(requests, api)
            answers = await wire.exchange(*pieces, answers=len(requests))
            assert wire.bodies.held == 0
            return said(answers), wire.is_closed

        found = api.run(exchange())
        return found, [(one.version, one.data) for one in api.ledger.tail()]


@settings(max_examples=25)  # each has two applications of its own
@given(
    st.lists(
        st.builds(
            Sent,
            st.sampled_from(list(REQUESTS)),
            st.lists(st.integers(0, 10_000), max_size=2),
            st.booleans(),
        ),
        min_size=1,
        max_size=MANY,
    )
)
@example([Sent("plain"), Sent("another path"), Sent("plain, again")])
@example([Sent("plain", goes_on=True), Sent("not plain", goes_on=True), Sent("plain, again")])
def test_answers_are_those_of_the_application(requests: list[Sent]) -> None:
    """Of any requests on one connection, in any pieces: answers, their order, and the end."""
    assert exchanged(requests, quick=True) == exchanged(requests, quick=False)


@pytest.mark.parametrize("name", REQUESTS)
def test_each_request_by_itself(name: str) -> None:
    """The same, of each request, whole: one that is wrongly taken for plain is told apart."""
    assert exchanged([Sent(name)], quick=True) == exchanged([Sent(name)], quick=False)


class Held:
    """Holds the ledger's appends up until it is told to let them go."""

    def __init__(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.go = Flag(), Flag()
        real = api.ledger.append

        def held(*args: Any, **more: Any) -> Any:
            self.began.set()
            assert self.go.wait(60)
            return real(*args, **more)

        monkeypatch.setattr(api.ledger, "append", held)


def test_a_body_that_is_late_is_the_applications(api: Api) -> None:
    """A plain head has come in time; from then on its body has the time of a body."""
    request = append(api.token, 50)

    async def exchange() -> list[Answer]:
        wire = Wire(api)
        wire.connection.data_received(request[:-9])
        assert list(wire.shared.waiting) == [wire.connection]
        wire.connection._head_is_late()
        assert not wire.shared.waiting
        return await wire.exchange(request[-9:])

    assert [one.status for one in api.run(exchange())] == [201]


@pytest.mark.parametrize("limits", [Limits(body_bytes=10), Limits(bodies_bytes=10)], ids=str)
def test_limits_of_bodies_hold(api: Api, limits: Limits) -> None:
    """For plain requests as for others."""
    found = []
    for quick in (True, False):

        async def exchange(quick: bool = quick) -> list[Any]:
            return said(await Wire(api, quick=quick, limits=limits).exchange(append(api.token, 1)))

        found.append(api.run(exchange()))
    assert found[0] == found[1]
    ((status, *_),) = found[0]
    assert status in (413, 503)


def test_a_connection_is_closed_when_it_is_idle(api: Api) -> None:
    """After a plain request as after any other."""

    async def exchange() -> list[Answer]:
        wire = Wire(api, limits=Limits(idle_seconds=0.01))
        answers = await wire.exchange(append(api.token, 1))
        await wire.until(lambda: wire.is_closed)
        return answers

    assert [one.status for one in api.run(exchange())] == [201]


def test_a_client_that_does_not_read_waits(api: Api) -> None:
    """It is the application's, which waits until the client has read: answers don't pile up."""

    async def exchange() -> list[Answer]:
        wire = Wire(api)
        wire.connection.pause_writing()
        wire.connection.data_received(append(api.token, 1))
        assert wire.connection._is_answering()
        wire.connection.resume_writing()
        return await wire.exchange()

    assert [one.status for one in api.run(exchange())] == [201]


def test_a_stop_answers_what_is_under_way(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """And closes then: the client must not take the end for a failed append."""
    held = Held(api, monkeypatch)

    async def exchange() -> tuple[list[Answer], bool]:
        wire = Wire(api)
        wire.connection.data_received(append(api.token, 1))
        wire.connection.shutdown()
        assert not wire.is_closed
        held.go.set()
        answers = await wire.exchange()
        await wire.until(lambda: wire.is_closed)
        return answers, wire.is_closed

    (answer,), is_closed = api.run(exchange())
    assert (answer.status, is_closed) == (201, True)


def test_a_stop_waits_for_the_rest_of_a_body(api: Api) -> None:
    """As it does for one that the application reads."""
    request = append(api.token, 1)

    async def exchange() -> list[Answer]:
        wire = Wire(api)
        wire.connection.data_received(request[:-1])
        wire.connection.shutdown()
        answers = await wire.exchange(request[-1:])
        await wire.until(lambda: wire.is_closed)
        return answers

    assert [one.status for one in api.run(exchange())] == [201]


def test_a_client_that_goes_leaves_nothing_behind(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its append is recorded, no answer is sent, and its bytes are not counted any more."""
    held = Held(api, monkeypatch)

    async def exchange() -> None:
        wire = Wire(api)
        wire.connection.data_received(append(api.token, 1))
        assert wire.bodies.held > 0
        wire.close()
        held.go.set()
        await api.app.served.work.close()
        await asyncio.sleep(0)
        assert (wire.written, wire.bodies.held) == (b"", 0)

    api.run(exchange())
    assert len(list(api.ledger.tail())) == 1


def test_half_a_request_is_not_counted_any_more(api: Api) -> None:
    """It counts among the bodies under way until its client goes."""

    async def exchange() -> tuple[int, int]:
        wire = Wire(api)
        half = append(api.token, 1)[:-1]
        wire.connection.data_received(half)
        held = wire.bodies.held - len(half)
        wire.close()
        return held, wire.bodies.held

    assert api.run(exchange()) == (0, 0)


def test_the_ledger_is_not_closed_under_an_append(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application's end waits for the thread, although its client has gone."""
    held = Held(api, monkeypatch)

    async def end() -> None:
        wire = Wire(api)
        wire.connection.data_received(append(api.token, 1))
        wire.close()
        async with api.app.routes.router.lifespan_context(api.app.routes):
            held.began.wait()
            held.go.set()

    api.run(end())
    assert len(list(api.ledger.tail())) == 1
