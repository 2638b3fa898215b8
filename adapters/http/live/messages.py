"""Messages of an event stream: a record as a server-sent event, made once for all clients."""

from __future__ import annotations

import msgspec
from fastapi.sse import format_sse_event

from turnledger.adapters.http.protocol.answers import CUT
from turnledger.ledger import IntegrityFailureError, Record
from turnledger.ledger.clock import moment_text
from turnledger.ledger.errors import error_message

# The `event:` field of a record that is stored but can't be shown; others have none.
DAMAGED = "damaged"


class StreamedRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record in an event stream, the `data` of one message, whose `id` is the position.

    `data` is missing if it has more than 64 kB; then `cut` is the address of the whole event.
    """

    position: int
    run_id: str
    version: int
    type: str
    event_id: str
    recorded_at: str
    digest: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    cut: str = ""


class Message:
    """A record as a message of event streams. Its text is made when the first client needs it.

    Args:
        record: The record.
    """

    __slots__ = ("_record", "_text", "position", "run", "size")

    def __init__(self, record: Record) -> None:
        self._record: Record | None = record
        self._text = b""
        self.position = record.position
        self.run = record.run_key
        self.size = _size(record)
        if self.size > CUT:  # queues need not hold data that is cut
            self.size = len(self.text())

    def text(self) -> bytes:
        """The message as it is sent."""
        if self._record is not None:
            self._text, self._record = _text(self._record), None
        return self._text


def _size(record: Record) -> int:
    try:
        return len(record.row.data)
    except IntegrityFailureError:
        return 0


def _text(record: Record) -> bytes:
    place = str(record.position)
    try:
        line = msgspec.json.encode(_streamed(record)).decode()
    except IntegrityFailureError as error:
        # Sent, not skipped: clients would take a missing position for one without a record.
        line = msgspec.json.encode(
            {"position": record.position, "detail": error_message(error)}
        ).decode()
        return format_sse_event(event=DAMAGED, data_str=line, id=place)
    return format_sse_event(data_str=line, id=place)


def _streamed(record: Record) -> StreamedRecord:
    row = record.row
    data = row.data.encode()
    is_cut = len(data) > CUT
    return StreamedRecord(
        row.position,
        row.run_id,
        row.version,
        row.tag,
        row.event_id,
        moment_text(row.recorded_at),
        record.digest,
        msgspec.UNSET if is_cut else msgspec.Raw(data),
        f"/v1/runs/{row.run_id}/events/{row.version}" if is_cut else "",
    )
