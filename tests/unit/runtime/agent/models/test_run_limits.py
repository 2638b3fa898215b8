"""Deadlines, running time and budgets: what is left, what was used, and when it is too much."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.clocks import BEGIN, StandingClock
from tests.unit.runtime.threads import side_by_side
from turnledger.ledger import TokenLimits, TokenUsage
from turnledger.ledger.clock import utc_now
from turnledger.projections.views.usage import Tokens
from turnledger.runtime.agent.models.limits import (
    Budget,
    BudgetTracker,
    Deadline,
    RunningTime,
    deadline_for,
    deadline_provider_payload,
)
from turnledger.runtime.errors import BudgetExceededError, DeadlineExceededError

MINUTE = timedelta(minutes=1)
LIMITS = ("max_total_tokens", "max_input_tokens", "max_output_tokens")
counts = st.integers(0, 10**6)
usages = st.builds(TokenUsage, counts, counts, counts, counts)


# --- deadlines -----------------------------------------------------------------------


def test_a_deadline_says_what_remains() -> None:
    """S2-7: by its clock, or by the moment that is given."""
    clock = StandingClock()
    deadline = Deadline(expires_at=BEGIN + 5 * MINUTE, clock=clock)
    assert deadline.remaining() == 5 * MINUTE
    clock.advance(2 * MINUTE)
    assert deadline.remaining() == 3 * MINUTE
    assert deadline.remaining(now=BEGIN + 4 * MINUTE) == MINUTE


def test_the_seeds_deadline_is_five_minutes_from_now() -> None:
    """S2-11: typed as it stands, on the machine's clock."""
    deadline = Deadline(expires_at=datetime.now(UTC) + timedelta(minutes=5))
    assert 4 * MINUTE < deadline.remaining() <= 5 * MINUTE
    assert not deadline.expired


def test_a_deadline_that_passed_has_less_than_nothing_left() -> None:
    """S4-12: "non-positive" is too late, and by how much is known."""
    clock = StandingClock()
    deadline = Deadline(BEGIN + MINUTE, clock=clock)
    clock.advance(3 * MINUTE)
    assert deadline.remaining() == -2 * MINUTE
    assert deadline.expired


def test_a_deadline_of_the_past_is_accepted() -> None:
    """X22: a recovered run has the absolute deadline that it was given."""
    assert Deadline(utc_now() - timedelta(days=2)).expired


def test_the_moment_itself_is_too_late() -> None:
    """Nothing can be begun and be done in no time."""
    assert Deadline(BEGIN, clock=StandingClock()).expired


@pytest.mark.parametrize("moment", [datetime(2025, 3, 1), timedelta(minutes=5), "2025-03-01"])
def test_a_moment_without_a_time_zone_is_refused(moment: datetime) -> None:
    """Nobody could say when it is; the error says what to write instead."""
    with pytest.raises(ValueError, match=r"Deadline\.expires_at .*: expected a datetime with"):
        Deadline(moment)
    with pytest.raises(ValueError, match=r"now .*: expected a datetime"):
        Deadline(BEGIN).remaining(now=moment)


def test_deadlines_of_the_same_moment_are_equal() -> None:
    """Whatever their time zone and clock."""
    there = BEGIN.astimezone(timezone(timedelta(hours=9)))
    assert Deadline(BEGIN, clock=StandingClock()) == Deadline(there)
    assert hash(Deadline(BEGIN, clock=StandingClock())) == hash(Deadline(there))


def test_checking_a_deadline_raises_when_it_passed() -> None:
    """S4-12: with the time that it was, in UTC, and what was to come next."""
    clock = StandingClock()
    there = BEGIN.astimezone(timezone(timedelta(hours=9)))
    deadline = Deadline(there + MINUTE, clock=clock)
    deadline.check(before="the request")
    clock.advance(2 * MINUTE)
    with pytest.raises(DeadlineExceededError) as raised:
        deadline.check(before="the request")
    assert str(raised.value) == (
        "The deadline, 2025-03-01T12:01:00+00:00, passed 0:01:00 ago, before the request."
    )
    assert raised.value.expires_at == BEGIN + MINUTE


def test_the_payload_of_a_deadline_is_its_iso_time() -> None:
    """S4-12: what a PromptEvaluationError carries."""
    assert deadline_provider_payload(Deadline(BEGIN)) == {
        "deadline_expires_at": "2025-03-01T12:00:00+00:00"
    }
    assert deadline_provider_payload(None) is None


def test_a_deadline_beyond_the_calendar_is_refused() -> None:
    """With an error that says so."""
    with pytest.raises(ValueError, match="later than the year 9999"):
        Deadline.after(timedelta.max)


# --- running time --------------------------------------------------------------------


def test_running_time_goes_on_with_what_remained() -> None:
    """X22: two minutes of five were used; a week later three are left."""
    clock = StandingClock()
    time = RunningTime(5 * MINUTE)
    assert time.deadline(clock=clock) == Deadline(BEGIN + 5 * MINUTE)
    time = time.plus(2 * MINUTE)
    clock.advance(timedelta(weeks=1))
    assert time.deadline(clock=clock).remaining() == 3 * MINUTE


def test_running_time_that_is_used_up_leaves_nothing() -> None:
    """X22: never less than nothing, and its deadline has passed."""
    time = RunningTime(MINUTE, used=3 * MINUTE)
    assert time.remaining == timedelta(0)
    assert time.deadline(clock=StandingClock()).expired


def test_a_clock_that_was_set_back_gives_no_time_back() -> None:
    """What was used stays used."""
    assert RunningTime(MINUTE, MINUTE / 2).plus(-MINUTE) == RunningTime(MINUTE, MINUTE / 2)


def test_running_time_is_read_from_seconds() -> None:
    """As `RunStarted.time_limit` holds it."""
    assert RunningTime.from_seconds(90.5, 30) == RunningTime(
        timedelta(seconds=90.5), timedelta(seconds=30)
    )


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf"), 1e300])
def test_running_time_that_is_no_time_is_refused(limit: float) -> None:
    """A limit is positive and finite."""
    with pytest.raises(ValueError, match="running time"):
        RunningTime.from_seconds(limit)


def test_time_used_is_not_negative() -> None:
    """A run can't have been running for less than nothing."""
    with pytest.raises(ValueError, match="Invalid running time"):
        RunningTime(MINUTE, -MINUTE)


@given(
    st.integers(1, 10**9),
    st.lists(st.integers(0, 10**9), max_size=20),
    st.lists(st.integers(0, 10**9), min_size=20, max_size=20),
)
def test_however_often_a_run_is_interrupted_it_runs_no_longer_than_its_limit(
    limit: int, stretches: list[int], idle: list[int]
) -> None:
    """X22: what it used in all its stretches, and nothing of the time between, is gone."""
    clock, seconds = StandingClock(), timedelta(seconds=1)
    time = RunningTime(limit * seconds)
    for stretch, pause in zip(stretches, idle, strict=False):
        time = time.plus(stretch * seconds)
        clock.advance((stretch + pause) * seconds)
    assert time.deadline(clock=clock).remaining() == max(limit - sum(stretches), 0) * seconds


def test_a_config_says_a_moment_or_a_running_time() -> None:
    """X22: a Deadline stays absolute, a timedelta counts on, and None means no limit."""
    clock = StandingClock()
    deadline = Deadline(BEGIN, clock=clock)
    assert deadline_for(deadline, used=MINUTE, clock=clock) is deadline
    assert deadline_for(3 * MINUTE, used=MINUTE, clock=clock) == Deadline(BEGIN + 2 * MINUTE)
    assert deadline_for(None, used=MINUTE, clock=clock) is None


# --- budgets -------------------------------------------------------------------------


def test_a_budget_limits_something() -> None:
    """One with no limit is a mistake, and the error names the three that there are."""
    with pytest.raises(ValueError, match=", ".join(LIMITS)):
        Budget()


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "10", 2**53 + 1])
def test_a_limit_is_a_positive_whole_number(name: str, limit: int) -> None:
    """S2-7: and one that the ledger can record; the error names the field."""
    with pytest.raises(ValueError, match=rf"Budget\.{name} [^:]*: expected an integer"):
        Budget(**{name: limit})


@given(st.tuples(*[st.none() | st.integers(1, 2**53)] * 3).filter(any))
def test_a_budget_is_recorded_and_read_back(limits: tuple[int | None, ...]) -> None:
    """X22: as the ledger's TokenLimits."""
    budget = Budget(**dict(zip(LIMITS, limits, strict=True)))
    assert budget.to_limits() == TokenLimits(*limits)
    assert Budget.from_limits(budget.to_limits()) == budget


def test_limits_that_limit_nothing_are_no_budget() -> None:
    """A run without one has None."""
    assert Budget.from_limits(None) is None
    assert Budget.from_limits(TokenLimits()) is None


@given(st.lists(usages))
def test_what_is_recorded_adds_up(recorded: list[TokenUsage]) -> None:
    """X25: the sum of all calls, never the last one's."""
    tracker = BudgetTracker(budget=Budget(max_total_tokens=1))
    for usage in recorded:
        tracker.record(usage)
    assert tracker.consumed == Tokens(
        len(recorded),
        sum(usage.input_tokens for usage in recorded),
        sum(usage.output_tokens for usage in recorded),
        sum(usage.cached_tokens for usage in recorded),
        sum(usage.reasoning_tokens for usage in recorded),
    )


@given(st.lists(usages), st.integers(0, 10))
def test_a_tracker_that_is_restored_goes_on_where_it_was(
    recorded: list[TokenUsage], cut: int
) -> None:
    """X22: interrupted after any call, it comes to the same sum."""
    budget = Budget(max_total_tokens=1)
    before, whole = BudgetTracker(budget), BudgetTracker(budget)
    for usage in recorded[:cut]:
        before.record(usage)
    after = BudgetTracker(budget, consumed=before.consumed)
    for usage in recorded[cut:]:
        after.record(usage)
    for usage in recorded:
        whole.record(usage)
    assert after.consumed == whole.consumed


def test_a_tracker_can_begin_with_one_calls_usage() -> None:
    """As the ledger holds it."""
    tracker = BudgetTracker(Budget(max_total_tokens=10), consumed=TokenUsage(3, 4))
    assert tracker.consumed == Tokens(1, 3, 4)


@pytest.mark.parametrize(
    ("name", "usage", "used"),
    [
        ("max_total_tokens", TokenUsage(60, 41), 101),
        ("max_input_tokens", TokenUsage(101, 0), 101),
        ("max_output_tokens", TokenUsage(0, 102), 102),
    ],
)
def test_a_budget_that_is_exceeded_is_an_error_that_names_it(
    name: str, usage: TokenUsage, used: int
) -> None:
    """S2-7: which limit, what it allows, and what was used."""
    tracker = BudgetTracker(budget=Budget(**{name: 100}))
    tracker.check()
    tracker.record(usage)
    with pytest.raises(BudgetExceededError, match=f"{name} is 100, and {used}") as raised:
        tracker.check()
    error = raised.value
    assert (error.limit, error.allowed, error.used) == (name, 100, used)


def test_a_budget_used_to_the_last_token_is_kept_but_pays_for_no_other_call() -> None:
    """Before a model call one token is reserved: it would be exceeded for certain."""
    tracker = BudgetTracker(budget=Budget(max_total_tokens=100))
    tracker.record(TokenUsage(60, 39))
    tracker.check(reserve=1)
    tracker.record(TokenUsage(0, 1))
    tracker.check()
    with pytest.raises(BudgetExceededError):
        tracker.check(reserve=1)


@given(st.lists(usages, max_size=8), st.tuples(*[st.none() | st.integers(1, 10**6)] * 3))
def test_a_check_fails_exactly_when_a_sum_is_over_its_limit(
    recorded: list[TokenUsage], limits: tuple[int | None, ...]
) -> None:
    """Cached and reasoning tokens are parts of the others and not counted again."""
    if not any(limits):
        limits = (1, None, None)
    tracker = BudgetTracker(Budget(**dict(zip(LIMITS, limits, strict=True))))
    for usage in recorded:
        tracker.record(usage)
    fed, given_back = (
        sum(usage.input_tokens for usage in recorded),
        sum(usage.output_tokens for usage in recorded),
    )
    exceeded = any(
        limit is not None and used > limit
        for limit, used in zip(limits, (fed + given_back, fed, given_back), strict=True)
    )
    if exceeded:
        with pytest.raises(BudgetExceededError):
            tracker.check()
    else:
        tracker.check()


@pytest.mark.parametrize("field", ["input_tokens", "output_tokens", "cached_tokens"])
def test_a_call_that_used_less_than_nothing_is_refused(field: str) -> None:
    """It would give tokens back; the sum stays what it was."""
    tracker = BudgetTracker(Budget(max_total_tokens=100))
    with pytest.raises(ValueError, match="expected counts of 0 or more"):
        tracker.record(TokenUsage(**{field: -1}))
    assert tracker.consumed == Tokens()


def test_what_many_threads_record_adds_up() -> None:
    """X25: none is lost."""
    tracker = BudgetTracker(Budget(max_total_tokens=1))

    def record_many() -> None:
        for _ in range(3000):
            tracker.record(TokenUsage(1, 2))

    side_by_side(*[record_many] * 8)
    assert tracker.consumed == Tokens(24000, 24000, 48000)
