"""Limits of a run: deadlines, running time and token budgets.

These are values that say whether a limit is reached; the loop decides when to check. A time
limit is absolute (`Deadline`), or counts only the time that a run is worked on and continues
after a restart with what remained (`RunningTime`). Token sums are restored from the ledger.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

from msgspec import structs

from turnledger.ledger import TokenLimits, TokenUsage
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.clock import Clock, SystemClock, to_datetime
from turnledger.ledger.errors import InvalidInputError
from turnledger.projections.views.usage import Tokens
from turnledger.runtime.errors import (
    BudgetExceededError,
    DeadlineExceededError,
    TurnLimitExceededError,
)

NO_TIME = timedelta(0)
_MAX_TOKENS = 2**53  # the largest count that the ledger can record


@explain_methods()
@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time after which no further step is begun.

    It may be in the past: a recovered run keeps the deadline that it was given.
    """

    expires_at: datetime
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        _require_aware("Deadline.expires_at", self.expires_at)

    @classmethod
    def after(cls, duration: timedelta, *, clock: Clock | None = None) -> Deadline:
        """Make the deadline that is this long from now."""
        clock = clock or SystemClock()
        try:
            return cls(to_datetime(clock.micros()) + duration, clock=clock)
        except OverflowError:
            raise InvalidInputError(
                f"Invalid deadline: {duration.days} days from now is later than the year 9999."
            ) from None

    def remaining(self, *, now: datetime | None = None) -> timedelta:
        """Return the time that is left; negative once the deadline has passed."""
        if now is None:
            now = to_datetime(self.clock.micros())
        _require_aware("now", now)
        return self.expires_at - now

    @property
    def expired(self) -> bool:
        return self.remaining() <= NO_TIME

    def check(self, before: str = "") -> None:
        """Raise DeadlineExceededError if it has passed; `before` names the next step."""
        late = -self.remaining()
        if late >= NO_TIME:
            what_next = f", before {before}" if before else ""
            raise DeadlineExceededError(
                f"The deadline, {_iso(self.expires_at)}, passed {late} ago{what_next}.",
                expires_at=self.expires_at,
            )


def deadline_provider_payload(deadline: Deadline | None) -> dict[str, Any] | None:
    """Make the `provider_payload` of a PromptEvaluationError that a deadline caused."""
    return None if deadline is None else {"deadline_expires_at": _iso(deadline.expires_at)}


@dataclass(frozen=True, slots=True)
class RunningTime:
    """A limit on the time that a run is worked on.

    Time used before a restart counts; time in which the run was idle does not.
    """

    limit: timedelta
    used: timedelta = NO_TIME

    def __post_init__(self) -> None:
        if self.limit <= NO_TIME:
            raise InvalidInputError(
                f"Invalid limit {self.limit} of running time: expected above 0."
            )
        if self.used < NO_TIME:
            raise InvalidInputError(f"Invalid running time {self.used}: expected 0 or more.")

    @classmethod
    def from_seconds(cls, limit: float, used: float = 0.0) -> RunningTime:
        """Make it from seconds, as a ledger holds them (`RunStarted.time_limit`)."""
        try:
            return cls(timedelta(seconds=limit), timedelta(seconds=used))
        except (OverflowError, ValueError) as error:
            raise InvalidInputError(
                f"Invalid running time: limit {limit!r} s, used {used!r} s: {error}"
            ) from error

    @property
    def remaining(self) -> timedelta:
        return max(self.limit - self.used, NO_TIME)

    def plus(self, elapsed: timedelta) -> RunningTime:
        """Return the limit after more time was used; a clock that was set back adds nothing."""
        return RunningTime(self.limit, self.used + max(elapsed, NO_TIME))

    def deadline(self, *, clock: Clock | None = None) -> Deadline:
        """Return the deadline of a run that continues now without interruption."""
        return Deadline.after(self.remaining, clock=clock)


def deadline_for(
    limit: Deadline | timedelta | None,
    *,
    used: timedelta = NO_TIME,
    clock: Clock | None = None,
) -> Deadline | None:
    """Return the deadline of a run that starts or continues now.

    Args:
        limit: A Deadline is returned as it is, however long the run was idle. A timedelta is
            running time.
        used: The running time that is used up already.
        clock: By default the system's.
    """
    if isinstance(limit, timedelta):
        return RunningTime(limit, used).deadline(clock=clock)
    return limit


@explain_methods()
@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit on the tokens that a run may use; at least one of the three is given."""

    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None

    def __post_init__(self) -> None:
        limits = asdict(self)
        if all(limit is None for limit in limits.values()):
            raise InvalidInputError(
                f"A Budget without limits: give at least one of {', '.join(limits)}."
            )
        for name, limit in limits.items():
            if limit is not None and not (type(limit) is int and 0 < limit <= _MAX_TOKENS):
                raise InvalidInputError(
                    f"Invalid Budget.{name} {limit!r}: expected an integer from 1 to {_MAX_TOKENS}."
                )

    @classmethod
    def from_limits(cls, limits: TokenLimits | None) -> Budget | None:
        """Make it from what a ledger recorded (`RunStarted.budget`); None if that is unlimited."""
        if limits is None or limits == TokenLimits():
            return None
        return cls(**structs.asdict(limits))

    def to_limits(self) -> TokenLimits:
        """Return the limits as a ledger records them."""
        return TokenLimits(**asdict(self))

    def check(self, consumed: Tokens, *, reserve: int = 0) -> None:
        """Raise BudgetExceededError for the first limit that is exceeded.

        Args:
            consumed: The tokens used so far.
            reserve: What the next step uses at least. Before a model call it is 1: a budget
                that is used up to the last token is not exceeded, but allows no further call.
        """
        for name, limit in asdict(self).items():
            used = getattr(consumed, name.removeprefix("max_"))
            if limit is not None and used + reserve > limit:
                raise BudgetExceededError(name, allowed=limit, used=used)


@dataclass(frozen=True, slots=True)
class TurnLimit:
    """A limit on a run's replies of the model.

    Attributes:
        most: The limit.
        before: Replies that are in no event of the run: those before a checkpoint file.
        run_id: The run, for the error.
    """

    most: int
    before: int = 0
    run_id: str = ""

    def check(self, replies: int) -> None:
        """Raise TurnLimitExceededError if no further reply is allowed."""
        used = self.before + replies
        if used >= self.most:
            raise TurnLimitExceededError(allowed=self.most, used=used, run_id=self.run_id)


def checked_turns(max_turns: int | None) -> int | None:
    """The limit itself; InvalidInputError if it is not a number from 1 on, or None."""
    if max_turns is not None and not (type(max_turns) is int and 0 < max_turns <= _MAX_TOKENS):
        raise InvalidInputError(
            f"Invalid max_turns {max_turns!r}: expected an integer from 1 to {_MAX_TOKENS}, or "
            "None for no limit."
        )
    return max_turns


@explain_methods()
class BudgetTracker:
    """Adds up the tokens of model calls and checks them against a budget; thread-safe.

    A run that continues after a restart passes what it has `consumed`: the total of its
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
        """The tokens used so far."""
        return self._consumed

    def record(self, usage: TokenUsage) -> None:
        """Add the tokens of one model call."""
        if min(structs.astuple(usage)) < 0:
            raise InvalidInputError(f"Invalid usage {usage!r}: expected counts of 0 or more.")
        with self._lock:
            self._consumed = self._consumed.plus(usage)

    def check(self, *, reserve: int = 0) -> None:
        """Raise BudgetExceededError if the budget is exceeded; see `Budget.check`."""
        self.budget.check(self._consumed, reserve=reserve)


def _require_aware(name: str, moment: datetime) -> None:
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidInputError(
            f"Invalid {name} {moment!r}: expected a datetime with a time zone, such as "
            "datetime.now(UTC) + timedelta(minutes=5)."
        )


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
