"""Seals in export files: an export and an import compare the runs with the seal."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from turnledger.ledger.errors import IntegrityFailureError
from turnledger.ledger.integrity.seal import Head, Seal, digest_text, read_seal
from turnledger.ledger.runs.index import RunRow
from turnledger.ledger.runs.record import as_row
from turnledger.ledger.stores.base import Store
from turnledger.ledger.transfer.file_format import SealLine, encode_line


def seal_line(seal: Seal) -> bytes:
    """The line of a seal in an export file; compact, unlike the seal's own file."""
    return encode_line(SealLine(msgspec.Raw(msgspec.json.encode(seal))))


def read_seal_line(line: bytes, public_key: bytes | None) -> Seal:
    """Read a seal from its line, and check its root and signature."""
    try:
        found = msgspec.json.decode(line, type=SealLine)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise IntegrityFailureError(f"expected a seal ({error}).") from error
    seal = read_seal(bytes(found.seal), public_key)
    if seal_line(seal) != line:
        raise IntegrityFailureError("the seal is not byte for byte as an export writes it.")
    return seal


def check_exported(store: Store, seal: Seal, runs: Iterable[RunRow], *, whole: bool) -> None:
    """Check that each run still contains what was sealed of it.

    Args:
        store: The store to export from.
        seal: The seal to put into the file.
        runs: The runs to export.
        whole: Whether these are all runs of the ledger, so that none of the seal may be missing.
    """
    heads = {head.run_id: head for head in seal.heads}
    for run in runs:
        head = heads.pop(run.run_id, None)
        if head is None:
            continue
        rows = store.rows(run.run_id, head.version - 1, head.version, backwards=False, limit=1)
        digest = digest_text(as_row(rows[0]).digest) if rows else None
        if why := head.difference(run.version, digest):
            raise IntegrityFailureError(
                f"Run {run.run_id} does not fit the seal of {seal.sealed_at}: {why}. Nothing was "
                "exported. Run `turnledger verify --seal FILE`."
            )
    if whole and heads:
        more = f" and {len(heads) - 1} others are" if len(heads) > 1 else " is"
        raise IntegrityFailureError(
            f"Run {next(iter(heads))}{more} in the seal of {seal.sealed_at} and not in the ledger: "
            "removed, or this is only a part of the sealed ledger. Nothing was exported. Run "
            "`turnledger verify --seal FILE`, or export with this seal by naming the runs."
        )


class SealedRuns:
    """Compares a file's runs, record by record, with the seal that the file carries."""

    def __init__(self, seal: Seal | None) -> None:
        self.seal = seal
        self._heads = {head.run_id: head for head in seal.heads} if seal is not None else {}
        self._head: Head | None = None
        self._met = False
        # Runs of the file that are in the seal; of these, those that have grown; the others.
        self.sealed = self.grown = self.unsealed = 0

    @property
    def missing(self) -> int:
        """How many runs of the seal are not in the file, or not yet."""
        return len(self._heads) - self.sealed

    def has(self, run_id: str) -> bool:
        """Whether a run is in the seal."""
        return run_id in self._heads

    def open(self, run_id: str) -> None:
        """Begin the next run."""
        self._head, self._met = self._heads.get(run_id), False
        if self._head is None:
            self.unsealed += 1
        else:
            self.sealed += 1

    def differs(self, version: int, digest: str) -> str:
        """How the next record differs from the seal; empty if it does not."""
        if self._head is None or version != self._head.version:
            return ""
        self._met = True
        return self._head.difference(version, digest)

    def ends_wrong(self, version: int) -> str:
        """How a run that ends with this version differs from the seal; empty if it does not."""
        head, self._head = self._head, None
        if head is None:
            return ""
        self.grown += version > head.version
        why = head.difference(version, head.digest)
        if not why and not self._met:
            # The file has no record of the run at the head's version, so nothing was compared: a
            # forger may have made the run a fork whose own records begin later.
            why = f"the seal has version {head.version}, the run begins after it: rewritten"
        return f"run {head.run_id}: {why}" if why else ""
