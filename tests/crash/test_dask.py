"""Tables rebuilt by a Dask cluster: workers share nothing but the URL, and one is killed."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psycopg
import pytest
from distributed import Client, LocalCluster
from distributed.cfexecutor import ClientExecutor

from tests.e2e.driving import InProcess, Processes, messages_on_a_terminal
from tests.postgres import FAST, PostgresServer
from tests.tables import Deadly, Faulty, Notes, fill
from turnledger.adapters.cli.maintain import rebuild as command
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Ledger,
    Record,
    RunStarted,
    StoreUnavailableError,
    new_run_id,
)
from turnledger.projections import Table, ToolStatistics, catch_up, rebuild, table_rows
from turnledger.projections.tables import parallel

# What Dask keeps of a worker that was killed is closed by the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
PASSWORD = "correct-horse-battery"


class KillsOnce(Notes):
    """The table Notes; the first worker process to fold its `nth` event is killed there."""

    def __init__(self, flag: Path, nth: int) -> None:
        self.flag, self.left = flag, nth

    def adds(self, record: Record) -> Iterable[tuple[str, Any]]:
        self.left -= 1
        if self.left == 0 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().adds(record)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two worker processes, started again when they die."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2)
        yield client


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many portions of few events."""
    monkeypatch.setattr(parallel, "SMALLEST_PORTION", 40)


def made(ledger: Ledger, table: Table[Any]) -> Any:
    """The table as it is stored: the watermark with its checksum, and the text of every row."""
    return ledger.derived_data(f"table:{table.name}").snapshot()


def executor(client: Client) -> ClientExecutor:
    return client.get_executor(pure=False)


def test_a_killed_workers_portion_is_done_again(
    ledger_url: str, client: Client, tmp_path: Path
) -> None:
    """Nothing is counted twice or lost: the same table to the byte, and progress to the end."""
    with Ledger.open(ledger_url) as ledger:
        fill(ledger, 40)
        rebuild(ledger, Notes())
        expected = made(ledger, Notes())
        ledger.derived_data(f"table:{Notes.name}").drop()
        told: list[tuple[int, int]] = []
        report = rebuild(
            ledger,
            KillsOnce(tmp_path / "killed", 3),
            executor=executor(client),
            workers=2,
            progress=lambda done, total: told.append((done, total)),
        )
        assert (tmp_path / "killed").exists()
        assert made(ledger, Notes()) == expected
        assert len(told) > 4
        assert told[-1] == (report.events, report.events)


class Listening(ClientExecutor):
    """Keeps every task as it is sent."""

    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        tasks.append(pickle.dumps((work, args, kwargs)))
        sent: Future[Any] = super().submit(work, *args, **kwargs)
        return sent


tasks: list[bytes] = []


def test_no_task_and_no_log_has_the_password(server_url: str, client: Client) -> None:
    """Not where a task is pickled, nor where a worker logs one that failed."""
    assert "postgres@" in server_url
    with Ledger.open(server_url.replace("postgres@", f"postgres:{PASSWORD}@")) as ledger:
        fill(ledger, 4)
        tasks.clear()
        listening = Listening(client, pure=False)
        rebuild(ledger, ToolStatistics(), executor=listening, workers=2)
        with pytest.raises(ZeroDivisionError):
            rebuild(ledger, Faulty(), executor=listening, workers=2)
    logs = repr((client.get_worker_logs(), client.get_scheduler_logs())).encode()
    assert b"postgresql:///?user=postgres" in tasks[0]
    assert b"Compute Failed" in logs
    assert not [text for text in (*tasks, logs) if PASSWORD.encode() in text]


def set_password(password: str) -> None:
    os.environ["PGPASSWORD"] = password


@pytest.mark.full
def test_workers_find_the_password_in_their_environment(
    client: Client,
) -> None:
    """On a server that asks for one; without it the error says where workers look."""
    with PostgresServer(FAST) as server:
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute(f"CREATE ROLE agents LOGIN PASSWORD '{PASSWORD}'")
            db.execute("CREATE DATABASE agents OWNER agents")
        (server.data / "pg_hba.conf").write_text(
            "local all postgres trust\nlocal all all scram-sha-256\n"
        )
        server.restart()
        url = server.url("agents").replace("postgres@", f"agents:{PASSWORD}@")
        with Ledger.open(url) as ledger:
            fill(ledger, 4)
            with pytest.raises(StoreUnavailableError, match="environment of the workers"):
                rebuild(ledger, Notes(), executor=executor(client), workers=2)
            rebuild(ledger, Notes())
            expected = made(ledger, Notes())
            client.run(set_password, PASSWORD)
            rebuild(ledger, Notes(), executor=executor(client), workers=2)
            client.run(set_password, "")
            assert made(ledger, Notes()) == expected


@pytest.mark.full
def test_a_killed_worker_among_thousands_of_events(
    server_url: str, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any place of its portion: the first event, in the middle, far into it."""
    monkeypatch.setattr(parallel, "SMALLEST_PORTION", 500)
    notes = [CustomEvent(kind=f"test.n{number % 7}") for number in range(999)]
    with Ledger.open(server_url) as ledger:
        for _ in range(12):
            ledger.append(new_run_id(), [RunStarted(), *notes], NEW)
        rebuild(ledger, Notes())
        expected = made(ledger, Notes())
        for nth in (1, 400, 900):
            table = KillsOnce(tmp_path / f"killed-{nth}", nth)
            rebuild(ledger, table, executor=executor(client), workers=2)
            assert table.flag.exists()
            assert made(ledger, Notes()) == expected


# --- the command -----------------------------------------------------------------------


def test_the_command_takes_a_cluster(cluster: LocalCluster, client: Client, tmp_path: Path) -> None:
    """The same report and table as without; a person sees the bar."""
    cli, address = InProcess(tmp_path / "runs.db"), cluster.scheduler_address
    with cli.ledger() as ledger:
        fill(ledger, 8)
        one = cli("rebuild", "-o", "json")
        expected = made(ledger, ToolStatistics())
        many = cli("rebuild", "--dask", address, "-o", "json")
        assert (many.code, many.err, many.json) == (0, "", one.json)
        assert made(ledger, ToolStatistics()) == expected
    _, messages = messages_on_a_terminal(
        Processes(cli.db), "rebuild", "usage-by-day", "--dask", address
    )
    assert "104/104" in messages


@pytest.mark.full
def test_a_worker_that_dies_each_time_is_no_riddle(cluster: LocalCluster, tmp_path: Path) -> None:
    """Dask gives up after some workers; it is said, and the table is what it was."""
    cli = InProcess(tmp_path / "runs.db")
    with cli.ledger() as ledger:
        runs = fill(ledger, 1)
        catch_up(ledger, Notes())
        before = table_rows(ledger, Notes())
        ledger.append(runs[0], CustomEvent(kind="test.more"), ANY)
        name = f"{Deadly.__module__}:{Deadly.__name__}"
        done = cli("rebuild", name, "--dask", cluster.scheduler_address)
        assert (done.code, done.out) == (1, "")
        assert "A worker process died; test.notes was not changed" in done.err
        assert table_rows(ledger, Notes()) == before


def test_a_cluster_that_can_not_help_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody there, no workers, not an address, not installed: what to do, nothing changed."""
    monkeypatch.setattr(command, "CLUSTER_WAIT", 0.2)
    cli = InProcess(tmp_path / "runs.db")
    with cli.ledger() as ledger:
        fill(ledger, 1)
    with LocalCluster(
        n_workers=0, processes=False, dashboard_address="127.0.0.1:0", protocol="tcp"
    ) as idle:
        cases = {
            "tcp://127.0.0.1:1": "Can't reach the Dask scheduler at tcp://127.0.0.1:1",
            "carrier://pigeon": "Can't reach the Dask scheduler at carrier://pigeon",
            idle.scheduler_address: "has no workers",
        }
        for address, words in cases.items():
            done = cli("rebuild", "--dask", address)
            assert (done.code, done.out) == (1, "")
            assert words in done.err
        both = cli("rebuild", "--dask", idle.scheduler_address, "--workers", "2")
        assert (both.code, "can't be combined" in both.err) == (2, True)
    monkeypatch.setitem(sys.modules, "distributed", None)
    done = cli("rebuild", "--dask", "tcp://127.0.0.1:1")
    assert (done.code, "pip install 'turnledger[dask]'" in done.err) == (1, True)
