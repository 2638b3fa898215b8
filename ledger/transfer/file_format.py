"""The export file format: one JSON document per line, with the events' data byte for byte.

    {"turnledger":1,"catalogue":1}      the header
    {"seal":{...}}                      a seal, in format 2 only
    {"blob":"sha256:...","content":...} a blob, just before the first record that names it
    {"run_id":...,"digest":...}         a record; a run's records are together, parents first
    {"end":{"runs":...}}                the totals, so that a cut file is noticed

The same runs give the same bytes, whatever ledger they are exported from, so files can be compared
and deduplicated. That is why a position is not in the file (it belongs to one ledger, and an
import assigns new ones), and why a line that says the same in other bytes is refused.
"""

from __future__ import annotations

from typing import Final

import msgspec

from turnledger.ledger.clock import moment_text
from turnledger.ledger.errors import IntegrityFailureError
from turnledger.ledger.events.blobs import blob_name
from turnledger.ledger.runs.record import Row

# A file with a seal has a line that older programs can't check, so it has a format number that they
# refuse. A file without one keeps the old number and stays readable for them.
FORMAT, SEALED_FORMAT = 1, 2


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line: the file's format, and the exporting program's event catalogue.

    Not the ledger's own, which depends on what else is in it: the same runs give the same bytes.
    """

    turnledger: int
    catalogue: int


class RecordLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record without its position; `data` is byte for byte what its digest covers."""

    run_id: str
    version: int
    type: str
    event_id: str
    recorded_at: str
    digest: str
    data: msgspec.Raw


class SealLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A seal of the exporting ledger, complete, with the heads of all its runs."""

    seal: msgspec.Raw


class BlobLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A blob (in base64) that the next record names."""

    blob: str
    content: bytes


class Totals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The numbers of runs, records and blobs in a file."""

    runs: int
    records: int
    blobs: int


class EndLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last line: the totals."""

    end: Totals


NOT_CANONICAL: Final = (
    "it is not byte for byte as an export writes it (did an editor change it, or the line ends?)"
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
    """A line of the file."""
    return msgspec.json.encode(line) + b"\n"


def read_line(number: int, line: bytes) -> RecordLine | BlobLine | EndLine:
    """Decode a line after the header and the seal.

    The line must be byte for byte as an export writes it. Otherwise two JSON parsers could read
    different things in it, of a duplicate key for example.
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
        raise damaged_line(number, NOT_CANONICAL)
    if isinstance(found, BlobLine) and blob_name(found.content) != found.blob:
        what = f"the bytes of blob {found.blob} do not have that hash"
        raise damaged_line(number, what)
    return found


def damaged_line(
    number: int, what: str, then: str = "Nothing was imported from it"
) -> IntegrityFailureError:
    """The error for a line that no export writes."""
    return IntegrityFailureError(f"line {number}: {what}. {then}.")
