"""Conversation: LangChain's messages as the ledger records messages, for the views of a run.

Those that enter a thread's state are events beside its checkpoints. Those of an agent without a
thread are turns, of which `Conversation` finds what is new in a request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from turnledger.ledger import (
    Event,
    InnerMessage,
    MessageAppended,
    ModelReplied,
    TokenUsage,
    ToolCallRecord,
)
from turnledger.ledger.events.messages import Role
from turnledger.projections import ChatTurn, TextBlock, ToolResultBlock, ToolUseBlock

# A thread's conversation is one evaluation.
EVALUATION = "langgraph"
_ROLES: dict[str, Role] = {"ai": "assistant", "system": "system", "tool": "tool"}


class Place(NamedTuple):
    """Where a conversation is: the number of the next message, and how many replies came."""

    sequence: int = 0
    turn: int = 0


def conversation_events(
    messages: Iterable[BaseMessage], place: Place, replies: Collection[str]
) -> Iterator[Event]:
    """The events of messages that entered the state.

    Args:
        messages: The messages, in their order.
        place: Where the conversation was before.
        replies: Ids of messages whose ModelReplied is recorded already.
    """
    sequence, turn = place
    for message in messages:
        is_reply = isinstance(message, AIMessage)
        turn += is_reply
        recorded = _message(message, sequence, turn)
        sequence += 1
        yield MessageAppended(message=recorded)
        if isinstance(message, AIMessage) and message.id not in replies:
            yield from _replied(message, recorded)


def _message(message: BaseMessage, sequence: int, turn: int) -> InnerMessage:
    more: dict[str, Any] = {}
    if isinstance(message, AIMessage):
        more["tool_calls"] = tuple(
            ToolCallRecord(call["id"] or "", call["name"], json.dumps(call["args"]))
            for call in message.tool_calls
        )
    elif isinstance(message, ToolMessage):
        more["tool_call_id"] = message.tool_call_id
        more["tool_name"] = message.name
        more["is_error"] = message.status == "error"
    return InnerMessage(
        role=_ROLES.get(message.type, "user"),
        content=str(message.text),  # LangChain's text is a subclass of str
        evaluation_id=EVALUATION,
        sequence=sequence,
        turn=turn,
        **more,
    )


def _replied(message: AIMessage, recorded: InnerMessage) -> Iterator[ModelReplied]:
    about = message.response_metadata
    model = about.get("model_name") or about.get("model") or ""
    if message.usage_metadata is None and not model:
        return  # a message that the program wrote itself, as far as can be known
    yield ModelReplied(
        evaluation_id=EVALUATION,
        turn=recorded.turn,
        message_id=recorded.message_id,
        usage=usage_of(message),
        finish_reason=str(about.get("finish_reason") or about.get("stop_reason") or ""),
        model=str(model),
    )


def usage_of(message: AIMessage) -> TokenUsage:
    """The tokens that a reply says it took."""
    used: Any = message.usage_metadata or {}
    return TokenUsage(
        input_tokens=used.get("input_tokens") or 0,
        output_tokens=used.get("output_tokens") or 0,
        cached_tokens=(used.get("input_token_details") or {}).get("cache_read") or 0,
        reasoning_tokens=(used.get("output_token_details") or {}).get("reasoning") or 0,
    )


def turns_of(messages: Iterable[BaseMessage], clean: Callable[[str], str]) -> Iterator[ChatTurn]:
    """Messages as turns, without system texts.

    Args:
        messages: The messages, in their order.
        clean: Takes secrets out of a text: turns are compared with what is on record.
    """
    for message in messages:
        text = clean(str(message.text))
        if isinstance(message, AIMessage):
            calls = [
                ToolUseBlock(call["id"] or "", call["name"], clean(json.dumps(call["args"])))
                for call in message.tool_calls
            ]
            yield ChatTurn("assistant", (*([TextBlock(text)] if text else ()), *calls))
        elif isinstance(message, ToolMessage):
            result = ToolResultBlock(message.tool_call_id, text, message.status == "error")
            yield ChatTurn("user", (result,))
        elif not isinstance(message, SystemMessage):
            yield ChatTurn("user", (TextBlock(text),))
