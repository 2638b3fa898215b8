"""The lines of an export file: JSON that carries records to the byte.

A header, perhaps a seal, then each run's records with their digests, ancestors first, a
blob just before the first record that names it, and an end line with the counts, so that
a cut file is noticed. Position is left out: it belongs to one ledger, and an import renumbers.
"""

from __future__ import annotations

from typing import Final

import msgspec

from turnledger.ledger.clock import moment_text
from turnledger.ledger.errors import IntegrityFailureError
from turnledger.ledger.events.blobs import blob_name
from turnledger.ledger.runs.record import Row

# A file without a seal is what it always was. One with a seal has a line that an older
# program can't check, so it has a number that an older program refuses, by its right name.
FORMAT, SEALED_FORMAT = 1, 2


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line: the file's format, and the event catalogue of who wrote the file.

    Whoever exports reads every event, so its catalogue is enough for all that follows,
    and does not depend on what else the ledger holds, or who opened it.
    """

    turnledger: int
    catalogue: int


class RecordLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record but for its position, which belongs to one ledger; `data` to the byte."""

    run_id: str
    version: int
    type: str
    event_id: str
    recorded_at: str
    digest: str
    data: msgspec.Raw


class SealLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A seal of the ledger that the runs are from: the whole of it, all heads included."""

    seal: msgspec.Raw


class BlobLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes (base64 in the file) that the next record names."""

    blob: str
    content: bytes


class Totals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much a file holds."""

    runs: int
    records: int
    blobs: int


class EndLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last line."""

    end: Totals


NOT_SPELT: Final = (
    "it is not spelt as an export spells it (an editor, or a change of line ends, may do that)"
)
_RECORD: Final = msgspec.json.Decoder(RecordLine)
_BLOB: Final = msgspec.json.Decoder(BlobLine)
_END: Final = msgspec.json.Decoder(EndLine)


def record_line(row: Row) -> RecordLine:
    """A stored record as a line of the file."""
    _, run_id, version, tag, event_id, recorded_at, digest, data = row
    raw = msgspec.Raw(data.encode())
    moment = moment_text(recorded_at)
    return RecordLine(run_id, version, tag, event_id, moment, digest.hex(), raw)


def encode_line(line: Header | SealLine | RecordLine | BlobLine | EndLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def read_line(number: int, line: bytes) -> RecordLine | BlobLine | EndLine:
    """What follows the header and the seal: one line, which must be as an export writes it.

    The same runs give the same bytes: what says the same in other bytes is not taken, so that
    all who read a file, whatever they read it with, see the same in it.
    """
    found: RecordLine | BlobLine | EndLine
    try:
        if line.startswith(b'{"blob"'):
            found = _BLOB.decode(line)
        elif line.startswith(b'{"end"'):
            found = _END.decode(line)
        else:
            found = _RECORD.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise damaged_line(number, f"not a line of an export ({error})") from None
    if encode_line(found) != line:
        raise damaged_line(number, NOT_SPELT)
    if isinstance(found, BlobLine) and blob_name(found.content) != found.blob:
        what = f"the bytes of blob {found.blob} are not what its name says"
        raise damaged_line(number, what)
    return found


def damaged_line(
    number: int, what: str, then: str = "Nothing was taken from it"
) -> IntegrityFailureError:
    """The error for a line that no export has."""
    return IntegrityFailureError(f"line {number}: {what}. {then}.")
