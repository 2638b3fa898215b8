"""Writing runs into an export file; every record is checked against its digest on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from turnledger.ledger.errors import IntegrityFailureError
from turnledger.ledger.events.blobs import blob_name, blobs_named
from turnledger.ledger.events.chain import GENESIS, link
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.integrity.seal import Seal
from turnledger.ledger.ledger import Ledger
from turnledger.ledger.runs.append_request import RunId
from turnledger.ledger.runs.index import RunRow
from turnledger.ledger.runs.record_rows import Row
from turnledger.ledger.stores.base import PAGE, LedgerRecorder
from turnledger.ledger.transfer.export_choosing import Chosen
from turnledger.ledger.transfer.file_format import (
    FORMAT,
    SEALED_FORMAT,
    BlobLine,
    EndLine,
    Header,
    Totals,
    encode_line,
    record_line,
)
from turnledger.ledger.transfer.seal_check import check_exported, seal_line


def export_runs(
    ledger: Ledger,
    out: BinaryIO,
    runs: Iterable[RunId] | None = None,
    *,
    seal: Seal | None = None,
    progress: Callable[[int], None] | None = None,
) -> Totals:
    """Write runs, and what they descend from, or with None the whole ledger.

    The same runs give the same bytes, whatever ledger they are in. A run is taken as
    it stands at the beginning. With `seal`, the file carries it, if the runs fit it: one
    that the seal has is there as far as it was sealed, with that digest, and of the whole
    ledger none is missing. Raises IntegrityFailureError if they don't, and at a record that
    does not fit its digest.
    `progress` is told now and then how many records were written.
    """
    store = ledger.store
    chosen = Chosen(store, runs)
    if seal is not None:
        check_exported(store, seal, chosen.runs, whole=runs is None)
    out.write(encode_line(Header(FORMAT if seal is None else SEALED_FORMAT, CATALOGUE)))
    if seal is not None:
        out.write(seal_line(seal))
    blobs: set[str] = set()
    records = 0
    for run in chosen.runs:
        for record in _checked(store, chosen, run):
            event = ledger.mapper.codec.decode(record[3], record[7])
            for name in dict.fromkeys(blobs_named(event)):
                if name not in blobs:
                    blobs.add(name)
                    out.write(encode_line(BlobLine(name, _blob(store, name))))
            out.write(encode_line(record_line(record)))
            records += 1
            if progress is not None and records % PAGE == 0:
                progress(records)
    totals = Totals(len(chosen.runs), records, len(blobs))
    out.write(encode_line(EndLine(totals)))
    return totals


def _checked(store: LedgerRecorder, chosen: Chosen, run: RunRow) -> Iterator[Row]:
    """A run's own records up to the version that the index says, each fitting its digest."""
    version = run.parent_version
    digest = _digest_before(chosen, run)
    points = chosen.fork_points.get(run.run_id, {})
    while version < run.version:
        page = store.rows(run.run_id, version, run.version, backwards=False, limit=PAGE)
        if not page:
            raise _not_as_recorded(run.run_id, version + 1, "it is missing")
        for row in page:
            version += 1
            if row[2] != version:
                raise _not_as_recorded(run.run_id, version, "it is missing")
            try:
                digest = link(
                    digest,
                    row[1].encode(),
                    row[2],
                    row[4].encode(),
                    row[3].encode(),
                    row[5],
                    row[7].encode(),
                )
            except (AttributeError, TypeError):
                raise _not_as_recorded(run.run_id, version, "a column has another type") from None
            if digest != row[6]:
                raise _not_as_recorded(run.run_id, version, "it does not fit its digest")
            if version in points:
                points[version] = digest
            yield row


def _digest_before(chosen: Chosen, run: RunRow) -> bytes:
    """Parents go first, so that the record which a run goes on from has been read by now."""
    if run.parent is None:
        return GENESIS
    owner, at = chosen.owner_before(run), run.parent_version
    digest = chosen.fork_points[owner][at]
    if not digest:
        raise _not_as_recorded(owner, at, "it is missing")
    return digest


def _blob(store: LedgerRecorder, name: str) -> bytes:
    content = store.blob(name)
    if not isinstance(content, bytes) or blob_name(content) != name:
        raise IntegrityFailureError(f"Blob {name} is missing or its bytes were changed.")
    return content


def _not_as_recorded(run_id: str, version: int, what: str) -> IntegrityFailureError:
    return IntegrityFailureError(
        f"Run {run_id}, version {version} is not as it was recorded: {what}. "
        f"The export ends here; `turnledger verify {run_id}` says more."
    )
