"""Taking runs from an export file, all of which is checked before any of it is written.

Importing again is harmless: what is there already, under the same digest, is skipped.
Live claims are not carried: they belong to the ledger that granted them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from typing import BinaryIO

import msgspec

from turnledger.ledger.errors import StoreUnavailableError, TurnledgerError
from turnledger.ledger.integrity.seal import Seal
from turnledger.ledger.ledger import Ledger
from turnledger.ledger.transfer.conflicts import Comparison
from turnledger.ledger.transfer.file_reader import ExportFile, look_through
from turnledger.ledger.transfer.import__writing import batches, write_batch
from turnledger.ledger.transfer.redact import WithoutSecrets


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
            ledger.mapper.codec.limits,
            public_key=public_key,
            sealed=sealed,
            progress=progress,
        )
        return _import(ledger, file, check=check)

    if source.seekable():
        return take(source)
    with tempfile.TemporaryFile() as spool:
        try:
            spool.writelines(look_through(source, ledger.mapper.codec.limits))
        except OSError as error:
            raise StoreUnavailableError(
                f"The stream could not be kept in {tempfile.gettempdir()} while it is checked: "
                f"{error}. Nothing was written. Import from a file, or set TMPDIR."
            ) from error
        return take(spool)


def _import(ledger: Ledger, file: ExportFile, *, check: bool) -> ImportReport:
    codec = ledger.mapper.codec
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
    codec = ledger.mapper.codec
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
