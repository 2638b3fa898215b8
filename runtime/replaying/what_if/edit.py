"""Edits an event: new values at JSON pointers into its data, where they may be changed.

Messages, tool results and decisions of people may be changed. What follows from them may not:
ids, versions, digests, and everything that the loop decides by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnledger.ledger import (
    ApprovalDecided,
    CheckpointCleared,
    CheckpointReached,
    CheckpointStored,
    Codec,
    CustomEvent,
    EvaluationStarted,
    Event,
    EventDecodeError,
    InnerMessage,
    InvalidEventError,
    InvalidInputError,
    MessageAppended,
    ModelReplied,
    ResourceSnapshotted,
    RunClaimed,
    RunStarted,
    SliceEventApplied,
    StateRestored,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
)
from turnledger.projections.persistent.lazy_json import pointer_parts
from turnledger.runtime.agent.schema.values import to_plain
from turnledger.runtime.errors import SchemaError

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_OF_A_MESSAGE: Mapping[str, tuple[str, ...]] = {
    "system": ("content",),
    "user": ("content", "parts"),
    "assistant": ("content", "parts", "tool_calls"),
    "tool": ("content", "value", "is_error", "error_type", "error_message", "retryable"),
}
_OF_AN_EVENT: Mapping[type[Event], tuple[str, ...]] = {
    RunStarted: ("request",),
    ModelReplied: ("usage", "finish_reason", "model", "provider_data", "value"),
    ToolCallCompleted: ("value",),
    ToolCallFailed: ("error_type", "error_message", "retryable"),
    ToolCallDecided: ("decision", "value", "text", "decided_by"),
    ApprovalDecided: ("decision", "text", "arguments", "decided_by"),
    SliceEventApplied: ("payload",),
    StateRestored: ("snapshot", "reason"),
    CustomEvent: ("data",),
}
_WHY_NOT: Mapping[type[Event], str] = {
    RunClaimed: "a claim belongs to the worker of the run, not to a fork.",
    CheckpointReached: "a checkpoint follows from the state: change what led to it.",
    CheckpointStored: "a checkpoint that was saved belongs to its run: change what led to it.",
    CheckpointCleared: "a fork begins without the checkpoints of the run.",
    EvaluationStarted: "it follows from the prompt: change the system message after it.",
    ResourceSnapshotted: "files are known by their digests: change the messages about them.",
}
_DECIDED_BY_THE_LOOP = "the loop decides this by itself: change what it was decided from."


class ChangeRefusedError(InvalidInputError):
    """An event can't be changed like this; nothing was written. `pointer` may be empty."""

    def __init__(self, why: str, *, version: int, pointer: str = "") -> None:
        self.version, self.pointer, self.why = version, pointer, why
        where = f"Event {version}, {pointer}" if pointer else f"Event {version}"
        super().__init__(f"{where}: {why}")


def changed_event(codec: Codec, event: Event, changes: Mapping[str, Any], version: int) -> Event:
    """The event with other values at these JSON pointers; ChangeRefusedError if it can't be."""
    if not changes:
        raise ChangeRefusedError(
            "there is nothing to change: give a JSON pointer.", version=version
        )
    parsed = [(pointer, _parts(pointer, version)) for pointer in changes]
    for pointer, parts in parsed:
        _check_open(event, pointer, parts, version)
    values = {pointer: _plain(value, pointer, version) for pointer, value in changes.items()}
    tag, data = codec.encode(event)
    plain = msgspec.json.decode(data)
    for pointer, parts in parsed:
        _put(plain, parts, values[pointer], pointer, version)
    try:
        changed = _decoded(codec, tag, plain)
    except (EventDecodeError, InvalidEventError) as error:
        guilty = [
            pointer
            for pointer, parts in parsed
            if not _fits_alone(codec, tag, data, parts, values[pointer])
        ]
        named = ", ".join(guilty or changes)
        raise ChangeRefusedError(str(error), version=version, pointer=named) from error
    if isinstance(changed, MessageAppended) and isinstance(event, MessageAppended):
        names = {parts[1] for _, parts in parsed}
        return MessageAppended(message=_sensible(changed.message, names, version))
    return changed


def _decoded(codec: Codec, tag: str, plain: Any) -> Event:
    event = codec.decode(tag, msgspec.json.encode(plain))
    codec.encode(event)
    return event


def _fits_alone(codec: Codec, tag: str, data: bytes, parts: Sequence[str], value: Any) -> bool:
    plain = msgspec.json.decode(data)
    try:
        _put(plain, parts, value, "", 0)
        _decoded(codec, tag, plain)
    except (InvalidInputError, EventDecodeError):
        return False
    return True


def _plain(value: Any, pointer: str, version: int) -> Any:
    try:
        return to_plain(value)
    except SchemaError as error:
        raise ChangeRefusedError(str(error), version=version, pointer=pointer) from error


# --- what may be changed -----------------------------------------------------------------


def editable(codec: Codec, event: Event, version: int) -> dict[str, Any]:
    """What may be changed of an event, as it is now, by JSON pointer.

    Args:
        codec: Encodes the event.
        event: The event.
        version: Its version, for the error.

    Raises:
        ChangeRefusedError: Nothing of it may be changed.
    """
    _check_changeable(event, "", version)
    plain = msgspec.json.decode(codec.encode(event)[1])
    found = {}
    for parts in _open_parts(event):
        value = plain
        for part in parts:
            value = value.get(part, msgspec.UNSET) if isinstance(value, dict) else msgspec.UNSET
        if value is not msgspec.UNSET:
            found["/" + "/".join(parts)] = value
    return found


def _parts(pointer: str, version: int) -> list[str]:
    try:
        parts = list(pointer_parts(pointer))
    except (ValueError, AttributeError, TypeError) as error:  # it may not even be text
        raise ChangeRefusedError(
            f"{error} Write /message/content, say.",
            version=version,
            pointer=str(pointer),
        ) from error
    if not parts:
        raise ChangeRefusedError(
            "an event's data can't be changed as a whole: name a part of it, as in "
            "/message/content.",
            version=version,
            pointer=pointer,
        )
    return parts


def _check_open(event: Event, pointer: str, parts: Sequence[str], version: int) -> None:
    """Refuse parts of an event that can't be chosen."""
    _check_changeable(event, pointer, version)
    open_to_change = _open_parts(event)
    if not any(parts[: len(one)] == one for one in open_to_change):
        named = ", ".join("/" + "/".join(one) for one in open_to_change)
        raise ChangeRefusedError(
            f"this can't be changed. Of this {event.tag} these can: {named}. Its type, its ids, "
            "its place and its times stay as they are.",
            version=version,
            pointer=pointer,
        )
    if parts[:2] == ["message", "tool_calls"] and parts[3:] in (["call_id"], ["status"]):
        raise ChangeRefusedError(
            "a call's id and status stay: set its name or arguments, or /message/tool_calls "
            "to other calls.",
            version=version,
            pointer=pointer,
        )


def _check_changeable(event: Event, pointer: str, version: int) -> None:
    """Refuse events of which nothing can be chosen."""
    if not _open_parts(event):
        why = _WHY_NOT.get(type(event), _DECIDED_BY_THE_LOOP)
        raise ChangeRefusedError(f"{event.tag}: {why}", version=version, pointer=pointer)
    if isinstance(event, RunStarted) and event.kind == "fork":
        raise ChangeRefusedError(
            "a fork goes on with the request of the run that it was made from: change that.",
            version=version,
            pointer=pointer,
        )


def _open_parts(event: Event) -> list[list[str]]:
    if isinstance(event, MessageAppended):
        return [["message", name] for name in _OF_A_MESSAGE[event.message.role]]
    return [[name] for name in _OF_AN_EVENT.get(type(event), ())]


def _sensible(message: InnerMessage, names: set[str], version: int) -> InnerMessage:
    """The changed message with the text of its parts; refused if no model could send it."""
    if message.parts and "content" in names and "parts" not in names:
        raise ChangeRefusedError(
            "what a model is shown of this message are its parts: set /message/parts/0/text, say.",
            version=version,
            pointer="/message/content",
        )
    if message.parts and "parts" in names and "content" not in names:
        message = msgspec.structs.replace(message, content=_text_of_parts(message))
    if message.role != "assistant":
        return message
    ids = [call.call_id for call in message.tool_calls]
    if len(set(ids)) != len(ids) or not all(c.name and c.call_id for c in message.tool_calls):
        raise ChangeRefusedError(
            "each call of a reply has a name, and an id of its own.",
            version=version,
            pointer="/message/tool_calls",
        )
    if not (message.content or message.parts or message.tool_calls):
        raise ChangeRefusedError(
            "a reply has a text or calls, and this would have neither.",
            version=version,
            pointer="/message/" + min(names),
        )
    return message


def _text_of_parts(message: InnerMessage) -> str:
    # Slow to import, and few changes need it.
    from turnledger.runtime.agent.messages.convert import built, from_inner_message

    said = from_inner_message(msgspec.structs.replace(message, tool_calls=()))
    place = {"evaluation_id": message.evaluation_id, "sequence": message.sequence}
    return built(said, place).content


# --- pointers ----------------------------------------------------------------------------


def _put(data: Any, parts: Sequence[str], value: Any, pointer: str, version: int) -> None:
    """Set the value at a pointer; what holds it must exist."""
    for depth, part in enumerate(parts[:-1]):
        if isinstance(data, dict):
            found = data.get(part)
        else:
            found = data[int(part)] if _has(data, part) else None
        if not isinstance(found, dict | list):
            place = "/" + "/".join(parts[: depth + 1])
            raise ChangeRefusedError(
                f"there is nothing to go into at {place}. Defaults are not recorded: "
                "set it as a whole.",
                version=version,
                pointer=pointer,
            )
        data = found
    last = parts[-1]
    if isinstance(data, dict):
        data[last] = value
    elif last == "-":
        data.append(value)
    elif _has(data, last):
        data[int(last)] = value
    else:
        raise ChangeRefusedError(
            f"the list there has {len(data)} items: name one from 0 on, or - to add one.",
            version=version,
            pointer=pointer,
        )


def _has(items: list[Any], part: str) -> bool:
    return _INDEX.fullmatch(part) is not None and int(part) < len(items)
