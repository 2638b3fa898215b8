"""A history without its messages: what a stored fold keeps of a conversation.

Digests stand for what was said. A history that is thawed goes on like the whole one, with the
same digests and the same open calls; what was said before is not in it (NotLoadedError).
"""

from __future__ import annotations

from typing import final

import msgspec

from turnledger.projections.digests import list_add
from turnledger.projections.history.blocks import ToolResultBlock, ToolUseBlock
from turnledger.projections.history.message_history import MessageHistory, _System
from turnledger.projections.history.turns import (
    NO_BLOCKS,
    NO_CALLS,
    NO_RESULTS,
    AssistantTurn,
    UserTurn,
    chain_until,
    sum_results,
)
from turnledger.projections.persistent.containers import accumulated, cold_stack, put_in


class ColdAssistant(msgspec.Struct, frozen=True):
    """An assistant's turn: its place, the digests of its blocks and of what was before it."""

    number: int
    led: bool
    before: bytes
    blocks: bytes
    calls: tuple[ToolUseBlock, ...]


class ColdUser(msgspec.Struct, frozen=True):
    """A user's turn: what was asked, which calls have a result, the digests of all else."""

    asked: ColdAssistant | None
    led: bool
    results: tuple[str, ...]
    arrived: str
    blocks: bytes


@final
class ColdHistory(msgspec.Struct, frozen=True):
    """A history in a few hundred bytes, however long it is."""

    system: bytes
    user: ColdUser | None = None
    assistant: ColdAssistant | None = None
    repaired: bool = False


def chilled(history: MessageHistory) -> ColdHistory:
    """What is kept of a history."""
    tip = history._tip
    return ColdHistory(
        history._system.digest(),
        _cold_user(tip) if isinstance(tip, UserTurn) else None,
        _cold_assistant(tip) if isinstance(tip, AssistantTurn) else None,
        history._repairs is not None,
    )


def thawed(cold: ColdHistory) -> MessageHistory:
    """A history that goes on from there."""
    tip: UserTurn | AssistantTurn | None = None
    if cold.user is not None:
        tip = _user(cold.user)
    elif cold.assistant is not None:
        tip = _assistant(cold.assistant)
    repairs = cold_stack(None) if cold.repaired else None
    history = MessageHistory(tip, _System(None, cold.system), repairs)
    history.is_cold = True
    return history


def _cold_assistant(turn: AssistantTurn) -> ColdAssistant:
    return ColdAssistant(
        turn.number,
        turn.led,
        chain_until(turn.before),
        accumulated(turn.blocks, NO_BLOCKS, list_add),
        tuple(turn.open_calls()),
    )


def _cold_user(turn: UserTurn) -> ColdUser:
    calls = [] if turn.asked is None else turn.asked.open_calls()
    return ColdUser(
        None if turn.asked is None else _cold_assistant(turn.asked),
        turn.led,
        tuple(call.call_id for call in calls if turn.results.get(call.call_id) is not None),
        f"{accumulated(turn.arrived, 0, sum_results):064x}",
        accumulated(turn.blocks, NO_BLOCKS, list_add),
    )


def _assistant(cold: ColdAssistant) -> AssistantTurn:
    before = UserTurn(None, NO_RESULTS, None, cold_stack(None), cold.led)
    before.number = before.away = cold.number - 1
    before._chain = cold.before
    calls = NO_CALLS
    for call in cold.calls:
        calls = put_in(calls, call.call_id, call)
    turn = AssistantTurn(before, cold_stack(cold.blocks), calls)
    turn._calls = list(cold.calls)
    return turn


def _user(cold: ColdUser) -> UserTurn:
    asked = None if cold.asked is None else _assistant(cold.asked)
    results = NO_RESULTS
    for call_id in cold.results:
        results = put_in(results, call_id, ToolResultBlock(call_id, ""))
    return UserTurn(
        asked, results, cold_stack(int(cold.arrived, 16)), cold_stack(cold.blocks), cold.led
    )
