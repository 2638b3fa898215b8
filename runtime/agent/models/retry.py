"""When a model call that failed is made again, and after how long.

Backoff, the provider's retry-after, the run's deadline and the record of each failed attempt
have to agree on every single wait, so this is our own code and not a retrying library: those
keep the deadline and the record apart. What a provider's error means is not known here: the
error says it itself, or `advise` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from threading import Event
from typing import TypeVar

from turnledger.ledger.errors import InvalidInputError, TurnledgerError
from turnledger.runtime.agent.models.limits import NO_TIME, Deadline
from turnledger.runtime.errors import DeadlineExceededError, ThrottledError

ResultT = TypeVar("ResultT")

_MICROSECOND = timedelta(microseconds=1)
_MOST_DOUBLINGS = 64  # a microsecond doubled this often is longer than any timedelta


class RetryCancelledError(TurnledgerError):
    """The run was cancelled while it waited to try again.

    Nothing failed for good: it can be resumed. The error that made it wait is the cause.
    """


@dataclass(frozen=True, slots=True)
class RetryAdvice:
    """What an error says about trying again: whether to, and not before when."""

    retryable: bool
    retry_after: timedelta | None = None


def retry_advice(error: Exception) -> RetryAdvice:
    """The advice that an error carries itself.

    A ThrottledError may be tried again, and so may any error whose `retryable` is true; how
    long to wait at the least is its `retry_after`, in seconds or as a timedelta.
    """
    retryable = isinstance(error, ThrottledError) or getattr(error, "retryable", False) is True
    return RetryAdvice(retryable, _duration(getattr(error, "retry_after", None)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlePolicy:
    """How often a call is tried, and how long between the attempts.

    The backoff before the second attempt is `base_delay`; it doubles with each further one
    up to `max_delay`. With `jitter` (all of it: from nothing to the backoff) those who were
    refused together don't come back together. A provider's retry-after is added to it, so a
    wait is never shorter than that. All waits of one call together are at most
    `max_total_delay`.
    """

    max_attempts: int = 5
    base_delay: timedelta = timedelta(milliseconds=500)
    max_delay: timedelta = timedelta(seconds=30)
    max_total_delay: timedelta = timedelta(minutes=2)
    jitter: bool = True

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise InvalidInputError(
                f"ThrottlePolicy.max_attempts is a whole number from 1, not {self.max_attempts!r}."
            )
        for name in ("base_delay", "max_delay", "max_total_delay"):
            delay = getattr(self, name)
            if not isinstance(delay, timedelta) or delay < NO_TIME:
                raise InvalidInputError(
                    f"ThrottlePolicy.{name} is a timedelta that is not negative, not {delay!r}."
                )
        if self.max_delay < self.base_delay:
            raise InvalidInputError(
                f"ThrottlePolicy.max_delay, {self.max_delay}, is less than its base_delay, "
                f"{self.base_delay}."
            )

    def delay_before(
        self,
        attempt: int,
        *,
        random: Random,
        retry_after: timedelta | None = None,
        slept: timedelta = NO_TIME,
    ) -> timedelta | None:
        """How long to wait before an attempt (the first is 1); None if it is not to be made.

        `slept` is what was waited for this call already.
        """
        if attempt > self.max_attempts:
            return None
        wait = max(retry_after or NO_TIME, NO_TIME) // _MICROSECOND + self._backoff(attempt, random)
        left = (self.max_total_delay - slept) // _MICROSECOND
        return None if wait > left else wait * _MICROSECOND

    def _backoff(self, attempt: int, random: Random) -> int:
        # Whole microseconds: nothing is rounded beyond a bound, and nothing overflows.
        if attempt <= 1:
            return 0
        doubled = (self.base_delay // _MICROSECOND) << min(attempt - 2, _MOST_DOUBLINGS)
        backoff = min(doubled, self.max_delay // _MICROSECOND)
        return random.randint(0, backoff) if self.jitter else backoff


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that raised. `delay` is the wait before the next; None if there is none."""

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
    """Make a call, again if need be, and return what it returns.

    `call` gets the number of the attempt, from 1. `on_failure` hears of every attempt that
    failed, the last one too, before anything is waited for; if it raises, that is the end.
    `sleep` gets seconds and returns whether the run was cancelled meanwhile: the `wait` of
    an Event that cancelling sets.

    The call's own error is raised when it is not retryable or the policy is exhausted.
    No attempt is begun after the deadline, and no wait that would end after it: that is a
    DeadlineExceededError at once, with the call's error as its cause, since what ended the
    run is the deadline. A cancelled wait is a RetryCancelledError.
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
    """What to raise when a wait would end after the deadline."""
    if deadline is None or delay is None or delay < deadline.remaining():
        return None
    return DeadlineExceededError(
        f"The model call failed, and the {delay} to wait before the next attempt would go "
        f"beyond the deadline, {deadline.expires_at.isoformat()}.",
        expires_at=deadline.expires_at,
    )


def _duration(said: object) -> timedelta | None:
    """A wait as an error tells it; what is none counts as not said."""
    if isinstance(said, bool) or not isinstance(said, int | float | timedelta):
        return None
    if isinstance(said, timedelta):
        return said
    try:
        return timedelta(seconds=said)
    except OverflowError:
        return timedelta.max if said > 0 else None
    except ValueError:
        return None
