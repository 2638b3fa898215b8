"""Takes secrets out of the records of an export file, and chains anew what follows them.

A run without secrets keeps every byte and digest of the file. One with a secret has other digests
from that record on, and so have the runs that go on from there; all ids and times stay.
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


class WithoutSecrets:
    """One pass over a file's records, as they may be written into a ledger."""

    def __init__(self, file: ExportFile, codec: Codec) -> None:
        self._file = file
        self._codec = codec
        self._lineages = Lineages()
        # The digests of runs that are chained anew, where others go on from them.
        self._digests: dict[tuple[str, int], bytes] = {}
        # How many records held a secret, and the runs whose digests are not the file's.
        self.redacted = 0
        self.rechained: list[str] = []

    def records(self, *, again: bool = False) -> Iterator[FileRecord]:
        records = self._file.records(again=again)
        if self._codec.redactor is None:
            yield from records
            return
        previous: bytes | None = None  # None as long as the file's own digests hold
        for record in records:
            if record.opening is not None:
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
        """The digest that a run goes on from, if it is another than in the file."""
        run_id, event = record.row.run_id, record.event
        if not isinstance(event, RunStarted) or event.parent is None:
            self._lineages.add(run_id)
            return None
        parent = str(event.parent)
        self._lineages.add(run_id, parent, event.at)
        return self._digests.get((self._lineages.owner(parent, event.at), event.at))

    def _refuse_sealed(self, run_id: str) -> None:
        """Who demands what was sealed does not want another in its place."""
        if self._file.needs_seal and self._file.sealed_runs.has(run_id):
            raise IntegrityFailureError(
                f"Run {run_id} holds a secret: without it the run would not fit the seal that is "
                "wanted. It is not taken. Import it with the secret (--no-redactor, or a Ledger "
                "opened with redactor=None), or without demanding a seal (no --public-key)."
            )

    def _without(self, record: FileRecord) -> FileRecord:
        redactor = self._codec.redactor
        assert redactor is not None
        if redacted(record.event, redactor) is record.event and not self._hides(record):
            return record
        try:
            tag, data, event = self._codec.encode_checked(record.event)
        except InvalidInputError as error:
            error.args = (f"line {record.line}: {error.args[0]}", *error.args[1:])
            raise
        run_id, version, _, event_id, moment, digest, _ = record.row
        row = NewRow(run_id, version, tag, event_id, moment, digest, data.decode())
        return record._replace(row=row, event=event)

    def _hides(self, record: FileRecord) -> bool:
        """Whether a secret is in the text only: of a key that is there twice, one is not read."""
        redactor, data = self._codec.redactor, record.row.data
        if redactor is None or not redactor.may_hold_secret(data.encode()):
            return False
        if redactor.text(data) == data:
            return False
        return self._codec.encode(record.event)[1] != data.encode()


def _chained(record: FileRecord, previous: bytes) -> FileRecord:
    run_id, version, tag, event_id, moment, _, data = record.row
    digest = linker(run_id, moment)(previous, version, event_id, tag, data.encode())
    opening = record.opening
    if opening is not None:
        opening = msgspec.structs.replace(opening, digest=previous)
    row = NewRow(run_id, version, tag, event_id, moment, digest, data)
    return record._replace(row=row, previous=previous, opening=opening)
