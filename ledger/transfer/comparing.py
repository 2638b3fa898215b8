"""Comparing an export file with a ledger: does anything there stand against taking it?

The same run with other events, an event id that another record has, a run that somebody
is working on. Nothing is written here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from ledger.errors import (
    ImportConflictError,
    IntegrityFailureError,
    RunClaimedError,
    StoreUnavailableError,
)
from ledger.recorder import PAGE, LedgerRecorder
from ledger.rows import Row
from ledger.run_index import RunRow
from ledger.transaction import Transaction
from ledger.transfer.checking import FileRecord

# How many bytes of records wait for the check of their ids.
WAITING_BYTES = 4 * 1024 * 1024


class Comparison:
    """The first pass: does anything in the ledger stand against this file?"""

    def __init__(self, store: LedgerRecorder) -> None:
        self._store = store
        self._run_id = ""
        self._here: Iterator[Row] = iter(())
        self._extended: list[str] = []
        self._waiting: list[FileRecord] = []
        self._waiting_bytes = 0
        # A private database on disk, gone when closed: ids of a large file fill no memory.
        self._ids = sqlite3.connect("")
        self._ids.execute("CREATE TABLE ids (id TEXT PRIMARY KEY, line INTEGER) WITHOUT ROWID")
        self.known: dict[str, int] = {}
        self.runs = 0
        self.records = 0
        self.new = 0
        self.blobs = 0

    def close(self) -> None:
        self._ids.close()

    def take(self, record: FileRecord) -> None:
        self.records += 1
        run_id, version, *_ = record.row
        if run_id != self._run_id:
            self._run_id = run_id
            self.runs += 1
            self._here = self._own_rows(run_id)
        try:
            self._ids.execute("INSERT INTO ids VALUES (?, ?)", (record.row[3], record.line))
        except sqlite3.IntegrityError:
            raise IntegrityFailureError(
                f"line {record.line}: event id {record.row[3]} stands in the file twice."
            ) from None
        except sqlite3.Error as error:
            raise StoreUnavailableError(
                f"The ids of the file could not be kept in a temporary database: {error}. "
                "Nothing was written. Make room, or set SQLITE_TMPDIR."
            ) from error
        here = next(self._here, None)
        if here is not None:
            if (here[2], here[6]) != (version, record.row[5]):
                raise conflict(record, here)
            return
        if self.known.get(run_id) == version - 1:
            self._extended.append(run_id)
        self.new += 1
        self.blobs += len(record.blobs)
        self._waiting.append(record._replace(blobs={}))
        self._waiting_bytes += len(record.row[6])
        if len(self._waiting) >= PAGE or self._waiting_bytes >= WAITING_BYTES:
            self._check_ids()

    def finish(self) -> None:
        self._check_ids()
        if self._extended:
            self._store.write(self._check_leases)

    def _own_rows(self, run_id: str) -> Iterator[Row]:
        row = self._store.run(run_id)
        if row is None:
            return
        self.known[run_id] = row.version
        version = row.parent_version
        while rows := self._store.rows(run_id, version, None, backwards=False, limit=PAGE):
            yield from rows
            version = rows[-1][2]

    def _check_ids(self) -> None:
        lines = {record.row[3]: record for record in self._waiting}
        if lines:
            for row in self._store.write(lambda tx: tx.rows_by_id(list(lines))):
                check_same(lines[row[4]], row)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _check_leases(self, tx: Transaction) -> None:
        for run_id in self._extended:
            refuse_if_claimed(tx, tx.run(run_id))


def refuse_if_claimed(tx: Transaction, row: RunRow | None) -> None:
    if row is None or row.epoch == 0:
        return
    lease = tx.lease(row.run_id)
    if lease is not None and lease.epoch == row.epoch and tx.is_live(lease):
        raise RunClaimedError(row.run_id, worker=lease.worker, epoch=lease.epoch)


def conflict(record: FileRecord, here: Row | None) -> ImportConflictError:
    row = record.row
    found = "another history" if here is None else f"version {here[2]} with {here[6].hex()}"
    return ImportConflictError(
        f"line {record.line}: run {row[0]}, version {row[1]}: the file has digest "
        f"{row[5].hex()}, the ledger has {found}. They are different runs under one id; import "
        "into another ledger."
    )


def check_same(record: FileRecord, here: Row) -> None:
    """An id that is taken is taken by this very record (another import was faster), or else."""
    row = record.row
    if row == here[1:]:
        return
    raise ImportConflictError(
        f"line {record.line}: run {row[0]}, version {row[1]}, digest {row[5].hex()}: its event id "
        f"{row[3]} is used in the ledger by run {here[1]}, version {here[2]}, digest "
        f"{here[6].hex()}."
    )
