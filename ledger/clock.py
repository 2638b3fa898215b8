"""The clock and the source of ids, and conversions of times.

Only this module reads the system's clock and makes ids; `Ledger.open(clock=...)` replaces both.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Protocol
from uuid import UUID, uuid4

import uuid_utils

from turnledger.ledger.errors import IntegrityFailureError, short_repr

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The times that a record may have, in microseconds since 1970. They end with the year 9000, so that
# adding to one (the next commit is later by a microsecond) never exceeds the range of `datetime`.
FIRST_MOMENT: Final = 1
LAST_MOMENT: Final = 221_876_927_999_999_999


class Clock(Protocol):
    """A source of times and new ids."""

    def micros(self) -> int:
        """Now, in microseconds since 1970 (UTC)."""
        ...

    def new_id(self) -> str:
        """A new UUID, as text."""
        ...


class SystemClock:
    """The system's clock, and UUIDv7: ids that are ordered by time are cheap to index."""

    def micros(self) -> int:
        return time.time_ns() // 1000

    def new_id(self) -> str:
        return str(uuid_utils.uuid7())


def monotonic() -> float:
    """Seconds that only grow, to tell when a wait is over: never recorded."""
    return time.monotonic()


def thread_seconds() -> float:
    """Processor time of this thread, to tell what something costs: never recorded."""
    return time.thread_time()


def is_moment(value: object) -> bool:
    """Whether a value is a time that a record may have."""
    return isinstance(value, int) and FIRST_MOMENT <= value <= LAST_MOMENT


# The events of a commit share their time, and several views ask for it.
@lru_cache(maxsize=4096)
def to_datetime(micros: int) -> datetime:
    """Convert microseconds since 1970 to a datetime, exactly.

    A number outside of its range can only come from damage: IntegrityFailureError.
    """
    try:
        return EPOCH + timedelta(0, micros // 1_000_000, micros % 1_000_000)
    except (OverflowError, TypeError, ValueError) as error:
        raise IntegrityFailureError(
            f"Invalid time {short_repr(micros)}: outside the range of dates, so the ledger is "
            "damaged. Run `turnledger verify`."
        ) from error


def to_micros(moment: datetime) -> int:
    """The inverse of `to_datetime`; a time without a time zone is taken as UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


def moment_text(micros: int) -> str:
    """The canonical text of a time: ISO 8601, microseconds, UTC."""
    return to_datetime(micros).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def utc_now() -> datetime:
    return datetime.now(UTC)


def new_run_id() -> UUID:
    """A new run's id, a UUIDv7. Any other UUID is accepted as a run id too."""
    return UUID(bytes=uuid_utils.uuid7().bytes)


def new_message_id() -> UUID:
    return uuid4()
