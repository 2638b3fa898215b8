"""Queries on the messages of anything with `select_all(InnerMessage)`: a session, say."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from turnledger.ledger import InnerMessage, ToolCallRecord
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.events.messages import ToolCallStatus


class HasSlices(Protocol):
    """Something that has slices: a session."""

    def select_all(self, slice_type: Any, /) -> tuple[Any, ...]: ...


@explain_arguments
def get_inner_messages(
    session: HasSlices, evaluation_id: str | None = None
) -> tuple[InnerMessage, ...]:
    """The messages in order, of one evaluation or all; answered calls have their outcome."""
    messages = _in_order(session, evaluation_id)
    closed = _closed(messages)
    return tuple(_projected(place, m, closed) for place, m in enumerate(messages))


@explain_arguments
def get_latest_evaluation_id(session: HasSlices) -> str | None:
    """The evaluation whose system message is the latest (of equal times the later one), or None."""
    messages: tuple[InnerMessage, ...] = session.select_all(InnerMessage)
    system = [message for message in messages if message.role == "system"]
    if not system:
        return None
    return max(reversed(system), key=lambda message: message.created_at).evaluation_id


@explain_arguments
def get_pending_tool_calls(session: HasSlices, evaluation_id: str) -> tuple[ToolCallRecord, ...]:
    """The calls of an evaluation that no tool message answers."""
    messages = _in_order(session, evaluation_id)
    closed = _closed(messages)
    return tuple(
        call
        for place, message in enumerate(messages)
        if message.role == "assistant"
        for call in message.tool_calls
        if (place, call.call_id) not in closed
    )


def _in_order(session: HasSlices, evaluation_id: str | None) -> list[InnerMessage]:
    messages: tuple[InnerMessage, ...] = session.select_all(InnerMessage)
    return sorted(
        (m for m in messages if evaluation_id is None or m.evaluation_id == evaluation_id),
        key=lambda m: (m.evaluation_id, m.sequence),
    )


def _closed(messages: list[InnerMessage]) -> dict[tuple[int, str], ToolCallStatus]:
    """What tool messages say of the calls before them: by the asking message's place and call."""
    asked: dict[tuple[str, str], int] = {}
    closed: dict[tuple[int, str], ToolCallStatus] = {}
    for place, message in enumerate(messages):
        if message.role == "assistant":
            asked.update({(message.evaluation_id, c.call_id): place for c in message.tool_calls})
        elif message.role == "tool" and message.tool_call_id is not None:
            where = asked.get((message.evaluation_id, message.tool_call_id))
            if where is not None:
                status: ToolCallStatus = "failed" if message.is_error else "completed"
                closed.setdefault((where, message.tool_call_id), status)
    return closed


def _projected(
    place: int, message: InnerMessage, closed: dict[tuple[int, str], ToolCallStatus]
) -> InnerMessage:
    calls = tuple(
        msgspec.structs.replace(call, status=closed.get((place, call.call_id), call.status))
        if call.status == "pending"
        else call
        for call in message.tool_calls
    )
    if message.role != "assistant" or calls == message.tool_calls:
        return message
    return msgspec.structs.replace(message, tool_calls=calls)
