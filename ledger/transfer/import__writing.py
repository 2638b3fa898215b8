"""Writing the records of an export file, which were checked and compared, into a ledger.

In whole commits, many to a transaction. Others may write at the same time: each transaction
looks where its runs stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from turnledger.ledger.errors import BlobNotFoundError, ImportConflictError
from turnledger.ledger.events.blobs import blobs_named
from turnledger.ledger.events.limits import Limits
from turnledger.ledger.runs.index import INDEXED_TAGS, RunRow, advance, damaged
from turnledger.ledger.runs.transaction import Transaction
from turnledger.ledger.stores.base import LedgerRecorder
from turnledger.ledger.transfer.conflicts import (
    check_ids,
    conflict,
    next_of,
    refuse_if_claimed,
    version_of,
)
from turnledger.ledger.transfer.validate import FileRecord

# Of a transaction that holds several commits; a commit that is larger has one of its own.
ENOUGH_BYTES = 64 * 1024 * 1024


def batches(
    records: Iterator[FileRecord], known: dict[str, int], limits: Limits
) -> Iterator[list[FileRecord]]:
    """What is not there yet, in whole commits, as many as one transaction should hold."""
    batch: list[FileRecord] = []
    commit: list[FileRecord] = []
    size = commit_size = 0
    most_bytes = min(limits.max_batch_bytes, ENOUGH_BYTES)
    for record in records:
        if record.row[1] <= known.get(record.row[0], 0):
            continue
        if commit and _commit_of(record) != _commit_of(commit[-1]):
            batch += commit
            size, commit, commit_size = size + commit_size, [], 0
        if batch and (len(batch) + len(commit) >= limits.max_batch_events or size >= most_bytes):
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


def write_batch(
    store: LedgerRecorder,
    batch: list[FileRecord],
    checks: Iterable[Callable[[Transaction], None]] = (),
) -> tuple[int, int]:
    """Write the records of some runs; how many were new, and how many blobs came with them.

    `checks` are made in the same transaction, before.
    """
    runs: dict[str, list[FileRecord]] = {}
    for record in batch:
        runs.setdefault(record.row[0], []).append(record)

    def write_runs(tx: Transaction) -> tuple[int, int]:
        for check in checks:
            check(tx)
        written = [_write_run(tx, records) for records in runs.values()]
        return sum(count for count, _ in written), sum(blobs for _, blobs in written)

    return store.write(write_runs)


def _write_run(tx: Transaction, records: list[FileRecord]) -> tuple[int, int]:
    while True:
        before = tx.run(records[0].row[0])
        missing = _missing(tx, before, records)
        if not missing:
            return 0, 0
        refuse_if_claimed(tx, before)
        if tx.careful and check_ids(tx, missing):
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
        rows = [record.row for record in missing]
        if tx.advance(before, after, rows, blobs) is not None:
            return len(rows), len(blobs)
        if tx.run(after.run_id) == before:
            # Nobody came in between, so trying again would come to the same, for ever.
            raise damaged(after.run_id, "it can't be moved on")


def _missing(tx: Transaction, before: RunRow | None, records: list[FileRecord]) -> list[FileRecord]:
    """The records that the run, standing like this, does not have; others may have written."""
    if before is None:
        return records
    first = records[0].row[1]
    there = version_of(before) - first + 1
    if there < 0:
        raise ImportConflictError(f"Run {before.run_id} changed while it was imported. Try again.")
    if there == 0:
        if before.digest != records[0].previous:
            raise conflict(next_of(records[0]), None)
        return records
    last = records[min(there, len(records)) - 1]
    here = tx.row_at(before.run_id, last.row[1])
    if here is None or here[6] != last.row[5]:
        raise conflict(next_of(last), here)
    return records[there:]
