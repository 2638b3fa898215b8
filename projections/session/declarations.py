"""Declarations of session state: types under names, reducers, and their JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from turnledger.ledger import InvalidInputError
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import error_text, short_repr
from turnledger.projections.digests import canonical
from turnledger.projections.session.reducers import Reducer, declared_reducers


@explain_methods()
class Declarations:
    """The slice and event types of a program, under their names, and their reducers.

    A class may fix its name in the ledger: `__ledger_name__ = "reviews.Plan"`. The package's own
    do so, as programs have classes called Plan too.
    """

    def __init__(self) -> None:
        # The names whose meaning changed, in order: a journal that folded when there were fewer
        # checks whether the new ones concern what it folded.
        self.changes: list[str] = []
        self._types: dict[str, type] = {}
        self._names: dict[type, str] = {}
        self._reducers: dict[tuple[str, str], Reducer] = {}

    def declare(self, kind: type, *, name: str | None = None) -> str:
        """Make a type known under a name.

        By default that is the one it has here, else its `__ledger_name__`, else the class's name.
        """
        if not isinstance(kind, type):
            raise InvalidInputError(f"Invalid type {short_repr(kind)}: expected a class.")
        # A subclass is another type: it does not inherit the name.
        fixed = vars(kind).get("__ledger_name__")
        known_as = name or self._names.get(kind) or fixed or kind.__name__
        if not isinstance(known_as, str) or ":" in known_as:
            raise InvalidInputError(
                f"Invalid name {short_repr(known_as)} of {kind!r}: expected text without ':'."
            )
        other = self._types.get(known_as)
        if other is not None and other is not kind:
            raise InvalidInputError(
                f"{known_as!r} is declared already, for {other!r}; give {kind!r} a name of its own."
            )
        if other is None:
            self._types[known_as] = kind
            self.changes.append(known_as)
        self._names[kind] = known_as
        return known_as

    def register(self, slice_type: type, event_type: type, reducer: Reducer | None) -> None:
        """Say how events of one type change a slice; the latest counts, and None takes it back."""
        names = (self.declare(slice_type), self.declare(event_type))
        if reducer is not None:
            self._reducers[names] = reducer
        else:
            self._reducers.pop(names, None)
        self.changes.append(names[0])

    def register_class(self, slice_type: type) -> None:
        """Register the reducers that a class declares with `@reducer(on=...)`."""
        for event_type, reducer in declared_reducers(slice_type).items():
            self.register(slice_type, event_type, reducer)

    def reducer(self, slice_name: str, event_name: str) -> Reducer | None:
        return self._reducers.get((slice_name, event_name))

    def is_reduced(self, name: str) -> bool:
        """Whether a reducer is registered for a slice or an event type of this name."""
        return any(name in pair for pair in self._reducers)

    def type_of(self, name: str) -> type | None:
        """The type that was declared under a name."""
        return self._types.get(name)

    def name_of(self, kind: type) -> str | None:
        """The name that a type was declared under."""
        return self._names.get(kind)

    def declared(self) -> dict[str, type]:
        """All types by their names."""
        return dict(self._types)

    def copy(self) -> Declarations:
        """The same declarations, to which others may be added."""
        twin = Declarations()
        twin.changes = list(self.changes)
        twin._types = dict(self._types)
        twin._names = dict(self._names)
        twin._reducers = dict(self._reducers)
        return twin

    def value(self, name: str, payload: Any) -> Any:
        """A payload as the type that was declared for it; plain JSON if none was.

        Raises ValueError (msgspec's or pydantic's) if it does not fit.
        """
        kind = self._types.get(name)
        if kind is None:
            return payload
        try:
            if hasattr(kind, "__pydantic_validator__") or hasattr(kind, "model_validate"):
                return _validated(kind, payload)
            return msgspec.convert(payload, kind, dec_hook=_validated)
        except ValueError:
            raise
        except Exception as error:
            # What a type's own code raises: __post_init__, a validator, an annotation.
            raise ValueError(error_text(error)) from error


def _validated(kind: Any, payload: Any) -> Any:
    """A payload as a type that pydantic reads, or that is made like one of its models."""
    validator = getattr(kind, "__pydantic_validator__", None)
    if validator is not None:
        # As JSON, which it is: text may be a date then, and a list a tuple, however strict.
        return validator.validate_json(msgspec.json.encode(payload))
    if hasattr(kind, "model_validate"):
        return kind.model_validate(payload)
    raise ValueError(f"{kind!r} can't be read from JSON")


def dumped(model: Any) -> Any:
    """A pydantic model as JSON, with what it has in sets in one order, not that of hashes."""
    plain = model.model_dump(mode="json", by_alias=True)
    if b"[" not in canonical(plain):
        return plain
    return _sets_in_order(plain, model.model_dump(by_alias=True))


def _sets_in_order(plain: Any, found: Any) -> Any:
    """JSON that was made of these values."""
    if isinstance(plain, list):
        if isinstance(found, set | frozenset):
            return sorted(plain, key=canonical)
        if isinstance(found, list | tuple) and len(found) == len(plain):
            return [_sets_in_order(*pair) for pair in zip(plain, found, strict=True)]
    elif isinstance(plain, dict) and isinstance(found, dict) and len(found) == len(plain):
        pairs = zip(plain.items(), found.values(), strict=True)
        return {key: _sets_in_order(item, value) for (key, item), value in pairs}
    return plain


def _hook(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return dumped(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_encoder = msgspec.json.Encoder(order="sorted", enc_hook=_hook)


def written(value: Any) -> bytes:
    """A slice's value as its one JSON text."""
    return _encoder.encode(value)


def plain(value: Any) -> Any:
    """A slice's value as plain JSON."""
    return msgspec.json.decode(_encoder.encode(value))
