"""Taking runs from an export file, all of which is checked before any of it is written.

Importing again is harmless: what is there already, under the same digest, is skipped.
Live claims are not carried: they belong to the ledger that granted them.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import BinaryIO

import msgspec

from ledger.blobs import blobs_named
from ledger.errors import (
    BlobNotFoundError,
    ImportConflictError,
    IntegrityFailureError,
    RunClaimedError,
)
from ledger.ledger import Ledger
from ledger.limits import Limits
from ledger.recorder import PAGE, LedgerRecorder
from ledger.rows import NewRow, Row
from ledger.run_index import INDEXED_TAGS, RunRow, advance
from ledger.transaction import Transaction
from ledger.transfer.checking import ExportFile, FileRecord


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an import: how much the file holds, and what of it was new."""

    runs: int
    records: int
    imported: int
    already_there: int
    blobs: int


def import_runs(ledger: Ledger, source: BinaryIO) -> ImportReport:
    """Take the runs of an export file; all of it is checked before anything is written.

    A run that is here as a beginning of the file's is extended, a longer one is left.
    Raises IntegrityFailureError for a damaged file, ImportConflictError if the ledger
    holds other events under the same run or event id, RunClaimedError if a run that
    would be extended has a living worker.
    """
    if not source.seekable():
        with tempfile.TemporaryFile() as spool:
            shutil.copyfileobj(source, spool)
            return _import(ledger, spool)
    return _import(ledger, source)


def _import(ledger: Ledger, stream: BinaryIO) -> ImportReport:
    limits = ledger.mapper.codec.limits
    file = ExportFile(stream, limits)
    with closing(_Comparison(ledger.store)) as comparison:
        for record in file.records():
            comparison.take(record)
        comparison.finish()
    imported = blobs = 0
    if not comparison.new:
        return _report(comparison, imported, blobs)
    for batch in _batches(file.records(), comparison.known, limits):
        written = ledger.store.write(partial(_write_batch, batch=batch))
        imported += written[0]
        blobs += written[1]
    return _report(comparison, imported, blobs)


def _report(comparison: _Comparison, imported: int, blobs: int) -> ImportReport:
    return ImportReport(
        runs=comparison.runs,
        records=comparison.records,
        imported=imported,
        already_there=comparison.records - imported,
        blobs=blobs,
    )


class _Comparison:
    """The first pass: does anything in the ledger stand against this file?"""

    def __init__(self, store: LedgerRecorder) -> None:
        self._store = store
        self._run_id = ""
        self._here: Iterator[Row] = iter(())
        self._extended: list[str] = []
        self._new: list[FileRecord] = []
        # A private database on disk, gone when closed: ids of a large file fill no memory.
        self._ids = sqlite3.connect("")
        self._ids.execute("CREATE TABLE ids (id TEXT PRIMARY KEY, line INTEGER) WITHOUT ROWID")
        self.known: dict[str, int] = {}
        self.runs = 0
        self.records = 0
        self.new = 0

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
        here = next(self._here, None)
        if here is not None:
            if (here[2], here[6]) != (version, record.row[5]):
                raise _conflict(record.row, here)
            return
        if self.known.get(run_id) == version - 1:
            self._extended.append(run_id)
        self.new += 1
        self._new.append(record)
        if len(self._new) >= PAGE:
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
        lines = {record.row[3]: record for record in self._new}
        if lines:
            for row in self._store.write(lambda tx: tx.rows_by_id(list(lines))):
                _check_same(lines[row[4]].row, row)
        self._new.clear()

    def _check_leases(self, tx: Transaction) -> None:
        for run_id in self._extended:
            _refuse_if_claimed(tx, tx.run(run_id))


def _batches(
    records: Iterator[FileRecord], known: dict[str, int], limits: Limits
) -> Iterator[list[FileRecord]]:
    """What is not there yet, in whole commits, as many as one transaction should hold."""
    batch: list[FileRecord] = []
    commit: list[FileRecord] = []
    size = commit_size = 0
    for record in records:
        if record.row[1] <= known.get(record.row[0], 0):
            continue
        if commit and _commit_of(record) != _commit_of(commit[-1]):
            batch += commit
            size, commit, commit_size = size + commit_size, [], 0
        if batch and (
            len(batch) + len(commit) >= limits.max_batch_events or size >= limits.max_batch_bytes
        ):
            yield batch
            batch, size = [], 0
        commit.append(record)
        commit_size += len(record.row[6]) + sum(map(len, record.blobs.values()))
    if batch:
        yield batch
    if commit:
        yield commit


def _commit_of(record: FileRecord) -> tuple[str, int]:
    return record.row[0], record.row[4]


def _write_batch(tx: Transaction, batch: list[FileRecord]) -> tuple[int, int]:
    """Write the records of some runs; how many were new, and how many blobs came with them."""
    runs: dict[str, list[FileRecord]] = {}
    for record in batch:
        runs.setdefault(record.row[0], []).append(record)
    written = [_write_run(tx, records) for records in runs.values()]
    return sum(count for count, _ in written), sum(blobs for _, blobs in written)


def _write_run(tx: Transaction, records: list[FileRecord]) -> tuple[int, int]:
    while True:
        before = tx.run(records[0].row[0])
        missing = _missing(tx, before, records)
        if not missing:
            return 0, 0
        _refuse_if_claimed(tx, before)
        rows = [record.row for record in missing]
        if tx.careful:
            by_id = {row[3]: row for row in rows}
            if taken := tx.rows_by_id(list(by_id)):
                for row in taken:
                    _check_same(by_id[row[4]], row)
                continue
        blobs = {name: content for record in missing for name, content in record.blobs.items()}
        after = before or missing[0].opening
        assert after is not None
        for record in missing:
            for name in blobs_named(record.event):
                if name not in blobs and not tx.has_blob(name):
                    raise BlobNotFoundError(name)
            _, version, _, _, recorded_at, digest, _ = record.row
            indexed = (record.event,) if record.event.tag in INDEXED_TAGS else ()
            after = advance(after, indexed, version, digest, recorded_at)
        if tx.advance(before, after, rows, blobs) is not None:
            return len(rows), len(blobs)


def _missing(tx: Transaction, before: RunRow | None, records: list[FileRecord]) -> list[FileRecord]:
    """The records that the run, standing like this, does not have; others may have written."""
    if before is None:
        return records
    first = records[0].row[1]
    there = before.version - first + 1
    if there < 0:
        raise ImportConflictError(f"Run {before.run_id} changed while it was imported. Try again.")
    if there == 0:
        if before.digest != records[0].previous:
            raise _conflict(records[0].row, None)
        return records
    last = records[min(there, len(records)) - 1].row
    here = tx.row_at(before.run_id, last[1])
    if here is None or here[6] != last[5]:
        raise _conflict(last, here)
    return records[there:]


def _refuse_if_claimed(tx: Transaction, row: RunRow | None) -> None:
    if row is None or row.epoch == 0:
        return
    lease = tx.lease(row.run_id)
    if lease is not None and lease.epoch == row.epoch and tx.is_live(lease):
        raise RunClaimedError(row.run_id, worker=lease.worker, epoch=lease.epoch)


def _conflict(row: NewRow, here: Row | None) -> ImportConflictError:
    found = "another history" if here is None else f"version {here[2]} with {here[6].hex()}"
    return ImportConflictError(
        f"Run {row[0]}, version {row[1]}: the file has digest {row[5].hex()}, the ledger has "
        f"{found}. They are different runs under one id; import into another ledger."
    )


def _check_same(row: NewRow, here: Row) -> None:
    """An id that is taken is taken by this very record (another import was faster), or else."""
    if row == here[1:]:
        return
    raise ImportConflictError(
        f"Run {row[0]}, version {row[1]}, digest {row[5].hex()}: its event id {row[3]} is used "
        f"in the ledger by run {here[1]}, version {here[2]}, digest {here[6].hex()}."
    )
