"""Times and ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.ledger import IntegrityFailureError, SystemClock, new_run_id
from turnledger.ledger.clock import (
    EPOCH,
    FIRST_MOMENT,
    LAST_MOMENT,
    is_moment,
    to_datetime,
    to_micros,
)


@given(st.datetimes(timezones=st.timezones()))
def test_a_moment_survives_the_way_to_microseconds_and_back(moment: datetime) -> None:
    """Exactly, in any time zone, before 1970 and far from it."""
    assert to_datetime(to_micros(moment)) == moment.astimezone(UTC)


@given(st.integers(-(10**16), 10**17))
def test_microseconds_survive_the_way_to_a_moment_and_back(micros: int) -> None:
    """Exactly: no float is in between."""
    assert to_micros(to_datetime(micros)) == micros


def test_a_moment_without_a_zone_is_utc() -> None:
    """And one with a zone is what it says."""
    assert to_micros(datetime(1970, 1, 1)) == 0
    assert to_micros(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0
    assert to_datetime(0) == EPOCH
    assert to_datetime(1).microsecond == 1
    assert to_datetime(0).tzinfo is UTC


def test_the_moments_of_records_end_with_the_year_9000() -> None:
    """So that there is room in any calendar for what is added to one."""
    assert to_datetime(LAST_MOMENT + 1) == datetime(9001, 1, 1, tzinfo=UTC)
    assert all(map(is_moment, (FIRST_MOMENT, LAST_MOMENT)))
    assert not any(map(is_moment, (0, -5, LAST_MOMENT + 1, 2**62, "1", None, 1.5)))


@pytest.mark.parametrize("micros", [2**62, -(2**62), 10**30, "x", b"1", None])
def test_a_number_that_no_calendar_has_is_damage(micros: int) -> None:
    """A typed error, whatever a foreign hand has stored."""
    with pytest.raises(IntegrityFailureError, match="Invalid time"):
        to_datetime(micros)


def test_the_system_clock_is_the_systems() -> None:
    """Microseconds since 1970, by the same clock that Python shows."""
    before = to_micros(datetime.now(UTC))
    now = SystemClock().micros()
    assert before - 1 <= now <= to_micros(datetime.now(UTC)) + 1


def test_ids_are_uuid7_in_order_of_time() -> None:
    """Run ids and event ids."""
    runs = [new_run_id() for _ in range(200)]
    ids = [UUID(SystemClock().new_id()) for _ in range(200)]
    for made in (runs, ids):
        assert {one.version for one in made} == {7}
        assert made == sorted(made)
        assert len(set(made)) == 200
    assert type(runs[0]) is UUID
