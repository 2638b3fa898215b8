"""Derived data of each store: the WAL of SQLite, the locks and lost answers of PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from threading import Barrier, Event, Thread
from typing import Any

import psycopg
import pytest

from tests.postgres import eventually, new_database
from tests.postgres_proxy import Proxy
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Ledger,
    StoreBusyError,
    StoreUnavailableError,
    Watermark,
    new_run_id,
)
from turnledger.ledger.runs.transaction import Transaction
from turnledger.ledger.stores.postgres import derived_data as postgres_derived_data
from turnledger.ledger.stores.postgres.connection import parse
from turnledger.ledger.stores.sqlite.store import CHECKPOINT_PAGES, PAGE_BYTES

NOTE = CustomEvent(kind="test.note")
FIRST, SECOND = Watermark("f", 1, "one"), Watermark("f", 2, "two")


@pytest.fixture
def url() -> str:
    """A database without a ledger."""
    return new_database()


@pytest.fixture
def sql(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Another user of the same database."""
    with psycopg.connect(url, autocommit=True) as db:
        yield db


# --- SQLite ---------------------------------------------------------------------------


def test_short_rows_all_over_the_place_do_not_make_the_wal_grow(tmp_path: Path) -> None:
    """Each of them changes a page, however few bytes it has, and that is what is counted."""
    path, random = tmp_path / "runs.db", Random(7)
    with Ledger.open(path) as ledger:
        data = ledger.derived_data("totals")
        keys = [f"{random.getrandbits(128):032x}" for _ in range(50_000)]
        data.put(dict.fromkeys(keys, "x" * 100))
        largest = 2 * CHECKPOINT_PAGES * PAGE_BYTES
        for turn in range(40):
            data.put(dict.fromkeys(random.sample(keys, 500), str(turn)))
            assert Path(f"{path}-wal").stat().st_size < largest
        assert data.advance(None, FIRST, {}, replace=True)
        assert Path(f"{path}-wal").stat().st_size < largest


def test_damaged_tables_of_a_file_are_an_error_of_ours(tmp_path: Path) -> None:
    """And no reason for the events not to go on; `verify` names what is missing."""
    path, run = tmp_path / "runs.db", new_run_id()
    with Ledger.open(path) as ledger:
        ledger.append(run, NOTE, NEW)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("DROP TABLE shelf_rows")
            db.execute("DROP TABLE shelves")
        assert_unusable(ledger)
        assert ledger.append(run, NOTE, ANY).version == 2
        assert ledger.verify(run).ok
        missed = sorted(str(problem) for problem in ledger.verify_all().problems)
        assert missed == [
            f"the file: the table {name} is missing" for name in ("shelf_rows", "shelves")
        ]


def assert_unusable(ledger: Ledger) -> None:
    data = ledger.derived_data("totals")
    for act in (
        data.watermark,
        data.drop,
        lambda: data.get(["k"]),
        lambda: list(data.items()),
        lambda: data.put({"k": "v"}),
        lambda: data.put({"k": None}),
        lambda: data.advance(None, FIRST, {}),
        ledger.store.derived.watermarks,
    ):
        with pytest.raises(StoreUnavailableError, match="shel"):
            act()


# --- PostgreSQL -----------------------------------------------------------------------


def test_damaged_tables_of_a_schema_are_an_error_of_ours(
    url: str, sql: psycopg.Connection[Any]
) -> None:
    """And no reason for the events not to go on; `verify` names what is missing."""
    run = new_run_id()
    with Ledger.open(url) as ledger:
        ledger.append(run, NOTE, NEW)
        sql.execute("DROP TABLE shelves, shelf_rows")
        assert_unusable(ledger)
        assert ledger.append(run, NOTE, ANY).version == 2
        assert "table shelves is missing" in str(ledger.verify_all().problems)


def test_a_put_that_takes_many_statements_is_one_transaction(
    url: str, sql: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows, and more text, than one statement carries."""
    monkeypatch.setattr(postgres_derived_data, "_ROWS_AT_ONCE", 100)
    monkeypatch.setattr(postgres_derived_data, "_CHARACTERS_AT_ONCE", 5_000)
    with Ledger.open(url) as ledger:
        data = ledger.derived_data("totals")
        rows = {f"k{number}": str(number) for number in range(503)}
        rows |= {f"long{number}": "é" * 3_000 for number in range(5)}
        assert data.advance(None, FIRST, rows)
        assert data.snapshot() == (FIRST, rows)
        found = sql.execute("SELECT count(DISTINCT xmin::text) FROM shelf_rows").fetchone()
        assert found == (1,)


@pytest.mark.parametrize("how", ["before", "after", "silently"])
def test_a_put_whose_answer_was_lost_is_there_once(url: str, how: str) -> None:
    """Its writer is not told that another one was quicker, when that was itself."""
    with Proxy(parse(url).parameters["host"]) as proxy, Ledger.open(proxy.url(url)) as ledger:
        data = ledger.derived_data("totals")
        assert data.advance(None, FIRST, {"k": "1", "old": "x"})
        proxy.cut(b"COMMIT", how)
        assert data.advance(FIRST, SECOND, {"k": "2"}, replace=True)
        assert (proxy.cuts, data.snapshot()) == (1, (SECOND, {"k": "2"}))
        proxy.cut(b"COMMIT", how)
        data.put({"k": "3"})
        proxy.cut(b"COMMIT", how)
        assert not data.advance(FIRST, SECOND, {"k": "4"})
        assert data.snapshot() == (SECOND, {"k": "3"})
        proxy.cut(b"COMMIT", how)
        data.drop()
        assert (proxy.cuts, data.snapshot()) == (4, (None, {}))


class Holder:
    """A transaction that has locked a watermark, until it is let go."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._locked, self._leave = Event(), Event()
        self._name = name
        self._thread = Thread(target=lambda: ledger.store.write(self._hold))

    def _hold(self, tx: Transaction) -> None:
        tx.derived.watermark(self._name)
        self._locked.set()
        assert self._leave.wait(30)

    def __enter__(self) -> Holder:
        self._thread.start()
        assert self._locked.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join(30)


def test_a_writer_that_waits_holds_no_reader_up(url: str, sql: psycopg.Connection[Any]) -> None:
    """It has no transaction number yet, so readers that follow the ledger don't wait for it."""
    with Ledger.open(url) as one, Ledger.open(url) as other, Ledger.open(url) as third:
        with Holder(one, "totals"):
            data = other.derived_data("totals")
            waiter = Thread(target=lambda: data.advance(None, FIRST, {"k": "v"}))
            waiter.start()
            eventually(
                lambda: (
                    sql.execute(
                        "SELECT backend_xid FROM pg_stat_activity "
                        "WHERE datname = current_database() AND wait_event = 'advisory'"
                    ).fetchall()
                    == [(None,)]
                )
            )
            appended = third.append(new_run_id(), NOTE, NEW)
            assert next(third.tail(follow=True)).position == appended.position
            assert third.derived_data("totals").watermark() is None
            assert third.derived_data("another").advance(None, FIRST, {"k": "v"})
        waiter.join(30)
        assert third.derived_data("totals").snapshot() == (FIRST, {"k": "v"})


def test_a_watermark_that_stays_locked_is_given_up(url: str) -> None:
    """After the wait that the ledger was opened with, and nothing was written."""
    with Ledger.open(url) as one, Ledger.open(url, wait=0.1) as other:
        with Holder(one, "totals"), pytest.raises(StoreBusyError, match="nothing was written"):
            other.derived_data("totals").advance(None, FIRST, {"k": "v"})
        assert other.derived_data("totals").snapshot() == (None, {})
        assert other.derived_data("totals").advance(None, FIRST, {"k": "v"})


def test_two_that_lock_two_watermarks_crosswise_both_get_through(url: str) -> None:
    """PostgreSQL ends one of them, which is then run again."""
    with Ledger.open(url) as one, Ledger.open(url) as other:
        together = Barrier(2)
        tries: list[str] = []

        def write(ledger: Ledger, first: str, second: str) -> None:
            def work(tx: Transaction) -> None:
                tries.append(first)
                tx.derived.watermark(first)
                if tries.count(first) == 1:
                    together.wait(30)
                tx.derived.watermark(second)
                tx.derived.set_watermark(second, FIRST)

            ledger.store.write(work)

        threads = [
            Thread(target=write, args=(one, "a", "b")),
            Thread(target=write, args=(other, "b", "a")),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(tries) > 2
        assert one.store.derived.watermarks() == {"a": FIRST, "b": FIRST}
