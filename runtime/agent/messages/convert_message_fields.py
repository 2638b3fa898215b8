"""What a Message says, as the fields of an InnerMessage, and the other way round.

Here is what stands where; what a record holds beyond that, and which Messages belong to one
record, is the business of `runtime.agent.messages.convert`.

    Message                           InnerMessage
    parts, one text                   role by the hint, content
    parts, anything else              role by the hint, parts; content for people
    option_call                       role "assistant", one of tool_calls
    option_result                     role "tool", value and error; content for the model
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import ValidationError

from turnledger.ledger.events.messages import (
    InnerMessage,
    MediaContent,
    Role,
    TextContent,
    ToolCallRecord,
)
from turnledger.runtime.agent.messages.message import (
    MediaPart,
    Message,
    OptionCallPayload,
    OptionResultPayload,
    PartsPayload,
    TextPart,
)
from turnledger.runtime.agent.schema.frozen import frozen_json
from turnledger.runtime.agent.schema.values import to_plain, to_text
from turnledger.runtime.agent.tools.call import parse_arguments
from turnledger.runtime.errors import DataDecodeError, DataEncodeError

# What a model is told of an error that says nothing itself.
FAILED = "The option failed."


def built(messages: Sequence[Message], place: dict[str, Any]) -> InnerMessage:
    """An InnerMessage of what these say: one of any kind, or text and calls."""
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
    """The role that a message is recorded with."""
    if message.kind == "option_result":
        return "tool"
    if message.kind == "option_call":
        return "assistant"
    hint = message.role_hint_for_llm
    return "user" if hint is None or hint == "tool" else hint


def _parts_fields(parts: Sequence[TextPart | MediaPart]) -> dict[str, Any]:
    # One text stands once, in the content; an empty one would be taken for none there.
    if len(parts) == 1 and isinstance(parts[0], TextPart) and parts[0].text:
        return {"content": parts[0].text}
    said = [part.text if isinstance(part, TextPart) else _label(part) for part in parts]
    return {"content": "\n\n".join(said), "parts": tuple(_content(part) for part in parts)}


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
    """What a model is told of a result."""
    if payload.is_error:
        return ": ".join(filter(None, [payload.error_type, payload.error_message])) or FAILED
    return payload.result if isinstance(payload.result, str) else to_text(payload.result)


def payloads_of(
    inner: InnerMessage,
) -> list[tuple[PartsPayload | OptionCallPayload | OptionResultPayload, ToolCallRecord | None]]:
    """What a record says, with the record's call where it is one."""
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
    """The text of a call's arguments, if it is not the one that we would write."""
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
