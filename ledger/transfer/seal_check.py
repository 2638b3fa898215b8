"""The seal that an export carries: it goes in if the runs fit it, and out if they still do.

A run that grew since, or that the seal does not know, is counted; one that was cut or is
another one is refused. A seal says nothing of blobs: their names are in the data.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from turnledger.ledger.errors import IntegrityFailureError
from turnledger.ledger.integrity.seal import Head, Seal, digest_text, read_seal
from turnledger.ledger.runs.index import RunRow
from turnledger.ledger.stores.base import Store
from turnledger.ledger.transfer.file_format import SealLine, encode_line


def seal_line(seal: Seal) -> bytes:
    """The line of a file; a seal has one spelling there, however its own file is laid out."""
    return encode_line(SealLine(msgspec.Raw(msgspec.json.encode(seal))))


def read_seal_line(line: bytes, public_key: bytes | None) -> Seal:
    """The seal in a line, its root and signature checked; IntegrityFailureError if not so."""
    try:
        found = msgspec.json.decode(line, type=SealLine)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise IntegrityFailureError(f"a seal should be here ({error}).") from error
    seal = read_seal(bytes(found.seal), public_key)
    if seal_line(seal) != line:
        raise IntegrityFailureError("the seal is not spelt as an export spells it.")
    return seal


def check_exported(store: Store, seal: Seal, runs: Iterable[RunRow], *, whole: bool) -> None:
    """That each run which the seal has is there, as far as it was sealed, with its digest.

    With `whole`, the runs are all of a ledger, and none that the seal has may be missing.
    """
    heads = {head.run_id: head for head in seal.heads}
    for run in runs:
        head = heads.pop(run.run_id, None)
        if head is None:
            continue
        rows = store.rows(run.run_id, head.version - 1, head.version, backwards=False, limit=1)
        digest = digest_text(rows[0].digest) if rows else None
        if why := head.difference(run.version, digest):
            raise IntegrityFailureError(
                f"Run {run.run_id} does not fit the seal of {seal.sealed_at}: {why}. Nothing was "
                "exported; `turnledger verify --seal FILE` says more."
            )
    if whole and heads:
        more = f" and {len(heads) - 1} others are" if len(heads) > 1 else " is"
        raise IntegrityFailureError(
            f"Run {next(iter(heads))}{more} in the seal of {seal.sealed_at} and not in the ledger: "
            "removed, or this is a part of what was sealed. Nothing was exported; `turnledger "
            "verify --seal FILE` says more. What is there can be exported with the seal by naming "
            "the runs."
        )


class SealedRuns:
    """Compares a file's runs, record by record, with the seal that the file carries."""

    def __init__(self, seal: Seal | None) -> None:
        self.seal = seal
        self._heads = {head.run_id: head for head in seal.heads} if seal is not None else {}
        self._head: Head | None = None
        self._met = False
        # Of the file's runs: those that the seal has, of them those that grew since, the others.
        self.sealed = self.grown = self.unsealed = 0

    @property
    def missing(self) -> int:
        """How many runs the seal has, and the file has not, or not yet."""
        return len(self._heads) - self.sealed

    def has(self, run_id: str) -> bool:
        """Whether the seal knows a run."""
        return run_id in self._heads

    def open(self, run_id: str) -> None:
        """Another run begins."""
        self._head, self._met = self._heads.get(run_id), False
        if self._head is None:
            self.unsealed += 1
        else:
            self.sealed += 1

    def differs(self, version: int, digest: str) -> str:
        """What is wrong with the next record, by the seal; empty if nothing is."""
        if self._head is None or version != self._head.version:
            return ""
        self._met = True
        return self._head.difference(version, digest)

    def ends_wrong(self, version: int) -> str:
        """What is wrong with a run that ends here; a run that goes on is one that grew."""
        head, self._head = self._head, None
        if head is None:
            return ""
        self.grown += version > head.version
        why = head.difference(version, head.digest)
        if not why and not self._met:
            # A fork has no record of what it shares: whoever makes one of a sealed run, at or
            # after its head, would have nothing compared.
            why = f"the seal has version {head.version} of it, here it begins after it: rewritten"
        return f"run {head.run_id}: {why}" if why else ""
