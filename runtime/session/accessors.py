"""How a session's state is read and changed: `session[Plan]`, and the older `mutate(Plan)`.

    session[Plan].append(Plan(steps=("read", "write")))
    session[Plan].latest()
    session[Plan].register(StepDone, reducer)
    session[Plan].apply(StepDone("read"))

Each change is one event; what it needs (a reducer, JSON, the declared type) is checked before
anything is recorded. Values that are read are the fold's own: look at them, don't change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from turnledger.runtime.session import changes
from turnledger.runtime.session.snapshot import Snapshot

if TYPE_CHECKING:
    from turnledger.runtime.session.session import Session

T = TypeVar("T")
E = TypeVar("E")


class _Slice(Generic[T]):
    """What both spellings have in common."""

    def __init__(self, session: Session, kind: type[T]) -> None:
        self._session = session
        self._kind = kind
        self._types = session.types
        self._name = session.install(kind)

    def append(self, value: T) -> None:
        """Hand a value of the slice's own type to its reducer; without one it is kept."""
        self._session.change(changes.appended(self._types, self._kind, value))

    def seed(self, values: Iterable[T]) -> None:
        """Have these values in place of those that there are."""
        self._session.change(changes.seeded(self._types, self._kind, values))

    def clear(self) -> None:
        """Have no values any more."""
        self._session.change(changes.cleared(self._types, self._kind))

    def register(self, event_type: type[E], reducer: Callable[..., Iterable[T]]) -> None:
        """Say what events of a type do to this slice; the latest counts.

        What was recorded before is folded again with it. If it fails on that, it is taken back.
        """
        self._session.register(self._kind, event_type, reducer)


class SliceView(_Slice[T]):
    """`session[T]`: one slice of a session."""

    def all(self) -> tuple[T, ...]:
        """Its values, the oldest first."""
        return self._session.select_all(self._kind)

    def latest(self) -> T | None:
        """The last of its values; None if there is none."""
        return self._session.select_latest(self._kind)

    def where(self, predicate: Callable[[T], object]) -> tuple[T, ...]:
        """Those of its values that a predicate is true of."""
        return tuple(value for value in self.all() if predicate(value))

    def apply(self, event: object) -> None:
        """Hand an event to the reducer that is registered for its type."""
        self._session.change(changes.applied(self._types, self._kind, event))

    def __repr__(self) -> str:
        return f"<slice {self._name} of {self._session!r}>"


class SliceMutation(_Slice[T]):
    """`session.mutate(T)`: the changes of one slice."""

    def dispatch(self, event: object) -> None:
        """Hand an event to the reducer that is registered for its type."""
        self._session.change(changes.applied(self._types, self._kind, event))


class SessionMutation:
    """`session.mutate()`: the changes of all slices at once."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def rollback(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot. Messages are never removed; those that are lacking come back."""
        self._session.restore(snapshot)

    def reset(self) -> None:
        """Have no values in any slice. The conversation stays."""
        self._session.change(changes.reset())
