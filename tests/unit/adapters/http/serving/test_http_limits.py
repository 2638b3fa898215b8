"""Limits of bodies and of nesting, and the rules for where to listen, without a process."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from turnledger.adapters.http.serving.limits import LimitBodies
from turnledger.adapters.http.serving.listener import ListenError, listen
from turnledger.adapters.http.serving.server import ServeError, serve
from turnledger.adapters.http.serving.settings import Limits, Settings, TlsFiles
from turnledger.ledger import InvalidInputError

# --- bodies ---------------------------------------------------------------------------


async def read(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def fail(request: Request) -> Response:
    await request.body()
    raise RuntimeError("of the application")


APP = Starlette(routes=[Route("/", read, methods=["POST"]), Route("/fail", fail, methods=["POST"])])


async def post(app: LimitBodies, *pieces: bytes, path: str = "/") -> tuple[int, Any]:
    """Status and body of the answer to a request whose body comes in these pieces."""
    coming = [{"type": "http.request", "body": one, "more_body": True} for one in pieces]
    coming.append({"type": "http.request", "body": b"", "more_body": False})
    sent: list[Any] = []

    async def receive() -> Any:
        return coming.pop(0) if coming else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    await app({**scope, "query_string": b"", "root_path": ""}, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(body)


def test_a_body_up_to_the_limit_is_read() -> None:
    """One more byte is refused, although an application has begun to read."""
    app = LimitBodies(APP, Limits(body_bytes=10))
    assert asyncio.run(post(app, b"12345", b"67890")) == (200, 10)
    status, problem = asyncio.run(post(app, b"12345", b"67890", b"x"))
    assert (status, problem["type"]) == (413, "urn:turnledger:problem:too-large")
    assert app.held == 0


def test_all_bodies_together_have_a_limit() -> None:
    """Many that are each small enough do not fill the memory; those after them are read again."""

    async def check(app: LimitBodies) -> None:
        app.held = 95  # of others
        status, problem = await post(app, b"123456")
        assert (status, problem["type"]) == (503, "urn:turnledger:problem:server-full")
        assert app.held == 95
        assert await post(app, b"12345") == (200, 5)

    asyncio.run(check(LimitBodies(APP, Limits(bodies_bytes=100))))


def test_an_error_of_the_application_stays_one() -> None:
    """Only what follows a refusal is swallowed."""
    with pytest.raises(RuntimeError, match="of the application"):
        asyncio.run(post(LimitBodies(APP, Limits()), b"12345", path="/fail"))


# --- where to listen ------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_beyond_loopback_only_with_tls_or_behind_a_proxy(host: str) -> None:
    """Tokens would cross the network in clear text; the error says what to give."""
    with pytest.raises(ListenError, match="--tls-cert and --tls-key, or --behind-proxy"):
        listen(Settings(host=host, port=0))
    with listen(Settings(host=host, port=0, behind_proxy=True)) as listener:
        assert listener.url == f"http://localhost:{listener.port}"
    tls = TlsFiles(Path("certificate.pem"), Path("key.pem"))
    with listen(Settings(host=host, port=0, tls=tls, allowed_hosts=("a.example",))) as listener:
        assert listener.url == f"https://a.example:{listener.port}"


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "127.0.0.1"), ("127.1.2.3", "127.1.2.3"), ("::1", "[::1]"), ("[::1]", "[::1]")],
)
def test_loopback_needs_nothing(host: str, url: str) -> None:
    """A free port is told."""
    with listen(Settings(host=host, port=0)) as listener:
        assert listener.url == f"http://{url}:{listener.port}"
        assert listener.port > 0


def test_answers_are_not_delayed() -> None:
    """asyncio sets TCP_NODELAY on connections only if their listener names the protocol."""
    with listen(Settings(port=0)) as listener:
        assert listener.socket.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [
        ("no-such-host.invalid", 0, "the host has no address here"),
        ("a" * 70 + ".example", 0, "the host has no address here"),
        ("127.0.0.1", 70000, "expected a port from 0 to 65535"),
        ("203.0.113.7", 0, "this machine does not have that address"),
    ],
)
def test_what_can_not_be_listened_on_is_a_typed_error(host: str, port: int, reason: str) -> None:
    """It names the host, the port and what to do."""
    with pytest.raises(ListenError, match=reason) as caught:
        listen(Settings(host=host, port=port, behind_proxy=True))
    assert (caught.value.host, caught.value.port) == (host, port)


def test_names_that_the_server_is_called_by() -> None:
    """The one to listen on, unless it stands for all, and those that are allowed."""
    assert Settings(host="a.example", allowed_hosts=("[::2]",)).host_names == ("a.example", "::2")
    assert Settings(host="0.0.0.0", allowed_hosts=("b.example",)).host_names == ("b.example",)


@pytest.mark.parametrize("wrong", [0, -1, True, "9", float("nan")])
def test_a_limit_is_a_number_above_0(wrong: Any) -> None:
    """No limit can be switched off by mistake."""
    with pytest.raises(InvalidInputError, match=r"Limits\(body_bytes=...\)"):
        Limits(body_bytes=wrong)


def test_tls_files_that_are_none_are_named(tmp_path: Path) -> None:
    """Nothing is served in clear text instead, and the port is free again."""
    (tmp_path / "empty.pem").touch()
    tls = TlsFiles(tmp_path / "empty.pem", tmp_path / "missing.pem")
    settings = Settings(port=0, tls=tls)
    listener = listen(settings)
    with pytest.raises(ServeError, match=r"empty\.pem and .*missing\.pem"):
        serve(APP, listener, settings)
    assert listener.socket.fileno() == -1
