"""A ledger's files removed, replaced or cut, while it is open and before it is opened."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest

from tests.conformance.samples import note
from turnledger.ledger import (
    ANY,
    NEW,
    InvalidUrlError,
    Ledger,
    NotALedgerError,
    StoreUnavailableError,
    new_run_id,
)
from turnledger.ledger.stores.sqlite import store
from turnledger.ledger.transfer.backup import back_up

RUN = new_run_id()


def write(path: Path, events: int, run: UUID = RUN) -> None:
    """A closed ledger with some events: all of it is in the file."""
    with Ledger.open(path) as ledger:
        ledger.append(run, [note() for _ in range(events)], ANY)


def killed(path: Path, events: int, *, to: Path) -> None:
    """Copy a ledger with events in its WAL to another path, as after SIGKILL."""
    with Ledger.open(path) as ledger:
        for _ in range(events):
            ledger.append(RUN, note(), ANY)
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{to}{end}")


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy(path, other)
    other.replace(path)


def cut(path: Path) -> None:
    os.truncate(path, 0)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# --- while it is open -------------------------------------------------------------------------


@pytest.mark.parametrize("harm", [removed, replaced, cut])
@pytest.mark.parametrize("end", ["", "-wal"])
def test_a_ledger_whose_file_is_not_the_one_that_was_opened_acknowledges_nothing(
    tmp_path: Path, end: str, harm: Callable[[Path], None]
) -> None:
    """Neither new events nor a repeated append, nor a claim, and the events can be retried."""
    path = tmp_path / "runs.db"
    write(path, 3)
    with Ledger.open(path) as ledger:
        ledger.claim(RUN)
        mine = ledger.append(RUN, note(), ANY, epoch=1).records
        harm(Path(f"{path}{end}"))
        with pytest.raises(StoreUnavailableError, match=rf"{path}{end} was {harm.__name__}") as one:
            ledger.append(RUN, note(), ANY, epoch=1)
        assert len(one.value.drafts) == 1
        assert "same ids" in str(one.value)
        again: tuple[Callable[[], object], ...] = (
            lambda: ledger.append(RUN, one.value.drafts, ANY, epoch=1),
            lambda: ledger.append(mine[0].run_id, note(), ANY),
            lambda: ledger.claim(RUN),
            lambda: ledger.derived_data("rows").put({"a": "b"}),
        )
        for attempt in again:
            with pytest.raises(StoreUnavailableError, match="nothing more is acknowledged"):
                attempt()


def test_every_append_of_a_group_is_refused(tmp_path: Path) -> None:
    """Threads that commit together are told together."""
    path, together = tmp_path / "runs.db", Barrier(6)
    with Ledger.open(path) as ledger, ThreadPoolExecutor(6) as threads:

        def write(_: int) -> str:
            together.wait()
            try:
                for _ in range(5):
                    ledger.append(new_run_id(), note(), NEW)
            except StoreUnavailableError as error:
                return str(error)
            return "acknowledged"

        assert set(threads.map(write, range(6))) == {"acknowledged"}
        path.unlink()
        assert all("was removed" in answer for answer in threads.map(write, range(6)))


@pytest.mark.parametrize("closed", [False, True])
def test_the_file_that_took_the_place_of_a_ledger_is_not_touched(
    tmp_path: Path, closed: bool
) -> None:
    """Not by commits, readers, checkpoints or closing; nor are the files beside it."""
    path, other = tmp_path / "runs.db", tmp_path / "other"
    write(path, 3)
    other.mkdir()
    write(other / "runs.db", 50, new_run_id())
    if not closed:
        killed(other / "runs.db", 5, to=other / "killed.db")
        (other / "killed.db").replace(other / "runs.db")
        (other / "killed.db-wal").replace(other / "runs.db-wal")
    ledger = Ledger.open(path)
    for _ in range(5):
        ledger.append(RUN, note(), ANY)
    ledger.head(RUN)
    for end in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{path}{end}").unlink()
            shutil.copy(f"{other / 'runs.db'}{end}", f"{path}{end}")
    before = content(tmp_path)
    with pytest.raises(StoreUnavailableError, match="replaced by another file"):
        ledger.append(RUN, note(), ANY)
    with ThreadPoolExecutor(4) as threads, suppress(StoreUnavailableError):
        list(threads.map(lambda _: list(ledger.tail()), range(4)))
    ledger.close()
    assert content(tmp_path) == before


def test_no_new_reader_of_an_open_ledger_reads_another_file(tmp_path: Path) -> None:
    """It would combine that file with the WAL of the one that was opened, and write it there."""
    path = tmp_path / "runs.db"
    write(path, 3)
    with Ledger.open(path) as ledger:
        ledger.append(RUN, note(), ANY)
        replaced(path)
        before = path.read_bytes()
        with pytest.raises(StoreUnavailableError, match="replaced by another file"):
            ledger.verify_all()
    assert path.read_bytes() == before


def test_a_wal_that_was_removed_loses_nothing_when_the_ledger_is_closed(tmp_path: Path) -> None:
    """SQLite still has it open: the checkpoint on closing brings it into the file."""
    path = tmp_path / "runs.db"
    write(path, 3)
    with Ledger.open(path) as ledger:
        ledger.append(RUN, note(), ANY)
        Path(f"{path}-wal").unlink()
        with pytest.raises(StoreUnavailableError):
            ledger.append(RUN, note(), ANY)
    with Ledger.open(path) as ledger:
        assert ledger.head(RUN) >= 4
        assert ledger.verify_all().ok


@pytest.mark.parametrize("end", ["", "-wal"])
def test_nothing_is_moved_out_of_a_file_that_was_cut(tmp_path: Path, end: str) -> None:
    """A checkpoint would write zeros over good pages, or make a ledger with holes."""
    path = tmp_path / "runs.db"
    write(path, 100)
    with Ledger.open(path) as ledger:
        ledger.append(RUN, note(), ANY)
        cut(Path(f"{path}{end}"))
        with pytest.raises(StoreUnavailableError):
            ledger.append(RUN, note(), ANY)
    if not end:
        assert path.stat().st_size == 0
        return
    with Ledger.open(path) as ledger:
        assert ledger.head(RUN) == 100
        assert ledger.verify_all().ok


def test_what_sqlite_does_to_its_files_is_no_alarm(tmp_path: Path) -> None:
    """A fork closes all connections, and another program may move the WAL and cut it."""
    path = tmp_path / "runs.db"
    with Ledger.open(path) as ledger, Ledger.open(path) as other:
        ledger.append(RUN, note(), NEW)
        for _ in range(3):
            ledger.store.before_fork()
            other.store.before_fork()
            assert not Path(f"{path}-wal").exists()
            ledger.append(RUN, note(), ANY)
            other.append(RUN, note(), ANY)
            with closing(sqlite3.connect(path)) as foreign:
                found = foreign.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert found == (0, 0, 0)
            assert ledger.worker_of(RUN) is None  # a commit that writes nothing
            other.append(RUN, note(), ANY)
            ledger.append(RUN, note(), ANY)
        assert ledger.head(RUN) == 13


_opened: list[str] = []
_listening = False


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _listening and event == "open":
        _opened.append(str(arguments[0]))


sys.addaudithook(_listen)


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """The names of all files that Python opens meanwhile."""
    global _listening
    _opened.clear()
    _listening = True
    yield _opened
    _listening = False


def test_no_append_opens_the_file_itself(tmp_path: Path, opened: list[str]) -> None:
    """Closing it again would drop SQLite's locks, and another process deletes the WAL then."""
    path = tmp_path / "runs.db"
    write(path, 1)
    opened.clear()
    with Ledger.open(path) as ledger:
        ledger.append(RUN, note(), ANY)
        Path(f"{path}-wal").unlink()
        with pytest.raises(StoreUnavailableError):
            ledger.append(RUN, note(), ANY)
    assert any(name.startswith(f"{path}-locks/") for name in opened)
    assert str(path) not in opened


# --- the setting ------------------------------------------------------------------------------


def test_the_check_can_be_turned_off(tmp_path: Path) -> None:
    """For file systems whose inodes are not stable; all processes get the URL with it."""
    path = tmp_path / "runs.db"
    with Ledger.open(f"sqlite:///{path}?check_file=off") as ledger:
        ledger.append(RUN, note(), NEW)
        assert ledger.store.diagnostics()["file_check"] == "off"
        assert ledger.url == f"sqlite:///{path}?check_file=off"
        with Ledger.open(ledger.url) as again:
            assert again.head(RUN) == 1
        path.rename(tmp_path / "elsewhere.db")
        assert ledger.append(RUN, note(), ANY).version == 2
    with Ledger.open(f"sqlite:///{tmp_path / 'new.db'}?check_file=on") as ledger:
        assert ledger.store.diagnostics()["file_check"] == "on"


@pytest.mark.parametrize("query", ["check_file", "check_file=no", "checkfile=off", "=", "a=b"])
def test_an_unknown_parameter_is_an_invalid_url(tmp_path: Path, query: str) -> None:
    """A setting that is misspelled is never silently left out."""
    with pytest.raises(InvalidUrlError, match="Unknown parameter"):
        Ledger.open(f"sqlite:///{tmp_path / 'runs.db'}?{query}")
    assert list(tmp_path.iterdir()) == []


def test_a_path_has_no_parameters(tmp_path: Path) -> None:
    """A file's name may have a question mark."""
    path = tmp_path / "runs.db?check_file=off"
    write(path, 1)
    assert path.is_file()


def modes(folder: Path) -> dict[str, str]:
    """The permissions of all files and folders below a folder."""
    return {
        re.sub(r"alive-.*", "alive", str(path.relative_to(folder))): f"{path.stat().st_mode:o}"
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("private", [True, False])
def test_new_files_are_for_their_owner_only(tmp_path: Path, private: bool) -> None:
    """The file, those that SQLite puts beside it, locks and liveness files, and backups."""
    before = os.umask(0o022)
    try:
        url = f"sqlite:///{tmp_path / 'runs.db'}{'' if private else '?private=off'}"
        with Ledger.open(url) as ledger:
            ledger.append(RUN, note(), NEW)
            ledger.claim(RUN)
            back_up(ledger, tmp_path / "copy.db")
            found = modes(tmp_path)
    finally:
        os.umask(before)
    names = ("runs.db", "runs.db-wal", "runs.db-shm", "copy.db")
    locks = ("gate", "write", "made", "alive")
    folder, file = ("40700", "100600") if private else ("40755", "100644")
    assert found == {
        "runs.db-locks": folder,
        **dict.fromkeys((*names, *(f"runs.db-locks/{name}" for name in locks)), file),
    }


def test_files_beside_a_shared_ledger_are_shared(tmp_path: Path) -> None:
    """A ledger that its owner has opened to a group stays usable for the group."""
    path = tmp_path / "runs.db"
    write(path, 1)
    shutil.rmtree(f"{path}-locks")
    path.chmod(0o660)
    before = os.umask(0)
    try:
        write(path, 1)
    finally:
        os.umask(before)
    assert modes(tmp_path)["runs.db-locks"] == "40770"
    assert modes(tmp_path)["runs.db-locks/write"] == "100660"


# --- before it is opened ----------------------------------------------------------------------


@pytest.mark.parametrize("create", [True, False])
def test_an_empty_file_in_the_place_of_a_ledger_is_not_a_new_one(
    tmp_path: Path, create: bool
) -> None:
    """What was cut to nothing would be a ledger in which nothing was paid yet."""
    path = tmp_path / "runs.db"
    write(path, 3)
    cut(path)
    with pytest.raises(NotALedgerError, match=r"0 bytes.*cut off"):
        Ledger.open(path, create=create)
    assert path.stat().st_size == 0
    path.unlink()
    with Ledger.open(path) as ledger:
        assert list(ledger.runs()) == []


def test_a_database_without_tables_in_the_place_of_a_ledger_is_not_a_new_one(
    tmp_path: Path,
) -> None:
    """It may be all that is left of a ledger without its WAL."""
    path = tmp_path / "runs.db"
    write(path, 3)
    path.unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
    with pytest.raises(NotALedgerError, match="not a ledger"):
        Ledger.open(path)


def test_a_file_that_was_removed_from_beside_its_wal_is_not_a_new_ledger(tmp_path: Path) -> None:
    """A new file would be combined with the commits that are in the WAL."""
    path = tmp_path / "runs.db"
    write(path, 3)
    killed(path, 3, to=tmp_path / "killed.db")
    left = tmp_path / "killed.db"
    left.unlink()
    for create in (True, False):
        with pytest.raises(StoreUnavailableError, match=r"was removed.*move the WAL away"):
            Ledger.open(left, create=create)
    assert not left.exists()


def test_a_ledger_that_was_never_finished_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed while it makes one, where another one was, leaves no trap."""
    path = tmp_path / "runs.db"
    write(path, 1)
    path.unlink()

    def fail(db: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("killed")

    monkeypatch.setattr(store, "make_tables", fail)
    with pytest.raises(StoreUnavailableError, match="killed"):
        Ledger.open(path)
    monkeypatch.undo()
    write(path, 1)


@pytest.mark.parametrize("kind", ["another ledger", "newer", "older"])
def test_a_wal_beside_a_file_that_it_does_not_belong_to_is_refused(
    tmp_path: Path, kind: str
) -> None:
    """SQLite combines them: events vanish, and the digests of what is left may fit."""
    path, mixed = tmp_path / "runs.db", tmp_path / "mixed.db"
    write(path, 200)
    killed(path, 5, to=mixed)
    if kind == "another ledger":
        write(tmp_path / "other.db", 300, new_run_id())
        shutil.copy(tmp_path / "other.db", mixed)
    elif kind == "newer":
        write(path, 840)
        shutil.copy(path, mixed)
    else:
        # The same file with a later WAL of its own is fine.
        with Ledger.open(mixed) as ledger:
            assert ledger.head(RUN) == 205
            assert ledger.verify_all().ok
        return
    before = content(tmp_path)
    with pytest.raises(NotALedgerError, match="does not belong to"):
        Ledger.open(mixed)
    assert {**content(tmp_path), "mixed.db-shm": b""} == {**before, "mixed.db-shm": b""}
    # The right file again: nothing was lost by the attempt.
    if kind == "newer":
        Path(f"{mixed}-wal").unlink()
        Path(f"{mixed}-shm").unlink(missing_ok=True)
        with Ledger.open(mixed) as ledger:
            assert ledger.head(RUN) == 1045


def test_a_file_torn_by_an_interrupted_checkpoint_fits_its_wal(tmp_path: Path) -> None:
    """Without the WAL it is damaged, with it nothing is missing."""
    path, torn = tmp_path / "runs.db", tmp_path / "torn.db"
    write(path, 100)
    with Ledger.open(path) as ledger:
        for _ in range(40):
            ledger.append(RUN, [note() for _ in range(20)], ANY)
        shutil.copy(path, torn)
        shutil.copy(f"{path}-wal", f"{torn}-wal")
    whole = path.read_bytes()
    with torn.open("r+b") as file:
        for page in range(0, len(whole) // 4096, 2):  # every other page, as far as it goes
            if page * 4096 < torn.stat().st_size:
                file.seek(page * 4096)
                file.write(whole[page * 4096 : (page + 1) * 4096])
    with Ledger.open(torn) as ledger:
        assert ledger.head(RUN) == 900
        assert ledger.verify_all().ok
