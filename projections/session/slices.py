"""View of session state: slices of typed values, folded through declared reducers.

Undeclared types are folded as plain JSON; a payload that does not fit its type is only counted.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar, final

import msgspec

from turnledger.ledger import (
    Event,
    InnerMessage,
    MessageAppended,
    Record,
    RunStarted,
    SliceEventApplied,
    StateRestored,
)
from turnledger.ledger.arguments import explain_methods
from turnledger.projections.digests import combine, list_add
from turnledger.projections.persistent.containers import PersistentMap
from turnledger.projections.persistent.hashed import HashedList
from turnledger.projections.persistent.lazy_json import lazy_list, plain_json
from turnledger.projections.projection import BulkProjection, Folding, Takes
from turnledger.projections.session.declarations import Declarations, plain, written
from turnledger.projections.session.reducers import ReducerContext, append_all, inner_message_append

T = TypeVar("T")


class _Known(msgspec.Struct, frozen=True):
    """Index of a slice of messages: their ids, and each evaluation's highest sequence."""

    ids: PersistentMap[bool] = PersistentMap()
    highest: PersistentMap[int] = PersistentMap()

    def plus(self, message: InnerMessage) -> _Known:
        evaluation, sequence = message.evaluation_id, message.sequence
        highest = self.highest
        if sequence > (highest.get(evaluation) or -1):
            highest = highest.put(evaluation, sequence)
        return _Known(self.ids.put(str(message.message_id), True), highest)


class PlainValue(dict[str, Any]):
    """A value of a type that this program has not declared: JSON, read by key or attribute."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the recorded value has no {name!r}") from None


class Slice(Generic[T]):
    """The values of one type; their tuple is made on first read.

    `item` is the declared name of that type, which need not be the slice's own.
    """

    __slots__ = ("_all", "item", "items", "known")

    def __init__(self, items: HashedList[T], item: str, known: _Known | None = None) -> None:
        self.items = items
        self.item = item
        self.known = known
        self._all: tuple[T, ...] | None = None

    def all(self) -> tuple[T, ...]:
        if self._all is None:
            self._all = self.items.to_tuple()
        return self._all

    @property
    def latest(self) -> T | None:
        return self.items.last

    def takes(self, item: str) -> bool:
        """Whether a value of this type can be appended: all are of one type."""
        return self.item == item or not len(self.items)


def _add_value(running: bytes, value: Any) -> bytes:
    return list_add(running, written(value))


def _no_items(name: str) -> HashedList[Any]:
    return HashedList(name, _add_value)


def _slice_of(name: str, values: tuple[Any, ...], item: str = "") -> Slice[Any]:
    return Slice(_no_items(name).extend(values), item or name)


@final
class SlicesState(msgspec.Struct, frozen=True):
    """The slices by name; `unapplied` events have no declared reducer, or do not fit their type."""

    slices: dict[str, Slice[Any]] = {}
    unapplied: int = 0

    def all(self, name: str) -> tuple[Any, ...]:
        found = self.slices.get(name)
        return found.all() if found is not None else ()


@explain_methods(skip=("apply", "apply_all", "begin"))
class SessionSlices(BulkProjection[SlicesState]):
    """Folds session state."""

    name = "slices"
    reads = (RunStarted, SliceEventApplied, StateRestored, MessageAppended)

    def __init__(self, declarations: Declarations | None = None) -> None:
        self._declared = declarations or Declarations()

    @property
    def _records_messages(self) -> bool:
        return self._declared.reducer("InnerMessage", "InnerMessage") is not None

    def initial(self) -> SlicesState:
        return SlicesState()

    def begin(self, state: SlicesState) -> _Folding:
        return _Folding(self, state)

    def applied(self, state: SlicesState, event: Event, record: Record) -> SlicesState:
        """The state after an event of the kinds in `reads`."""
        if isinstance(event, MessageAppended):
            return self._reduce(state, "InnerMessage", "InnerMessage", event.message, record)
        if isinstance(event, SliceEventApplied):
            try:
                value = self._value(event)
            except ValueError:
                return msgspec.structs.replace(state, unapplied=state.unapplied + 1)
            return self._change(state, event, value, record)
        if isinstance(event, StateRestored):
            return self._restore(state, event.snapshot)
        assert isinstance(event, RunStarted)
        return self.initial() if event.kind == "run" else state

    def retyped(self, state: SlicesState, name: str) -> SlicesState | None:
        """The state with a slice of plain JSON in the type that was declared for it since.

        It is what folding again would give, provided that the slice's values were appended and
        never replaced; None if folding again may give something else.
        """
        found = state.slices.get(name)
        if found is None or state.unapplied or self._declared.is_reduced(name):
            return None
        if found.item != name:
            return state
        try:
            values = self._values(name, list(found.all()), name)
        except ValueError:
            return None  # values that do not fit are not in the slice, and are counted
        return _with(state, name, _slice_of(name, values))

    def _value(self, event: SliceEventApplied) -> Any:
        """What an event brings, in the declared types; ValueError if it does not fit them."""
        match event.operation:
            case "clear":
                return ()
            case "seed":
                items = [] if event.payload is None else event.payload
                return self._values(event.slice, items, event.event_type)
            case "append":
                return self._item(event.slice, event.payload, event.event_type)
            case "apply":
                return self._declared.value(event.event_type, event.payload)

    def _values(self, name: str, items: Any, item_name: str) -> tuple[Any, ...]:
        if not isinstance(items, list):
            raise ValueError(f"{name}: the values of a slice are a list")
        return tuple(self._item(name, item, item_name) for item in items)

    def _item(self, name: str, payload: Any, item_name: str) -> Any:
        value = self._declared.value(item_name, payload)
        return PlainValue(value) if item_name != name and type(value) is dict else value

    def _change(
        self, state: SlicesState, event: SliceEventApplied, value: Any, record: Record
    ) -> SlicesState:
        name = event.slice
        match event.operation:
            case "clear" | "seed":
                return _with(state, name, _slice_of(name, value, event.event_type))
            case "append":
                return _appended(state, name, value, event.event_type)
            case "apply":
                return self._reduce(state, name, event.event_type, value, record)

    def _reduce(
        self, state: SlicesState, name: str, event_name: str, value: Any, record: Record
    ) -> SlicesState:
        reducer = self._declared.reducer(name, event_name)
        if reducer is None and name != event_name:
            return msgspec.structs.replace(state, unapplied=state.unapplied + 1)
        if reducer is None:
            return _appended(state, name, value, name)
        if reducer is append_all:
            return _with(state, name, _longer(state.slices.get(name), name, value, name))
        if reducer is inner_message_append:
            return _message_appended(state, name, value)
        context = ReducerContext(
            run_id=record.run_key, version=record.version, recorded_at=record.recorded_at
        )
        before = state.all(name)
        after = tuple(reducer(before, value, context=context))
        return state if after is before else _with(state, name, _slice_of(name, after))

    def _restore(self, state: SlicesState, snapshot: Any) -> SlicesState:
        """State goes back; messages are never removed, and those that are missing are added."""
        slices = {name: s for name, s in state.slices.items() if name == "InnerMessage"}
        restored = SlicesState(slices, state.unapplied)
        for name, items, item_name in slices_in(snapshot):
            try:
                values = self._values(name, items, item_name)
            except ValueError:
                restored = msgspec.structs.replace(restored, unapplied=restored.unapplied + 1)
                continue
            if name != "InnerMessage":
                restored = _with(restored, name, _slice_of(name, values, item_name))
                continue
            for message in values:
                if isinstance(message, InnerMessage):
                    restored = _message_appended(restored, name, message)
        return restored

    def to_json(self, state: SlicesState) -> Any:
        return plain_json(self.lazy_json(state))

    def lazy_json(self, state: SlicesState) -> Any:
        return {name: lazy_list(state.slices[name].items, plain) for name in sorted(state.slices)}

    def digest(self, state: SlicesState) -> bytes:
        return combine(
            "slices",
            *(
                part
                for name in sorted(state.slices)
                for part in (name.encode(), state.slices[name].items.digest)
            ),
            b"%d" % state.unapplied,
        )

    def outcome(self, state: SlicesState) -> bytes:
        parts = (
            part
            for name in sorted(state.slices)
            if name != "InnerMessage"
            for part in (name.encode(), state.slices[name].items.digest)
        )
        return combine("slices.outcome", *parts)


class _Folding(Folding[SlicesState]):
    """Slices while records are folded."""

    def __init__(self, view: SessionSlices, state: SlicesState) -> None:
        self._view = view
        self._state = state
        self._records_messages = view._records_messages

    def _take(self, event: Event, record: Record) -> None:
        self._state = self._view.applied(self._state, event, record)

    def _message(self, event: MessageAppended, record: Record) -> None:
        if self._records_messages:
            self._take(event, record)

    def done(self) -> SlicesState:
        return self._state

    takes: ClassVar[Takes] = {
        RunStarted: _take,
        SliceEventApplied: _take,
        StateRestored: _take,
        MessageAppended: _message,
    }


def slices_in(snapshot: Any) -> list[tuple[str, Any, str]]:
    """The slices of a snapshot: name, items and the items' type, without modules."""
    slices = snapshot.get("slices") if isinstance(snapshot, dict) else None
    found = []
    for entry in slices if isinstance(slices, list) else []:
        if isinstance(entry, dict):
            spelled = str(entry.get("slice_type", ""))
            names = (spelled, str(entry.get("item_type", spelled)))
            name, item_name = (one.rpartition(":")[2] for one in names)
            found.append((name, entry.get("items", []), item_name))
    return found


def _with(state: SlicesState, name: str, changed: Slice[Any]) -> SlicesState:
    return SlicesState({**state.slices, name: changed}, state.unapplied)


def _longer(known: Slice[Any] | None, name: str, value: Any, item_name: str) -> Slice[Any]:
    items = known.items if known is not None else _no_items(name)
    return Slice(items.append(value), item_name)


def _appended(state: SlicesState, name: str, value: Any, item_name: str) -> SlicesState:
    """One more value of a type; it is not applied if the values before it are of another."""
    known = state.slices.get(name)
    if known is not None and not known.takes(item_name):
        return msgspec.structs.replace(state, unapplied=state.unapplied + 1)
    return _with(state, name, _longer(known, name, value, item_name))


def _message_appended(state: SlicesState, name: str, message: InnerMessage) -> SlicesState:
    """`inner_message_append` in one step, except for a message out of order."""
    found = state.slices.get(name) or Slice(_no_items(name), name, _Known())
    known = found.known
    if known is None:
        known = _Known()
        for one in found.all():
            known = known.plus(one)
    if known.ids.get(str(message.message_id)):
        return state
    if (known.highest.get(message.evaluation_id) or 0) <= message.sequence:
        return _with(state, name, Slice(found.items.append(message), name, known.plus(message)))
    after = inner_message_append(found.all(), message, context=ReducerContext())
    return _with(state, name, Slice(_slice_of(name, after).items, name, known.plus(message)))
