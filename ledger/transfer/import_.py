"""Taking runs from an export file, all of which is checked before any of it is written.

Importing again is harmless: what is there already, under the same digest, is skipped.
Live claims are not carried: they belong to the ledger that granted them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import BinaryIO

import msgspec

from turnledger.ledger.errors import (
    BlobNotFoundError,
    ImportConflictError,
    StoreUnavailableError,
    TurnledgerError,
)
from turnledger.ledger.events.blobs import blobs_named
from turnledger.ledger.events.limits import Limits
from turnledger.ledger.integrity.seal import Seal
from turnledger.ledger.ledger import Ledger
from turnledger.ledger.runs.index import INDEXED_TAGS, RunRow, advance, damaged
from turnledger.ledger.runs.transaction import Transaction
from turnledger.ledger.stores.base import Store
from turnledger.ledger.transfer.conflicts import (
    Comparison,
    check_ids,
    conflict,
    next_of,
    refuse_if_claimed,
    version_of,
)
from turnledger.ledger.transfer.file_reader import ExportFile, look_through
from turnledger.ledger.transfer.redact import WithoutSecrets
from turnledger.ledger.transfer.validate import FileRecord

# Of a transaction that holds several commits; a commit that is larger has one of its own.
ENOUGH_BYTES = 64 * 1024 * 1024


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an import: how much the file holds, and what of it was new.

    With `seal`, the file carried one: of the file's runs, `sealed_runs` are in it (and of
    these `grown_runs` have gone on since), `unsealed_runs` it does not know; `missing_runs`
    are in the seal and not in the file. Of `redacted` records secrets were taken out; from
    there on the runs in `rechained` have other digests than in the file.
    """

    runs: int
    records: int
    imported: int
    already_there: int
    blobs: int
    seal: Seal | None = None
    sealed_runs: int = 0
    grown_runs: int = 0
    unsealed_runs: int = 0
    missing_runs: int = 0
    redacted: int = 0
    rechained: tuple[str, ...] = ()


def import_runs(
    ledger: Ledger,
    source: BinaryIO,
    *,
    public_key: bytes | None = None,
    sealed: bool = False,
    check: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ImportReport:
    """Take the runs of an export file; all of it is checked before anything is written.

    A run that is here as a beginning of the file's is extended, a longer one is left.
    What the ledger's redactor takes for a secret is taken out once the file is checked.
    A seal that the file carries must be whole, and the runs must fit it; `sealed` demands
    one, `public_key` (raw) one that is signed with that key. With `check` nothing is
    written: the report says what would be. `progress` is told how many bytes of the file
    were checked, which is done twice if there is something to write.

    Raises IntegrityFailureError for a damaged file, ImportConflictError if the ledger
    holds other events under the same run or event id, RunClaimedError if a run that
    would be extended has a living worker. Where a seal is demanded, a sealed run that holds
    a secret is refused: without it, it would not fit the seal. Killed in the middle, an
    import leaves whole commits, and importing again writes the rest; so does one that
    somebody comes in between while it writes, and the error says how much is there.
    """

    def take(stream: BinaryIO) -> ImportReport:
        file = ExportFile(
            stream,
            ledger.limits,
            public_key=public_key,
            sealed=sealed,
            progress=progress,
        )
        return _import(ledger, file, check=check)

    if source.seekable():
        return take(source)
    with tempfile.TemporaryFile() as spool:
        try:
            spool.writelines(look_through(source, ledger.limits))
        except OSError as error:
            raise StoreUnavailableError(
                f"The stream could not be kept in {tempfile.gettempdir()} while it is checked: "
                f"{error}. Nothing was written. Import from a file, or set TMPDIR."
            ) from error
        return take(spool)


def _import(ledger: Ledger, file: ExportFile, *, check: bool) -> ImportReport:
    codec = ledger.codec
    with closing(Comparison(ledger.store)) as comparison:
        without = WithoutSecrets(file, codec)
        for record in without.records():
            comparison.take(record)
        comparison.finish()
    imported, blobs = comparison.new, comparison.blobs
    if comparison.new and not check:
        imported, blobs = _write(ledger, file, comparison)
    runs = file.sealed_runs
    return ImportReport(
        runs=comparison.runs,
        records=comparison.records,
        imported=imported,
        already_there=comparison.records - imported,
        blobs=blobs,
        seal=runs.seal,
        sealed_runs=runs.sealed,
        grown_runs=runs.grown,
        unsealed_runs=runs.unsealed if runs.seal is not None else 0,
        missing_runs=runs.missing,
        redacted=without.redacted,
        rechained=tuple(without.rechained),
    )


def _write(ledger: Ledger, file: ExportFile, comparison: Comparison) -> tuple[int, int]:
    """Read the file anew and write what is not there; how many records and blobs that was."""
    codec = ledger.codec
    imported = blobs = 0
    # In the first transaction: what changed since the comparison is found before it is too late.
    check = [comparison.check_extended]
    try:
        records = WithoutSecrets(file, codec).records(again=True)
        for batch in batches(records, comparison.known, codec.limits):
            written = write_batch(ledger.store, batch, check)
            check = []
            imported += written[0]
            blobs += written[1]
    except TurnledgerError as error:
        if imported:
            told = f"{imported} records of the file were written before; the rest was not."
            error.args = (f"{error} {told}", *error.args[1:])
        raise
    return imported, blobs


def batches(
    records: Iterator[FileRecord], known: dict[str, int], limits: Limits
) -> Iterator[list[FileRecord]]:
    """What is not there yet, in whole commits, as many as one transaction should hold."""
    batch: list[FileRecord] = []
    commit: list[FileRecord] = []
    size = commit_size = 0
    most_bytes = min(limits.max_batch_bytes, ENOUGH_BYTES)
    for record in records:
        if record.row.version <= known.get(record.row.run_id, 0):
            continue
        if commit and _commit_of(record) != _commit_of(commit[-1]):
            batch += commit
            size, commit, commit_size = size + commit_size, [], 0
        if batch and (len(batch) + len(commit) >= limits.max_batch_events or size >= most_bytes):
            yield batch
            batch, size = [], 0
        commit.append(record)
        commit_size += len(record.row.data) + sum(map(len, record.blobs.values()))
    if batch:
        yield batch
    if commit:
        yield commit


def _commit_of(record: FileRecord) -> tuple[str, int]:
    return record.row.run_id, record.row.recorded_at


def write_batch(
    store: Store,
    batch: list[FileRecord],
    checks: Iterable[Callable[[Transaction], None]] = (),
) -> tuple[int, int]:
    """Write the records of some runs; how many were new, and how many blobs came with them.

    `checks` are made in the same transaction, before.
    """
    runs: dict[str, list[FileRecord]] = {}
    for record in batch:
        runs.setdefault(record.row.run_id, []).append(record)

    def write_runs(tx: Transaction) -> tuple[int, int]:
        for check in checks:
            check(tx)
        written = [_write_run(tx, records) for records in runs.values()]
        return sum(count for count, _ in written), sum(blobs for _, blobs in written)

    return store.write(write_runs)


def _write_run(tx: Transaction, records: list[FileRecord]) -> tuple[int, int]:
    while True:
        before = tx.run(records[0].row.run_id)
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
    first = records[0].row.version
    there = version_of(before) - first + 1
    if there < 0:
        raise ImportConflictError(f"Run {before.run_id} changed while it was imported. Try again.")
    if there == 0:
        if before.digest != records[0].previous:
            raise conflict(next_of(records[0]), None)
        return records
    last = records[min(there, len(records)) - 1]
    here = tx.row_at(before.run_id, last.row.version)
    if here is None or here.digest != last.row.digest:
        raise conflict(next_of(last), here)
    return records[there:]
