"""LedgerClient: what it adds to a Ledger. What both do is in tests/conformance/ledger."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import turnledger
from tests.agent import calls, says
from tests.e2e.driving import InProcess
from tests.secret_samples import samples
from tests.servers.ledger_server import LedgerServer
from turnledger import Agent, tool
from turnledger.adapters.http import (
    AsyncLedgerClient,
    LedgerClient,
    NotServedError,
    ServerRefusedError,
)
from turnledger.adapters.http.client.errors import error_of
from turnledger.adapters.http.client.sockets import (
    Answer,
    NoAnswerError,
    NotReachedError,
    open_transport,
)
from turnledger.adapters.http.protocol.problems import ERRORS, problem_of
from turnledger.ledger import (
    ANY,
    NEW,
    ConcurrentAppendError,
    CustomEvent,
    IntegrityFailureError,
    InvalidTokenError,
    InvalidUrlError,
    Ledger,
    LedgerClosedError,
    RunClaimedError,
    RunStarted,
    StaleEpochError,
    StoreBusyError,
    StoreUnavailableError,
    TurnledgerError,
    export_runs,
    new_run_id,
)
from turnledger.projections import state_at


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LedgerServer]:
    with Ledger.open(tmp_path / "served.db") as ledger, LedgerServer(ledger) as server:
        yield server


@pytest.fixture
def client(server: LedgerServer) -> Iterator[LedgerClient]:
    with LedgerClient(server.url, server.token()) as client:
        yield client


# --- errors ---


def examples() -> list[TurnledgerError]:
    """An error of each kind that has attributes."""
    return [
        ConcurrentAppendError("r", expected=1, found=2),
        StaleEpochError("r", epoch=1, found=2),
        RunClaimedError("r", worker="ann", epoch=3),
        StoreBusyError("busy"),
        StoreUnavailableError("gone"),
    ]


@pytest.mark.parametrize("error", examples(), ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_on_the_other_side(error: TurnledgerError) -> None:
    """Its class, its message and its attributes."""
    made = problem_of(error).response()
    found = error_of(made.status_code, bytes(made.body))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_every_error_of_the_table_can_be_made_again() -> None:
    """None needs its constructor: a problem has its message and its attributes."""
    for kind, rule in ERRORS.items():
        error = kind.__new__(kind)
        error.args = ("why",)
        for name in rule.members:
            setattr(error, name, 1)
        made = problem_of(error).response()
        found = error_of(made.status_code, bytes(made.body))
        expected = StoreUnavailableError if kind is LedgerClosedError else kind
        assert (type(found), str(found)) == (expected, "why")


def test_a_wrong_token_and_a_wrong_role_are_errors(server: LedgerServer) -> None:
    """The first is an InvalidTokenError; the second says which role is needed."""
    with (
        LedgerClient(server.url, "tl_wrong") as wrong,
        LedgerClient(server.url, server.token("reader")) as reader,
    ):
        with pytest.raises(InvalidTokenError):
            wrong.head(new_run_id())
        with pytest.raises(ServerRefusedError, match="writer") as caught:
            reader.append(new_run_id(), RunStarted(), NEW)
        assert (caught.value.status, caught.value.kind) == (
            403,
            "urn:turnledger:problem:forbidden",
        )


def test_another_server_is_told_from_a_ledgers(server: LedgerServer) -> None:
    """An answer that is not a problem is an error that says so."""
    with (
        LedgerClient(f"{server.url}/elsewhere", server.token()) as client,
        pytest.raises(ServerRefusedError, match="404"),
    ):
        client.head(new_run_id())


# --- retries ---


class Flaky:
    """Loses the answers of the first requests, after the server has done what they ask."""

    def __init__(self, client: LedgerClient, lost: int, answer: Answer | None = None) -> None:
        self._real = open_transport(client.url)
        self.lost, self.seen = lost, 0
        self._answer = answer
        connection: Any = client.store.connection  # type: ignore[attr-defined]
        connection._transport.close()
        connection._transport = self

    def send(self, *request: Any) -> Answer:
        self.seen += 1
        if self.seen > self.lost:
            return self._real.send(*request)
        if self._answer is not None:
            return self._answer
        self._real.send(*request)
        raise NoAnswerError("the connection was reset")

    def close(self) -> None:
        self._real.close()


class Refused:
    """Counts the connections that are refused, and does something at each."""

    def __init__(self, client: LedgerClient, then: Callable[[], object]) -> None:
        self._real = open_transport(client.url)
        self.count = 0
        self._then = then
        connection: Any = client.store.connection  # type: ignore[attr-defined]
        connection._transport.close()
        connection._transport = self

    def send(self, *request: Any) -> Answer:
        try:
            return self._real.send(*request)
        except NotReachedError:
            self.count += 1
            self._then()
            raise

    def close(self) -> None:
        self._real.close()


def test_a_lost_answer_is_asked_for_again_with_the_same_ids(
    server: LedgerServer, client: LedgerClient
) -> None:
    """Appends, a start and a claim whose answers are lost twice happen once."""
    run, other = new_run_id(), new_run_id()
    for act in (
        lambda: client.append(run, [RunStarted(), CustomEvent(kind="a.b")], NEW),
        lambda: client.begin(other, RunStarted()),
        lambda: client.claim(run),
        lambda: client.fork(run, 3, child=new_run_id()),
    ):
        flaky = Flaky(client, 2)
        act()
        assert flaky.seen >= 3
    tags = [record.tag for record in server.ledger.tail()]
    claims = ["run.claimed", "run.claimed"]
    assert tags == ["run.started", "custom", "run.started", *claims, "run.started"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(302, b""), ServerRefusedError),
        (Answer(304, b""), ServerRefusedError),
        (Answer(200, b"<html>Log in</html>"), IntegrityFailureError),
        (Answer(200, b""), IntegrityFailureError),
        (Answer(200, b"[" * 100_000), IntegrityFailureError),
    ],
    ids=["redirect", "not modified", "a page", "nothing", "deep"],
)
def test_an_answer_that_no_ledger_gives_is_an_error_of_its_own(
    client: LedgerClient, answer: Answer, expected: type[TurnledgerError]
) -> None:
    """A redirect is not followed and not taken for success, whatever was asked."""
    run = new_run_id()
    Flaky(client, 100, answer)
    for ask in (
        lambda: client.head(run),
        lambda: client.append(run, RunStarted(), NEW),
        lambda: client.claim(run),
        lambda: client.worker_of(run),
        lambda: client.verify(run),
    ):
        with pytest.raises(expected):
            ask()


def test_503_is_tried_again_after_the_time_that_it_names(client: LedgerClient) -> None:
    """The last answer counts."""
    answer = problem_of(StoreBusyError("busy")).response()
    flaky = Flaky(client, 1, Answer(503, bytes(answer.body), "0"))
    assert client.head(new_run_id()) == 0
    assert flaky.seen == 2


def test_the_tries_end_and_say_what_to_append_again() -> None:
    """StoreUnavailableError has the drafts, as it has beside a store."""
    event = CustomEvent(kind="a.b", data=1)
    with (
        LedgerClient("http://127.0.0.1:1", "", wait=0.1) as client,
        pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1") as caught,
    ):
        client.append(new_run_id(), event, NEW)
    assert [draft.event for draft in caught.value.drafts] == [event]


def test_a_server_that_was_never_reached_is_not_waited_for() -> None:
    """A wrong address is an error after one try, however long the client would wait."""
    with LedgerClient("http://127.0.0.1:1", "", wait=30) as client:
        transport = Refused(client, lambda: None)
        with pytest.raises(StoreUnavailableError, match="Check that the server runs"):
            client.head(new_run_id())
    assert transport.count == 1


def test_a_server_that_has_answered_once_is_waited_for() -> None:
    """A call during a restart gets its answer from the server that comes back."""
    run = new_run_id()
    with ExitStack() as stack:
        ledger = stack.enter_context(Ledger.open("memory://"))
        with LedgerServer(ledger) as before:
            client = stack.enter_context(LedgerClient(before.url, before.token()))
            client.append(run, RunStarted(), NEW)

        def restart() -> None:
            port = urlsplit(before.url).port
            stack.enter_context(LedgerServer(ledger, port=port or 0))

        transport = Refused(client, restart)
        assert client.head(run) == 1
        assert transport.count == 1


def test_a_closed_client_says_so(client: LedgerClient) -> None:
    """Every call, after it was closed twice."""
    client.close()
    client.close()
    assert client.is_closed
    with pytest.raises(LedgerClosedError):
        client.head(new_run_id())


# --- where it comes from ---


def test_the_token_is_that_of_the_environment(
    server: LedgerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a program opens a server as it opens a file."""
    monkeypatch.setenv("TURNLEDGER_TOKEN", server.token("writer"))
    with Ledger.open(server.url) as ledger:
        assert isinstance(ledger, LedgerClient)
        assert ledger.url == server.url
        assert ledger.append(new_run_id(), RunStarted(), NEW).version == 1


@pytest.mark.parametrize(
    "url",
    ["https://", "ftp://host", "http://ann:secret@host", "http://host:x", "http://host/?a=b", ""],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """At once, and without the password in the message."""
    with pytest.raises(InvalidUrlError) as caught:
        LedgerClient(url)
    assert "secret" not in str(caught.value)


def test_neither_token_nor_key_is_shown(server: LedgerServer) -> None:
    """Not by the client, its claims or an error."""
    token = server.token("reader")
    with LedgerClient(server.url, token) as client:
        shown = [repr(client), repr(vars(client)), str(client.url)]
        with pytest.raises(ServerRefusedError) as caught:
            client.claim(new_run_id())
        shown += [repr(caught.value), str(caught.value)]
    assert token not in "".join(shown)


def test_what_needs_the_store_is_refused(client: LedgerClient) -> None:
    """With an error that says where it can be done."""
    for act in (
        client.verify_all,
        client.rebuild_index,
        lambda: client.derived_data("x").put({"a": "b"}),
        lambda: client.derived_data("x").get(["a"]),
        client.store.tokens,
        client.store.last_position,
    ):
        with pytest.raises(NotServedError, match="beside the server"):
            act()


# --- what works on it ---


def test_secrets_never_leave_the_client_and_the_server_looks_again(
    server: LedgerServer, client: LedgerClient
) -> None:
    """Both redactors do the same; a client without one is told what was recorded."""
    secret = samples(1, 1, ["github-token"])[0].text
    event = CustomEvent(kind="a.b", data={"text": f"use {secret}"})
    with LedgerClient(server.url, server.token(), redactor=None) as plain:
        for ledger in (client, plain):
            done = ledger.append(new_run_id(), event, NEW)
            assert secret not in done.records[0].data
            assert done.records[0].event != event
            assert list(ledger.read(done.records[0].run_id)) == list(done.records)


def test_live_code_gets_the_value_that_the_server_has_redacted(
    server: LedgerServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's rules are known when it has recorded the value: too late to refuse it."""
    secret = samples(1, 1, ["github-token"])[0].text
    with LedgerClient(server.url, server.token(), redactor=None) as plain:
        for _ in range(2):
            with turnledger.run("keys", ledger=plain) as live:
                assert live.step("key", lambda: [secret]) == ["[redacted: github-token]"]
    [warning] = [one for one in caplog.records if one.name == "turnledger.redaction"]
    assert "ToolCallCompleted.value[0] (github-token)" in warning.getMessage()


def test_a_claim_with_a_key_is_gone_on_with_by_another_client(
    server: LedgerServer, client: LedgerClient
) -> None:
    """The key is what counts, not the object that has it."""
    run, key = new_run_id(), "0123456789abcdef"
    claim = client.begin(run, RunStarted(), worker="ann", key=key)
    with LedgerClient(server.url, server.token()) as other:
        with pytest.raises(RunClaimedError):
            other.claim(run, worker="ann")
        again = other.resume_claim(run, worker="ann", epoch=claim.epoch, key=key)
        again.heartbeat()
        again.release()
        assert client.worker_of(run) is None


def test_an_agent_runs_and_recovers_over_http(client: LedgerClient) -> None:
    """The runtime needs a Ledger, and has one."""

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    model = turnledger.runtime.ScriptedAdapter([calls(("c1", "add", '{"a":1,"b":2}')), says("3")])
    agent = Agent("adder", instructions="Add.", model=model, tools=[add], ledger=client)
    result = agent.run("What is 1 + 2?")
    assert result.output == "3"
    assert state_at(client, result.run_id).summary.status == "completed"
    assert list(client.checked(result.run_id).read_on()) == list(client.read(result.run_id))


def test_an_export_goes_from_one_server_to_another(client: LedgerClient, tmp_path: Path) -> None:
    """The client exports by reading, and imports by sending the file."""
    run = new_run_id()
    client.append(run, [RunStarted(), CustomEvent(kind="a.b")], NEW)
    out = io.BytesIO()
    assert export_runs(client, out).records == 2
    with (
        Ledger.open(tmp_path / "other.db") as ledger,
        LedgerServer(ledger) as other,
        LedgerClient(other.url, other.token()) as target,
    ):
        assert target.import_runs(io.BytesIO(out.getvalue())).imported == 2
        assert target.run(run).digest == client.run(run).digest


def test_the_command_works_on_a_server(server: LedgerServer, client: LedgerClient) -> None:
    """`--db https://...`; what needs the store says so."""
    run = new_run_id()
    client.append(run, [RunStarted(), CustomEvent(kind="a.b")], NEW)
    cli = InProcess(Path("unused"))
    env: dict[str, str | None] = {"TURNLEDGER_DB": server.url, "TURNLEDGER_TOKEN": server.token()}
    assert cli("runs", "-o", "json", **env).json[0]["run_id"] == str(run)
    assert len(cli("log", str(run), "-o", "jsonl", **env).lines) == 2
    assert cli("show", str(run), **env).code == 0
    assert cli("verify", str(run), **env).code == 0
    for command in (("rebuild-index",), ("backup", "copy.db"), ("token", "list"), ("verify",)):
        refused = cli(*command, **env)
        assert refused.code == 1, refused
        assert "beside the server" in refused.err


def test_asyncio_has_the_same(server: LedgerServer) -> None:
    """Many tasks at once, each with its claim, and a follower."""

    async def work() -> int:
        async with AsyncLedgerClient(server.url, server.token()) as ledger:

            async def one() -> None:
                run = new_run_id()
                claim = await ledger.begin(run, RunStarted(), ttl=timedelta(hours=1))
                await ledger.append(run, CustomEvent(kind="a.b"), ANY, claim.epoch)
                await ledger.heartbeat(claim)
                await ledger.release(claim)
                assert await ledger.worker_of(run) is None

            await asyncio.gather(*(one() for _ in range(8)))
            return len([record async for record in ledger.tail()])

    assert asyncio.run(work()) == 24
