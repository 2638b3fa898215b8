"""Answers that the server writes and the Python client reads again: rows, records, claims.

Nothing here needs the server's packages.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from turnledger.ledger import IntegrityFailureError, Record
from turnledger.ledger.clock import moment_text, to_micros
from turnledger.ledger.runs.index import RunRow
from turnledger.ledger.runs.record import Columns

T = TypeVar("T")

# Seconds that a worker may wait for a run in one request.
LONGEST_WAIT = 30.0


class RecordLine(msgspec.Struct, frozen=True):
    """A record as a line of NDJSON: that of an export, with its position in this ledger."""

    position: int
    run_id: str
    version: int
    type: str
    event_id: str
    recorded_at: str
    digest: str
    data: msgspec.Raw


def whole(record: Record) -> RecordLine:
    """A record with its ids, times and digest, and its data byte for byte as it is stored."""
    position, run_id, version, tag, event_id, recorded_at, digest, data = record.row
    return RecordLine(
        position,
        run_id,
        version,
        tag,
        event_id,
        moment_text(recorded_at),
        digest.hex(),
        msgspec.Raw(data.encode()),
    )


def columns_of(line: RecordLine) -> Columns:
    """The stored row that a line was made of."""
    return (
        line.position,
        line.run_id,
        line.version,
        line.type,
        line.event_id,
        micros_of(line.recorded_at),
        bytes.fromhex(line.digest),
        bytes(line.data).decode(),
    )


@lru_cache(maxsize=256)  # the events of a commit share their time
def micros_of(text: str) -> int:
    """The inverse of `moment_text`."""
    return to_micros(datetime.fromisoformat(text))


class RunLine(msgspec.Struct, frozen=True):
    """A row of the index of runs as a line of NDJSON, as it is stored.

    In a damaged index, its columns may have any type. Times are microseconds since 1970.
    """

    run_id: Any
    version: Any
    digest: Any
    recorded_at: Any
    epoch: Any
    status: Any
    started_at: Any
    prompt: Any
    kind: Any
    parent: Any
    parent_version: Any
    tags: Any


def run_line(row: RunRow) -> RunLine:
    """A row of the index as a line; its digest in hexadecimal."""
    values = [getattr(row, name) for name in RunLine.__struct_fields__]
    return RunLine(*(one.hex() if isinstance(one, bytes) else one for one in values))


def row_of(line: RunLine) -> RunRow:
    """The row that a line was made of. What is damaged stays so, for `describe` to find."""
    values = msgspec.structs.asdict(line)
    with suppress(TypeError, ValueError):
        values["digest"] = bytes.fromhex(line.digest)
    return RunRow(**values)


class EventPlace(msgspec.Struct, frozen=True):
    """Where an appended event is.

    `duplicate` if it was recorded before this request. `data` is there only if the event was
    recorded in another form than it was sent in: with secrets masked.
    """

    event_id: str
    version: int
    position: int
    recorded_at: str
    digest: str
    duplicate: bool
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class AppendedEvents(msgspec.Struct, frozen=True):
    """What an append wrote; `duplicate` if all of it was recorded before."""

    run_id: UUID
    version: int
    digest: str
    duplicate: bool
    events: list[EventPlace]


class ClaimAnswer(msgspec.Struct, frozen=True):
    """A claim: appends carry its epoch in the header Turnledger-Epoch."""

    run_id: UUID
    worker: str
    epoch: int
    version: int
    ttl: float


class Requested(msgspec.Struct, frozen=True):
    """A run that was requested: its id."""

    run_id: UUID


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """The worker that has a run: that of its last lease, and whether the lease is live."""

    is_live: bool
    worker: str = ""
    epoch: int = 0
    expires_at: datetime | None = None


class Catalogue(msgspec.Struct, frozen=True):
    """The version of the event catalogue that a reader of the ledger must know."""

    catalogue: int | None


class Imported(msgspec.Struct, frozen=True):
    """The result of an import.

    `rechained` are runs with other digests than in the file, since secrets were replaced in them
    or in an ancestor.
    """

    runs: int
    records: int
    imported: int
    already_there: int
    blobs: int
    redacted: int
    rechained: tuple[str, ...]


def decode_lines(body: bytes, kind: type[Any]) -> list[Any]:
    """The lines of NDJSON.

    Raises:
        IntegrityFailureError: A line is not what it should be.
    """
    decoder = msgspec.json.Decoder(kind)
    return _read(decoder.decode_lines, body)


def decode_answer(body: bytes, kind: type[T]) -> T:
    """An answer in JSON.

    Raises:
        IntegrityFailureError: It is not what it should be.
    """
    return _read(msgspec.json.Decoder(kind).decode, body)


def _read(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise IntegrityFailureError(
            f"The server's answer can't be read: {error}. Run `turnledger verify` beside it."
        ) from None
