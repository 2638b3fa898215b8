"""Writing runs into an export file; every record is checked against its digest on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
from ledger.run_index import RunRow, damaged
from ledger.sealing import Seal
from ledger.transfer.lines import (
    FORMAT,
    SEALED_FORMAT,
    BlobLine,
    EndLine,
    Header,
    Totals,
    encode_line,
    record_line,
)
from ledger.transfer.sealed import check_exported, seal_line
from ledger.verifying import every_run


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
    chosen = _oldest_first(store, runs)
    if seal is not None:
        check_exported(store, seal, chosen, whole=runs is None)
    out.write(encode_line(Header(FORMAT if seal is None else SEALED_FORMAT, CATALOGUE)))
    if seal is not None:
        out.write(seal_line(seal))
    blobs: set[str] = set()
    records = 0
    for row in chosen:
        for record in _checked(store, row):
            event = ledger.mapper.codec.decode(record[3], record[7])
            for name in dict.fromkeys(blobs_named(event)):
                if name not in blobs:
                    blobs.add(name)
                    out.write(encode_line(BlobLine(name, _blob(store, name))))
            out.write(encode_line(record_line(record)))
            records += 1
            if progress is not None and records % PAGE == 0:
                progress(records)
    totals = Totals(len(chosen), records, len(blobs))
    out.write(encode_line(EndLine(totals)))
    return totals


def _oldest_first(store: LedgerRecorder, runs: Iterable[RunId] | None) -> list[RunRow]:
    """The runs and their ancestors; a parent's beginning is always before its child's."""
    found: dict[str, RunRow] = {}
    if runs is None:
        found = {row.run_id: row for row in every_run(store)}
        # Listed page by page: one that came in between may have a parent that did too.
        wanted = [row.parent for row in found.values() if row.parent is not None]
    else:
        wanted = [canonical_id(run) for run in runs]
    for run in wanted:
        current: str | None = run
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
    if not isinstance(version, int) or not isinstance(run.version, int):
        raise damaged(run.run_id, "its versions are no numbers")
    digest = _digest_before(store, run)
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
    if not isinstance(content, bytes) or blob_name(content) != name:
        raise IntegrityFailureError(f"Blob {name} is missing or its bytes were changed.")
    return content


def _not_as_recorded(run_id: str, version: int, what: str) -> IntegrityFailureError:
    return IntegrityFailureError(
        f"Run {run_id}, version {version} is not as it was recorded: {what}. "
        f"The export ends here; `turnledger verify {run_id}` says more."
    )
