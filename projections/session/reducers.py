"""Reducers: functions from the values of a slice and an event to new values.

A reducer is a pure function `(values, event, *, context) -> values`. `append_all`,
`replace_latest` and `inner_message_append` are folded in one step, however long the slice
is; every other one, the keyed ones too, returns a whole tuple and costs its slice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from turnledger.ledger import InnerMessage
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.errors import InvalidInputError

T = TypeVar("T")


class ReducerContext(msgspec.Struct, frozen=True, kw_only=True):
    """The event's place in the ledger; `session` is set while an agent runs."""

    run_id: str = ""
    version: int = 0
    recorded_at: datetime | None = None
    session: Any = None


class Reducer(Protocol):
    """A function that changes a slice."""

    def __call__(
        self, slice_values: tuple[Any, ...], event: Any, *, context: ReducerContext
    ) -> tuple[Any, ...]: ...


@explain_arguments
def append_all(slice_values: tuple[T, ...], event: T, *, context: ReducerContext) -> tuple[T, ...]:
    """Append the event to the slice."""
    return (*slice_values, event)


def replace_latest(
    slice_values: tuple[T, ...], event: T, *, context: ReducerContext
) -> tuple[T, ...]:
    """Replace the slice by the event."""
    return (event,)


def upsert_by(key: Callable[[Any], Hashable]) -> Reducer:
    """Keep one value for each key, each at the place of the first."""

    def upsert(
        slice_values: tuple[Any, ...], event: Any, *, context: ReducerContext
    ) -> tuple[Any, ...]:
        wanted = key(event)
        if not any(key(value) == wanted for value in slice_values):
            return (*slice_values, event)
        return tuple(event if key(value) == wanted else value for value in slice_values)

    return upsert


def replace_latest_by(key: Callable[[Any], Hashable]) -> Reducer:
    """Keep the latest value for each key, the latest at the end."""

    def replace(
        slice_values: tuple[Any, ...], event: Any, *, context: ReducerContext
    ) -> tuple[Any, ...]:
        wanted = key(event)
        return (*(value for value in slice_values if key(value) != wanted), event)

    return replace


@explain_arguments
def inner_message_append(
    slice_values: tuple[InnerMessage, ...], event: InnerMessage, *, context: ReducerContext
) -> tuple[InnerMessage, ...]:
    """Append a message, in its evaluation's order; one that is there already is ignored."""
    try:
        if any(message.message_id == event.message_id for message in slice_values):
            return slice_values
    except AttributeError as error:
        raise InvalidInputError(
            "Invalid slice_values: expected a tuple of InnerMessage."
        ) from error
    for place, message in enumerate(slice_values):
        if message.evaluation_id == event.evaluation_id and message.sequence > event.sequence:
            return (*slice_values[:place], event, *slice_values[place:])
    return (*slice_values, event)


class reducer(Generic[T]):  # noqa: N801 - used as a decorator
    """`@reducer(on=Event)` marks a method of a slice's class as its reducer for that event.

    The method takes the slice's latest value as `self` and gives the new one.
    """

    def __init__(self, *, on: type[T]) -> None:
        self.on = on

    def __call__(self, method: Callable[[Any, T], Any]) -> Callable[[Any, T], Any]:
        method.__reduces__ = self.on  # type: ignore[attr-defined]
        return method


def declared_reducers(slice_type: type) -> dict[type, Reducer]:
    """The reducers that a class declares with `@reducer`, by event type."""
    found: dict[type, Reducer] = {}
    for name in sorted(vars(slice_type)):
        on = getattr(vars(slice_type)[name], "__reduces__", None)
        if on is not None:
            found[on] = _latest_replaced_by(vars(slice_type)[name], slice_type)
    return found


def _latest_replaced_by(method: Callable[[Any, Any], Any], slice_type: type) -> Reducer:
    def reduce(
        slice_values: tuple[Any, ...], event: Any, *, context: ReducerContext
    ) -> tuple[Any, ...]:
        latest = slice_values[-1] if slice_values else slice_type()
        return (method(latest, event),)

    reduce.__qualname__ = method.__qualname__  # errors name the reducer by it
    return reduce
