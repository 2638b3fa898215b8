"""The types of a session's state: declared names, reducers, and values in and out of JSON.

What goes into a slice is written as JSON and read back before it is recorded, so that what a
reader gets is what the fold of the ledger gives. What a reducer gives back is checked as well.
"""

from __future__ import annotations

from threading import RLock
from typing import Any

from turnledger.ledger import InnerMessage, InvalidInputError
from turnledger.ledger.errors import error_message, error_text
from turnledger.projections import (
    Declarations,
    Reducer,
    ReducerContext,
    append_all,
    inner_message_append,
)
from turnledger.projections.session.declarations import written
from turnledger.projections.session.reducers import declared_reducers
from turnledger.runtime.agent.schema.schema import decode
from turnledger.runtime.agent.schema.values import at_key, to_plain
from turnledger.runtime.agent.visibility import VisibilityOverrides
from turnledger.runtime.errors import (
    DataDecodeError,
    DataEncodeError,
    ReducerFailedError,
    SchemaError,
)

MESSAGES = "InnerMessage"


class SliceTypes:
    """What a session's slices and events are."""

    def __init__(self, declarations: Declarations | None = None) -> None:
        self.declarations = Declarations() if declarations is None else declarations
        self._lock = RLock()
        self._installed: dict[type, str] = {}
        self._given: dict[tuple[type, type], Reducer] = {}
        self.install(InnerMessage)
        self.install(VisibilityOverrides)

    def copy(self) -> SliceTypes:
        """The same types, to which others may be added."""
        with self._lock:
            twin = SliceTypes(self.declarations.copy())
            twin._installed = dict(self._installed)
            twin._given = dict(self._given)
            return twin

    @property
    def records_messages(self) -> bool:
        """Whether messages are a slice too."""
        return self.declarations.reducer(MESSAGES, MESSAGES) is not None

    # --- declaring ---

    def knows(self, kind: type) -> bool:
        """Whether a type is known already; InvalidInputError if it is no class."""
        if not isinstance(kind, type):
            raise InvalidInputError(f"A slice is named by a class, and {kind!r} is none.")
        return kind in self._installed

    def given(self, slice_type: type, event_type: type) -> Reducer | None:
        """The reducer that was registered."""
        return self._given.get((slice_type, event_type))

    def install(self, kind: type) -> str:
        """Make a type known, with the reducers that it declares; its name."""
        if self.knows(kind):
            return self._installed[kind]
        with self._lock:
            name = self.declarations.declare(kind)
            for event_type, reducer in declared_reducers(kind).items():
                if (kind, event_type) not in self._given:
                    self.register(kind, event_type, reducer)
            self._installed[kind] = name
            return name

    def uninstall(self, kind: type) -> None:
        """Undo an `install`, but for the name."""
        with self._lock:
            self._installed.pop(kind, None)
            for event_type in declared_reducers(kind):
                self.take_back(kind, event_type, None)

    def declare(self, kind: type, name: str) -> None:
        """Have a type known under a name of its own."""
        if not isinstance(name, str) or not name or ":" in name:
            raise InvalidInputError(f"A slice's name is text without ':', not {name!r}.")
        with self._lock:
            if self._installed.get(kind, name) != name:
                raise InvalidInputError(
                    f"{kind!r} is in use already, as {self._installed[kind]!r}: name it before."
                )
            self.declarations.declare(kind, name=name)
            self.install(kind)

    def register(self, slice_type: type, event_type: type, reducer: Reducer) -> None:
        """Say what an event does to a slice; the latest counts."""
        if not isinstance(event_type, type):
            raise InvalidInputError(f"An event is named by its class, and {event_type!r} is none.")
        if not callable(reducer):
            raise InvalidInputError(f"A reducer is a function, and {reducer!r} is none.")
        with self._lock:
            if self._given.get((slice_type, event_type)) is reducer:
                return
            self._given[slice_type, event_type] = reducer
            guard = _guarded(slice_type, event_type, reducer)
            self.declarations.register(slice_type, event_type, guard)

    def take_back(self, slice_type: type, event_type: type, before: Reducer | None) -> None:
        """Undo a `register`."""
        with self._lock:
            if before is not None:
                self.register(slice_type, event_type, before)
                return
            self._given.pop((slice_type, event_type), None)
            self.declarations.register(slice_type, event_type, None)

    def reduces(self, slice_type: type, event_type: type) -> bool:
        """Whether an event of this type can be handed to that slice."""
        return slice_type is event_type or (slice_type, event_type) in self._given

    # --- values ---

    def payload(self, kind: type, value: object) -> Any:
        """A value as the JSON that it is recorded as; an error if it would not come back."""
        name = self.install(kind)
        if type(value) is not kind:  # a subclass would not come back as what it is
            raise DataDecodeError(f"a {name} is wanted, this is {_kind(value)}", path=name)
        try:
            plain = to_plain(value)
        except DataEncodeError as error:
            raise DataEncodeError(error.reason, path=_within(name, error.path)) from error
        lost = _first_difference(plain, _kept(self.value(name, plain)), name)
        if lost is not None:
            raise DataEncodeError(f"{_kind(value)} does not come back as it was", path=lost)
        return plain

    def value(self, name: str, plain: Any, place: str = "") -> Any:
        """JSON as the type that is declared under a name; DataDecodeError says what is wrong."""
        try:
            return self.declarations.value(name, plain)
        except ValueError as error:
            found = _explained(self.declarations.type_of(name), plain, error)
            raise DataDecodeError(found.reason, path=_within(name + place, found.path)) from error

    def name_for(self, spelled: str) -> str | None:
        """The declared name of a type that a snapshot spells "module:Class"; None if unknown.

        A class that has moved to another module is found by its name.
        """
        declared = self.declarations.declared()
        for name, kind in declared.items():
            if spelling(kind) == spelled:
                return name
        last = spelled.rpartition(":")[2]
        return next((name for name in (last, last.rpartition(".")[2]) if name in declared), None)


def spelling(kind: type) -> str:
    """A type as snapshots spell it."""
    return f"{kind.__module__}:{kind.__qualname__}"


def _within(name: str, path: str) -> str:
    """A place in a value, as one in its slice."""
    return name + path if path.startswith("[") or not path else f"{name}.{path}"


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _kept(value: object) -> Any:
    """A slice's value as plain JSON, if digests can be made of it too."""
    plain = to_plain(value)
    try:
        written(value)
    except Exception as error:
        raise DataEncodeError(f"{_kind(value)}: {error_message(error)}") from error
    return plain


def _explained(kind: type | None, plain: Any, error: ValueError) -> SchemaError:
    """The same complaint with its place, if it is one that can be placed."""
    if kind is not None:
        try:
            decode(kind, plain, allow_extra_keys=True)
        except SchemaError as placed:
            return placed
    return DataDecodeError(str(error))


def _first_difference(one: Any, other: Any, path: str) -> str | None:
    """Where two JSON values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            if key not in one or key not in other:
                return at_key(path, key)
            found = _first_difference(one[key], other[key], at_key(path, key))
            if found is not None:
                return found
        return None
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            found = _first_difference(left, right, f"{path}[{place}]")
            if found is not None:
                return found
        return None
    return None if one == other else path


def _guarded(slice_type: type, event_type: type, reducer: Reducer) -> Reducer:
    """The reducer, with errors that say whose fault it is and values that a slice can hold."""
    if reducer is append_all or (reducer is inner_message_append and slice_type is InnerMessage):
        return reducer  # the fold knows these, and does them in one step
    called = getattr(reducer, "__qualname__", None) or type(reducer).__qualname__

    def failed(why: str) -> ReducerFailedError:
        return ReducerFailedError(slice_type.__name__, event_type.__name__, called, why)

    def reduce(
        slice_values: tuple[Any, ...], event: Any, *, context: ReducerContext
    ) -> tuple[Any, ...]:
        try:
            after = tuple(reducer(slice_values, event, context=context))
        except Exception as error:
            raise failed(error_text(error)) from error
        known = set(map(id, slice_values))
        for value in after:
            if id(value) in known:
                continue
            if not isinstance(value, slice_type):
                raise failed(f"it gave {_kind(value)} for a slice of {slice_type.__name__}")
            try:
                _kept(value)
            except DataEncodeError as error:
                raise failed(f"it gave a value that is not JSON: {error}") from error
        return after

    return reduce
