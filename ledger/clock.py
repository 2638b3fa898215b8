"""The real clock and id source, the only ones in the package.

They are handed in by default and replaceable everywhere (`Ledger.open(clock=...)`),
so that everything else is a function of what it was given.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol
from uuid import UUID, uuid4

import uuid_utils

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Where times and new ids come from."""

    def micros(self) -> int:
        """Now, in microseconds since 1970 (UTC)."""
        ...

    def new_id(self) -> str:
        """The text of a UUID that nobody has used."""
        ...


class SystemClock:
    """The machine's time, and UUIDv7: time-ordered ids are cheap to index."""

    def micros(self) -> int:
        return time.time_ns() // 1000

    def new_id(self) -> str:
        return str(uuid_utils.uuid7())


# The events of a commit share their time, and several views ask for it.
@lru_cache(maxsize=4096)
def to_datetime(micros: int) -> datetime:
    """The moment that a number of microseconds since 1970 means, exactly."""
    return EPOCH + timedelta(0, micros // 1_000_000, micros % 1_000_000)


def to_micros(moment: datetime) -> int:
    """The inverse of `to_datetime`; a moment without a time zone is taken as UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


def utc_now() -> datetime:
    return datetime.now(UTC)


def new_run_id() -> UUID:
    """A new run's id, a UUIDv7. Any other UUID is accepted as a run id too."""
    return UUID(bytes=uuid_utils.uuid7().bytes)


def new_message_id() -> UUID:
    return uuid4()
