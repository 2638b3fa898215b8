"""How long a run may take and how many tokens it may use.

These are values and sums that say whether a limit is reached; when to ask, and what a run
that reached one comes to, is the loop's. A limit is absolute (`Deadline`), or counts only
the time that a run is worked on and goes on after a restart with what remained
(`RunningTime`). Token sums are restored from what the ledger says was used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

from msgspec.structs import astuple

from turnledger.ledger import TokenLimits, TokenUsage
from turnledger.ledger.clock import Clock, SystemClock, to_datetime
from turnledger.ledger.errors import InvalidInputError
from turnledger.projections.views.usage import Tokens
from turnledger.runtime.errors import BudgetExceededError, DeadlineExceededError

NO_TIME = timedelta(0)
_MOST_TOKENS = 2**53  # what the ledger can record as a count


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment after which nothing more is begun.

    It may be in the past: a run that is recovered has the deadline that it was given.
    """

    expires_at: datetime
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        _require_aware("Deadline.expires_at", self.expires_at)

    @classmethod
    def after(cls, duration: timedelta, *, clock: Clock | None = None) -> Deadline:
        """The deadline that is this long from now."""
        clock = clock or SystemClock()
        try:
            return cls(to_datetime(clock.micros()) + duration, clock=clock)
        except OverflowError:
            raise InvalidInputError(
                f"A deadline in {duration.days} days is beyond what a calendar can say."
            ) from None

    def remaining(self, *, now: datetime | None = None) -> timedelta:
        """The time that is left; negative by how much too late it is."""
        if now is None:
            now = to_datetime(self.clock.micros())
        _require_aware("now", now)
        return self.expires_at - now

    @property
    def expired(self) -> bool:
        return self.remaining() <= NO_TIME

    def check(self, before: str = "") -> None:
        """Raise DeadlineExceededError if time is up; `before` says what was to come next."""
        late = -self.remaining()
        if late >= NO_TIME:
            what_next = f", before {before}" if before else ""
            raise DeadlineExceededError(
                f"The deadline, {_iso(self.expires_at)}, passed {late} ago{what_next}.",
                expires_at=self.expires_at,
            )


def deadline_provider_payload(deadline: Deadline | None) -> dict[str, Any] | None:
    """What a PromptEvaluationError carries when it is for a deadline: its ISO time."""
    return None if deadline is None else {"deadline_expires_at": _iso(deadline.expires_at)}


@dataclass(frozen=True, slots=True)
class RunningTime:
    """A limit on the time that a run is worked on.

    What it used before a restart counts; how long it lay idle does not.
    """

    limit: timedelta
    used: timedelta = NO_TIME

    def __post_init__(self) -> None:
        if self.limit <= NO_TIME:
            raise InvalidInputError(f"A limit of running time is positive, not {self.limit}.")
        if self.used < NO_TIME:
            raise InvalidInputError(f"A run can't have been running for {self.used}.")

    @classmethod
    def from_seconds(cls, limit: float, used: float = 0.0) -> RunningTime:
        """From the seconds that a ledger holds (`RunStarted.time_limit`)."""
        try:
            return cls(timedelta(seconds=limit), timedelta(seconds=used))
        except (OverflowError, ValueError) as error:
            raise InvalidInputError(
                f"A limit of {limit!r} s of running time, {used!r} s of it used: {error}"
            ) from error

    @property
    def remaining(self) -> timedelta:
        return max(self.limit - self.used, NO_TIME)

    def plus(self, elapsed: timedelta) -> RunningTime:
        """The same limit after it ran some more; a clock that was set back takes nothing off."""
        return RunningTime(self.limit, self.used + max(elapsed, NO_TIME))

    def deadline(self, *, clock: Clock | None = None) -> Deadline:
        """When time is up if the run goes on now and is not interrupted."""
        return Deadline.after(self.remaining, clock=clock)


def deadline_for(
    limit: Deadline | timedelta | None,
    *,
    used: timedelta = NO_TIME,
    clock: Clock | None = None,
) -> Deadline | None:
    """The deadline of a run that starts or goes on now, from what a config says.

    A Deadline stays what it is, however long the run lay idle. A timedelta is running time,
    of which `used` is gone.
    """
    if isinstance(limit, timedelta):
        return RunningTime(limit, used).deadline(clock=clock)
    return limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many tokens a run may use: at least one of the three is given."""

    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None

    def __post_init__(self) -> None:
        limits = dict(self._limits())
        if all(limit is None for limit in limits.values()):
            raise InvalidInputError(
                f"A Budget limits something. Give it at least one of {', '.join(limits)}."
            )
        for name, limit in limits.items():
            if limit is not None and not (type(limit) is int and 0 < limit <= _MOST_TOKENS):
                raise InvalidInputError(
                    f"Budget.{name} is a whole number from 1 to {_MOST_TOKENS}, not {limit!r}."
                )

    @classmethod
    def from_limits(cls, limits: TokenLimits | None) -> Budget | None:
        """What a ledger recorded (`RunStarted.budget`); None if it limits nothing."""
        if limits is None or limits == TokenLimits():
            return None
        return cls(
            max_total_tokens=limits.max_total_tokens,
            max_input_tokens=limits.max_input_tokens,
            max_output_tokens=limits.max_output_tokens,
        )

    def to_limits(self) -> TokenLimits:
        """As a ledger records it."""
        return TokenLimits(**dict(self._limits()))

    def check(self, consumed: Tokens, *, reserve: int = 0) -> None:
        """Raise BudgetExceededError for the first limit that is exceeded.

        `reserve` is what the next step uses at the least. Before a model call it is 1: a
        budget that is used up to the last token is kept, but pays for no other call.
        """
        used = {
            "max_total_tokens": consumed.total_tokens,
            "max_input_tokens": consumed.input_tokens,
            "max_output_tokens": consumed.output_tokens,
        }
        for name, limit in self._limits():
            if limit is not None and used[name] + reserve > limit:
                raise BudgetExceededError(name, allowed=limit, used=used[name])

    def _limits(self) -> tuple[tuple[str, int | None], ...]:
        return (
            ("max_total_tokens", self.max_total_tokens),
            ("max_input_tokens", self.max_input_tokens),
            ("max_output_tokens", self.max_output_tokens),
        )


class BudgetTracker:
    """Adds up what model calls used and holds it against a budget; any thread may use it.

    A run that goes on after a restart hands in what it had `consumed`: the total of its
    `projections.Usage`.
    """

    def __init__(self, budget: Budget, consumed: Tokens | TokenUsage | None = None) -> None:
        self.budget = budget
        self._lock = Lock()
        self._consumed = Tokens()
        if isinstance(consumed, Tokens):
            self._consumed = consumed
        elif consumed is not None:
            self.record(consumed)

    @property
    def consumed(self) -> Tokens:
        """The sum so far."""
        return self._consumed

    def record(self, usage: TokenUsage) -> None:
        """Add what one model call used."""
        if min(astuple(usage)) < 0:
            raise InvalidInputError(f"A model call can't use less than nothing: {usage!r}.")
        with self._lock:
            self._consumed = self._consumed.plus(usage)

    def check(self, *, reserve: int = 0) -> None:
        """Raise BudgetExceededError if the budget is exceeded; see `Budget.check`."""
        self.budget.check(self._consumed, reserve=reserve)


def _require_aware(name: str, moment: datetime) -> None:
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidInputError(
            f"{name} is a datetime with a time zone, not {moment!r}. "
            "Write datetime.now(UTC) + timedelta(minutes=5), say."
        )


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
