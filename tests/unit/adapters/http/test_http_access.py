"""Every route of the API refuses who must not call it, from wherever the call comes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from tests.unit.adapters.http.calling import Api
from turnledger.adapters.http.protocol.access import COOKIE, ROLES, Role, host_name
from turnledger.adapters.http.protocol.sessions import CODE_SECONDS, Sessions
from turnledger.ledger import Clock, SystemClock, Tokens

RUN = "01890000-0000-7000-8000-000000000001"
SITE = "https://pages.example"


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with Api(origins=[SITE]) as made:
        yield made


def routes() -> list[tuple[str, str, Role]]:
    """Method, path and role of every operation."""
    with Api() as api:
        return [(one.method, one.path, one.role) for one in api.app.api.operations]


def address(path: str) -> str:
    names = {
        "{run}": RUN,
        "{version}": "1",
        "{event_id}": RUN,
        "{view}": "tools",
        "{hash}": "sha256:" + "0" * 64,
    }
    for name, value in names.items():
        path = path.replace(name, value)
    assert "{" not in path, f"an example of a parameter of {path} is missing here"
    return path


ROLE_OF = {(method, path): role for method, path, role in routes()}
GUARDED = [route for route, role in ROLE_OF.items() if role != "public"]
ALL = list(ROLE_OF)
UNKNOWN = ("Bearer", "Bearer tl_x_y", "Basic dXNlcjpwYXNz", f"Bearer tl_{'0' * 12}_{'0' * 64}")
EVIL_HOSTS = ("evil.example", "localhost.evil.example", "", "[", "127.0.0.2")
EVIL_ORIGINS = ("https://evil.example", "null", "http://localhost:1", "https://localhost", "")


def refused(response: httpx.Response, status: int, kind: str) -> None:
    assert response.status_code == status, response.text
    problem = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert (problem["type"], problem["status"]) == (f"urn:turnledger:problem:{kind}", status)
    assert "access-control-allow-origin" not in response.headers


def cookie_of(api: Api) -> dict[str, str]:
    """The headers of a page that has a session."""
    made = api.app.served.sessions.exchange(api.app.served.sessions.new_code("admin"))
    assert made is not None
    return {"cookie": f"{COOKIE}={made[0]}", "x-turnledger": "1"}


def test_every_route_has_a_role() -> None:
    """A route that was added in another way than by Api.add would be open to everybody."""
    with Api() as api:
        known = {(one.method, one.path) for one in api.app.api.operations}
        found = {
            (method, route.path)
            for route in api.app.routes.routes
            if isinstance(route, APIRoute)
            for method in route.methods or ()
        }
        assert found == known
        assert len(api.app.routes.routes) == len(known)
        public = {one.path for one in api.app.api.operations if one.role == "public"}
        assert public == {"/healthz", "/readyz", "/v1/session"}


@pytest.mark.parametrize(("method", "path"), GUARDED)
class TestTokens:
    """A route that is not public wants a token, valid and of a sufficient role."""

    def test_none(self, api: Api, method: str, path: str) -> None:
        """It says how to send one."""
        response = api.send(method, address(path), {})
        refused(response, 401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"

    def test_unknown(self, api: Api, method: str, path: str) -> None:
        """Not even a reader's rights."""
        for given in UNKNOWN:
            refused(api.send(method, address(path), {"authorization": given}), 401, "unauthorized")

    def test_expired(self, api: Api, method: str, path: str) -> None:
        """From the moment on that it was made for."""
        token = expired_token(api)
        refused(api.call(method, address(path), token=token), 401, "unauthorized")

    def test_revoked(self, api: Api, method: str, path: str) -> None:
        """At once."""
        made = api.tokens.new("admin")
        api.tokens.revoke(made.token.id)
        refused(api.call(method, address(path), token=made.text), 401, "unauthorized")

    def test_wrong_role(self, api: Api, method: str, path: str) -> None:
        """The role below the one that it needs is not enough."""
        below = ROLES[ROLES.index(ROLE_OF[method, path]) - 1]
        if below == "public":
            refused(api.call(method, address(path), token=""), 401, "unauthorized")
        else:
            refused(api.call(method, address(path), token=api.token_of(below)), 403, "forbidden")


class Past(SystemClock):
    """A clock of an hour ago."""

    def micros(self) -> int:
        return super().micros() - 3_600_000_000


def expired_token(api: Api) -> str:
    clock: Clock = Past()
    ledger, now = api.ledger, api.ledger.clock
    ledger._clock = clock
    try:
        return Tokens(ledger).new("admin", expires_in=timedelta(minutes=1)).text
    finally:
        ledger._clock = now


@pytest.mark.parametrize(("method", "path"), ALL)
class TestSites:
    """No page of another site reaches a route, whatever credentials its browser has."""

    def test_evil_host(self, api: Api, method: str, path: str) -> None:
        """A rebound name is not one of the server's."""
        for host in EVIL_HOSTS:
            refused(api.call(method, address(path), headers={"host": host}), 421, "host-refused")

    def test_no_host(self, api: Api, method: str, path: str) -> None:
        """An absent Host is not better than a foreign one."""
        status, body = raw(api, method, address(path), [])
        assert (status, "host-refused" in body) == (421, True)

    def test_two_hosts(self, api: Api, method: str, path: str) -> None:
        """Which one counts would be a matter of taste."""
        hosts = [(b"host", b"localhost"), (b"host", b"localhost")]
        assert raw(api, method, address(path), hosts)[0] == 421

    def test_evil_origin(self, api: Api, method: str, path: str) -> None:
        """With a token too: a page that has got hold of one is still another site's."""
        for origin in EVIL_ORIGINS:
            headers = {"origin": origin}
            refused(api.call(method, address(path), headers=headers), 403, "origin-refused")

    def test_other_site(self, api: Api, method: str, path: str) -> None:
        """Also when the browser sends no Origin."""
        for site in ("cross-site", "same-site", "x"):
            headers = {"sec-fetch-site": site}
            refused(api.call(method, address(path), headers=headers), 403, "origin-refused")
        headers["origin"] = "http://localhost"
        refused(api.call(method, address(path), headers=headers), 403, "origin-refused")


@pytest.mark.parametrize(("method", "path"), GUARDED)
class TestCookies:
    """A session's cookie counts only for a page of this server."""

    def test_without_the_header(self, api: Api, method: str, path: str) -> None:
        """A form of another site sends cookies, but not this header."""
        headers = cookie_of(api)
        del headers["x-turnledger"]
        form = {"content-type": "application/x-www-form-urlencoded"}
        refused(api.send(method, address(path), {**headers, **form}), 401, "unauthorized")

    def test_of_another_site(self, api: Api, method: str, path: str) -> None:
        """A page that may call with a token may not with a cookie that is not its own."""
        headers = {**cookie_of(api), "origin": "https://evil.example"}
        refused(api.send(method, address(path), headers), 403, "origin-refused")

    def test_that_changes_something_without_origin(self, api: Api, method: str, path: str) -> None:
        """What shows neither where it comes from nor a token is refused."""
        if method == "GET":
            assert status_of(api, method, address(path), cookie_of(api)) not in (401, 403)
        else:
            refused(api.send(method, address(path), cookie_of(api)), 403, "origin-refused")

    def test_twice_or_unknown(self, api: Api, method: str, path: str) -> None:
        """Of two cookies one was put there by somebody else."""
        headers = {**cookie_of(api), "origin": "http://localhost"}
        for cookie in (f"{headers['cookie']}; {COOKIE}=x", f"{COOKIE}=x"):
            sent = {**headers, "cookie": cookie}
            refused(api.send(method, address(path), sent), 401, "unauthorized")


def scope_of(method: str, path: str, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    """A request as the application gets it."""
    return {
        "type": "http",
        "method": method,
        "path": path,
        "scheme": "http",
        "query_string": b"",
        "headers": headers,
    }


def raw(api: Api, method: str, path: str, headers: list[tuple[bytes, bytes]]) -> tuple[int, str]:
    """A request with exactly these headers, which a client would not send."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    api.run(api.app(scope_of(method, path, headers), receive, send))
    return sent[0]["status"], sent[1]["body"].decode()


def status_of(api: Api, method: str, path: str, headers: dict[str, str]) -> int:
    """The status of an answer, whose client disconnects when it has it: a stream never ends."""
    found: list[int] = []
    given = [(name.encode(), text.encode()) for name, text in headers.items()]

    async def ask() -> None:
        begun = asyncio.Event()

        async def receive() -> Any:
            await begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                found.append(message["status"])
                begun.set()
            elif message.get("more_body"):
                await asyncio.Event().wait()  # until the disconnect ends the answer

        await api.app(scope_of(method, path, [(b"host", b"localhost"), *given]), receive, send)

    api.run(ask())
    (status,) = found
    return status


# --- who may -----------------------------------------------------------------------------------


def test_a_page_of_this_server_works_with_its_cookie(api: Api) -> None:
    """A code becomes a cookie that scripts can't read, once; ended, it is worth nothing."""
    page = {"x-turnledger": "1", "origin": "http://localhost"}
    body = {"code": api.app.served.sessions.new_code("writer")}
    assert api.send("POST", "/v1/session", {"origin": "http://localhost"}, json=body).is_error
    begun = api.send("POST", "/v1/session", page, json=body)
    assert (begun.status_code, begun.json()["role"]) == (200, "writer")
    cookie = begun.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {one.strip() for one in cookie.split(";")}
    refused(api.send("POST", "/v1/session", page, json=body), 401, "unauthorized")
    headers = {**page, "cookie": cookie.partition(";")[0]}
    assert api.send("GET", "/v1/session", headers).json()["role"] == "writer"
    run = api.new_run()
    events = [{"type": "run.completed", "data": {}}]
    sent = {**headers, "if-match": '"1"'}
    assert api.send("POST", f"/v1/runs/{run}/events", sent, json=events).status_code == 201
    assert api.send("DELETE", "/v1/session", headers).status_code == 204
    refused(api.send("GET", "/v1/session", headers), 401, "unauthorized")


def test_a_page_of_an_allowed_site_calls_with_a_token(api: Api) -> None:
    """It may read the answer, and ask before; others may not."""
    headers = {"origin": SITE, "sec-fetch-site": "cross-site"}
    asked = {**headers, "access-control-request-method": "POST"}
    before = api.send("OPTIONS", "/v1/runs", asked)
    assert (before.status_code, before.headers["access-control-allow-origin"]) == (204, SITE)
    assert "authorization" in before.headers["access-control-allow-headers"]
    found = api.call("GET", "/v1/runs", headers=headers)
    assert (found.status_code, found.headers["access-control-allow-origin"]) == (200, SITE)
    assert "access-control-allow-credentials" not in found.headers
    assert "access-control-allow-origin" not in api.call("GET", "/v1/runs").headers


def test_a_code_and_a_session_end() -> None:
    """A code after a minute; a session after half a day."""
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    late, code = sessions.new_code("reader"), sessions.new_code("reader")
    made = sessions.exchange(code)
    assert made is not None
    assert sessions.exchange(code) is None
    now[0] = CODE_SECONDS
    assert sessions.exchange(late) is None
    now[0] = 12 * 3600
    with Api() as api:
        assert api.run(sessions.caller(made[0])) is None


def test_behind_a_proxy_its_own_pages_may_have_tls() -> None:
    """The proxy speaks plain HTTP to the server; the browser does not."""
    with Api(any_scheme=True, hosts=["ledger.example"]) as api:
        headers = {"host": "ledger.example", "origin": "https://ledger.example"}
        assert api.call("GET", "/v1/runs", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("LocalHost:8321", "localhost"),
        ("localhost.", "localhost"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("a@localhost", ""),
        ("[", ""),
        (":80", ""),
    ],
)
def test_the_name_of_a_host(host: str, name: str) -> None:
    """Without its port, in lower case."""
    assert host_name(host) == name
