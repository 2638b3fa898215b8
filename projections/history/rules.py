"""Rules of a conversation: pure functions from the last turn and a message to the new last turn.

Each repair (something dropped, joined or added) is appended to `found`.
"""

from __future__ import annotations

from turnledger.ledger import ToolCallRecord
from turnledger.projections.history.blocks import (
    Block,
    ChatTurn,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.projections.history.turns import (
    NO_CALLS,
    NO_RESULTS,
    AssistantTurn,
    Turn,
    UserTurn,
    assistant_turn,
    turns_until,
    user_turn,
)
from turnledger.projections.history.validate import Repair, encodable
from turnledger.projections.persistent.containers import Stack, pushed, put_in

_EMPTY_ASSISTANT = "nothing is left of the assistant's message"


def after_user(tip: Turn | None, message: ChatTurn, found: list[Repair]) -> Turn | None:
    """The last turn after a user's message; the same as before if nothing is left of it."""
    if message.synthetic and tip is not None:
        found.append(Repair("late_lead", "it would not be the first turn"))
        return tip
    joins = type(tip) is UserTurn and not tip.synthetic
    if joins:
        assert isinstance(tip, UserTurn)
        asked, results, arrived, blocks = tip.asked, tip.results, tip.arrived, tip.blocks
    else:
        asked = tip if isinstance(tip, AssistantTurn) else None
        results, arrived, blocks = NO_RESULTS, None, None
    kept, others = 0, blocks
    for block in message.blocks:
        if type(block) is not ToolResultBlock:
            others = pushed(others, block)
        elif asked is None or asked.calls.get(block.call_id) is None:
            why = "the last assistant turn did not ask for it"
            found.append(Repair("orphan_result", why, block.call_id))
        elif results.get(block.call_id) is not None:
            found.append(Repair("repeated_result", "the call has a result", block.call_id))
        else:
            results = put_in(results, block.call_id, block)
            arrived = pushed(arrived, block)
            kept += 1
    if not kept and others is blocks:
        found.append(Repair("empty_message", "nothing is left of the user's message"))
        return tip
    # Results of one turn may come in several messages: that is not a repair.
    if joins and others is not blocks:
        found.append(Repair("merged", "the user's turn goes on"))
    led = message.synthetic if asked is None else asked.led
    return user_turn(asked, results, arrived, others, led)


def after_assistant(tip: Turn | None, message: ChatTurn, found: list[Repair]) -> Turn | None:
    """The last turn after an assistant's message; the same if nothing is left of it."""
    if tip is None and message.blocks:
        found.append(Repair("leading_assistant", "a conversation starts with the user"))
        return None
    if tip is None:
        found.append(Repair("empty_message", _EMPTY_ASSISTANT))
        return None
    if isinstance(tip, AssistantTurn):
        before, blocks, calls = tip.before, tip.blocks, tip.calls
    else:
        before, blocks, calls = tip, None, NO_CALLS
    longer: Stack[Block] | None = blocks
    for block in message.blocks:
        if type(block) is ToolUseBlock:
            if calls.get(block.call_id) is not None:
                why = "the turn has a call with this id"
                found.append(Repair("repeated_call", why, block.call_id))
                continue
            calls = put_in(calls, block.call_id, block)
        longer = pushed(longer, block)
    if longer is None or longer is blocks:
        found.append(Repair("empty_message", _EMPTY_ASSISTANT))
        return tip
    if blocks is not None:
        found.append(Repair("merged", "the assistant's turn goes on"))
    return assistant_turn(before, longer, calls)


# --- fast paths for the usual messages ----------------------------------------------


def after_result(tip: Turn | None, result: ToolResultBlock) -> UserTurn | None:
    """The last turn after a result of an open call; None if the general rule is needed."""
    call_id, content = result.call_id, result.content
    if not (content.isascii() or encodable(content)):
        return None
    if isinstance(tip, AssistantTurn):
        if tip.calls.get(call_id) is None:
            return None
        arrived: Stack[ToolResultBlock] = Stack(None, result, 1)
        return UserTurn(tip, {call_id: result}, arrived, None, tip.led, tip.number + 1)
    if tip is None or tip.asked is None:
        return None
    asked, results = tip.asked, tip.results
    if asked.calls.get(call_id) is None or results.get(call_id) is not None:
        return None
    both = put_in(results, call_id, result)
    return UserTurn(asked, both, pushed(tip.arrived, result), tip.blocks, asked.led, tip.number)


def after_reply(
    tip: UserTurn, text: str, asked: tuple[ToolCallRecord, ...]
) -> AssistantTurn | None:
    """The last turn after a well-formed reply; None if the general rule is needed."""
    blocks: Stack[Block] | None = None
    if text:
        if text.isspace() or not (text.isascii() or encodable(text)):
            return None
        blocks = Stack(None, TextBlock(text), 1)
    calls = NO_CALLS
    for call in asked:
        call_id, name, arguments = call.call_id, call.name, call.arguments
        if not call_id or not name or calls.get(call_id) is not None:
            return None
        if not (call_id.isascii() and name.isascii() and arguments.isascii()) and not (
            encodable(call_id) and encodable(name) and encodable(arguments)
        ):
            return None
        use = ToolUseBlock(call_id, name, arguments)
        calls = put_in(calls, call_id, use)
        blocks = pushed(blocks, use)
    return None if blocks is None else assistant_turn(tip, blocks, calls)


def without_open_calls(tip: Turn) -> tuple[ChatTurn, ...]:
    """The turns without the calls that have no result, and without what that empties."""
    last = tip.asked if isinstance(tip, UserTurn) else tip
    assert last is not None
    gone = {call.call_id for call in tip.open_calls()}
    kept = tuple(
        block
        for block in last.turn().blocks
        if not (type(block) is ToolUseBlock and block.call_id in gone)
    )
    turns = turns_until(last.before)
    if kept:
        turns.append(ChatTurn("assistant", kept))
    if isinstance(tip, UserTurn):
        last_turn = tip.turn()
        if not kept:
            # No call is left, so this turn has no results: it goes on from the user's turn before.
            earlier = turns.pop()
            if not earlier.synthetic:
                last_turn = ChatTurn("user", earlier.blocks + last_turn.blocks)
        turns.append(last_turn)
    return tuple(turns)
