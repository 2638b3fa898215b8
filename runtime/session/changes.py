"""Changes of a session as events: what is recorded when state is changed, restored or moved.

Functions from what is wanted and what is known to the events that say so; nothing is recorded
here. A message is recorded once: one that the conversation has already is not appended again.
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
from turnledger.runtime.agent.schema.values import to_plain
from turnledger.runtime.errors import DataDecodeError, ReducerNotFoundError, SnapshotRestoreError
from turnledger.runtime.journal.journal import Known
from turnledger.runtime.session.snapshot import Snapshot, SnapshotSlice
from turnledger.runtime.session.types import MESSAGES, SliceTypes

# The events to record, when it is known what is there.
Change: TypeAlias = Callable[[Known], Sequence[Event]]
# What becomes of a snapshot's slices that nobody declared.
Undeclared: TypeAlias = Literal["refuse", "keep"]

# What makes up a session: its state, and what was said in it.
_STATE = (SliceEventApplied, StateRestored)
_SAID = (MessageAppended, ToolMessageAmended, EvaluationSuperseded)
# A slice that is larger than this is brought value by value, to stay below the limit of events.
_LARGE = 1024 * 1024


# --- one slice -----------------------------------------------------------------------


def appended(types: SliceTypes, kind: type, value: object) -> Change:
    """A value of the slice's own type is handed to its reducer; without one it is kept."""
    if type(value) is not kind:
        types.payload(kind, value)  # says what is wanted
    return applied(types, kind, value)


def applied(types: SliceTypes, kind: type, event: object) -> Change:
    """An event is handed to a slice's reducer."""
    slice_name, event_type = types.install(kind), type(event)
    if kind is InnerMessage and event_type is InnerMessage:
        message = _message(types, event)
        return lambda known: _lacking(known, [message])
    if not types.reduces(kind, event_type):
        raise ReducerNotFoundError(kind.__name__, event_type.__name__)
    change = SliceEventApplied(
        slice=slice_name,
        event_type=types.install(event_type),
        payload=types.payload(event_type, event),
    )
    return lambda known: [change]


def seeded(types: SliceTypes, kind: type, values: Iterable[object]) -> Change:
    """These values take the place of a slice's."""
    name, given = types.install(kind), tuple(values)
    if kind is InnerMessage:
        messages = [_message(types, one) for one in given]
        return lambda known: [*_lacking(known, messages), *_seed_of_messages(types, messages)]
    change = _operation(name, "seed", [types.payload(kind, value) for value in given])
    return lambda known: [change]


def cleared(types: SliceTypes, kind: type) -> Change:
    """A slice has no values any more; the messages of a conversation stay in it."""
    name = types.install(kind)
    if kind is InnerMessage and not types.records_messages:
        return lambda known: []
    return lambda known: [_operation(name, "clear")]


def _operation(
    name: str, operation: Literal["append", "seed", "clear"], payload: Any = None
) -> SliceEventApplied:
    return SliceEventApplied(slice=name, event_type=name, operation=operation, payload=payload)


def _message(types: SliceTypes, message: object) -> InnerMessage:
    found = types.value(MESSAGES, types.payload(InnerMessage, message))
    assert isinstance(found, InnerMessage)
    return found


def _lacking(known: Known, messages: Iterable[InnerMessage]) -> list[Event]:
    """Those of the messages that the conversation does not have."""
    new: dict[str, InnerMessage] = {}
    for message in messages:
        if not known.session.messages.get(str(message.message_id)):
            new.setdefault(str(message.message_id), message)
    return [MessageAppended(message=message) for message in new.values()]


def _seed_of_messages(types: SliceTypes, messages: Sequence[InnerMessage]) -> list[Event]:
    if not types.records_messages:
        return []
    return _brought(MESSAGES, [types.payload(InnerMessage, message) for message in messages])


# --- all of them ---------------------------------------------------------------------


def reset() -> Change:
    """All slices are empty; the conversation stays."""
    return lambda known: [StateRestored(snapshot={"slices": []}, reason="reset")]


def restored(types: SliceTypes, snapshot: Snapshot, *, undeclared: Undeclared = "refuse") -> Change:
    """State goes back to a snapshot; messages that are lacking are appended, none is removed."""
    if not isinstance(snapshot, Snapshot):
        raise SnapshotRestoreError(
            f"{type(snapshot).__name__} is no Snapshot; Snapshot.from_json reads a text."
        )
    messages: list[InnerMessage] = []
    slices: dict[str, list[Any]] = {}
    for one in snapshot.slices:
        name = _declared_name(types, one, undeclared)
        if name in slices:
            raise SnapshotRestoreError(
                f"The snapshot has the slice {one.slice_type!r} twice; nothing was changed."
            )
        slices[name] = list(one.items)
        values = [_fitting(types, name, item, place) for place, item in enumerate(one.items)]
        messages += [value for value in values if isinstance(value, InnerMessage)]
    slices.pop(MESSAGES, None)
    large = {name: items for name, items in slices.items() if _is_large(items)}

    def change(known: Known) -> list[Event]:
        small = {name: items for name, items in slices.items() if name not in large}
        gone = _gone_from_slice(types, known, messages)
        if gone:
            small[MESSAGES] = gone
        return [
            StateRestored(snapshot={"slices": [_entry(*one) for one in small.items()]}),
            *(event for name, items in large.items() for event in _brought(name, items)),
            *_lacking(known, messages),
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
            f"The snapshot has a slice {one.slice_type!r} that this session does not know; "
            "nothing was changed. Declare it first: session.install(TheClass)."
        )
    return name


def _entry(name: str, items: list[Any]) -> dict[str, Any]:
    """A slice as StateRestored holds it: by its declared name, never by an import path."""
    return {"slice_type": name, "item_type": name, "items": items}


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
    """The messages that the conversation has and the slice no longer does."""
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


def _brought(name: str, items: list[Any]) -> list[Event]:
    """A slice's values, in place of those that it has."""
    if not _is_large(items):
        return [_operation(name, "seed", items)]
    return [_operation(name, "clear"), *(_operation(name, "append", item) for item in items)]


# --- moving to another run -----------------------------------------------------------


def recorded_by_session(records: Iterable[Record]) -> list[Event]:
    """Of a session's own run, what another run needs to have the same session."""
    kinds = (*_STATE, *_SAID)
    return [record.event for record in records if isinstance(record.event, kinds)]


def opening(records: Iterable[Record]) -> list[Event]:
    """What a session recorded in a run, or the first that it goes on from, before all else.

    To be compared with what `create_session` records when it is called again.
    """
    found: list[Event] = []
    for record in records:
        if isinstance(record.event, (*_STATE, *_SAID)):
            found.append(record.event)
        elif not record.tag.startswith("run.") and record.tag != "custom":
            break
    return found


def state_of(known: Known, *, messages: bool = True) -> list[Event]:
    """A session's state, for a run that begins without any."""
    slices = known.run.slices
    return [
        event
        for name in sorted(slices.slices)
        if messages or name != MESSAGES
        for event in _brought(name, [to_plain(value) for value in slices.all(name)])
    ]


def said_in(records: Iterable[Record]) -> list[Event]:
    """The conversation that goes on at the end of these records."""
    found: list[Event] = []
    for record in records:
        event = record.event
        if isinstance(event, RunStarted) and event.kind != "fork":
            found = []
        elif isinstance(event, _SAID):
            found.append(event)
    return found
