"""Session changes as events: what is recorded when state is changed, restored or moved.

Functions from a wanted change and the present state to events; nothing is recorded here. A
message is recorded once: one that the conversation has already is not appended again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from turnledger.ledger import (
    EvaluationSuperseded,
    Event,
    InnerMessage,
    MessageAppended,
    Record,
    RunStarted,
    SliceEventApplied,
    StateRestored,
    ToolMessageAmended,
)
from turnledger.runtime.agent.schema.values import is_record, to_plain
from turnledger.runtime.errors import DataDecodeError, ReducerNotFoundError, SnapshotRestoreError
from turnledger.runtime.journal.known import Known
from turnledger.runtime.session.snapshot import Snapshot, SnapshotSlice
from turnledger.runtime.session.types import MESSAGES, SliceTypes

# Makes the events to record from the present state.
Change: TypeAlias = Callable[[Known], Sequence[Event]]
# What to do with a snapshot's slices of undeclared types.
Undeclared: TypeAlias = Literal["refuse", "keep"]

# The events that a session consists of: its state, and its conversation.
_STATE = (SliceEventApplied, StateRestored)
_CONVERSATION = (MessageAppended, ToolMessageAmended, EvaluationSuperseded)
# A larger slice is recorded value by value, to stay below the size limit of an event.
_LARGE = 1024 * 1024


# --- one slice -----------------------------------------------------------------------


def appended(types: SliceTypes, kind: type, value: object) -> Change:
    """Apply a value; without a reducer for its type, it is appended.

    A slice without reducers may hold values of another class than its own, all of the same.
    """
    item = type(value)
    if types.reduces(kind, item):
        return applied(types, kind, value)
    closed = kind is InnerMessage or types.has_reducers(kind) or issubclass(item, kind)
    if closed or not is_record(value):
        types.payload(kind, value)  # raises, with the expected type
    return _recorded(types, kind, value, "append")


def applied(types: SliceTypes, kind: type, event: object) -> Change:
    """Apply an event with the slice's reducer for its type."""
    if kind is InnerMessage and type(event) is InnerMessage:
        message = _message(types, event)
        return lambda known: _missing(known, [message])
    if not types.reduces(kind, type(event)):
        raise ReducerNotFoundError(kind.__name__, type(event).__name__)
    return _recorded(types, kind, event, "apply")


def _recorded(
    types: SliceTypes, kind: type, event: object, operation: Literal["apply", "append"]
) -> Change:
    name, event_name = types.install(kind), types.install(type(event))
    change = SliceEventApplied(
        slice=name,
        event_type=event_name,
        operation=operation,
        payload=types.payload(type(event), event),
    )

    def record(known: Known) -> list[Event]:
        found = known.run.slices.slices.get(name)
        is_reduced = types.registered(kind, type(event)) is not None
        if found is not None and not is_reduced and not found.takes(event_name):
            raise DataDecodeError(
                f"expected a {found.item}, as the values before it, got a {type(event).__name__}",
                path=name,
            )
        return [change]

    return record


def seeded(types: SliceTypes, kind: type, values: Iterable[object]) -> Change:
    """Replace the values of a slice."""
    name, given = types.install(kind), tuple(values)
    if kind is InnerMessage:
        messages = [_message(types, one) for one in given]
        return lambda known: [*_missing(known, messages), *_seed_of_messages(types, messages)]
    change = _operation(name, "seed", [types.payload(kind, value) for value in given])
    return lambda known: [change]


def cleared(types: SliceTypes, kind: type) -> Change:
    """Remove the values of a slice; the messages of the conversation stay in it."""
    name = types.install(kind)
    if kind is InnerMessage and not types.records_messages:
        return lambda known: []
    return lambda known: [_operation(name, "clear")]


def _operation(
    name: str,
    operation: Literal["append", "seed", "clear"],
    payload: Any = None,
    item_name: str = "",
) -> SliceEventApplied:
    return SliceEventApplied(
        slice=name, event_type=item_name or name, operation=operation, payload=payload
    )


def _message(types: SliceTypes, message: object) -> InnerMessage:
    found = types.value(MESSAGES, types.payload(InnerMessage, message))
    assert isinstance(found, InnerMessage)
    return found


def _missing(known: Known, messages: Iterable[InnerMessage]) -> list[Event]:
    """Append the messages that the conversation does not have."""
    new: dict[str, InnerMessage] = {}
    for message in messages:
        if not known.session.messages.get(str(message.message_id)):
            new.setdefault(str(message.message_id), message)
    return [MessageAppended(message=message) for message in new.values()]


def _seed_of_messages(types: SliceTypes, messages: Sequence[InnerMessage]) -> list[Event]:
    if not types.records_messages:
        return []
    return _replaced(MESSAGES, [types.payload(InnerMessage, message) for message in messages])


# --- all of them ---------------------------------------------------------------------


def reset() -> Change:
    """Remove the values of all slices; the conversation stays."""
    return lambda known: [StateRestored(snapshot={"slices": []}, reason="reset")]


def restored(types: SliceTypes, snapshot: Snapshot, *, undeclared: Undeclared = "refuse") -> Change:
    """Restore a snapshot; missing messages are appended, none is removed."""
    if not isinstance(snapshot, Snapshot):
        raise SnapshotRestoreError(
            f"Invalid snapshot: got {type(snapshot).__name__}, expected a Snapshot. "
            "Snapshot.from_json decodes text."
        )
    messages: list[InnerMessage] = []
    slices: dict[str, list[Any]] = {}
    item_names: dict[str, str] = {}
    for one in snapshot.slices:
        name = item_name = _declared_name(types, one, undeclared)
        if one.item_type != one.slice_type:
            item = SnapshotSlice(one.item_type, one.item_type)
            item_name = _declared_name(types, item, undeclared)
        item_names[name] = item_name
        if name in slices:
            raise SnapshotRestoreError(
                f"The snapshot has the slice {one.slice_type!r} twice; nothing was changed."
            )
        slices[name] = list(one.items)
        values = [_fitting(types, item_name, item, place) for place, item in enumerate(one.items)]
        messages += [value for value in values if isinstance(value, InnerMessage)]
    slices.pop(MESSAGES, None)
    large = {name: items for name, items in slices.items() if _is_large(items)}

    def change(known: Known) -> list[Event]:
        small = {name: items for name, items in slices.items() if name not in large}
        gone = _gone_from_slice(types, known, messages)
        if gone:
            small[MESSAGES] = gone
        return [
            StateRestored(
                snapshot={
                    "slices": [
                        {"slice_type": name, "item_type": item_names[name], "items": items}
                        for name, items in small.items()
                    ]
                }
            ),
            *(
                event
                for name, items in large.items()
                for event in _replaced(name, items, item_names[name])
            ),
            *_missing(known, messages),
        ]

    return change


def _declared_name(types: SliceTypes, one: SnapshotSlice, undeclared: Undeclared) -> str:
    if one.name and types.declarations.type_of(one.name) is not None:
        return one.name
    name = types.name_for(one.slice_type)
    if name is None and undeclared == "keep" and ":" not in one.declared_name:
        name = one.declared_name
    if not name:
        raise SnapshotRestoreError(
            f"The snapshot has a slice {one.slice_type!r} whose type is not declared; nothing was "
            "changed. Declare it first: session.install(TheClass)."
        )
    return name


def _fitting(types: SliceTypes, name: str, item: Any, place: int) -> Any:
    try:
        return types.value(name, item, f"[{place}]")
    except DataDecodeError as error:
        raise SnapshotRestoreError(
            f"The snapshot does not fit the declared types; nothing was changed. {error}"
        ) from error


def _gone_from_slice(
    types: SliceTypes, known: Known, messages: Iterable[InnerMessage]
) -> list[Any]:
    """Return the messages that the conversation has and the slice no longer does."""
    if not types.records_messages:
        return []
    there = {str(message.message_id) for message in known.run.slices.all(MESSAGES)}
    return [
        types.payload(InnerMessage, message)
        for message in messages
        if str(message.message_id) not in there
        and known.session.messages.get(str(message.message_id))
    ]


def _is_large(items: list[Any]) -> bool:
    return len(msgspec.json.encode(items)) > _LARGE


def _replaced(name: str, items: list[Any], item_name: str = "") -> list[Event]:
    """Replace a slice's values: by one event, or one for each value if they are large."""
    if not _is_large(items):
        return [_operation(name, "seed", items, item_name)]
    appended = (_operation(name, "append", item, item_name) for item in items)
    return [_operation(name, "clear"), *appended]


# --- moving to another run -----------------------------------------------------------


def recorded_by_session(records: Iterable[Record]) -> list[Event]:
    """Return the events of a session's own run with which another run has the same session."""
    kinds = (*_STATE, *_CONVERSATION)
    return [record.event for record in records if isinstance(record.event, kinds)]


def state_of(known: Known, *, messages: bool = True) -> list[Event]:
    """Return events that give a new run this state."""
    slices = known.run.slices
    return [
        event
        for name in sorted(slices.slices)
        if messages or name != MESSAGES
        for event in _replaced(
            name, [to_plain(value) for value in slices.all(name)], slices.slices[name].item
        )
    ]


def conversation_in(records: Iterable[Record]) -> list[Event]:
    """Return the events of the conversation that is current at the end of these records."""
    found: list[Event] = []
    for record in records:
        event = record.event
        if isinstance(event, RunStarted) and not event.keeps_conversation:
            found = []
        elif isinstance(event, _CONVERSATION):
            found.append(event)
    return found
