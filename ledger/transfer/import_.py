"""Import: writes the runs of an export file into a ledger, after validating the whole file.

Records that the ledger has are skipped. Claims belong to the ledger that granted them, and are
not imported.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import BinaryIO

import msgspec

from turnledger.ledger.arguments import check_arguments
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
    ConflictCheck,
    check_ids,
    conflict,
    place_of,
    refuse_if_claimed,
    version_of,
)
from turnledger.ledger.transfer.file_reader import ExportFile, plausible_lines
from turnledger.ledger.transfer.redact import RedactedRecords
from turnledger.ledger.transfer.validate import FileRecord

# The most bytes of a transaction with several commits; a larger commit has one of its own.
ENOUGH_BYTES = 64 * 1024 * 1024


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import.

    Attributes:
        runs: Runs in the file.
        records: Records in the file.
        imported: Records that were new.
        already_there: Records that the ledger had.
        blobs: Blobs that came with new records.
        seal: The file's seal, if it has one.
        sealed_runs: Runs of the file that are in the seal.
        grown_runs: Those of `sealed_runs` with records after the seal.
        unsealed_runs: Runs of the file that are not in the seal.
        missing_runs: Runs in the seal that are not in the file.
        redacted: Records in which a secret was replaced.
        rechained: Runs that have other digests than in the file, since a record of theirs, or
            of an ancestor, was redacted.
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


@check_arguments
def import_runs(
    ledger: Ledger,
    source: BinaryIO,
    *,
    public_key: bytes | None = None,
    sealed: bool = False,
    check: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ImportReport:
    """Import the runs of an export file; the whole file is validated before anything is written.

    A run of which the ledger has the beginning is extended; one that is longer in the ledger is
    left as it is. The ledger's redactor replaces secrets after the validation. If the file has a
    seal, the runs must fit it. An import that is killed, or fails because another writer came
    in between, leaves whole commits; importing again writes the rest.

    Args:
        ledger: The ledger to import into.
        source: The file; one that can't seek is copied to a temporary file.
        public_key: The raw key that the file's seal must be signed with.
        sealed: Whether the file must have a seal. Where one is demanded, a sealed run with a
            secret is refused, since without the secret it would not fit the seal.
        check: Only validate and compare; the report says what an import would do.
        progress: Called with the number of bytes read. The file is read a second time if there
            is something to write.

    Raises:
        NotAnExportError: The file is not an export.
        IntegrityFailureError: The file is damaged, or does not have the demanded seal.
        ImportConflictError: The ledger has other events under the same run or event id.
        RunClaimedError: A run that would be extended has a live worker.
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
            spool.writelines(plausible_lines(source, ledger.limits))
        except OSError as error:
            raise StoreUnavailableError(
                f"The stream could not be copied to {tempfile.gettempdir()} to validate it: "
                f"{error}. Nothing was written. Import from a file, or set TMPDIR."
            ) from error
        return take(spool)


def _import(ledger: Ledger, file: ExportFile, *, check: bool) -> ImportReport:
    codec = ledger.codec
    with closing(ConflictCheck(ledger.store)) as comparison:
        without = RedactedRecords(file, codec)
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


def _write(ledger: Ledger, file: ExportFile, comparison: ConflictCheck) -> tuple[int, int]:
    """Read the file again and write what is new; the numbers of records and blobs written."""
    codec = ledger.codec
    imported = blobs = 0
    # Repeated in the first transaction, so that a change since the first pass is a conflict before
    # anything is written.
    check = [comparison.check_extended]
    try:
        records = RedactedRecords(file, codec).records(second_pass=True)
        for batch in batches(records, comparison.known, codec.limits):
            written = write_batch(ledger.store, batch, check)
            check = []
            imported += written[0]
            blobs += written[1]
    except TurnledgerError as error:
        if imported:
            written_before = f"{imported} records of the file were written before this error."
            error.args = (f"{error} {written_before}", *error.args[1:])
        raise
    return imported, blobs


def batches(
    records: Iterator[FileRecord], known: dict[str, int], limits: Limits
) -> Iterator[list[FileRecord]]:
    """Group new records into transactions of whole commits.

    Args:
        records: The records of the file.
        known: The version of each run that the ledger has.
        limits: Those of the ledger.
    """
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
    """Write records in one transaction; the numbers of new records and of their blobs.

    Args:
        store: The store to write to.
        batch: Records of one or several runs, in order.
        checks: Called first, in the same transaction.
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
        after = before or missing[0].start
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
            # No other writer came in between, so trying again would fail in the same way.
            raise damaged(after.run_id, "it can't be updated")


def _missing(tx: Transaction, before: RunRow | None, records: list[FileRecord]) -> list[FileRecord]:
    """The records that the run does not have by now: another import may have written some."""
    if before is None:
        return records
    first = records[0].row.version
    there = version_of(before) - first + 1
    if there < 0:
        raise ImportConflictError(f"Run {before.run_id} changed while it was imported. Try again.")
    if there == 0:
        if before.digest != records[0].previous:
            raise conflict(place_of(records[0]), None)
        return records
    last = records[min(there, len(records)) - 1]
    here = tx.row_at(before.run_id, last.row.version)
    if here is None or here.digest != last.row.digest:
        raise conflict(place_of(last), here)
    return records[there:]
