"""SliceTypes: the types of a session's slices, their names and reducers, and their JSON.

A value is encoded as JSON and decoded again before it is recorded, so that what is read equals
what the fold of the ledger gives. What a reducer returns is checked as well.
"""

from __future__ import annotations

from operator import eq
from threading import RLock
from typing import Any

from turnledger.ledger import InnerMessage, InvalidInputError
from turnledger.ledger.errors import error_message, error_text, short_repr
from turnledger.projections import (
    Declarations,
    Reducer,
    ReducerContext,
    append_all,
    inner_message_append,
)
from turnledger.projections.persistent.lazy_json import pointer_parts
from turnledger.projections.run_state.json_diff import changes
from turnledger.projections.session.declarations import written
from turnledger.projections.session.reducers import declared_reducers
from turnledger.runtime.agent.plan import Plan
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
# The slices whose reducers come with the package; every session has them.
OWN_SLICES = (VisibilityOverrides, Plan)


class SliceTypes:
    """The declared types of a session's slices and events, with their reducers."""

    def __init__(self, declarations: Declarations | None = None) -> None:
        self.declarations = Declarations() if declarations is None else declarations
        self._lock = RLock()
        self._installed: dict[type, str] = {}
        self._reducers: dict[tuple[type, type], Reducer] = {}
        self.install(InnerMessage)
        for kind in OWN_SLICES:
            self.install(kind)

    def copy(self) -> SliceTypes:
        """Return an independent copy."""
        with self._lock:
            twin = SliceTypes(self.declarations.copy())
            twin._installed = dict(self._installed)
            twin._reducers = dict(self._reducers)
            return twin

    @property
    def records_messages(self) -> bool:
        """Whether messages are recorded as a slice."""
        return self.declarations.reducer(MESSAGES, MESSAGES) is not None

    # --- declaring ---

    def knows(self, kind: type) -> bool:
        """Whether a type is declared; InvalidInputError if it is not a class."""
        if not isinstance(kind, type):
            raise InvalidInputError(f"Invalid slice type {short_repr(kind)}: expected a class.")
        return kind in self._installed

    def registered(self, slice_type: type, event_type: type) -> Reducer | None:
        """Return the reducer that is registered; None if there is none."""
        return self._reducers.get((slice_type, event_type))

    def install(self, kind: type) -> str:
        """Declare a type, with the reducers that it marks by `@reducer`; its name."""
        if self.knows(kind):
            return self._installed[kind]
        with self._lock:
            name = self.declarations.declare(kind)
            for event_type, reducer in declared_reducers(kind).items():
                if (kind, event_type) not in self._reducers:
                    self.register(kind, event_type, reducer)
            self._installed[kind] = name
            return name

    def uninstall(self, kind: type) -> None:
        """Undo `install`, but for the name."""
        with self._lock:
            self._installed.pop(kind, None)
            for event_type in declared_reducers(kind):
                self.unregister(kind, event_type, None)

    def declare(self, kind: type, name: str) -> None:
        """Declare a type under a name of its own."""
        if not isinstance(name, str) or not name or ":" in name:
            raise InvalidInputError(f"Invalid slice name {name!r}: expected text without ':'.")
        with self._lock:
            if self._installed.get(kind, name) != name:
                raise InvalidInputError(
                    f"{kind!r} is in use already, as {self._installed[kind]!r}: declare the name "
                    "before the first use."
                )
            self.declarations.declare(kind, name=name)
            self.install(kind)

    def register(self, slice_type: type, event_type: type, reducer: Reducer) -> None:
        """Register the reducer of a slice for a type of events, in place of an earlier one."""
        if not isinstance(event_type, type):
            raise InvalidInputError(
                f"Invalid event type {short_repr(event_type)}: expected a class."
            )
        if not callable(reducer):
            raise InvalidInputError(f"Invalid reducer {short_repr(reducer)}: expected a function.")
        with self._lock:
            if self._reducers.get((slice_type, event_type)) is reducer:
                return
            self._reducers[slice_type, event_type] = reducer
            guard = _guarded(slice_type, event_type, reducer)
            self.declarations.register(slice_type, event_type, guard)

    def unregister(self, slice_type: type, event_type: type, before: Reducer | None) -> None:
        """Undo `register`: go back to the reducer `before`, or to none."""
        with self._lock:
            if before is not None:
                self.register(slice_type, event_type, before)
                return
            self._reducers.pop((slice_type, event_type), None)
            self.declarations.register(slice_type, event_type, None)

    def reduces(self, slice_type: type, event_type: type) -> bool:
        """Whether an event of this type can be applied to that slice."""
        return slice_type is event_type or (slice_type, event_type) in self._reducers

    def has_reducers(self, slice_type: type) -> bool:
        """Whether events change this slice by reducers."""
        return any(slice_type is known for known, _ in self._reducers)

    # --- values ---

    def payload(self, kind: type, value: object) -> Any:
        """Encode a value as it is recorded; an error if it would not round-trip."""
        name = self.install(kind)
        if type(value) is not kind:  # a subclass would be decoded as its base
            raise DataDecodeError(f"expected a {name}, got {_kind(value)}", path=name)
        try:
            plain = to_plain(value)
        except DataEncodeError as error:
            raise DataEncodeError(error.reason, path=_within(name, error.path)) from error
        decoded = _encodable(self.value(name, plain))
        if plain != decoded:
            path = _first_difference(plain, decoded, name)
            raise DataEncodeError(f"{_kind(value)} does not round-trip through JSON", path=path)
        return plain

    def value(self, name: str, plain: Any, place: str = "") -> Any:
        """Decode JSON as the type that is declared under a name; DataDecodeError says where."""
        try:
            return self.declarations.value(name, plain)
        except ValueError as error:
            found = _explained(self.declarations.type_of(name), plain, error)
            raise DataDecodeError(found.reason, path=_within(name + place, found.path)) from error

    def name_for(self, spelled: str) -> str | None:
        """Return the declared name of a type that a snapshot spells "module:Class", or None.

        A class that has moved to another module is found by its name.
        """
        declared = self.declarations.declared()
        for name, kind in declared.items():
            if spelling(kind) == spelled:
                return name
        last = spelled.rpartition(":")[2]
        return next((name for name in (last, last.rpartition(".")[2]) if name in declared), None)


def spelling(kind: type) -> str:
    """Return the spelling of a type in snapshots, "module:Class"."""
    return f"{kind.__module__}:{kind.__qualname__}"


def _within(name: str, path: str) -> str:
    """Prefix a path within a value by its slice."""
    return name + path if path.startswith("[") or not path else f"{name}.{path}"


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _encodable(value: object) -> Any:
    """Encode a slice's value as plain JSON; DataEncodeError if it has no digest."""
    plain = to_plain(value)
    try:
        written(value)
    except Exception as error:
        raise DataEncodeError(f"{_kind(value)}: {error_message(error)}") from error
    return plain


def _explained(kind: type | None, plain: Any, error: ValueError) -> SchemaError:
    """Find the path that an error is about, if `decode` fails as well."""
    if kind is not None:
        try:
            decode(kind, plain, allow_extra_keys=True)
        except SchemaError as placed:
            return placed
    return DataDecodeError(str(error))


def _first_difference(one: Any, other: Any, name: str) -> str:
    """Return the path of the first difference between two JSON values that are not equal."""
    change = next(changes(one, other, eq))  # here 1 equals 1.0
    path, value = name, one
    for part in pointer_parts(change.path):
        if isinstance(value, list):
            place = int(part)
            path, value = f"{path}[{place}]", value[place] if place < len(value) else None
        else:
            path, value = at_key(path, part), value.get(part)
    return path


def _guarded(slice_type: type, event_type: type, reducer: Reducer) -> Reducer:
    """Wrap a reducer: its errors name it, and its values are checked."""
    if reducer is append_all or (reducer is inner_message_append and slice_type is InnerMessage):
        return reducer  # the fold has a faster path for these
    reducer_name = getattr(reducer, "__qualname__", None) or type(reducer).__qualname__

    def failed(why: str) -> ReducerFailedError:
        return ReducerFailedError(slice_type.__name__, event_type.__name__, reducer_name, why)

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
                raise failed(f"it returned {_kind(value)} for a slice of {slice_type.__name__}")
            try:
                _encodable(value)
            except DataEncodeError as error:
                raise failed(f"it returned a value that is not JSON: {error}") from error
        return after

    return reduce
