"""A ledger whose PostgreSQL is away, or out of disk: typed errors, and then it works again."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from threading import Event
from typing import Any
from uuid import UUID

import psutil
import pytest

from tests.postgres import FAST, PostgresServer, eventually, new_database
from tests.unit.ledger.stores.postgres.ledgers import Opened
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Draft,
    Ledger,
    RunStarted,
    StoreUnavailableError,
    blob_name,
    new_run_id,
)
from turnledger.ledger.events.types import ResourceSnapshotted
from turnledger.ledger.runs.transaction import Watermark
from turnledger.ledger.transfer.backup import snapshot_of

MIB = 1024 * 1024


def note(text: str = "") -> CustomEvent:
    return CustomEvent(kind="test.note", data={"text": text})


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(FAST) as server:
        yield server


class Everything:
    """Every operation of a ledger, on a run with a claim, a blob and derived data."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.run = new_run_id()
        self.claimed = new_run_id()
        files = ResourceSnapshotted(resource="r", files={"f": blob_name(b"x")})
        ledger.append(self.run, [RunStarted(), files], NEW, blobs=[b"x"])
        ledger.append(self.claimed, RunStarted(), NEW)
        self.claim = ledger.claim(self.claimed)

    def operations(self) -> dict[str, Callable[[], Any]]:
        ledger, run = self.ledger, self.run
        data = ledger.derived_data("name")
        return {
            "append": lambda: ledger.append(run, note(), ANY),
            "append to a claimed run": lambda: ledger.append(
                self.claimed, note(), ANY, epoch=self.claim.epoch
            ),
            "fork": lambda: ledger.fork(run, ledger.head(run)),
            "read": lambda: list(ledger.read(run)),
            "head": lambda: ledger.head(run),
            "run": lambda: ledger.run(run),
            "runs": lambda: list(ledger.runs()),
            "tail": lambda: list(ledger.tail()),
            "follow": lambda: next(iter(ledger.tail(follow=True))),
            "blob": lambda: ledger.blob(blob_name(b"x")),
            "claim": lambda: ledger.claim(run).release(),
            "heartbeat": self.claim.heartbeat,
            "write derived data": lambda: data.advance(
                data.watermark(), Watermark("f", 1, "s"), {"k": "v"}
            ),
            "read derived data": data.snapshot,
            "verify": lambda: ledger.verify(run),
            "verify all": ledger.verify_all,
            "rebuild the index": ledger.rebuild_index,
            "rebase": ledger.rebase,
            "snapshot": lambda: snapshot_of(ledger.store).close(),
            "diagnostics": ledger.store.diagnostics,
        }


def test_every_operation_fails_with_a_typed_error_and_then_works_again(
    server: PostgresServer, opened: Opened
) -> None:
    """While the server is away nothing hangs and nothing else is raised; no ledger is reopened."""
    url = new_database(server.url())
    everything = Everything(opened(url, wait=1.0))
    operations = everything.operations()
    for act in operations.values():
        act()
    server.kill()
    for act in operations.values():
        with pytest.raises(StoreUnavailableError):
            act()
    with pytest.raises(StoreUnavailableError):
        Ledger.open(url, wait=0.1)
    server.start()
    for act in operations.values():
        act()
    everything.claim.release()
    assert everything.ledger.verify_all().problems == ()


def test_everything_waits_for_a_server_that_restarts(
    server: PostgresServer, opened: Opened
) -> None:
    """Whatever it is that comes first, also a first claim: it goes on when the server is back."""
    url = new_database(server.url())
    first = Everything(opened(url))
    acts = {
        **first.operations(),
        # The first sign of life of a ledger that has claimed nothing yet.
        "first claim": lambda: opened_before.claim(first.run).release(),
    }
    opened_before = opened(url)
    opened_before.head(first.run)
    with ThreadPoolExecutor(len(acts)) as pool:
        server.stop()
        done = {name: pool.submit(act) for name, act in acts.items() if name != "claim"}
        server.start()
        for name, act in done.items():
            assert act.exception(60) is None, name


def test_a_snapshot_that_never_came_to_be_leaves_nothing_to_clean_up(
    server: PostgresServer, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is away is one typed error, and nothing more when the rest is thrown away."""
    ledger = opened(new_database(server.url()), wait=0.1)
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    server.kill()
    try:
        with pytest.raises(StoreUnavailableError):
            snapshot_of(ledger.store)
        gc.collect()
    finally:
        server.start()
    assert unraisable == []


def test_a_ledger_can_be_closed_while_the_server_is_away(
    server: PostgresServer, opened: Opened
) -> None:
    """Closing raises nothing, and the claims that it held can be taken afterwards."""
    url = new_database(server.url())
    everything = Everything(opened(url, wait=0.1))
    server.kill()
    everything.ledger.close()
    server.start()
    assert opened(url).claim(everything.claimed).epoch == 2


# --- followers ------------------------------------------------------------------------


def test_a_follower_goes_on_by_itself_when_the_server_is_back_in_time(
    server: PostgresServer, opened: Opened
) -> None:
    """Within `wait` an outage is only a pause: no event is missed or seen twice."""
    url = new_database(server.url())
    ledger, run, stop = opened(url, wait=30), new_run_id(), Event()
    seen: list[int] = []

    def follow() -> None:
        for record in opened(url, wait=30).tail(follow=True, stop=stop):
            seen.append(record.version)
            if record.version == 3:
                return

    with ThreadPoolExecutor(1) as pool:
        ledger.append(run, RunStarted(), NEW)
        following = pool.submit(follow)
        eventually(lambda: seen == [1])
        server.kill()
        server.start()
        ledger.append(run, [note(), note()], 1)
        following.result(60)
    assert seen == [1, 2, 3]


def test_a_follower_whose_server_stays_away_can_be_resumed(
    server: PostgresServer, opened: Opened
) -> None:
    """After `wait` it raises, and goes on after the last position: nothing missed or seen twice."""
    url = new_database(server.url())
    ledger, run = opened(url, wait=0.1), new_run_id()
    ledger.append(run, [RunStarted(), note()], NEW)
    follower = ledger.tail(follow=True)
    seen = [next(follower), next(follower)]
    server.kill()
    with pytest.raises(StoreUnavailableError):
        next(follower)
    server.start()
    ledger.append(run, note(), 2)
    seen.append(next(ledger.tail(after=seen[-1].position, follow=True)))
    assert [record.version for record in seen] == [1, 2, 3]


# --- no room on the disk --------------------------------------------------------------


@contextmanager
def no_file_longer_than(size: int, processes: list[psutil.Process]) -> Iterator[None]:
    """What these processes write beyond that fails, to PostgreSQL's eyes like a full disk."""
    for process in processes:
        _limit(process, size)
    try:
        yield
    finally:
        for process in processes:
            if process.is_running():
                _limit(process, resource.RLIM_INFINITY)


def _limit(process: psutil.Process, size: int) -> None:
    limits = (size, resource.RLIM_INFINITY)
    # By a process of the same user: not even a superuser may limit another's everywhere.
    subprocess.run(
        ["true"],
        user=process.username(),
        preexec_fn=lambda: resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits),
        check=True,
    )


def large(number: int) -> list[Draft]:
    """A quarter of a megabyte that does not get smaller, with an id of its own."""
    text = Random(number).randbytes(MIB // 8).hex()
    return [Draft(note(text), UUID(int=Random(-number).getrandbits(128), version=4))]


def fill(ledger: Ledger, run: UUID) -> StoreUnavailableError:
    """Append until there is no more room; what the ledger said then."""
    for number in range(1, 1000):
        try:
            ledger.append(run, large(number), ANY)
        except StoreUnavailableError as error:
            return error
    raise AssertionError("there was room for everything")


def test_a_table_that_can_not_grow_is_a_typed_error(server: PostgresServer, opened: Opened) -> None:
    """Nothing is half written, reading goes on, and with room again so does the same ledger."""
    ledger, run = opened(new_database(server.url())), new_run_id()
    ledger.append(run, RunStarted(), NEW)
    # Longer than a segment of the log, which is always there in full.
    with no_file_longer_than(17 * MIB, server.clients()):
        error = fill(ledger, run)
        assert "could not extend file" in str(error)
        head = ledger.head(run)
        assert len(list(ledger.read(run))) == head
        with pytest.raises(StoreUnavailableError):
            ledger.append(run, list(error.drafts), head)
    appended = ledger.append(run, list(error.drafts), head)
    assert (appended.version, appended.duplicate) == (head + 1, False)
    assert ledger.verify_all().problems == ()


def test_a_log_that_can_not_grow_ends_the_server_and_loses_nothing(
    server: PostgresServer, opened: Opened
) -> None:
    """PostgreSQL panics, recovers and is used again; the append that met it is there once."""
    ledger, run = opened(new_database(server.url())), new_run_id()
    ledger.append(run, RunStarted(), NEW)
    before = server.log.read_text().count("PANIC")
    # Only those who serve: the server itself has to be able to recover.
    with no_file_longer_than(8 * MIB, server.clients()):
        for number in range(1, 200):
            ledger.append(run, large(number), ANY)
            if server.log.read_text().count("PANIC") > before:
                break
    assert server.log.read_text().count("PANIC") > before
    assert ledger.head(run) == number + 1
    assert ledger.verify_all().problems == ()
