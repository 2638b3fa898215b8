"""Redaction on import: replaces secrets in a file's records and recomputes the digests after them.

A run without secrets keeps every byte and digest of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from turnledger.ledger.errors import IntegrityFailureError, InvalidInputError
from turnledger.ledger.events.chain import linker
from turnledger.ledger.events.types import RunStarted
from turnledger.ledger.redaction.events import redacted
from turnledger.ledger.runs.codec import Codec
from turnledger.ledger.runs.record import NewRow
from turnledger.ledger.transfer.file_reader import ExportFile
from turnledger.ledger.transfer.validate import FileRecord, Lineages


class RedactedRecords:
    """One pass over a file's records, as the ledger's codec would write them."""

    def __init__(self, file: ExportFile, codec: Codec) -> None:
        self._file = file
        self._codec = codec
        self._lineages = Lineages()
        # The new digests of fork points.
        self._digests: dict[tuple[str, int], bytes] = {}
        # How many records had a secret, and the runs with other digests than in the file.
        self.redacted = 0
        self.rechained: list[str] = []

    def records(self, *, second_pass: bool = False) -> Iterator[FileRecord]:
        records = self._file.records(second_pass=second_pass)
        if self._codec.redactor is None:
            yield from records
            return
        previous: bytes | None = None  # None as long as the file's own digests hold
        for record in records:
            if record.start is not None:
                previous = self._before(record)
            made = self._without(record)
            if made is not record:
                self.redacted += 1
            elif previous is None:
                yield record
                continue
            if previous is None:
                previous = record.previous
            made = _chained(made, previous)
            previous = made.row.digest
            run_id, version = made.row.run_id, made.row.version
            if not self.rechained or self.rechained[-1] != run_id:
                self._refuse_sealed(run_id)
                self.rechained.append(run_id)
            if (run_id, version) in self._file.fork_points:
                self._digests[run_id, version] = previous
            yield made

    def _before(self, record: FileRecord) -> bytes | None:
        """The digest that a run starts from, if it is not the one in the file."""
        run_id, event = record.row.run_id, record.event
        if not isinstance(event, RunStarted) or event.parent is None:
            self._lineages.add(run_id)
            return None
        parent = str(event.parent)
        self._lineages.add(run_id, parent, event.at)
        return self._digests.get((self._lineages.owner(parent, event.at), event.at))

    def _refuse_sealed(self, run_id: str) -> None:
        """Refuse to change a run where the caller demands a seal that covers it."""
        if self._file.needs_seal and self._file.sealed_runs.has(run_id):
            raise IntegrityFailureError(
                f"Run {run_id} holds a secret; without it, the run would not fit the seal. Nothing "
                "was imported. Import it with the secret (--no-redactor, or a Ledger opened with "
                "redactor=None), or without demanding a seal (no --public-key)."
            )

    def _without(self, record: FileRecord) -> FileRecord:
        redactor = self._codec.redactor
        assert redactor is not None
        if redacted(record.event, redactor) is record.event and not self._hides(record):
            return record
        try:
            tag, data, event, _ = self._codec.encode_checked(record.event)
        except InvalidInputError as error:
            error.args = (f"line {record.line}: {error.args[0]}", *error.args[1:])
            raise
        run_id, version, _, event_id, moment, digest, _ = record.row
        row = NewRow(run_id, version, tag, event_id, moment, digest, data.decode())
        return record._replace(row=row, event=event)

    def _hides(self, record: FileRecord) -> bool:
        """Whether a secret is in the data and not in the event: decoding drops duplicate keys."""
        redactor, data = self._codec.redactor, record.row.data
        if redactor is None or not redactor.may_hold_secret(data.encode()):
            return False
        if redactor.text(data) == data:
            return False
        return self._codec.encode(record.event)[1] != data.encode()


def _chained(record: FileRecord, previous: bytes) -> FileRecord:
    run_id, version, tag, event_id, moment, _, data = record.row
    digest = linker(run_id, moment)(previous, version, event_id, tag, data.encode())
    start = record.start
    if start is not None:
        start = msgspec.structs.replace(start, digest=previous)
    row = NewRow(run_id, version, tag, event_id, moment, digest, data)
    return record._replace(row=row, previous=previous, start=start)
