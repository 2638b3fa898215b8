"""Export: writes runs into a file, and checks every record against its digest on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import BinaryIO

from turnledger.ledger.arguments import check_arguments
from turnledger.ledger.errors import DAMAGE, IntegrityFailureError, RunNotFoundError
from turnledger.ledger.events.blobs import blob_name, blobs_named
from turnledger.ledger.events.chain import GENESIS, linker
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.integrity.seal import Seal
from turnledger.ledger.integrity.verify import every_run
from turnledger.ledger.ledger import Ledger, OnDamage
from turnledger.ledger.runs.append_request import RunId, canonical_id
from turnledger.ledger.runs.index import RunRow, check_types
from turnledger.ledger.runs.record import Row, as_row
from turnledger.ledger.stores.base import PAGE, Store
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
from turnledger.ledger.transfer.validate import Lineages


@check_arguments
def export_runs(
    ledger: Ledger,
    out: BinaryIO,
    runs: Iterable[RunId] | None = None,
    *,
    seal: Seal | None = None,
    progress: Callable[[int], None] | None = None,
    on_damage: OnDamage | None = None,
) -> Totals:
    """Write runs and their ancestors into an export file.

    The same runs give the same bytes, whatever ledger they are in. Each run is exported up to
    the version that it has when the export begins.

    Args:
        ledger: The ledger to export from.
        out: The file to write to.
        runs: The runs; None for all.
        seal: Put this seal into the file. Each run that it covers must still contain what was
            sealed; of a whole ledger, none of them may be missing.
        progress: Called now and then with the number of records written.
        on_damage: Called with the id and the error of a damaged run, or of one whose ancestor
            is: it is left out. Each run is then read twice, so that no part of a damaged one is
            written. Without it, and with a seal, damage ends the export.

    Raises:
        RunNotFoundError: A run is not in the ledger.
        IntegrityFailureError: A record does not fit its digest, or a run not the seal.
    """
    store = ledger.store
    chosen = ExportedRuns(store, runs, on_damage if seal is None else None)
    if on_damage is not None and seal is None:
        chosen.leave_out_damaged(ledger, on_damage)
    if seal is not None:
        check_exported(store, seal, chosen.runs, whole=runs is None)
    out.write(encode_line(Header(FORMAT if seal is None else SEALED_FORMAT, CATALOGUE)))
    if seal is not None:
        out.write(seal_line(seal))
    blobs: set[str] = set()
    records = 0
    for run in chosen.runs:
        for record in _checked(store, chosen, run):
            event = ledger.codec.decode(record.tag, record.data)
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


def _checked(store: Store, chosen: ExportedRuns, run: RunRow) -> Iterator[Row]:
    """A run's own records up to its version in the index, each checked against its digest."""
    version = run.parent_version
    digest = _digest_before(chosen, run)
    points = chosen.fork_points.get(run.run_id, {})
    while version < run.version:
        page = store.rows(run.run_id, version, run.version, backwards=False, limit=PAGE)
        if not page:
            raise _not_as_recorded(run.run_id, version + 1, "it is missing")
        for row in map(as_row, page):
            version += 1
            if row.version != version:
                raise _not_as_recorded(run.run_id, version, "it is missing")
            try:
                digest = linker(row.run_id, row.recorded_at)(
                    digest, row.version, row.event_id, row.tag, row.data.encode()
                )
            except (AttributeError, TypeError):
                raise _not_as_recorded(run.run_id, version, "a column has another type") from None
            if digest != row.digest:
                raise _not_as_recorded(run.run_id, version, "it does not fit its digest")
            if version in points:
                points[version] = digest
            yield row


def _digest_before(chosen: ExportedRuns, run: RunRow) -> bytes:
    """The digest that a run starts from; its parent was exported before, which recorded it."""
    if run.parent is None:
        return GENESIS
    owner, at = chosen.owner_before(run), run.parent_version
    digest = chosen.fork_points[owner][at]
    if not digest:
        raise _not_as_recorded(owner, at, "it is missing")
    return digest


def _blob(store: Store, name: str) -> bytes:
    content = store.blob(name)
    if not isinstance(content, bytes) or blob_name(content) != name:
        raise IntegrityFailureError(f"Blob {name} is missing or damaged.")
    return content


def _not_as_recorded(run_id: str, version: int, what: str) -> IntegrityFailureError:
    return IntegrityFailureError(
        f"Run {run_id}, version {version} is damaged: {what}. The export is incomplete. "
        f"Run `turnledger verify {run_id}`."
    )


class ExportedRuns:
    """The runs of an export, parents before children, and the fork points among them."""

    def __init__(
        self, store: Store, wanted: Iterable[RunId] | None, on_damage: OnDamage | None = None
    ) -> None:
        """Select the wanted runs and their ancestors, or with None all runs."""
        self.runs = _in_order(_found(store, wanted, on_damage), on_damage)
        self._lineages = Lineages()
        # The digests of fork points, by run and version; filled in as records are read.
        self.fork_points: dict[str, dict[int, bytes]] = {}
        for run in self.runs:
            self._lineages.add(run.run_id, run.parent, run.parent_version)
            if run.parent is not None:
                self.fork_points.setdefault(self.owner_before(run), {})[run.parent_version] = b""
        self.runs = [self._long_enough(store, run) for run in self.runs]

    def leave_out_damaged(self, ledger: Ledger, on_damage: OnDamage) -> None:
        """Read all runs, and leave out those that are damaged, with their descendants."""
        sound: dict[str, RunRow] = {}
        for run in self.runs:
            try:
                if run.parent is not None and run.parent not in sound:
                    raise IntegrityFailureError(
                        f"it starts from run {run.parent}, which is left out"
                    )
                for record in _checked(ledger.store, self, run):
                    for name in blobs_named(ledger.codec.decode(record.tag, record.data)):
                        _blob(ledger.store, name)
            except DAMAGE as error:
                on_damage(run.run_id, error)
            else:
                sound[run.run_id] = run
        self.runs = list(sound.values())

    def owner_before(self, run: RunRow) -> str:
        """The run that recorded what a fork or continuation starts from."""
        assert run.parent is not None
        return self._lineages.owner(run.parent, run.parent_version)

    def _long_enough(self, store: Store, run: RunRow) -> RunRow:
        """Rows were read one by one, so a child may start from a newer version of its parent."""
        if run.version >= max(self.fork_points.get(run.run_id, (0,))):
            return run
        return _sound(store.run(run.run_id) or run)


def _found(
    store: Store, wanted: Iterable[RunId] | None, on_damage: OnDamage | None
) -> dict[str, RunRow]:
    found: dict[str, RunRow] = {}
    if wanted is None:
        for row in every_run(store):
            try:
                found[row.run_id] = _sound(row)
            except IntegrityFailureError as error:
                if on_damage is None:
                    raise
                on_damage(f"{row.run_id!s:.80}", error)
        # The list is read in pages, so the parent of a new run may be missing from it.
        names = [row.parent for row in found.values() if row.parent is not None]
    else:
        names = [canonical_id(run) for run in wanted]
    for name in names:
        current: str | None = name
        while current is not None and current not in found:
            parent = store.run(current)
            if parent is None and on_damage is not None:
                break  # its children are left out, and named
            if parent is None:
                raise RunNotFoundError(current)
            found[current] = _sound(parent)
            current = parent.parent
    return found


def _in_order(found: dict[str, RunRow], on_damage: OnDamage | None) -> list[RunRow]:
    """Order runs by start time and id, but a child never before its parent.

    The time alone is not enough: clocks step back, and those of machines differ, so a child may
    have started before its parent.
    """
    children: dict[str, list[tuple[int, str]]] = {}
    ready: list[tuple[int, str]] = []
    for run in found.values():
        place = ready if run.parent is None else children.setdefault(run.parent, [])
        place.append((run.started_at, run.run_id))
    heapify(ready)
    ordered: list[RunRow] = []
    while ready:
        _, run_id = heappop(ready)
        ordered.append(found[run_id])
        for child in children.pop(run_id, ()):
            heappush(ready, child)
    if children and on_damage is not None:
        for parent, lost in children.items():
            for _, run_id in lost:
                what = f"it starts from run {parent}, which is missing or left out"
                on_damage(run_id, IntegrityFailureError(what))
    elif children:
        raise IntegrityFailureError(
            f"The run index is damaged: run {min(children)} is its own ancestor. Nothing was "
            "exported. Run `turnledger verify` and `turnledger rebuild-index`."
        )
    return ordered


def _sound(run: RunRow) -> RunRow:
    """The row, if its numbers are numbers."""
    check_types(run, "run_id", "version", "parent_version", "parent", "started_at")
    return run
