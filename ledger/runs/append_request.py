"""Builds the request of an append: events encoded, checked against limits, named by ids.

Everything that can be refused without looking at the run is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, TypeAlias, TypeVar
from uuid import UUID

from turnledger.ledger.arguments import INT64
from turnledger.ledger.clock import Clock
from turnledger.ledger.errors import (
    InvalidEventError,
    InvalidInputError,
    InvalidRunIdError,
    error_message,
    short_repr,
)
from turnledger.ledger.events.blobs import blob_name
from turnledger.ledger.events.limits import Limits, check_indexed
from turnledger.ledger.events.types import (
    EVENT_TYPES,
    PROMPT_TAGS,
    BaseEvent,
    EvaluationStarted,
    Event,
    RunClaimed,
    RunStarted,
)
from turnledger.ledger.redaction.safe_logging import warn_of_redacted
from turnledger.ledger.runs.append import ANY_VERSION, AppendRequest, Entry
from turnledger.ledger.runs.codec import Codec
from turnledger.ledger.runs.record import Draft

RunId = UUID | str
# What can be appended: an event, one with an id of the caller's, one that is encoded already.
Appendable = Event | Draft | Entry
# What becomes of a batch that has events which are recorded already.
Known: TypeAlias = Literal["refuse", "skip"]
T = TypeVar("T")


class Expected(Enum):
    """Expectations of a run's version that are not a number."""

    NEW = "new"
    ANY = "any"


NEW = Expected.NEW
"""Expected version of a run that must not exist yet."""
ANY = Expected.ANY
"""Expected version of a run that may be at any."""

_ONE = (BaseEvent, Draft, Entry)
_TYPES = frozenset(EVENT_TYPES.values())
_ID = (UUID, str)
_PART = re.compile(r"[0-9a-f]{1,32}")
_VERSIONS = range(INT64.stop)
_CLAIMED = RunClaimed.tag
# Tags of events that need a look before they are appended: most need none.
_CHECKED_TAGS = PROMPT_TAGS | {_CLAIMED, RunStarted.tag, EvaluationStarted.tag}


class _Texts(dict[int, str]):
    """UUIDs as text, by their number: hashing a UUID itself would run Python."""

    def __missing__(self, number: int) -> str:
        if len(self) >= 8192:
            self.clear()
        text = self[number] = str(UUID(int=number))
        return text


_texts = _Texts()


@lru_cache(maxsize=8192)
def _canonical(value: RunId, what: str) -> str:
    try:
        return str(value if isinstance(value, UUID) else UUID(value))
    except ValueError:
        raise InvalidRunIdError(f"Invalid {what} {short_repr(value)}: expected a UUID.") from None


def canonical_id(value: RunId, what: str = "run id") -> str:
    """The spelling of an id that is stored: lower case, with dashes."""
    if type(value) is UUID:
        return _texts[value.int]
    if isinstance(value, _ID):
        return _canonical(value, what)
    raise InvalidRunIdError(f"Invalid {what} {short_repr(value)}: expected a UUID.")


def id_ends(text: str) -> tuple[str, str]:
    """A part of a run id as the beginning and as the end of one, with the hyphens of an id.

    Raises:
        InvalidRunIdError: It has other characters than hexadecimal digits and hyphens.
    """
    digits = text.replace("-", "").lower()
    if not _PART.fullmatch(digits):
        raise InvalidRunIdError(
            f"Invalid part of a run id {short_repr(text)}: expected up to 32 hexadecimal digits."
        )
    count = len(digits)
    first = str(UUID(digits.ljust(32, "0")))[: count + sum(count > at for at in (8, 12, 16, 20))]
    last = str(UUID(digits.rjust(32, "0")))[-count - sum(count > at for at in (12, 16, 20, 24)) :]
    return first, last


def build_request(
    run_id: RunId,
    events: Appendable | Iterable[Appendable],
    expected: int | Expected,
    epoch: int | None,
    blobs: Iterable[bytes],
    codec: Codec,
    clock: Clock,
    known: Known = "refuse",
) -> AppendRequest:
    """The request, with every event encoded and named by an id.

    Args:
        run_id: The run.
        events: One or several.
        expected: The version that the run must have, NEW or ANY.
        epoch: The epoch of the caller's claim, if any.
        blobs: Content that the events name.
        codec: Encodes and checks the events.
        clock: Gives ids to events without one.
        known: "skip" to leave out events that are recorded already.
    """
    if known not in ("refuse", "skip"):
        raise InvalidInputError(f'Invalid known={short_repr(known)}: expected "refuse" or "skip".')
    run = _texts[run_id.int] if type(run_id) is UUID else canonical_id(run_id)
    return AppendRequest(
        run,
        _entries(run, events, codec, clock),
        ANY_VERSION if expected is ANY else _version(expected),
        epoch if epoch is None else _epoch(epoch),
        _named(_each(blobs, "blobs"), codec.limits) if blobs != () else {},
        known == "skip",
    )


def _each(things: Iterable[T], name: str) -> Iterator[T]:
    try:
        return iter(things)
    except TypeError:
        raise InvalidInputError(
            f"Invalid {name}: expected one or a list of them, got {type(things).__name__}."
        ) from None


def _batch(events: Appendable | Iterable[Appendable], limits: Limits) -> list[Appendable]:
    """The events; of an iterator not many more than are allowed, since it may have no end."""
    if isinstance(events, _ONE):
        return [events]
    if isinstance(events, list | tuple):
        return list(events)
    return list(islice(_each(events, "events"), limits.max_batch_events + 1))


def prepare(
    item: Appendable,
    codec: Codec,
    clock: Clock,
    exact: Collection[str] = (),
    takes: Callable[[Any], object] | None = None,
) -> Entry:
    """The event encoded, checked and named by an id; an Entry has all that already.

    Args:
        item: An event, a draft or an entry.
        codec: Encodes and checks the event.
        clock: Gives an id to an event without one.
        exact: Fields that are read back as state.
        takes: Raises for an event whose state was redacted, if its reader can't take it.
    """
    if isinstance(item, Entry):
        return item
    if isinstance(item, Draft):
        given = item.event_id
        # Each id is seen once: no use to remember it.
        event_id = str(given) if type(given) is UUID else canonical_id(given, "event id")
        entry = Entry(event_id, *codec.encode_checked(item.event, exact), tuple(exact))
    else:
        entry = Entry(clock.new_id(), *codec.encode_checked(item, exact), tuple(exact))
    if takes is not None and entry.redacted_state:
        try:
            takes(entry.event)
        except Exception as error:
            raise entry.refused(f"redacted it is invalid, {error_message(error)}") from error
    return entry


def _entries(
    run: str, given: Appendable | Iterable[Appendable], codec: Codec, clock: Clock
) -> list[Entry]:
    limits, ids_given = codec.limits, False
    if type(given) in _TYPES:  # one event, as most appends have it
        event: Any = given
        entries = [Entry(clock.new_id(), *codec.encode_checked(event))]
    else:
        batch = _batch(given, limits)
        if not batch:
            raise InvalidEventError("Nothing to append: expected at least one event.")
        limits.check("Events in one append", len(batch), "max_batch_events")
        if _TYPES.issuperset(map(type, batch)):
            events: list[Any] = batch
            entries = [Entry(clock.new_id(), *made) for made in codec.encode_all(events)]
        else:
            entries = [prepare(item, codec, clock) for item in batch]
            ids_given = True
    total = 0
    for entry in entries:
        total += len(entry.data)
        if entry.tag in _CHECKED_TAGS:
            _check_tag(entry)
    if total > limits.max_batch_bytes:
        limits.check("One append, in bytes", total, "max_batch_bytes")
    if ids_given:
        _refuse_twice([entry.event_id for entry in entries])
        warn_of_redacted_state(run, entries)
    return entries


def warn_of_redacted_state(run: str, entries: Iterable[Entry]) -> None:
    """Log which parts of state are recorded redacted, once for an append.

    Args:
        run: The run.
        entries: The events of the append.
    """
    found = [
        f"{type(entry.event).__name__}.{part}"
        for entry in entries
        if entry.redacted  # which few are
        for part in entry.redacted_state
    ]
    if found:
        warn_of_redacted(f"state of run {run} is recorded redacted, and read back so", found)


def _check_tag(entry: Entry) -> None:
    if entry.tag == _CLAIMED:
        raise InvalidEventError("RunClaimed is appended by claim(), which grants the epoch.")
    check_indexed(entry.event)


def _refuse_twice(event_ids: list[str]) -> None:
    if len(set(event_ids)) == len(event_ids):
        return
    seen: set[str] = set()
    for event_id in event_ids:
        if event_id in seen:
            raise InvalidEventError(f"Event id {event_id} is in one append twice.")
        seen.add(event_id)


def _named(blobs: Iterable[bytes], limits: Limits) -> Mapping[str, bytes]:
    named = {}
    for content in blobs:
        if not isinstance(content, bytes):
            raise InvalidInputError(f"Invalid blob: expected bytes, got {type(content).__name__}.")
        limits.check("A blob, in bytes", len(content), "max_blob_bytes")
        named[blob_name(content)] = content
    return named


def _version(value: int | Expected) -> int:
    if value is NEW:
        return 0
    if isinstance(value, int) and not isinstance(value, bool) and value in _VERSIONS:
        return value
    raise InvalidInputError(
        f"Invalid expected_version {short_repr(value)}: expected a version, NEW or ANY."
    )


def _epoch(value: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value in INT64:
        return value
    raise InvalidInputError(
        f"Invalid epoch {short_repr(value)}: expected the number that claim() granted."
    )
