"""Retries of model calls: backoff with jitter, the provider's retry-after, and the deadline.

Backoff, retry-after, the run's deadline and the record of each failed attempt have to agree on
every single wait, which retry libraries keep apart; so this is code of our own. Whether an error
is worth a retry is not decided here: the error has attributes for it, or `advise` decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from threading import Event
from typing import TypeVar

from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import InvalidInputError, TurnledgerError
from turnledger.runtime.agent.models.limits import NO_TIME, Deadline
from turnledger.runtime.errors import DeadlineExceededError, ThrottledError

ResultT = TypeVar("ResultT")

_MICROSECOND = timedelta(microseconds=1)
_MAX_DOUBLINGS = 64  # a microsecond doubled this often is longer than any timedelta


class RetryCancelledError(TurnledgerError):
    """The run was cancelled while it waited for a retry.

    The run can be resumed. `__cause__` is the error that made it wait.
    """


@dataclass(frozen=True, slots=True)
class RetryAdvice:
    """Whether an error is worth a retry, and the shortest wait before it."""

    retryable: bool
    retry_after: timedelta | None = None


def retry_advice(error: Exception) -> RetryAdvice:
    """Read the advice from an error's own attributes.

    A ThrottledError is retryable, and so is an error whose `retryable` is True. The shortest
    wait is its `retry_after`, in seconds or as a timedelta.
    """
    retryable = isinstance(error, ThrottledError) or getattr(error, "retryable", False) is True
    return RetryAdvice(retryable, _duration(getattr(error, "retry_after", None)))


@explain_methods()
@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlePolicy:
    """Retry policy: how often a call is tried, and how long to wait between the attempts.

    A provider's retry-after is added to the backoff, so a wait is never shorter than that.

    Attributes:
        max_attempts: Attempts in total, the first one included.
        base_delay: The backoff before the second attempt; it doubles with each further one.
        max_delay: The longest backoff.
        max_total_delay: The longest time that all waits of one call take together.
        jitter: Choose each wait at random between 0 and the backoff, so that clients that
            were throttled together do not retry together.
    """

    max_attempts: int = 5
    base_delay: timedelta = timedelta(milliseconds=500)
    max_delay: timedelta = timedelta(seconds=30)
    max_total_delay: timedelta = timedelta(minutes=2)
    jitter: bool = True

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise InvalidInputError(
                f"Invalid ThrottlePolicy.max_attempts {self.max_attempts!r}: expected an integer "
                "from 1."
            )
        for name in ("base_delay", "max_delay", "max_total_delay"):
            delay = getattr(self, name)
            if not isinstance(delay, timedelta) or delay < NO_TIME:
                raise InvalidInputError(
                    f"Invalid ThrottlePolicy.{name} {delay!r}: expected a timedelta of 0 or more."
                )
        if self.max_delay < self.base_delay:
            raise InvalidInputError(
                f"Invalid ThrottlePolicy.max_delay {self.max_delay}: expected at least the "
                f"base_delay, {self.base_delay}."
            )

    def delay_before(
        self,
        attempt: int,
        *,
        random: Random,
        retry_after: timedelta | None = None,
        slept: timedelta = NO_TIME,
    ) -> timedelta | None:
        """Return how long to wait before an attempt; None if there is to be no such attempt.

        Args:
            attempt: The number of the attempt; the first is 1.
            random: Source of the jitter.
            retry_after: The shortest wait, as the provider asked for it.
            slept: The time that this call has waited already.
        """
        if attempt > self.max_attempts:
            return None
        wait = max(retry_after or NO_TIME, NO_TIME) // _MICROSECOND + self._backoff(attempt, random)
        left = self.max_total_delay // _MICROSECOND - slept // _MICROSECOND
        return None if wait > left else wait * _MICROSECOND

    def _backoff(self, attempt: int, random: Random) -> int:
        # Whole microseconds: nothing is rounded beyond a bound, and nothing overflows.
        if attempt <= 1:
            return 0
        doubled = (self.base_delay // _MICROSECOND) << min(attempt - 2, _MAX_DOUBLINGS)
        backoff = min(doubled, self.max_delay // _MICROSECOND)
        return random.randint(0, backoff) if self.jitter else backoff


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that raised; `delay` is the wait before the next one, None for the last."""

    attempt: int
    error: Exception
    retryable: bool
    delay: timedelta | None


def call_with_retries(
    call: Callable[[int], ResultT],
    *,
    policy: ThrottlePolicy,
    deadline: Deadline | None = None,
    sleep: Callable[[float], bool] | None = None,
    random: Random | None = None,
    advise: Callable[[Exception], RetryAdvice] = retry_advice,
    on_failure: Callable[[FailedAttempt], object] | None = None,
) -> ResultT:
    """Make a call, retry it as the policy allows, and return its result.

    Args:
        call: Gets the number of the attempt, from 1.
        policy: How often, and how long to wait.
        deadline: No attempt begins after it, and no wait that would end after it.
        sleep: Gets seconds and returns whether the run was cancelled meanwhile, like the
            `wait` of an Event that cancelling sets.
        random: Source of the jitter.
        advise: Says whether an error is worth a retry.
        on_failure: Called with every failed attempt, the last one too, before the wait. If it
            raises, there is no retry.

    Raises:
        DeadlineExceededError: A wait would end after the deadline; raised at once, with the
            call's error as its cause.
        RetryCancelledError: Cancelled while waiting.
        Exception: The call's own error, if it is not retryable or the policy is exhausted.
    """
    sleep = sleep or Event().wait
    random = random or Random()  # noqa: S311 - spreads load, guards nothing
    slept, attempt = NO_TIME, 1
    while True:
        if deadline is not None:
            deadline.check(before=f"attempt {attempt} of the model call")
        try:
            return call(attempt)
        except Exception as error:
            advice = advise(error)
            delay = None
            if advice.retryable:
                delay = policy.delay_before(
                    attempt + 1, random=random, retry_after=advice.retry_after, slept=slept
                )
            too_late = _too_late(deadline, delay)
            if on_failure is not None:
                planned = None if too_late else delay
                on_failure(FailedAttempt(attempt, error, advice.retryable, planned))
            if too_late is not None:
                raise too_late from error
            if delay is None:
                if advice.retryable:
                    error.add_note(f"Given up after attempt {attempt} and {slept} of waiting.")
                raise
            if sleep(delay.total_seconds()):
                raise RetryCancelledError(
                    f"Cancelled while waiting {delay} for attempt {attempt + 1}. "
                    "Resume the run to go on."
                ) from error
            slept, attempt = slept + delay, attempt + 1


def _too_late(deadline: Deadline | None, delay: timedelta | None) -> DeadlineExceededError | None:
    """Make the error for a wait that would end after the deadline."""
    if deadline is None or delay is None or delay < deadline.remaining():
        return None
    return DeadlineExceededError(
        f"The model call failed, and the {delay} to wait before the next attempt would go "
        f"beyond the deadline, {deadline.expires_at.isoformat()}.",
        expires_at=deadline.expires_at,
    )


def _duration(value: object) -> timedelta | None:
    """Convert an error's `retry_after`; None if it is not a duration."""
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        return None
    if isinstance(value, timedelta):
        return value
    try:
        return timedelta(seconds=value)
    except OverflowError:
        return timedelta.max if value > 0 else None
    except ValueError:
        return None
