"""When a call is made again, after how long, and how it ends when it is not."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.runtime.clocks import BEGIN, StandingClock
from turnledger.runtime.agent.models.limits import Deadline
from turnledger.runtime.agent.models.retry import (
    FailedAttempt,
    RetryAdvice,
    RetryCancelledError,
    ThrottlePolicy,
    call_with_retries,
    retry_advice,
)
from turnledger.runtime.errors import DeadlineExceededError, ThrottledError

SECOND = timedelta(seconds=1)
STEADY = ThrottlePolicy(
    max_attempts=4,
    base_delay=SECOND,
    max_delay=30 * SECOND,
    max_total_delay=60 * SECOND,
    jitter=False,
)

durations = st.timedeltas(timedelta(0), timedelta(hours=2))


@st.composite
def policies(draw: st.DrawFn) -> ThrottlePolicy:
    base, longest = sorted((draw(durations), draw(durations)))
    return ThrottlePolicy(
        max_attempts=draw(st.integers(1, 12)),
        base_delay=base,
        max_delay=longest,
        max_total_delay=draw(durations),
        jitter=draw(st.booleans()),
    )


class Provider:
    """Answers after it has raised what it was given, and notes what it saw."""

    def __init__(self, *errors: BaseException, clock: StandingClock | None = None) -> None:
        self.clock = clock or StandingClock()
        self.errors = list(errors)
        self.attempts: list[int] = []
        self.slept: list[timedelta] = []
        self.failures: list[FailedAttempt] = []

    def call(self, attempt: int) -> str:
        self.attempts.append(attempt)
        if self.errors:
            raise self.errors.pop(0)
        return "answer"

    def sleep(self, seconds: float) -> bool:
        self.slept.append(timedelta(seconds=seconds))
        self.clock.advance(timedelta(seconds=seconds))
        return False

    def ask(self, policy: ThrottlePolicy = STEADY, **more: Any) -> str:
        given: dict[str, Any] = {
            "sleep": self.sleep,
            "random": Random(7),
            "on_failure": self.failures.append,
        }
        return call_with_retries(self.call, policy=policy, **(given | more))


def throttled(retry_after: float | None = None) -> ThrottledError:
    return ThrottledError("slow down", retry_after=retry_after)


# --- the policy ----------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [0, -1, True, 2.0, None])
def test_a_policy_has_at_least_one_attempt(attempts: int) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=r"ThrottlePolicy\.max_attempts"):
        ThrottlePolicy(max_attempts=attempts)


@pytest.mark.parametrize("name", ["base_delay", "max_delay", "max_total_delay"])
@pytest.mark.parametrize("delay", [-SECOND, 5])
def test_a_delay_is_a_timedelta_that_is_not_negative(name: str, delay: Any) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=rf"ThrottlePolicy\.{name} [^:]*: expected a timedelta"):
        ThrottlePolicy(**{name: delay})


def test_the_longest_delay_is_not_shorter_than_the_first() -> None:
    """That would be no backoff."""
    with pytest.raises(ValueError, match="expected at least the base_delay"):
        ThrottlePolicy(base_delay=2 * SECOND, max_delay=SECOND)


def test_the_default_policy_tries_five_times() -> None:
    """And waits two minutes at the most."""
    policy = ThrottlePolicy()
    assert (policy.max_attempts, policy.max_total_delay) == (5, timedelta(minutes=2))


def test_the_backoff_doubles_up_to_its_bound() -> None:
    """Without jitter it is exactly that; the first attempt is not waited for."""
    policy = ThrottlePolicy(max_attempts=6, base_delay=SECOND, max_delay=5 * SECOND, jitter=False)
    delays = [policy.delay_before(attempt, random=Random(1)) for attempt in range(1, 8)]
    seconds = [None if delay is None else delay.total_seconds() for delay in delays]
    assert seconds == [0, 1, 2, 4, 5, 5, None]


def test_all_of_the_total_may_be_waited_and_no_more() -> None:
    """A wait that ends exactly with it is still made."""
    almost = STEADY.max_total_delay - SECOND
    assert STEADY.delay_before(2, random=Random(1), slept=almost) == SECOND
    more = almost + timedelta(microseconds=1)
    assert STEADY.delay_before(2, random=Random(1), slept=more) is None


@given(policies(), st.integers(1, 2000), st.none() | durations, durations, st.randoms())
def test_a_delay_keeps_within_its_bounds(
    policy: ThrottlePolicy,
    attempt: int,
    retry_after: timedelta | None,
    slept: timedelta,
    random: Random,
) -> None:
    """Never shorter than retry-after, nor longer by more than max_delay, nor in sum than all."""
    delay = policy.delay_before(attempt, random=random, retry_after=retry_after, slept=slept)
    if delay is None:
        return
    floor = retry_after or timedelta(0)
    assert attempt <= policy.max_attempts
    assert floor <= delay <= floor + policy.max_delay
    assert slept + delay <= policy.max_total_delay


@given(policies(), st.integers(1, 12), st.none() | durations, st.integers())
def test_the_same_random_gives_the_same_delay(
    policy: ThrottlePolicy, attempt: int, retry_after: timedelta | None, seed: int
) -> None:
    """Everything else is a function of what is handed in."""
    one, other = (
        policy.delay_before(attempt, random=Random(seed), retry_after=retry_after) for _ in range(2)
    )
    assert one == other


@given(policies(), st.integers(2, 12), st.randoms())
def test_jitter_only_ever_shortens(policy: ThrottlePolicy, attempt: int, random: Random) -> None:
    """All of the backoff is up to chance, and none beyond it."""
    steady = ThrottlePolicy(
        max_attempts=12,
        base_delay=policy.base_delay,
        max_delay=policy.max_delay,
        max_total_delay=timedelta.max,
        jitter=False,
    )
    jittered = ThrottlePolicy(
        max_attempts=12,
        base_delay=policy.base_delay,
        max_delay=policy.max_delay,
        max_total_delay=timedelta.max,
    )
    most, delay = (each.delay_before(attempt, random=random) for each in (steady, jittered))
    assert most is not None
    assert delay is not None
    assert timedelta(0) <= delay <= most


def test_jitter_spreads_over_the_whole_backoff() -> None:
    """Those who were refused together don't come back together."""
    policy, random = ThrottlePolicy(base_delay=10 * SECOND), Random(3)
    delays = [policy.delay_before(2, random=random) or timedelta(0) for _ in range(200)]
    assert len(set(delays)) > 190
    assert min(delays) < SECOND
    assert max(delays) > 9 * SECOND


# --- what an error advises -----------------------------------------------------------


class OverloadedError(Exception):
    def __init__(self, retryable: object, retry_after: object = None) -> None:
        self.retryable, self.retry_after = retryable, retry_after


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ValueError("no"), RetryAdvice(False)),
        (throttled(), RetryAdvice(True)),
        (throttled(2.5), RetryAdvice(True, 2.5 * SECOND)),
        (OverloadedError(True), RetryAdvice(True)),
        (OverloadedError(True, 3), RetryAdvice(True, 3 * SECOND)),
        (OverloadedError(True, 3 * SECOND), RetryAdvice(True, 3 * SECOND)),
        (OverloadedError(False, 3), RetryAdvice(False, 3 * SECOND)),
        (OverloadedError("perhaps"), RetryAdvice(False)),
        (OverloadedError(True, "soon"), RetryAdvice(True)),
        (OverloadedError(True, True), RetryAdvice(True)),
        (OverloadedError(True, float("nan")), RetryAdvice(True)),
        (OverloadedError(True, float("inf")), RetryAdvice(True, timedelta.max)),
        (OverloadedError(True, -1e300), RetryAdvice(True)),
    ],
)
def test_an_error_says_itself_whether_to_try_again(error: Exception, advice: RetryAdvice) -> None:
    """What it says of the wait counts if it is one, and is else not said."""
    assert retry_advice(error) == advice


# --- calling -------------------------------------------------------------------------


def test_a_call_that_succeeds_is_made_once() -> None:
    """Nothing is waited for and nothing reported."""
    provider = Provider()
    assert provider.ask() == "answer"
    assert (provider.attempts, provider.slept, provider.failures) == ([1], [], [])


def test_a_call_that_may_be_tried_again_is() -> None:
    """Each failed attempt is reported before the wait that it brings."""
    errors = [throttled(), throttled()]
    provider = Provider(*errors)
    assert provider.ask() == "answer"
    assert provider.attempts == [1, 2, 3]
    assert provider.slept == [SECOND, 2 * SECOND]
    assert provider.failures == [
        FailedAttempt(1, errors[0], True, SECOND),
        FailedAttempt(2, errors[1], True, 2 * SECOND),
    ]


def test_an_error_that_is_not_retryable_is_raised_as_it_is() -> None:
    """At once, and reported."""
    error = ValueError("bad request")
    provider = Provider(error)
    with pytest.raises(ValueError, match="bad request") as raised:
        provider.ask()
    assert raised.value is error
    assert not hasattr(error, "__notes__")
    assert provider.failures == [FailedAttempt(1, error, False, None)]
    assert provider.slept == []


def test_after_the_last_attempt_the_calls_own_error_is_raised() -> None:
    """The last one, reported like the others, with a note of what was tried."""
    errors = [throttled() for _ in range(9)]
    provider = Provider(*errors)
    with pytest.raises(ThrottledError) as raised:
        provider.ask()
    assert raised.value is errors[3]
    assert raised.value.__notes__ == ["Given up after attempt 4 and 0:00:07 of waiting."]
    assert provider.attempts == [1, 2, 3, 4]
    assert [failure.delay for failure in provider.failures] == [
        SECOND,
        2 * SECOND,
        4 * SECOND,
        None,
    ]


def test_a_policy_of_one_attempt_never_waits() -> None:
    """It is how retries are turned off."""
    provider = Provider(throttled())
    with pytest.raises(ThrottledError):
        provider.ask(ThrottlePolicy(max_attempts=1))
    assert (provider.attempts, provider.slept) == ([1], [])


def test_retry_after_is_honoured() -> None:
    """The wait is never shorter, also when it is longer than max_delay."""
    provider = Provider(throttled(45))
    assert provider.ask() == "answer"
    assert provider.slept == [46 * SECOND]


def test_a_retry_after_that_is_too_long_is_not_waited_for() -> None:
    """Beyond max_total_delay the call is given up, without sleeping part of it."""
    for retry_after in (61.0, float("inf")):
        provider = Provider(throttled(retry_after))
        with pytest.raises(ThrottledError):
            provider.ask()
        assert (provider.attempts, provider.slept) == ([1], [])


def test_a_wait_that_would_go_beyond_the_deadline_is_not_begun() -> None:
    """The deadline is what ends the call, and the provider's error is the cause."""
    clock, error = StandingClock(), throttled(20)
    provider = Provider(error, clock=clock)
    with pytest.raises(DeadlineExceededError, match="would go beyond the deadline") as raised:
        provider.ask(deadline=Deadline(BEGIN + 21 * SECOND, clock=clock))
    assert raised.value.__cause__ is error
    assert raised.value.expires_at == BEGIN + 21 * SECOND
    assert provider.slept == []
    assert provider.failures == [FailedAttempt(1, error, True, None)]


def test_a_wait_that_ends_before_the_deadline_is_waited() -> None:
    """By a microsecond, say."""
    clock = StandingClock()
    provider = Provider(throttled(), clock=clock)
    deadline = Deadline(BEGIN + SECOND + timedelta(microseconds=1), clock=clock)
    assert provider.ask(deadline=deadline) == "answer"


def test_no_attempt_is_begun_after_the_deadline() -> None:
    """S4-12: the deadline is checked before each request, the first one too."""
    clock = StandingClock()
    provider = Provider(clock=clock)
    with pytest.raises(DeadlineExceededError, match="before attempt 1 of the model call"):
        provider.ask(deadline=Deadline(BEGIN, clock=clock))
    assert provider.attempts == []


def test_a_sleep_that_took_too_long_is_noticed() -> None:
    """A machine that was suspended wakes after the deadline."""
    clock = StandingClock()
    provider = Provider(throttled(), clock=clock)

    def oversleeps(seconds: float) -> bool:
        clock.advance(timedelta(hours=1))
        return False

    with pytest.raises(DeadlineExceededError, match="before attempt 2"):
        provider.ask(sleep=oversleeps, deadline=Deadline(BEGIN + 60 * SECOND, clock=clock))
    assert provider.attempts == [1]


def test_an_error_that_is_final_is_not_hidden_by_the_deadline() -> None:
    """What would not be tried again did not fail for lack of time."""
    clock = StandingClock()
    provider = Provider(ValueError("bad request"), clock=clock)

    def takes_long(attempt: int) -> str:
        clock.advance(60 * SECOND)
        return provider.call(attempt)

    with pytest.raises(ValueError, match="bad request"):
        call_with_retries(takes_long, policy=STEADY, deadline=Deadline(BEGIN + SECOND, clock=clock))


def test_a_wait_that_is_cancelled_ends_the_call() -> None:
    """With an error that says that the run can go on later; the cause is kept."""
    error = throttled()
    provider = Provider(error)
    with pytest.raises(RetryCancelledError, match="Resume the run") as raised:
        provider.ask(sleep=lambda seconds: True)
    assert raised.value.__cause__ is error
    assert provider.attempts == [1]
    assert len(provider.failures) == 1


def test_setting_the_event_wakes_who_waits() -> None:
    """An hour's wait ends as soon as another thread cancels."""
    cancelled, failed = Event(), Event()
    policy = ThrottlePolicy(max_total_delay=timedelta(hours=2))

    def cancel_when_it_waits() -> None:
        assert failed.wait(timeout=30)
        cancelled.set()

    canceller = Thread(target=cancel_when_it_waits)
    canceller.start()
    with pytest.raises(RetryCancelledError):
        Provider(throttled(3600)).ask(
            policy, sleep=cancelled.wait, on_failure=lambda failure: failed.set()
        )
    canceller.join(timeout=30)
    assert not canceller.is_alive()


def test_everything_but_the_call_and_the_policy_may_be_left_out() -> None:
    """It then really waits, here for no time at all."""
    provider = Provider(throttled(), throttled())
    at_once = ThrottlePolicy(base_delay=timedelta(0), max_delay=timedelta(0))
    assert call_with_retries(provider.call, policy=at_once) == "answer"
    assert provider.attempts == [1, 2, 3]


def test_what_the_report_raises_is_the_end() -> None:
    """A worker that may no longer record must not call again."""
    provider = Provider(throttled())

    def refused(failure: FailedAttempt) -> None:
        raise PermissionError("another worker has the run")

    with pytest.raises(PermissionError):
        provider.ask(on_failure=refused)
    assert (provider.attempts, provider.slept) == ([1], [])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_what_ends_the_process_is_no_failed_attempt(error: BaseException) -> None:
    """It passes on, and nothing is reported."""
    provider = Provider(error)
    with pytest.raises(type(error)):
        provider.ask()
    assert provider.failures == []


def test_a_provider_may_judge_errors_that_know_nothing_of_this() -> None:
    """An SDK's own, without being wrapped."""
    provider = Provider(ConnectionResetError())

    def advise(error: Exception) -> RetryAdvice:
        return RetryAdvice(isinstance(error, ConnectionError), 2 * SECOND)

    assert provider.ask(advise=advise) == "answer"
    assert provider.slept == [3 * SECOND]


@given(
    policies(),
    st.lists(st.none() | st.floats(0, 4000), max_size=15),
    st.none() | durations,
    st.integers(),
)
def test_every_call_keeps_to_its_policy_and_its_deadline(
    policy: ThrottlePolicy, waits: list[float | None], allowed: timedelta | None, seed: int
) -> None:
    """However it ends: attempts, waits and what was reported fit together."""
    assume(allowed is None or allowed > timedelta(0))
    clock = StandingClock()
    deadline = None if allowed is None else Deadline(BEGIN + allowed, clock=clock)
    provider = Provider(*map(throttled, waits), clock=clock)
    ended: type[Exception] | None = None
    try:
        provider.ask(policy, deadline=deadline, random=Random(seed))
    except (ThrottledError, DeadlineExceededError) as error:
        ended = type(error)
    assert provider.attempts == list(range(1, len(provider.attempts) + 1))
    assert len(provider.attempts) <= policy.max_attempts
    assert sum(provider.slept, timedelta(0)) <= policy.max_total_delay
    assert deadline is None or clock.now() < deadline.expires_at
    assert [failure.delay for failure in provider.failures] == provider.slept + [None] * bool(ended)
    assert len(provider.failures) == len(provider.attempts) - (ended is None)
    for slept, wait in zip(provider.slept, waits, strict=False):
        assert slept >= timedelta(seconds=wait or 0)
