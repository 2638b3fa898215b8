"""Parser for the input of `append`: one event, a JSON array of events, or JSON lines.

    {"type": "message.appended", "event_id": "...", "data": {...}}

Errors name the line (or the event's number) and the field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import UUID

import msgspec

from turnledger.ledger import (
    Codec,
    Draft,
    EventDecodeError,
    InvalidEventError,
    LimitExceededError,
    UnknownEventTypeError,
)
from turnledger.ledger.events.types import CATALOGUE, Event
from turnledger.projections.projection import as_json
from turnledger.projections.run_state.json_diff import changes


class GivenEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event in the input; without an id it gets one."""

    type: str
    data: msgspec.Raw = msgspec.Raw(b"{}")
    event_id: UUID | None = None


def parse_events(content: bytes) -> list[Event | Draft]:
    """Parse events; InvalidEventError names the place of what is wrong."""
    codec = Codec(written=CATALOGUE)
    events = [_event(codec, where, text) for where, text in _pieces(content)]
    if not events:
        raise InvalidEventError("The input holds no event.")
    return events


def _pieces(content: bytes) -> Iterator[tuple[str, bytes | msgspec.Raw]]:
    """Each event's JSON, and its place for error messages."""
    stripped = content.strip()
    if stripped.startswith(b"["):
        for number, item in enumerate(_decode_array(content), start=1):
            yield f"event {number}", item
        return
    lines = [
        (number, line) for number, line in enumerate(content.split(b"\n"), start=1) if line.strip()
    ]
    # JSON lines if the first of several is a complete event, valid or not.
    first = lines[0][1] if lines else b""
    if len(lines) > 1 and not (_is_json(first) or first.rstrip().endswith(b"}")):
        if not _is_json(stripped):
            _check_json(content)
        yield f"line {lines[0][0]}", stripped
        return
    for number, line in lines:
        yield f"line {number}", line


def _decode_array(content: bytes) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(content, type=list[msgspec.Raw])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        _check_json(content)
        raise InvalidEventError(f"The input is not JSON: {error}") from error


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _check_json(content: bytes) -> None:
    """Raise the error with its line; msgspec reports only a byte offset."""
    try:
        json.loads(content)
    except json.JSONDecodeError as error:
        raise InvalidEventError(
            f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidEventError(f"The input is not JSON: {error}") from error


def _event(codec: Codec, where: str, text: bytes | msgspec.Raw) -> Event | Draft:
    try:
        given = msgspec.json.decode(text, type=GivenEvent)
    except msgspec.ValidationError as error:
        raise InvalidEventError(
            f"{where}: Invalid event: {error}. Expected "
            '{"type": ..., "data": {...}} and an optional "event_id".'
        ) from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidEventError(f"{where}: not JSON: {error}") from error
    try:
        event = codec.decode(given.type, bytes(given.data))
        codec.encode(event)
    except UnknownEventTypeError as error:
        raise InvalidEventError(
            f"{where}, type: Unknown event type {given.type!r}. "
            "Use 'custom' for events of your own; the reference lists all types."
        ) from error
    except (EventDecodeError, InvalidEventError) as error:
        raise InvalidEventError(f"{where}, data: {error}") from error
    except LimitExceededError as error:
        error.args = (f"{where}, data: {error}",)
        raise
    if given.event_id is None:
        return event
    again = codec.decode(given.type, bytes(given.data))
    # Fields that differ when the same data is decoded twice were generated.
    if made := [change.path[1:] for change in changes(as_json(event), as_json(again))]:
        raise InvalidEventError(
            f"{where}, data: Missing fields: {', '.join(made).replace('/', '.')}. An event with an "
            "id needs all of its content, so that appending it again is safe."
        )
    return Draft(event, given.event_id)
