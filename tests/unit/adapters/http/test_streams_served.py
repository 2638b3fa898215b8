"""Event streams of a real server: what is in them, and what ends them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.postgres import eventually
from tests.servers.ledger_server import LedgerServer, served_ledger
from turnledger.adapters.http.live import slots
from turnledger.adapters.http.live.messages import Message
from turnledger.adapters.http.routes import streams
from turnledger.adapters.http.serving.listener import listen
from turnledger.adapters.http.serving.settings import Settings
from turnledger.ledger import ANY, CustomEvent, Ledger, Record, RunStarted
from turnledger.ledger.runs.record import Row

pytestmark = pytest.mark.process
RUN, OTHER, CHILD = UUID(int=1), UUID(int=2), UUID(int=3)


@pytest.fixture
def served() -> Iterator[LedgerServer]:
    with served_ledger() as served:
        yield served


def note(ledger: Ledger, run: UUID = RUN, count: int = 1, data: Any = None) -> None:
    ledger.append(run, [CustomEvent(kind="test.note", data=data)] * count, ANY)


def ids(messages: Iterator[dict[str, Any]], count: int) -> list[int]:
    """The ids of the next messages; comments have none."""
    found = (int(one["id"]) for one in messages if "id" in one)
    return list(islice(found, count))


def test_a_message_is_the_record(served: LedgerServer) -> None:
    """The data of a message is what the record has, and its id the position."""
    note(served.ledger, data={"text": "two\nlines", "é": "\u2028"})
    with served.stream("/v1/stream") as messages:
        first, message = islice(messages, 2)
    assert first == {"": "turnledger", "retry": "1000"}
    (record,) = served.ledger.tail()
    assert message["id"] == "1"
    assert message["data"] == served.get(f"/v1/runs/{RUN}/events/1").json()
    assert message["data"]["event_id"] == str(record.event_id)


def test_large_data_is_cut(served: LedgerServer) -> None:
    """Data above 64 kB is not in the message, which says where the whole event is."""
    note(served.ledger, data="x" * 65_536)
    with served.stream("/v1/stream") as messages:
        *_, message = islice(messages, 2)
    assert "data" not in message["data"]
    whole = served.get(message["data"]["cut"]).json()
    assert whole.pop("data")["data"] == "x" * 65_536
    assert whole.items() <= message["data"].items()


def test_the_last_event_id_goes_before_after(served: LedgerServer) -> None:
    """A client that comes back to the same address resumes after its last event."""
    note(served.ledger, count=6)
    with served.stream("/v1/stream?after=2") as messages:
        assert ids(messages, 2) == [3, 4]
    with served.stream("/v1/stream?after=2", **{"last-event-id": "4"}) as messages:
        assert ids(messages, 2) == [5, 6]


def test_a_run_has_its_own_events_alone(served: LedgerServer) -> None:
    """The stream of a run has its recorded and its new events, and none of others."""
    note(served.ledger, count=2)
    note(served.ledger, OTHER)
    note(served.ledger)
    with served.stream(f"/v1/runs/{RUN}/stream?after=1") as messages:
        assert ids(messages, 2) == [2, 4]
        note(served.ledger, OTHER)
        note(served.ledger)
        assert ids(messages, 1) == [6]


def test_a_fork_begins_with_what_it_shares(served: LedgerServer) -> None:
    """The stream of a fork has its ancestor's events up to the fork, from any position."""
    served.ledger.append(RUN, RunStarted(), ANY)
    for _ in range(3):
        note(served.ledger)
    served.ledger.fork(RUN, at=3, child=CHILD)
    note(served.ledger)
    note(served.ledger, CHILD)
    versions = [(one.position, one.version) for one in served.ledger.read(CHILD)]
    for after in range(7):
        with served.stream(f"/v1/runs/{CHILD}/stream?after={after}") as messages:
            expected = [position for position, _ in versions if position > after]
            assert ids(messages, len(expected)) == expected


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/stream?after=-1", {}, 422),
        ("/v1/stream", {"last-event-id": "first"}, 422),
        (f"/v1/runs/{RUN}/stream", {}, 404),
    ],
)
def test_what_can_not_be_followed_is_refused(
    served: LedgerServer, path: str, headers: dict[str, str], status: int
) -> None:
    """An unknown run and a position that is none are refused before a stream begins."""
    answer = httpx.get(f"{served.url}{path}", headers={**served.headers, **headers})
    assert answer.status_code == status


def test_a_position_of_another_ledger_is_no_place_to_follow_from(
    served: LedgerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything up to it would be left out, and nobody would know."""
    monkeypatch.setattr(streams, "PAUSE", 0)
    note(served.ledger)
    for path in ("/v1/stream?after=2", f"/v1/runs/{RUN}/stream?after=2"):
        answer = served.get(path)
        assert answer.status_code == 404
        assert "has no position 2; its last one is 1." in answer.json()["detail"]
    with served.stream("/v1/stream?after=1") as messages:
        note(served.ledger)
        assert ids(messages, 1) == [2]


def test_one_thread_follows_for_all(served: LedgerServer) -> None:
    """Clients share one follower of the ledger, which ends with the server."""
    names = [thread.name for thread in threading.enumerate()]
    assert "turnledger-broadcast" not in names
    note(served.ledger)
    with served.stream("/v1/stream") as one, served.stream("/v1/stream") as two:
        assert ids(one, 1) == ids(two, 1) == [1]
        note(served.ledger)
        assert ids(one, 1) == ids(two, 1) == [2]
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("turnledger-broadcast") == 1


def test_a_stopping_server_ends_streams_and_its_thread() -> None:
    """A client sees the end of the answer, not a broken connection."""
    with served_ledger() as served:
        note(served.ledger)
        stack = served.stream("/v1/stream")
        messages = stack.__enter__()
        assert ids(messages, 1) == [1]
    assert list(messages) == []
    stack.__exit__(None, None, None)
    assert "turnledger-broadcast" not in [thread.name for thread in threading.enumerate()]


def test_a_revoked_token_ends_its_stream(
    served: LedgerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comments go on while the token is valid; with it, the stream ends."""
    monkeypatch.setattr(streams, "COMMENT", 0.01)
    with served.stream("/v1/stream") as messages:
        comments = list(islice(messages, 4))
        assert comments[1:] == [{"": "ping"}] * 3
        served.tokens.revoke(served.reader.split("_")[1])
        assert all(message == {"": "ping"} for message in messages)
    eventually(lambda: served.app.served.slots.taken == 0)


def test_streams_are_limited(served: LedgerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream more than a token may have is refused, until one of them ends."""
    monkeypatch.setattr(served.app.served, "slots", slots.StreamSlots(each_token=2))
    with served.stream("/v1/stream") as first, served.stream("/v1/stream") as second:
        assert next(first)["retry"]
        assert next(second)["retry"]
        refused = served.get("/v1/stream")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "5"
        assert refused.json()["type"] == "urn:turnledger:problem:too-many-requests"
    eventually(lambda: served.app.served.slots.taken == 0)
    with served.stream("/v1/stream") as again:
        assert next(again)["retry"]


def test_a_reader_that_never_reads_is_closed(served: LedgerServer) -> None:
    """A client that reads nothing is closed once its queue is full, and others get everything."""
    note(served.ledger)
    with served.stream("/v1/stream") as messages, served.connect("/v1/stream"):
        eventually(lambda: served.app.served.slots.taken == 2)
        count = 300
        for _ in range(count):
            note(served.ledger, data="x" * 60_000)
            ids(messages, 1)
        eventually(lambda: served.app.served.slots.taken == 1)


def test_one_large_append_does_not_close_a_client(served: LedgerServer) -> None:
    """A client that reads gets more in one go than its queue holds, on one connection."""
    note(served.ledger)
    with served.stream("/v1/stream") as messages:
        assert ids(messages, 1) == [1]
        note(served.ledger, count=1000, data="x" * 5_000)
        assert ids(messages, 1000) == list(range(2, 1002))


def test_a_damaged_record_is_told() -> None:
    """A record whose text is damaged comes as an event of its own, with its position."""
    columns: Any = Row(7, str(RUN), 1, b"\xff", "", 0, b"", "{}")
    record = Record(tuple(columns), Ledger.open("memory://").codec)
    text = Message(record).text().decode()
    assert text.startswith("event: damaged\ndata: {")
    assert "position 7 holds damaged text" in text
    assert text.endswith("\nid: 7\n\n")


def test_a_message_does_not_hold_what_it_cuts() -> None:
    """A queue counts the bytes that a message is sent with, which a cut one has few of."""
    with Ledger.open("memory://") as ledger:
        note(ledger, data="x" * 1_000_000)
        note(ledger, data="x" * 60_000)
        cut, whole = map(Message, ledger.tail())
    assert cut.size == len(cut.text()) < 1000
    assert 60_000 < whole.size < len(whole.text())


def test_small_packets_are_sent_at_once() -> None:
    """The socket names its protocol: asyncio turns Nagle's algorithm off for no other."""
    with listen(Settings(port=0)) as listener:
        assert listener.socket.proto == socket.IPPROTO_TCP
