"""Writing runs into an export file; every record is checked against its digest on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ledger.blobs import blob_name, blobs_named
from ledger.chain import GENESIS, link
from ledger.errors import IntegrityFailureError, RunNotFoundError
from ledger.events import CATALOGUE
from ledger.ledger import Ledger
from ledger.lineage import lineage
from ledger.recorder import PAGE, LedgerRecorder
from ledger.requesting import RunId, canonical_id
from ledger.rows import Row
from ledger.run_index import RunRow
from ledger.transfer.lines import (
    FORMAT,
    BlobLine,
    EndLine,
    Header,
    Totals,
    encode_line,
    record_line,
)
from ledger.verifying import every_run


def export_runs(ledger: Ledger, out: BinaryIO, runs: Iterable[RunId] | None = None) -> Totals:
    """Write runs, and what they descend from, or with None the whole ledger.

    The same runs give the same bytes, whatever ledger they are in. A run is taken as
    it stands at the beginning. Raises IntegrityFailureError at a record that does not
    fit its digest.
    """
    store = ledger.store
    out.write(encode_line(Header(FORMAT, store.written_catalogue() or CATALOGUE)))
    blobs: set[str] = set()
    records = 0
    chosen = _oldest_first(store, runs)
    for row in chosen:
        for record in _checked(store, row):
            event = ledger.mapper.codec.decode(record[3], record[7])
            for name in dict.fromkeys(blobs_named(event)):
                if name not in blobs:
                    blobs.add(name)
                    out.write(encode_line(BlobLine(name, _blob(store, name))))
            out.write(encode_line(record_line(record)))
            records += 1
    totals = Totals(len(chosen), records, len(blobs))
    out.write(encode_line(EndLine(totals)))
    return totals


def _oldest_first(store: LedgerRecorder, runs: Iterable[RunId] | None) -> list[RunRow]:
    """The runs and their ancestors; a parent's beginning is always before its child's."""
    found: dict[str, RunRow] = {}
    if runs is None:
        found = {row.run_id: row for row in every_run(store)}
    else:
        for run in runs:
            current: str | None = canonical_id(run)
            while current is not None and current not in found:
                row = store.run(current)
                if row is None:
                    raise RunNotFoundError(current)
                found[current] = row
                current = row.parent
    return sorted(found.values(), key=lambda row: (row.started_at, row.run_id))


def _checked(store: LedgerRecorder, run: RunRow) -> Iterator[Row]:
    """A run's own records up to the version that the index says, each fitting its digest."""
    version = run.parent_version
    digest = _digest_before(store, run)
    while version < run.version:
        page = store.rows(run.run_id, version, run.version, backwards=False, limit=PAGE)
        if not page:
            raise _not_as_recorded(run.run_id, version + 1, "it is missing")
        for row in page:
            version += 1
            if row[2] != version:
                raise _not_as_recorded(run.run_id, version, "it is missing")
            digest = link(
                digest,
                row[1].encode(),
                row[2],
                row[4].encode(),
                row[3].encode(),
                row[5],
                row[7].encode(),
            )
            if digest != row[6]:
                raise _not_as_recorded(run.run_id, version, "it does not fit its digest")
            yield row


def _digest_before(store: LedgerRecorder, run: RunRow) -> bytes:
    if run.parent is None:
        return GENESIS
    at = run.parent_version
    rows: list[Row] = []
    for owner, after, until in lineage(run.parent, store.run):
        if after < at <= until:
            rows = store.rows(owner, at - 1, at, backwards=False, limit=1)
    if not rows:
        raise _not_as_recorded(run.parent, at, "it is missing")
    return rows[0][6]


def _blob(store: LedgerRecorder, name: str) -> bytes:
    content = store.blob(name)
    if content is None or blob_name(content) != name:
        raise IntegrityFailureError(f"Blob {name} is missing or its bytes were changed.")
    return content


def _not_as_recorded(run_id: str, version: int, what: str) -> IntegrityFailureError:
    return IntegrityFailureError(
        f"Run {run_id}, version {version} is not as it was recorded: {what}. "
        f"The export ends here; `turnledger verify {run_id}` says more."
    )
