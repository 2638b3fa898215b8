"""A hostile client of `turnledger serve`, a real process on both stores."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psutil
import pytest

from tests import postgres
from tests.e2e.driving import PROGRAM
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Ledger,
    RunStarted,
    Tokens,
    ToolCallStarted,
    new_run_id,
)

pytestmark = pytest.mark.process

PATIENCE = 60.0
MIB = 1024 * 1024
KEY, OTHER_KEY = "k" * 20, "j" * 20
FOREVER = "private, max-age=31536000, immutable"


class Attacked:
    """A served ledger, and the same ledger opened beside it."""

    def __init__(
        self, process: subprocess.Popen[str], ledger: Ledger, token: str, log: Path
    ) -> None:
        assert process.stdout is not None
        self.process, self.ledger, self.token, self.log = process, ledger, token, log
        self.url = process.stdout.readline().strip()
        headers = {"authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE)

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(path, json=body, headers=named)

    def raw(self, text: str) -> socket.socket:
        """A connection that has sent this, with the token for `TOKEN`."""
        port = int(self.url.rpartition(":")[2])
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        connection.sendall(text.replace("TOKEN", self.token).encode("latin-1"))
        return connection

    def answer(self, text: str) -> str:
        """What is answered to it on a connection that is closed then."""
        with self.raw(text) as connection:
            return b"".join(iter(lambda: connection.recv(MIB), b"")).decode("latin-1")

    def new_run(self, events: int = 0) -> UUID:
        run = new_run_id()
        self.ledger.append(run, RunStarted(), NEW)
        for number in range(events):
            self.ledger.append(run, CustomEvent(kind="acme.note", data=number), ANY)
        return run


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("hostile")
    log = folder / "log"
    sqlite = request.param == "sqlite"
    place = str(folder / "runs.db") if sqlite else postgres.new_database()
    with (
        Ledger.open(place) as ledger,
        log.open("w") as stderr,
        subprocess.Popen(
            [PROGRAM, "serve", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "TURNLEDGER_DB": place},
            text=True,
        ) as process,
    ):
        made = Attacked(process, ledger, Tokens(ledger).new("admin").text, log)
        try:
            yield made
        finally:
            made.http.close()
            process.kill()


# --- heads ----------------------------------------------------------------------------

AUTH = "Authorization: Bearer TOKEN"
HOST = "Host: localhost"
HEADS = {
    "its own": ("GET /v1/runs", [HOST, AUTH], 200),
    "a scheme in capitals": ("GET /v1/runs", [HOST, AUTH.replace("Bearer", "BEARER")], 200),
    "no host": ("GET /v1/runs", [AUTH], 400),
    "two hosts": ("GET /v1/runs", [HOST, HOST, AUTH], 400),
    "two hosts in one": ("GET /v1/runs", ["Host: localhost, evil", AUTH], 421),
    "a folded host": ("GET /v1/runs", ["Host: localhost\r\n evil", AUTH], 421),
    "an encoded host": ("GET /v1/runs", ["Host: %6cocalhost", AUTH], 421),
    "a user in the host": ("GET /v1/runs", ["Host: localhost@evil", AUTH], 421),
    "another address of loopback": ("GET /v1/runs", ["Host: 127.1", AUTH], 421),
    "a forwarded host": ("GET /v1/runs", ["Host: evil", "X-Forwarded-Host: localhost", AUTH], 421),
    "an absolute target": ("GET http://localhost/v1/runs", [HOST, AUTH], 404),
    "a target of another host": ("GET http://evil/v1/runs", [HOST, AUTH], 404),
    "a path around the role": ("GET /healthz/../v1/runs", [HOST], 404),
    "an encoded path": ("GET /v1%2Fruns", [HOST], 401),
    "trace": ("TRACE /v1/runs", [HOST, AUTH], 405),
    "another method": ("GET /v1/session", [HOST, "X-HTTP-Method-Override: POST"], 401),
    "two tokens": ("GET /v1/runs", [HOST, AUTH, "Authorization: Bearer x"], 401),
    "bytes as a token": ("GET /v1/runs", [HOST, "Authorization: Bearer \xff\xe9"], 401),
    "a token in the address": ("GET /v1/runs?token=TOKEN", [HOST], 401),
    "a token in a cookie": (
        "GET /v1/runs",
        [HOST, "Cookie: turnledger=TOKEN", "X-Turnledger: 1"],
        401,
    ),
    "a forwarded scheme": (
        "GET /v1/runs",
        [HOST, AUTH, "X-Forwarded-Proto: https", "Origin: https://localhost"],
        403,
    ),
    "another port's page": ("GET /v1/runs", [HOST, AUTH, "Origin: http://localhost:1"], 403),
    "two origins": (
        "GET /v1/runs",
        [HOST, AUTH, "Origin: http://localhost", "Origin: http://evil"],
        403,
    ),
    "an empty origin": ("GET /v1/runs", [HOST, AUTH, "Origin: "], 403),
    "a preflight": (
        "OPTIONS /v1/runs",
        [HOST, "Origin: http://evil", "Access-Control-Request-Method: GET"],
        403,
    ),
    "bytes in a path": ("GET /v1/runs/\xff", [HOST, AUTH], 400),
    "text that is not Unicode": ("GET /v1/runs/%FF%00", [HOST, AUTH], 422),
    "two lengths": ("POST /v1/session", [HOST, "Content-Length: 2", "Content-Length: 3"], 400),
    "an endless length": ("POST /v1/session", [HOST, f"Content-Length: {'9' * 20}"], 413),
}


@pytest.mark.parametrize("name", HEADS)
def test_odd_heads_get_past_nothing(server: Attacked, name: str) -> None:
    """Hosts, origins and tokens are what they are to a strict reader, never to a lenient one."""
    line, headers, status = HEADS[name]
    text = "\r\n".join([f"{line} HTTP/1.1", *headers, "Connection: close", "", ""])
    assert server.answer(text).split(" ", 2)[1] == str(status)


@pytest.mark.parametrize("line", ["Authorization : Bearer TOKEN", "X: \0 TOKEN"])
def test_a_malformed_head_is_not_repeated(server: Attacked, line: str) -> None:
    """A problem may end in a log, and the line that is wrong may have a token in it."""
    answer = server.answer(f"GET /v1/runs HTTP/1.1\r\n{HOST}\r\n{line}\r\n\r\n")
    assert answer.startswith("HTTP/1.1 400 ")
    assert "illegal header line." in answer
    assert server.token not in answer


# --- bodies ---------------------------------------------------------------------------


def test_a_body_takes_not_much_more_than_its_size(server: Attacked) -> None:
    """20 MB of empty arrays would be half a gigabyte; the public operation reads none of it."""
    memory = psutil.Process(server.process.pid).memory_info
    before = memory().rss
    body = b"[" + b"[]," * (20 * MIB // 3) + b"[]]"
    events = f"/v1/runs/{new_run_id()}/events?expect=any"
    for path, kind in (
        ("/v1/session", "application/json"),
        (events, "application/json"),
        (events, "application/x-ndjson"),
    ):
        headers = {"content-type": kind, "x-turnledger": "1"}
        answer = server.http.post(path, content=body, headers=headers)
        assert answer.status_code == 413
    lines = {"content-type": "application/x-ndjson"}
    assert server.http.post(events, content=b"\n" * 20 * MIB, headers=lines).status_code == 422
    assert memory().rss - before < 150 * MIB


def test_a_client_that_goes_in_the_middle_is_no_failure(server: Attacked) -> None:
    """Else anybody could fill the log, and the count of failures, without a token."""
    head = ["POST /v1/session HTTP/1.1", HOST, "X-Turnledger: 1", "Content-Length: 9"]
    server.raw("\r\n".join([*head, "", "["])).close()
    gone = 'route="/v1/session",status="499"'
    postgres.eventually(lambda: gone in server.http.get("/metrics").text)
    log = server.log.read_text()
    assert "Traceback" not in log
    assert server.token not in log


# --- workers --------------------------------------------------------------------------


def test_a_worker_that_lost_its_run_pays_nothing(server: Attacked) -> None:
    """Others' keys do not open its claim, and with the next claim its epoch ends."""
    path = f"/v1/runs/{server.new_run()}"
    mine, others = {"turnledger_claim_key": KEY}, {"turnledger_claim_key": OTHER_KEY}
    claim, epoch = {"worker": "a"}, {"worker": "a", "epoch": 1}
    for _ in range(2):
        assert server.post(f"{path}/claim", claim, **mine).json()["epoch"] == 1
    assert server.post(f"{path}/claim", claim, **others).status_code == 409
    assert server.post(f"{path}/claim", {"worker": "b"}, **mine).status_code == 409
    server.post(f"{path}/release", epoch, **others)
    assert server.http.get(f"{path}/claim").json()["is_live"]
    server.post(f"{path}/release", epoch, **mine)
    assert server.post(f"{path}/heartbeat", epoch, **mine).status_code == 409
    assert server.post(f"{path}/claim", {"worker": "b"}, **others).json()["epoch"] == 2
    paid = [{"type": "custom", "data": {"kind": "acme.paid"}}]
    stale = server.post(f"{path}/events?expect=any", paid, turnledger_epoch="1")
    assert stale.json()["type"] == "urn:turnledger:problem:stale-epoch"
    server.post(f"{path}/release", epoch, **mine)
    assert server.http.get(f"{path}/claim").json()["worker"] == "b"


def test_a_decision_needs_a_version_that_was_shown(server: Attacked) -> None:
    """The version of another, longer run skips no check of what changed since."""
    run = server.new_run()
    call = ToolCallStarted(evaluation_id="", call_id="pay", name="pay", arguments="{}")
    server.ledger.append(run, call, ANY)
    retry = {"call_id": "pay", "decision": "retry", "event_id": str(uuid4())}
    path = f"/v1/runs/{run}/resolve"
    for version in ("3", "9" * 18):
        answer = server.post(path, retry, if_match=f'"{version}"')
        assert answer.json()["type"] == "urn:turnledger:problem:call-changed"
    for _ in range(2):
        assert server.post(path, retry, if_match='"2"').json()["version"] == 3
    other = {**retry, "decision": "completed"}
    assert server.post(path, other, if_match='"2"').status_code == 409
    again = {**retry, "event_id": str(uuid4())}
    assert server.post(path, again, if_match='"2"').status_code == 412


def test_events_are_sent_again_whole_or_not_at_all(server: Attacked) -> None:
    """Known ids in another order, with a gap, or beside new ones write nothing."""
    run = server.new_run()
    path = f"/v1/runs/{run}/events"

    def event(number: int) -> dict[str, Any]:
        data = {"kind": "acme.paid", "data": number}
        return {"type": "custom", "data": data, "event_id": str(uuid4())}

    sent = [event(number) for number in range(4)]
    assert server.post(path, sent, if_match='"1"').status_code == 201
    assert server.post(path, sent, if_match='"1"').json()["duplicate"]
    for known in (sent[::-1], [sent[0], sent[2]], [*sent[2:], event(4)]):
        for version in ("1", "5"):
            assert server.post(path, known, if_match=f'"{version}"').status_code == 409
    assert server.ledger.head(run) == 5


# --- answers --------------------------------------------------------------------------


def test_a_run_has_one_name(server: Attacked) -> None:
    """However its id is spelt, it is the same run, and says so."""
    run = server.new_run(1)
    whole = server.http.get(f"/v1/runs/{run}/events/2").content
    for name in (str(run).upper(), run.hex, run.urn, f"{{{run}}}"):
        assert server.http.get(f"/v1/runs/{name}").json()["run_id"] == str(run)
        assert server.http.get(f"/v1/runs/{name}/events/2").content == whole


def test_pages_are_whole_while_the_run_grows(server: Attacked) -> None:
    """Each event once, and no address has the Host of the request in it."""
    run = server.new_run(20)
    for query, expected in (("limit=6", range(1, 25)), ("limit=6&reverse=1", range(24, 0, -1))):
        seen, page = [], f"/v1/runs/{run}/events?{query}"
        while page:
            body = server.http.get(page, headers={"host": "localhost:1"}).json()
            seen += [one["version"] for one in body["events"]]
            page = body.get("next", "")
            assert page.startswith("/v1/runs/") or not page
            if page:
                server.ledger.append(run, CustomEvent(kind="acme.note"), ANY)
        assert seen == list(expected)


def test_what_is_kept_for_a_year_never_changes(server: Attacked) -> None:
    """And what is not there yet is not kept at all."""
    run = server.new_run(3)
    at = "usage?at={0}", "timeline?at={0}&list=gaps", "changes?at={0}", "diff?from=1&to={0}"
    paths = [f"/v1/runs/{run}/{one}" for one in (*at, "events/{0}", "blame?pointer=/usage&at={0}")]
    first = [server.http.get(path.format(4)) for path in paths]
    assert {one.headers["cache-control"] for one in first} == {FOREVER}
    missing = [server.http.get(path.format(5)) for path in paths]
    assert {(one.status_code, one.headers["cache-control"]) for one in missing} == {
        (404, "no-store")
    }
    server.post(f"/v1/runs/{run}/claim", {"worker": "a", "ttl": 0}, turnledger_claim_key=KEY)
    assert [server.http.get(path.format(4)).content for path in paths] == [
        one.content for one in first
    ]


def test_all_tags_of_a_filter_count(server: Attacked) -> None:
    """No run has two values of one tag, and a value is not forgotten for a key alone."""
    mark = uuid4().hex
    for value in ("1", "2"):
        server.ledger.append(new_run_id(), RunStarted(tags={mark: value}), NEW)
    for tags, count in (((f"{mark}=1", f"{mark}=2"), 0), ((f"{mark}=1", mark), 1), ((mark,), 2)):
        assert len(server.http.get("/v1/runs", params={"tag": tags}).json()["runs"]) == count
        lines = server.http.get(
            "/v1/runs", params={"tag": tags}, headers={"accept": "application/x-ndjson"}
        )
        assert len(lines.text.splitlines()) == count
