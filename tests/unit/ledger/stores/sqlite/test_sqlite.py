"""What only the SQLite store does: its file, its WAL, its locks."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from uuid import UUID

import pytest

from tests.conformance.samples import draft, note
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    IntegrityFailureError,
    Ledger,
    NotALedgerError,
    RunClaimedError,
    StaleEpochError,
    StoreUnavailableError,
    new_run_id,
)
from turnledger.ledger.stores.base import RunQuery
from turnledger.ledger.stores.sqlite.file_lock import FairLock
from turnledger.ledger.stores.sqlite.store import CHECKPOINT_PAGES, PAGE_BYTES

NOTE = CustomEvent(kind="test.note", data="x" * 3000)


def test_a_wal_left_by_the_dead_is_moved_by_the_living(tmp_path: Path) -> None:
    """Writers that never live long enough to move the WAL don't make it grow without end."""
    path = tmp_path / "runs.db"
    run = new_run_id()
    keeper = Ledger.open(path)
    for _ in range(30):
        other = Ledger.open(path)
        for _ in range(60):
            other.append(run, [NOTE] * 10, ANY)
        other.store.after_fork_in_child()  # gone, as after SIGKILL: nothing is moved or tidied
    assert Path(f"{path}-wal").stat().st_size < 2 * CHECKPOINT_PAGES * PAGE_BYTES
    keeper.close()


def test_threads_of_one_ledger_share_one_life_sign(tmp_path: Path) -> None:
    """However many ask at once, a ledger is one holder of leases."""
    with Ledger.open(tmp_path / "runs.db") as ledger, ThreadPoolExecutor(8) as pool:
        together = Barrier(8)

        def ask(_: int) -> str:
            together.wait()
            return ledger.store.holder()

        assert len(set(pool.map(ask, range(8)))) == 1


def test_a_reader_opens_while_a_writer_stands_still(tmp_path: Path) -> None:
    """Opening a ledger that exists waits for no writer; nor does closing it."""
    path = tmp_path / "runs.db"
    run = new_run_id()
    with Ledger.open(path) as ledger:
        ledger.append(run, NOTE, NEW)
    lock = FairLock(Path(f"{path}-locks"), 1.0)
    lock.acquire()
    with Ledger.open(path, wait=3600) as ledger:
        assert ledger.head(run) == 1
    lock.release()
    lock.close()


def test_a_link_is_the_same_ledger(tmp_path: Path) -> None:
    """Locks and life signs belong to the file, not to the name it was opened by."""
    link = tmp_path / "link.db"
    with Ledger.open(tmp_path / "runs.db") as ledger:
        link.symlink_to("runs.db")
        run = new_run_id()
        ledger.append(run, NOTE, NEW)
        ledger.claim(run)
        with Ledger.open(link) as other, pytest.raises(RunClaimedError):
            other.claim(run)


def test_an_open_ledger_outlives_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path means the file that it meant when the ledger was opened."""
    monkeypatch.chdir(tmp_path)
    run = new_run_id()
    with Ledger.open("runs.db") as ledger:
        ledger.append(run, NOTE, NEW)
        os.mkdir("elsewhere")
        monkeypatch.chdir("elsewhere")
        ledger.claim(run)
        assert ledger.verify_all().ok
        assert ledger.head(run) == 2


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    """A database that is no ledger is refused and not a byte of it changes."""
    path = tmp_path / "theirs.db"
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE recipes (name TEXT)")
    theirs.commit()
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(NotALedgerError, match="not a ledger"):
        Ledger.open(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """Whatever the file holds stays as it is."""
    path = tmp_path / "notes.txt"
    content = b"not a database, but long enough to be taken for one" * 30
    path.write_bytes(content)
    with pytest.raises(NotALedgerError):
        Ledger.open(path)
    assert path.read_bytes() == content


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    """Nothing is created on the way to a path that can't be."""
    with pytest.raises(StoreUnavailableError, match="can't be opened"):
        Ledger.open(tmp_path / "no" / "such" / "runs.db")
    with pytest.raises(StoreUnavailableError, match="There is no ledger"):
        Ledger.open(tmp_path / "runs.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_person_can_read_the_log(tmp_path: Path) -> None:
    """The view `log` shows times and digests as text, and the data is JSON."""
    path = tmp_path / "runs.db"
    with Ledger.open(path) as ledger:
        written = ledger.append(new_run_id(), CustomEvent(kind="a.b", data=[1]), NEW).records[0]
        db = sqlite3.connect(path)
        (row,) = db.execute("SELECT run_id, recorded_at, digest, data FROM log")
        db.close()
    assert row[0] == str(written.run_id)
    assert row[1].startswith(f"{written.recorded_at:%Y-%m-%dT%H:%M:%S.}")
    assert row[2:] == (written.digest, '{"kind":"a.b","data":[1]}')


@pytest.mark.parametrize("column", ["status", "prompt", "tags"])
def test_text_that_is_no_utf8_in_the_index_is_a_finding(tmp_path: Path, column: str) -> None:
    """Verification names the damage, and rebuilding the index mends it."""
    path = tmp_path / "runs.db"
    run = new_run_id()
    with Ledger.open(path) as ledger:
        ledger.append(run, NOTE, NEW)
        db = sqlite3.connect(path, isolation_level=None)
        db.execute(f"UPDATE runs SET {column}=CAST(x'ff' AS TEXT)")
        db.close()
        report = ledger.verify_all()
        assert any(problem.run_id == str(run) for problem in report.problems)
        ledger.rebuild_index()
        assert ledger.verify_all().ok


def test_a_heartbeat_after_release_says_that_the_claim_was_given_back(tmp_path: Path) -> None:
    """Nobody else has the run, and the error does not claim so."""
    with Ledger.open(tmp_path / "runs.db") as ledger:
        run = new_run_id()
        ledger.append(run, NOTE, NEW)
        claim = ledger.claim(run)
        claim.release()
        with pytest.raises(StaleEpochError, match="given back"):
            claim.heartbeat()


@pytest.mark.parametrize(("size", "wal"), [(1, False), (511, False), (0, True), (100, True)])
def test_a_ledger_that_was_cut_off_is_no_new_one(tmp_path: Path, size: int, wal: bool) -> None:
    """SQLite would take it for an empty file, throw its WAL away, and all would seem well."""
    path, run = tmp_path / "runs.db", new_run_id()
    with Ledger.open(path) as ledger:
        ledger.append(run, note(), NEW)
        rest = Path(f"{path}-wal").read_bytes()
    path.write_bytes(path.read_bytes()[:size])
    if wal:
        Path(f"{path}-wal").write_bytes(rest)
    for create in (True, False):
        with pytest.raises(NotALedgerError, match="cut off"):
            Ledger.open(path, create=create)
    assert path.stat().st_size == size
    assert Path(f"{path}-wal").exists() == wal


def test_what_is_no_file_is_no_ledger(tmp_path: Path) -> None:
    """A folder, a device: refused, and nothing is put beside it."""
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    for path in (folder, pipe, Path("/dev/null")):
        with pytest.raises(NotALedgerError, match="expected a file"):
            Ledger.open(path)
        assert not Path(f"{path}-locks").exists()


def test_an_empty_file_is_a_new_ledger_only_where_one_is_wanted(tmp_path: Path) -> None:
    """Who wants to read one is told that there is none."""
    path = tmp_path / "runs.db"
    path.touch()
    with pytest.raises(StoreUnavailableError, match="the file is empty"):
        Ledger.open(path, create=False)
    with Ledger.open(path) as ledger:
        assert list(ledger.runs()) == []


def test_reading_ends_where_the_order_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that comes again and again, as out of a broken index, is an error and no loop."""
    with Ledger.open(tmp_path / "runs.db") as ledger:
        runs = [new_run_id() for _ in range(3)]
        for run in runs:
            ledger.append(run, [note(), note(), note()], NEW)
        store = ledger.store
        for name, page, read in (
            ("rows", store.rows(str(runs[0]), 0, 3, backwards=False, limit=1), _read(runs[0])),
            ("rows_after", store.rows_after(0, 1), Ledger.tail),
            ("list_runs", store.list_runs(RunQuery(limit=1)), Ledger.runs),
        ):
            monkeypatch.setattr(store, name, lambda *_, page=page, **__: page)
            with pytest.raises(IntegrityFailureError, match="not in"):
                list(read(ledger, page_size=1))
            monkeypatch.undo()


def _read(run: UUID) -> Callable[..., Iterator[object]]:
    return lambda ledger, page_size: ledger.read(run, page_size=page_size)


def test_a_duplicate_is_answered_after_a_commit_of_its_own(tmp_path: Path) -> None:
    """Its events may have been read from a WAL that was never flushed: that commit flushes it."""
    path, run = tmp_path / "runs.db", new_run_id()
    with Ledger.open(path) as ledger:
        mine = draft(note())
        ledger.append(run, mine, NEW)
        written = [Path(f"{path}-wal").stat().st_size]
        for _ in range(3):
            assert ledger.append(run, mine, NEW).duplicate
            written.append(Path(f"{path}-wal").stat().st_size)
    assert written == sorted(set(written))
