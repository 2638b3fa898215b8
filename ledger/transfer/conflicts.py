"""Import conflicts: compares the records of an export file with a ledger, and writes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from turnledger.ledger.errors import (
    ImportConflictError,
    IntegrityFailureError,
    RunClaimedError,
    StoreUnavailableError,
)
from turnledger.ledger.runs.index import RunRow, check_types, damaged
from turnledger.ledger.runs.record import Row, as_row
from turnledger.ledger.runs.transaction import Transaction
from turnledger.ledger.stores.base import PAGE, Store
from turnledger.ledger.transfer.validate import FileRecord

# How many bytes of records are collected before their event ids are looked up.
WAITING_BYTES = 4 * 1024 * 1024


class Place(NamedTuple):
    """A record of the file, as an error names it."""

    line: int
    run_id: str
    version: int
    digest: bytes


class ConflictCheck:
    """Compares the records of a file, in order, with those in the ledger, and counts them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._run_id = ""
        self._here: Iterator[Row] = iter(())
        self._extended: dict[str, Place] = {}
        self._waiting: list[FileRecord] = []
        self._waiting_bytes = 0
        # Event ids must be unique in the file. A temporary database on disk holds them, so that a
        # large file does not fill the memory.
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
        """Compare the next record."""
        self.records += 1
        run_id, version, *_ = record.row
        if run_id != self._run_id:
            self._run_id = run_id
            self.runs += 1
            self._here = self._own_rows(run_id)
        try:
            self._ids.execute("INSERT INTO ids VALUES (?, ?)", (record.row.event_id, record.line))
        except sqlite3.IntegrityError:
            raise IntegrityFailureError(
                f"line {record.line}: event id {record.row.event_id} is in the file twice."
            ) from None
        except sqlite3.Error as error:
            raise StoreUnavailableError(
                f"The file's event ids could not be written to a temporary database: {error}. "
                "Nothing was written. Make room, or set SQLITE_TMPDIR."
            ) from error
        here = next(self._here, None)
        if here is not None:
            if (here.version, here.digest) != (version, record.row.digest):
                raise conflict(place_of(record), here)
            return
        if run_id in self.known and run_id not in self._extended:
            self._extended[run_id] = place_of(record)
        self.new += 1
        self.blobs += len(record.blobs)
        self._waiting.append(record._replace(blobs={}))
        self._waiting_bytes += len(record.row.data)
        if len(self._waiting) >= PAGE or self._waiting_bytes >= WAITING_BYTES:
            self._check_ids()

    def finish(self) -> None:
        """Run the checks that wait for the end of the file."""
        self._check_ids()
        if self._extended:
            self._store.write(self.check_extended)

    def check_extended(self, tx: Transaction) -> None:
        """Check that the runs which the file extends are as they were compared, and unclaimed.

        It is fine if another import has written the same records meanwhile.
        """
        for run_id, following in self._extended.items():
            row = tx.run(run_id)
            if row is not None and version_of(row) >= following.version:
                here = tx.row_at(run_id, following.version)
                if here is None or here.digest != following.digest:
                    raise conflict(following, here)
            refuse_if_claimed(tx, row)

    def _own_rows(self, run_id: str) -> Iterator[Row]:
        index = self._store.run(run_id)
        known = 0 if index is None else version_of(index)
        if index is not None:
            self.known[run_id] = known
        version = 0
        while page := self._store.rows(run_id, version, None, backwards=False, limit=PAGE):
            rows = list(map(as_row, page))
            _check_types(rows)
            version = rows[-1].version
            if version > known:
                _check_indexed(run_id, version, self._store.run(run_id))
            for row in rows:
                if index is not None and row.version == known and row.digest != index.digest:
                    raise damaged(run_id, f"version {known} has another digest")
                yield row
        if version < known:
            raise IntegrityFailureError(
                f"Run {run_id} is damaged in this ledger: the index has version {known}, the "
                f"records end at {version}. Run `turnledger verify {run_id}`."
            )

    def _check_ids(self) -> None:
        if self._waiting:
            # Within a transaction, which a conflict rolls back: nothing at all is written.
            self._store.write(lambda tx: check_ids(tx, self._waiting))
        self._waiting.clear()
        self._waiting_bytes = 0


def check_ids(tx: Transaction, records: list[FileRecord]) -> bool:
    """Whether another import has written some of these records meanwhile.

    An id that another record has is a conflict. A record that is not in the index is damage: the
    two are written together, and the index is read later.
    """
    by_id = {record.row.event_id: record for record in records}
    taken = tx.rows_by_id(list(by_id))
    for row in taken:
        _check_same(by_id[row.event_id], row)
        _check_indexed(row.run_id, row.version, tx.run(row.run_id))
    return bool(taken)


def refuse_if_claimed(tx: Transaction, row: RunRow | None) -> None:
    """Raise RunClaimedError if a live worker has the run."""
    if row is None or row.epoch == 0:
        return
    lease = tx.leases.get(row.run_id)
    if lease is not None and lease.epoch == row.epoch and tx.leases.is_live(lease):
        raise RunClaimedError(row.run_id, worker=lease.worker, epoch=lease.epoch)


def place_of(record: FileRecord) -> Place:
    return Place(record.line, record.row.run_id, record.row.version, record.row.digest)


def conflict(file: Place, here: Row | None) -> IntegrityFailureError:
    """The error for a record of the file where the ledger has another, or none."""
    if here is not None:
        _check_types([here])
    found = (
        "another history" if here is None else f"version {here.version} with {here.digest.hex()}"
    )
    return ImportConflictError(
        f"line {file.line}: run {file.run_id}, version {file.version}: the file has digest "
        f"{file.digest.hex()}, the ledger has {found}. These are different runs with one id: "
        "import into another ledger."
    )


def _check_same(record: FileRecord, here: Row) -> None:
    """Raise ImportConflictError if an event id is of another record."""
    row = record.row
    if row == here[1:]:
        return
    _check_types([here])
    raise ImportConflictError(
        f"line {record.line}: run {row.run_id}, version {row.version}, "
        f"digest {row.digest.hex()}: its event id {row.event_id} is used in the ledger by "
        f"run {here.run_id}, version {here.version}, digest {here.digest.hex()}."
    )


def _check_indexed(run_id: str, version: int, index: RunRow | None) -> None:
    if index is None or version_of(index) < version:
        raise damaged(
            run_id, f"the records go up to version {version}, which the index does not have"
        )


def version_of(index: RunRow) -> int:
    """A run's version in the index; raises if a damaged index has something else there."""
    check_types(index, "version", "parent_version")
    return index.version


def _check_types(rows: list[Row]) -> None:
    for row in rows:
        if not isinstance(row.version, int) or not isinstance(row.digest, bytes):
            raise IntegrityFailureError(
                f"Run {row.run_id}, version {row.version!s:.80} is damaged in this ledger: a "
                f"column has the wrong type. Run `turnledger verify {row.run_id}`."
            )
