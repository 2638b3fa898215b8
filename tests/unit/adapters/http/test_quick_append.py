"""Plain appends go around h11 and the framework: each answer is the one that the route gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from tests.matrices import cells
from tests.secret_samples import samples
from tests.unit.adapters.http.calling import Api
from tests.unit.adapters.http.wire import Answer, Wire, request_of
from turnledger.adapters.http.routes.run import events as routes
from turnledger.adapters.http.routes.run import quick_append
from turnledger.ledger import CustomEvent, Event, RunStarted, StoreBusyError, StoreUnavailableError

SECRET = samples(3, 1, ["github-token"])[0].text
UNPLAIN = "&known=refuse"  # says what is so anyway, and takes the request through the route


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as made:
        yield made


def item(event: Event, event_id: UUID | None = None) -> dict[str, Any]:
    return {"type": event.tag, "data": event, "event_id": event_id or uuid4()}


def body(*items: Any) -> bytes:
    return msgspec.json.encode(items)


def post(
    api: Api,
    run: UUID,
    content: bytes,
    *,
    plain: bool = True,
    token: str | None = None,
    **headers: str,
) -> Answer:
    sent = {
        "host": "localhost",
        "content-type": "application/json",
        "if-none-match": "*",
        "authorization": f"Bearer {api.token if token is None else token}",
    }
    sent.update({name.replace("_", "-"): value for name, value in headers.items()})
    given = [(name, value) for name, value in sent.items() if value]
    path = f"/v1/runs/{run}/events?expect=any" + ("" if plain else UNPLAIN)

    async def exchange() -> Answer:
        (answer,) = await Wire(api).exchange(request_of("POST", path, given, content))
        return answer

    return api.run(exchange())


NOTE = CustomEvent(kind="shop.note", data={"text": "Grüße", "n": [1, 2.5, None]})
BODIES = {
    "stored form": body(item(RunStarted(tags={"a": "b"})), item(NOTE)),
    "white space": msgspec.json.format(body(item(RunStarted()), item(NOTE))),
    "no ids": body({"type": "custom", "data": NOTE}),
    "id in capitals": body({**item(NOTE), "event_id": str(uuid4()).upper()}),
    "whole number with a fraction": b'[{"type":"prompt.tag_moved","data":{"version":1.0}}]',
    "a secret": body(item(CustomEvent(kind="shop.note", data=SECRET))),
    "a blob": body({"type": "blob", "data": {"content": "eA=="}}, item(NOTE)),
    "an id twice": body(*[item(NOTE, uuid4())] * 2),
    "a later start": body(item(NOTE), item(RunStarted())),
    "unknown type": body({**item(NOTE), "type": "nothing"}),
    "a claim": body({**item(NOTE), "type": "run.claimed", "data": {"worker": "w", "epoch": 1}}),
    "unknown field": body({**item(NOTE), "more": 1}),
    "wrong field": body({"type": "custom", "data": {"kind": 1}, "event_id": uuid4()}),
    "a number beyond 64 bits": b'[{"type":"custom","data":{"kind":"a.b","data":%d}}]' % 2**70,
    "deep": body(item(NOTE)).replace(b"[1,2.5,null]", b"[" * 200 + b"]" * 200),
    "no events": b"[]",
    "not an array": b"{}",
    "not JSON": b"[{",
    "not UTF-8": body(item(NOTE)).replace("ü".encode(), b"\xff"),
}


def compared(response: Answer) -> Any:
    """An answer without what differs from run to run."""
    found = response.json()
    for key in ("run_id", "digest"):
        found.pop(key, None)
    for one in found.get("events", ()):
        for key in ("event_id", "digest", "position", "recorded_at"):
            one.pop(key, None)
    varies = ("content-length", "date")
    headers = {name: value for name, value in response.headers.items() if name not in varies}
    return response.status, headers, found


@pytest.mark.parametrize(("name", "times"), cells(list(BODIES), [1, 2]))
def test_an_answer_is_that_of_the_route(name: str, times: int) -> None:
    """To the same body in the same state: status, headers, members and what is recorded."""
    found = []
    for plain in (True, False):
        run = UUID(int=7)
        with Api() as api:
            answers = [post(api, run, BODIES[name], plain=plain) for _ in range(times)]
            rows = [(one.version, one.tag, one.data) for one in api.ledger.tail()]
            found.append(([compared(one) for one in answers], rows))
            assert SECRET not in str(rows)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"if_none_match": "", "if_match": '"0"'},
        {"if_none_match": "", "if_match": '"7"'},
        {"if_match": '"7"'},
        {"if_match": "7"},
        {"if_match": "seven"},
        {"if_none_match": '"1"'},
        {"turnledger_epoch": "3"},
        {"turnledger_epoch": "three"},
        {"turnledger_epoch": "9" * 19},
        {"content_type": "text/plain"},
        {"content_type": "application/json; charset=utf-8"},
        {"accept": "application/x-ndjson"},
        {"host": "evil.example"},
        {"origin": "https://evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"authorization": "Basic abc"},
        {"authorization": "Bearer tl_wrong"},
        {"authorization": ""},
    ],
    ids=str,
)
def test_headers_count_as_at_the_route(headers: dict[str, str]) -> None:
    """Conditions, epochs, types, hosts, origins and tokens: the same answer."""
    found = []
    for plain in (True, False):
        with Api() as api:
            answer = post(api, UUID(int=7), BODIES["stored form"], plain=plain, **headers)
            lines = answer.headers["content-type"] == "application/x-ndjson"
            found.append(answer.status if lines else compared(answer))
    assert found[0] == found[1]


ID = str(uuid4())


@pytest.mark.parametrize(
    "item",
    [
        '{"type":"run.started","type":"custom","data":{"kind":"a.b"},"event_id":"%s"}',
        '{"type":"custom","data":{"kind":5},"data":{"kind":"a.b"},"event_id":"%s"}',
        '{"type":"custom","data":{"kind":"a.b"},"event_id":"nobody","event_id":"%s"}',
    ],
    ids=["type", "data", "event_id"],
)
def test_a_name_twice_hides_nothing_from_the_schema(api: Api, item: str) -> None:
    """Whatever reads the body on its way sees one of the two: both are checked."""
    answer = post(api, UUID(int=7), f"[{item % ID}]".encode())
    assert answer.status == 422
    assert not list(api.ledger.tail())


def test_roles_count_and_a_revoked_token_is_refused_at_once(api: Api) -> None:
    """The token is looked up for each request, in the thread that appends."""
    reader, writer = api.token_of("reader"), api.token_of("writer")
    content = BODIES["stored form"]
    assert post(api, uuid4(), content, token=reader).status == 403
    assert post(api, UUID(int=9), content, token=writer).status == 201
    api.tokens.revoke(writer.split("_")[1])
    assert post(api, UUID(int=9), content, token=writer).status == 401
    assert len(list(api.ledger.tail())) == 2


def test_a_plain_append_takes_the_quick_way(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else these tests compare the route with itself; it is counted and logged as the route is."""
    ways = []

    def spy(module: Any) -> None:
        real = module.append_body
        monkeypatch.setattr(
            module, "append_body", lambda *a, **more: (ways.append(module), real(*a, **more))[1]
        )

    spy(quick_append)
    spy(routes)
    post(api, UUID(int=1), BODIES["stored form"])
    post(api, UUID(int=1), BODIES["stored form"], plain=False)
    assert ways == [quick_append, routes]
    figures = api.call("GET", "/metrics").text
    route = 'method="POST",route="/v1/runs/{run}/events"'
    assert f'turnledger_http_requests_total{{{route},status="201"}} 1' in figures
    assert f'turnledger_http_requests_total{{{route},status="200"}} 1' in figures
    assert "turnledger_appended_events_total 2" in figures


def test_a_store_that_fails_is_the_same_problem(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """503 with Retry-After, and a line in the log; it is not tried a second time."""
    tries = []

    def fail(*_: object, **__: object) -> None:
        tries.append(1)
        raise StoreBusyError("busy")

    monkeypatch.setattr(api.ledger, "append", fail)
    quick, route = (
        compared(post(api, UUID(int=1), BODIES["stored form"], plain=plain))
        for plain in (True, False)
    )
    assert quick == route
    assert (quick[0], quick[1]["retry-after"]) == (503, "1")
    assert len(caplog.records) == len(tries) == 2


@pytest.mark.parametrize("failing", ["append", "token"])
@pytest.mark.parametrize("plain", [True, False])
def test_every_failure_is_a_problem(
    failing: str, plain: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where no route is reached: a store that is away is 503, anything else 500 with an id."""
    with Api() as api:
        api._transport.raise_app_exceptions = False  # uvicorn logs them

        def answer_to(error: Exception) -> tuple[int, Any, Any]:
            def fail(*_: object, **__: object) -> None:
                raise error

            owner: Any = api.ledger if failing == "append" else api.app.served._tokens
            monkeypatch.setattr(owner, "append" if failing == "append" else "check", fail)
            found = post(api, UUID(int=1), BODIES["stored form"], plain=plain)
            assert found.headers["x-content-type-options"] == "nosniff"
            return found.status, found.headers.get("retry-after"), found.json()

        status, again, said = answer_to(StoreUnavailableError("away"))
        assert (status, again, said["error"]) == (503, "1", "StoreUnavailableError")
        assert len(caplog.records) == 1
        status, _, said = answer_to(RuntimeError(f"with {SECRET}"))
        assert (status, said["type"]) == (500, "urn:turnledger:problem:internal-error")
        assert SECRET not in str(said)


def test_a_large_body_is_read_after_its_token(api: Api) -> None:
    """Only what the server buffers anyway is read for a caller that nobody knows yet."""
    large = body(*[item(CustomEvent(kind="a.b", data="x" * 1000)) for _ in range(100)])
    assert is_plain(large[:100])
    assert not is_plain(large)
    assert post(api, uuid4(), large).status == 201


def is_plain(content: bytes, **more: str) -> bool:
    headers = [
        ("Host", "localhost:8321"),
        ("Authorization", "Bearer x"),
        ("Content-Type", "application/json"),
        *((name.replace("_", "-"), value) for name, value in more.items()),
    ]
    request = request_of("POST", f"/v1/runs/{ID}/events", headers, content)
    return quick_append.plain_append(request, frozenset({"localhost"})) is not None


@pytest.mark.parametrize(
    "more",
    [
        {"User_Agent": "curl/8.5.0", "Accept": "*/*"},
        {"Accept": "*/*", "Accept_Encoding": "gzip, deflate", "Connection": "keep-alive"},
        {"Accept_Language": "*", "Sec_Fetch_Mode": "cors", "User_Agent": "node"},
        {"X_Forwarded_For": "10.0.0.1, ::1", "X_Forwarded_Proto": "https", "Via": "1.1 Caddy"},
    ],
    ids=["curl", "httpx", "node", "proxy"],
)
def test_what_clients_send_is_plain(more: dict[str, str]) -> None:
    """curl, httpx, node's fetch, and any of them behind a proxy."""
    assert is_plain(b"[]", **more)
    assert not is_plain(b"[]", **more, Origin="https://localhost:8321")
