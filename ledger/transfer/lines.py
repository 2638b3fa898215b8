"""The lines of an export file: JSON that carries records to the byte.

A header, perhaps a seal, then each run's records with their digests, ancestors first, a
blob just before the first record that names it, and an end line with the counts, so that
a cut file is noticed. Position is left out: it belongs to one ledger, and an import renumbers.
"""

from __future__ import annotations

import msgspec

from ledger.clock import to_datetime
from ledger.rows import Row

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


def record_line(row: Row) -> RecordLine:
    """A stored record as a line of the file."""
    _, run_id, version, tag, event_id, recorded_at, digest, data = row
    raw = msgspec.Raw(data.encode())
    moment = moment_text(recorded_at)
    return RecordLine(run_id, version, tag, event_id, moment, digest.hex(), raw)


def moment_text(micros: int) -> str:
    """The one spelling of a moment: ISO 8601, microseconds, UTC."""
    return to_datetime(micros).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def encode_line(line: Header | SealLine | RecordLine | BlobLine | EndLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"
