"""The real clock and id source, the only ones in the package.

They are handed in by default and replaceable everywhere (`Ledger.open(clock=...)`),
so that everything else is a function of what it was given.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Protocol
from uuid import UUID, uuid4

import uuid_utils

from turnledger.ledger.errors import IntegrityFailureError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The moments that a record may have: up to the end of the year 9000, so that adding to one
# (the next commit is later by a microsecond) never leaves what a calendar can show.
FIRST_MOMENT: Final = 1
LAST_MOMENT: Final = 221_876_927_999_999_999


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


def is_moment(value: object) -> bool:
    """Whether a record may have been recorded then."""
    return isinstance(value, int) and FIRST_MOMENT <= value <= LAST_MOMENT


def check_moment(micros: int) -> int:
    """The same moment, if a record may have it; IntegrityFailureError otherwise."""
    if not is_moment(micros):
        raise IntegrityFailureError(
            f"{micros!r:.80} is no moment that a record can have: those are the microseconds "
            f"from {FIRST_MOMENT} (1970) to {LAST_MOMENT} (the year 9000)."
        )
    return micros


# The events of a commit share their time, and several views ask for it.
@lru_cache(maxsize=4096)
def to_datetime(micros: int) -> datetime:
    """The moment that a number of microseconds since 1970 means, exactly.

    A number that no calendar has can only come from damage: IntegrityFailureError.
    """
    try:
        return EPOCH + timedelta(0, micros // 1_000_000, micros % 1_000_000)
    except (OverflowError, TypeError) as error:
        raise IntegrityFailureError(
            f"{micros!r:.80} is no moment that a calendar has: it is damaged. "
            "`turnledger verify` says more."
        ) from error


def to_micros(moment: datetime) -> int:
    """The inverse of `to_datetime`; a moment without a time zone is taken as UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


def moment_text(micros: int) -> str:
    """The one spelling of a moment: ISO 8601, microseconds, UTC."""
    return to_datetime(micros).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def utc_now() -> datetime:
    return datetime.now(UTC)


def new_run_id() -> UUID:
    """A new run's id, a UUIDv7. Any other UUID is accepted as a run id too."""
    return UUID(bytes=uuid_utils.uuid7().bytes)


def new_message_id() -> UUID:
    return uuid4()
