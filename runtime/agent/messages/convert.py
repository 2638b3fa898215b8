"""Converts Messages to InnerMessages, which a ledger records, and back, without loss.

`to_inner_messages` makes an InnerMessage of every Message, and `from_inner_message` reads it
as an equal Message. The other way round, every InnerMessage that a ledger holds is read as
Messages, and these give the identical record back. Nothing is recorded here.

    Message                           InnerMessage
    parts, one text                   role by the hint, content
    parts, anything else              role by the hint, parts; content for people
    option_call                       role "assistant", one of tool_calls
    option_result                     role "tool", value and error; content for the model
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, get_type_hints
from uuid import UUID

import msgspec
from pydantic import ValidationError

from turnledger.ledger.clock import Clock, new_message_id, to_datetime, utc_now
from turnledger.ledger.errors import InvalidInputError
from turnledger.ledger.events.messages import (
    InnerMessage,
    MediaContent,
    Role,
    TextContent,
    ToolCallRecord,
)
from turnledger.projections.digests import canonical
from turnledger.runtime.agent.messages.message import (
    RUNTIME_POLICY,
    MediaPart,
    Message,
    OptionCallPayload,
    OptionResultPayload,
    PartsPayload,
    RecordedAs,
    TextPart,
)
from turnledger.runtime.agent.schema.frozen import frozen_json
from turnledger.runtime.agent.schema.values import to_plain, to_text
from turnledger.runtime.agent.tools.call import parse_arguments
from turnledger.runtime.errors import DataDecodeError, DataEncodeError

# The fields of an InnerMessage that are its place; the others are its content.
_PLACE = (
    "evaluation_id",
    "sequence",
    "turn",
    "prompt_ns",
    "prompt_key",
    "created_at",
    "message_id",
)
# The content of an error result without a type and message.
FAILED = "The option failed."


def to_inner_messages(
    messages: Iterable[Message],
    *,
    evaluation_id: str | None = None,
    sequence: int = 0,
    turn: int = 0,
    prompt_ns: str = "",
    prompt_key: str = "",
    clock: Clock | None = None,
) -> list[InnerMessage]:
    """Convert messages to what a ledger records, in order.

    Messages that were read from a ledger give the record that they were read from, and new ones
    are numbered on from there. A message that was read is treated as new if it was changed, if
    others of its record are missing, or if `evaluation_id` is another than its own.

    Args:
        messages: The messages.
        evaluation_id: The evaluation of new messages.
        sequence: The number of the first new message.
        turn: How many replies there were before; each reply of the assistant begins a turn.
        prompt_ns: The prompt's namespace.
        prompt_key: The prompt's key.
        clock: Gives times and ids; by default the system's.
    """
    made: list[InnerMessage] = []
    speaking = False
    for group in _groups(messages):
        inner = _as_recorded(group)
        if inner is not None and evaluation_id in (None, inner.evaluation_id):
            made.append(inner)
            sequence, turn = max(sequence, inner.sequence + 1), max(turn, inner.turn)
            speaking = inner.role == "assistant"
            continue
        if evaluation_id is None:
            raise InvalidInputError(
                "A new or changed message needs an evaluation: "
                "to_inner_messages(messages, evaluation_id=...)."
            )
        for message in group:
            replies = role_of(message) == "assistant"
            turn += replies and not speaking
            speaking = replies
            place = {
                "evaluation_id": evaluation_id,
                "sequence": sequence,
                "turn": turn,
                "prompt_ns": prompt_ns,
                "prompt_key": prompt_key,
                "created_at": utc_now() if clock is None else to_datetime(clock.micros()),
                "message_id": new_message_id() if clock is None else UUID(clock.new_id()),
            }
            made.append(built([_as_new(message)], place))
            sequence += 1
    return made


def from_inner_message(inner: InnerMessage) -> tuple[Message, ...]:
    """Convert a recorded message to Messages: several if it has text and calls, or two calls.

    Every InnerMessage can be converted. If the record has no policy (records of a prompt's
    evaluation have none) it is the role's name, or that of the tool. The result of a call
    without a value is the message's content. Arguments that are not a JSON object are {} here,
    with the text in `record.raw_arguments`; media with an invalid web address becomes text.
    """
    place: dict[str, Any] = {name: getattr(inner, name) for name in _PLACE}
    policy, hint = inner.policy, inner.role_hint_for_llm
    if not policy:
        policy = (inner.tool_name or RUNTIME_POLICY) if inner.role == "tool" else inner.role
        hint = hint or inner.role
    payloads = payloads_of(inner)
    messages: list[Message] = []
    for number, (payload, call) in enumerate(payloads):
        message = Message(
            policy=policy, role_hint_for_llm=hint, step_num=inner.step_num, payload=payload
        )
        record = RecordedAs(
            **place,
            place=number,
            count=len(payloads),
            said=_digest(message),
            status="pending" if call is None else call.status,
            raw_arguments=None if call is None else raw_if_odd(call.arguments, payload),
        )
        messages.append(message.model_copy(update={"record": record}))
    unsaid = _unsaid(inner, built(messages, place))
    if unsaid:
        first = messages[0].record
        assert first is not None
        record = first.model_copy(update={"unsaid": unsaid})
        messages[0] = messages[0].model_copy(update={"record": record})
    return tuple(messages)


def from_inner_messages(inner: Iterable[InnerMessage]) -> list[Message]:
    """Convert recorded messages to Messages, in order."""
    return [message for one in inner for message in from_inner_message(one)]


# --- to a record -------------------------------------------------------------------


def _groups(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Group the messages of each record; every other message is a group of its own."""
    known, at = list(messages), 0
    while at < len(known):
        record = known[at].record
        group = known[at : at + (record.count if record is not None else 1)]
        if not _complete(group):
            group = known[at : at + 1]
        yield group
        at += len(group)


def _complete(group: Sequence[Message]) -> bool:
    """Whether these are all the Messages of one record."""
    first = group[0].record
    if first is None or len(group) != first.count:
        return False
    return all(
        one.record is not None
        and (one.record.message_id, one.record.place) == (first.message_id, n)
        for n, one in enumerate(group)
    )


def _as_recorded(group: Sequence[Message]) -> InnerMessage | None:
    """Return the record that these were read from; None if they are new or changed."""
    first = group[0].record
    if first is None or not _complete(group):
        return None
    if any(one.record is None or one.record.said != _digest(one) for one in group):
        return None
    plain = built(group, {name: getattr(first, name) for name in _PLACE})
    if not first.unsaid:
        return plain
    try:
        unsaid = msgspec.json.decode(first.unsaid, type=_Unsaid)
    except msgspec.DecodeError as error:
        raise InvalidInputError(
            f"The record of message {first.message_id} can't be read: {error}. "
            "without_record() makes a new message of it."
        ) from error
    found = msgspec.structs.asdict(unsaid).items()
    return msgspec.structs.replace(
        plain, **{name: value for name, value in found if value is not msgspec.UNSET}
    )


def _as_new(message: Message) -> Message:
    """Return the message without its place; the text of a call's arguments is kept."""
    record = message.record
    if record is None or record.raw_arguments is None or record.said != _digest(message):
        return message.without_record()
    return message.model_copy(update={"record": record.model_copy(update={"status": "pending"})})


# --- fields of a record that its Messages do not have ---------------------------------

_Unsaid = msgspec.defstruct(
    "_Unsaid",
    [
        (name, hint | msgspec.UnsetType, msgspec.UNSET)
        for name, hint in get_type_hints(InnerMessage, include_extras=True).items()
        if name not in _PLACE
    ],
    omit_defaults=True,
)


def _unsaid(inner: InnerMessage, other: InnerMessage) -> str:
    """Encode the recorded fields that differ from those built of the Messages."""
    found = {
        name: getattr(inner, name)
        for name in _Unsaid.__struct_fields__
        if getattr(inner, name) != getattr(other, name)
    }
    return msgspec.json.encode(_Unsaid(**found)).decode() if found else ""


def _digest(message: Message) -> str:
    """Digest of a message's content, to detect changes since it was read."""
    content = message.model_dump(mode="json", exclude={"record"}, exclude_defaults=True)
    return sha256(canonical(content)).hexdigest()


# --- Message to the fields of an InnerMessage, and back --------------------------------


def built(messages: Sequence[Message], place: dict[str, Any]) -> InnerMessage:
    """Make an InnerMessage of one message of any kind, or of text and calls."""
    first = messages[0]
    more: dict[str, Any]
    if isinstance(first.payload, OptionResultPayload):
        more = _result_fields(first.payload)
    else:
        more = _parts_fields(first.parts)
        more["tool_calls"] = tuple(
            _call(one, one.payload)
            for one in messages
            if isinstance(one.payload, OptionCallPayload)
        )
    return InnerMessage(
        role="assistant" if more.get("tool_calls") else role_of(first),
        policy=first.policy,
        step_num=first.step_num,
        role_hint_for_llm=first.role_hint_for_llm,
        **more,
        **place,
    )


def role_of(message: Message) -> Role:
    """Return the role that a message is recorded with."""
    if message.kind == "option_result":
        return "tool"
    if message.kind == "option_call":
        return "assistant"
    hint = message.role_hint_for_llm
    return "user" if hint is None or hint == "tool" else hint


def _parts_fields(parts: Sequence[TextPart | MediaPart]) -> dict[str, Any]:
    # A single text is stored once, in the content; an empty one would be lost there.
    if len(parts) == 1 and isinstance(parts[0], TextPart) and parts[0].text:
        return {"content": parts[0].text}
    texts = [part.text if isinstance(part, TextPart) else _label(part) for part in parts]
    return {"content": "\n\n".join(texts), "parts": tuple(_content(part) for part in parts)}


def _content(part: TextPart | MediaPart) -> TextContent | MediaContent:
    if isinstance(part, TextPart):
        return TextContent(part.text)
    url = None if part.url is None else str(part.url)
    return MediaContent(part.modality, url, part.blob, part.mime, part.prompt_hint, part.id)


def _label(part: MediaPart | MediaContent) -> str:
    return f"[{part.modality}: {part.prompt_hint}]" if part.prompt_hint else f"[{part.modality}]"


def _call(message: Message, payload: OptionCallPayload) -> ToolCallRecord:
    record, text = message.record, to_text(payload.arguments)
    if record is None:
        return ToolCallRecord(payload.invocation_id, payload.option_name, text)
    if record.raw_arguments is not None:
        text = record.raw_arguments
    return ToolCallRecord(payload.invocation_id, payload.option_name, text, record.status)


def _result_fields(payload: OptionResultPayload) -> dict[str, Any]:
    return {
        "content": _told(payload),
        "tool_call_id": payload.invocation_id,
        "tool_name": payload.option_name,
        "value": to_plain(payload.result),
        "is_error": payload.is_error,
        "error_type": payload.error_type,
        "error_message": payload.error_message,
        "retryable": payload.retryable,
    }


def _told(payload: OptionResultPayload) -> str:
    """Return the text of a result for a model."""
    if payload.is_error:
        return ": ".join(filter(None, [payload.error_type, payload.error_message])) or FAILED
    return payload.result if isinstance(payload.result, str) else to_text(payload.result)


def payloads_of(
    inner: InnerMessage,
) -> list[tuple[PartsPayload | OptionCallPayload | OptionResultPayload, ToolCallRecord | None]]:
    """Return the payloads of a record, each with the record's call if it is one."""
    if inner.role == "tool":
        return [(_result(inner), None)]
    parts = tuple(_part(part) for part in inner.parts)
    if not parts and inner.content:
        parts = (TextPart(text=inner.content),)
    calls = [(_option_call(call), call) for call in inner.tool_calls]
    if calls and not parts:
        return [*calls]
    return [(PartsPayload(parts=parts), None), *calls]


def _part(part: TextContent | MediaContent) -> TextPart | MediaPart:
    if isinstance(part, TextContent):
        return TextPart(text=part.text)
    try:
        return MediaPart.model_validate(msgspec.structs.asdict(part))
    except ValidationError:
        return TextPart(text=f"{_label(part)} {part.url or part.blob or ''}")


def _option_call(call: ToolCallRecord) -> OptionCallPayload:
    return OptionCallPayload(
        invocation_id=call.call_id,
        option_name=call.name,
        arguments=_read_arguments(call.arguments),
    )


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        return parse_arguments(text)
    except DataDecodeError:
        return {}


def raw_if_odd(text: str, payload: object) -> str | None:
    """Return the text of a call's arguments if encoding them again would give another."""
    assert isinstance(payload, OptionCallPayload)
    return None if text == to_text(payload.arguments) else text


def _result(inner: InnerMessage) -> OptionResultPayload:
    message = inner.error_message
    if inner.is_error and message is None and inner.error_type is None and inner.content != FAILED:
        message = inner.content
    return OptionResultPayload(
        invocation_id=inner.tool_call_id or "",
        option_name=inner.tool_name or "",
        result=_value(inner),
        is_error=inner.is_error,
        error_type=inner.error_type,
        error_message=message,
        retryable=inner.retryable,
    )


def _value(inner: InnerMessage) -> Any:
    if inner.value is None:
        return None if inner.is_error or inner.content == "null" else inner.content
    try:
        return frozen_json(inner.value)
    except DataEncodeError:
        # A ledger may allow deeper values than a message does.
        return inner.content
