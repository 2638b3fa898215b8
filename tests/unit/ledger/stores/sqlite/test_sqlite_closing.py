"""Closing a ledger that others are using, in this process and elsewhere."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.conformance.samples import note
from turnledger.ledger import ANY, NEW, CustomEvent, Ledger, StoreBusyError, new_run_id
from turnledger.ledger.stores.sqlite import wal

# In a process of its own: what went wrong here ended the interpreter.
CLOSED_WHILE_READ = """
import sys
from threading import Barrier, Thread
from turnledger.ledger import ANY, CustomEvent, Ledger, LedgerClosedError, new_run_id

run, answers = new_run_id(), []
for _ in range(60):
    ledger = Ledger.open(sys.argv[1])
    ledger.append(run, [CustomEvent(kind="a.b", data="x" * 500)] * 20, ANY)
    together = Barrier(5)
    questions = (
        lambda: ledger.head(run),
        lambda: list(ledger.read(run)),
        lambda: list(ledger.tail()),
        lambda: ledger.verify(run),
    )

    def ask(question):
        together.wait()
        try:
            while True:
                question()
        except LedgerClosedError as error:
            answers.append(error)

    threads = [Thread(target=ask, args=(question,)) for question in questions]
    for thread in threads:
        thread.start()
    together.wait()
    ledger.close()
    for thread in threads:
        thread.join()
print(len(answers))
"""


def opened_below(folder: Path) -> list[str]:
    """The files of a folder that this process has open, deleted ones too; no other test's."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(path for path in found if path.startswith(f"{folder}/"))


@pytest.mark.process
def test_a_ledger_that_is_closed_while_others_read_says_so(tmp_path: Path) -> None:
    """Each reader gets what it asked for, or LedgerClosedError."""
    command = [sys.executable, "-c", CLOSED_WHILE_READ, str(tmp_path / "runs.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "240\n"


def test_a_foreign_transaction_is_not_cut_off_by_who_waited_for_it(tmp_path: Path) -> None:
    """An append that was never begun has left nothing behind, and touches nothing of others."""
    path, run = tmp_path / "runs.db", new_run_id()
    with Ledger.open(path, wait=0.05) as ledger, closing(sqlite3.connect(path)) as foreign:
        ledger.append(run, note(), NEW)
        foreign.isolation_level = None
        foreign.execute("PRAGMA wal_autocheckpoint=0")
        foreign.execute("PRAGMA cache_size=10")
        foreign.execute("BEGIN IMMEDIATE")
        foreign.execute("CREATE TABLE notes (x)")
        # More than its memory holds: it is in the WAL before it is committed.
        foreign.executemany("INSERT INTO notes VALUES (?)", [("n" * 3000,)] * 200)
        with pytest.raises(StoreBusyError):
            ledger.append(run, note(), 1)
        foreign.execute("COMMIT")
        for version in range(1, 6):
            ledger.append(run, note(), version)
        # What whoever comes after a kill would find.
        for name in ("runs.db", "runs.db-wal"):
            shutil.copy(tmp_path / name, tmp_path / f"killed-{name}")
    (tmp_path / "killed-runs.db-wal").rename(tmp_path / "killed.db-wal")
    (tmp_path / "killed-runs.db").rename(tmp_path / "killed.db")
    with Ledger.open(tmp_path / "killed.db") as found:
        assert found.head(run) == 6
        assert found.verify_all().ok


def test_indexes_of_ledgers_that_are_gone_are_let_go(tmp_path: Path) -> None:
    """A file that was deleted takes room for as long as somebody has it open."""
    for number in range(10):
        index = tmp_path / f"{number}.db-shm"
        index.write_bytes(b"\xff" * 32768)
        wal.invalidate_index(tmp_path / f"{number}.db")
        assert index.read_bytes().startswith(bytes(96))
        index.unlink()

    assert len(opened_below(tmp_path)) == 1


def test_connections_are_kept_for_the_next_reader(tmp_path: Path) -> None:
    """Reading a thousand times opens no thousand files, nor does closing leave any open."""
    path, run = tmp_path / "runs.db", new_run_id()
    with Ledger.open(path) as ledger:
        ledger.append(run, CustomEvent(kind="a.b"), ANY)
        ledger.head(run)
        opened = opened_below(tmp_path)
        for _ in range(50):
            ledger.head(run)
        assert opened_below(tmp_path) == opened

    assert opened_below(tmp_path) == []
    assert not Path(f"{path}-wal").exists()
