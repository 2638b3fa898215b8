"""Trouble that is no full disk: locks, damage, permissions. All of it has the store's own type."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.driver import drive
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Ledger,
    RunStarted,
    StoreBusyError,
    StoreUnavailableError,
    new_run_id,
)
from turnledger.ledger.stores.sqlite import file_lock
from turnledger.ledger.stores.sqlite.connection import ConnectionPool
from turnledger.ledger.stores.sqlite.errors import code_of, unavailable, unknown, unwritten
from turnledger.ledger.stores.sqlite.store import SQLiteStore


def fact(size: int = 10) -> CustomEvent:
    return CustomEvent(kind="fault.fact", data="x" * size)


def test_damage_that_an_append_meets_is_a_typed_error(tmp_path: Path) -> None:
    """A page of the index is overwritten under the ledger: the append says what to do."""
    path, run = tmp_path / "runs.db", new_run_id()
    with Ledger.open(path) as ledger:
        for number in range(200):
            ledger.append(run, fact(500), NEW if number == 0 else ANY)
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name='runs'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(content)

    with Ledger.open(path) as ledger:
        with pytest.raises(StoreUnavailableError, match="damaged") as caught:
            ledger.append(run, fact(), ANY)
        assert len(caught.value.drafts) == 1
        assert len(list(ledger.tail())) == 200


def test_a_lock_that_the_system_refuses_is_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No append hangs or ends in an OSError; the next one finds the lock free."""
    run = new_run_id()
    with Ledger.open(tmp_path / "runs.db") as ledger:
        ledger.append(run, fact(), NEW)

        def refuse(fd: int, operation: int) -> None:
            if operation != fcntl.LOCK_UN:  # which needs no memory
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
            fcntl.flock(fd, operation)

        with monkeypatch.context() as patch:
            patch.setattr(file_lock, "flock", refuse)
            with pytest.raises(StoreUnavailableError, match="lock"):
                ledger.append(run, fact(), ANY)
        assert ledger.append(run, fact(), ANY).version == 2


def test_a_folder_that_is_not_mine_to_write_can_be_read() -> None:
    """Another user's ledger, closed and open: it is read; an append says that it can't be."""
    told = drive("tests.faults.foreign", seconds=60)

    assert told["closed"] == [3, True]
    assert told["open"] == [4, True]
    assert told["followed"] == 5
    assert all("can only be read here" in error for error in told["errors"])
    assert told["left behind"] == []


def test_a_read_that_a_writer_disturbed_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read-only here and written to elsewhere: no page of before is mixed with one of after."""
    path, run = tmp_path / "runs.db", new_run_id()
    with Ledger.open(path) as ledger:
        ledger.append(run, fact(), NEW)
    store = SQLiteStore.open(path, wait=30, read_only=True)
    connect = store.pool.connect_bare
    disturbed: list[str] = []

    def connect_and_disturb(options: str = "mode=rw") -> sqlite3.Connection:
        db = connect(options)
        if len(disturbed) < 3:
            disturbed.append(options)
            with Ledger.open(path) as writer:
                writer.append(run, fact(), ANY)
        return db

    monkeypatch.setattr(store.pool, "connect_bare", connect_and_disturb)
    found = store.run(str(run))
    store.close()

    assert found is not None
    assert found.version == 4
    assert all("immutable" in options for options in disturbed)


def test_a_view_that_always_changes_is_busy(tmp_path: Path) -> None:
    """What was read as immutable and was not is never given out."""
    path = tmp_path / "runs.db"
    with Ledger.open(path) as ledger:
        ledger.append(new_run_id(), fact(), NEW)
    with (
        pytest.raises(StoreBusyError, match="written to"),
        ConnectionPool(str(path), wait=30, read_only=True).read_only_connection(),
        Ledger.open(path) as writer,
    ):
        writer.append(new_run_id(), fact(), NEW)


def test_nothing_was_written_is_said_only_before_a_commit() -> None:
    """By result code, not by words: a path may hold the word "locked"."""
    with closing(sqlite3.connect(":memory:")) as db, pytest.raises(sqlite3.Error) as caught:
        db.execute("SELECT * FROM locked")
    error = caught.value

    assert code_of(error) == sqlite3.SQLITE_ERROR
    assert type(unavailable(error, "reading")) is StoreUnavailableError
    assert "othing was written" in str(unwritten(error, "appending"))
    assert "othing was written" not in str(unknown(error))
    assert "outcome is unknown" in str(unknown(error))


def test_a_begin_that_failed_says_what_to_begin_with_again(tmp_path: Path) -> None:
    """The id is in the error: whatever became of it, beginning again is one run and one claim."""
    path, run = tmp_path / "runs.db", new_run_id()
    with Ledger.open(path, wait=0.05) as ledger:
        with (tmp_path / "runs.db-locks" / "write").open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(StoreBusyError) as caught:
                ledger.begin(run, RunStarted())
        (draft,) = caught.value.drafts
        ledger.begin(run, draft)
        assert ledger.begin(run, draft).epoch == 1
        assert [record.tag for record in ledger.read(run)] == ["run.started", "run.claimed"]
