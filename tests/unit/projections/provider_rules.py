"""What the strictest provider refuses, written down without a look at the code it judges.

`violations` reads a conversation from its first turn on and names everything that some
provider would answer with an error. No rule here repairs anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnledger.projections.history.blocks import (
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

ALLOWED = {
    "user": (TextBlock, MediaBlock, ToolResultBlock),
    "assistant": (TextBlock, MediaBlock, ToolUseBlock),
}


def violations(turns: Sequence[ChatTurn]) -> list[str]:
    """Everything that is wrong with these turns; an empty list if they may be sent."""
    found: list[str] = []
    asked: list[str] = []
    for place, turn in enumerate(turns):
        where = f"turn {place}"
        if type(turn) is not ChatTurn or turn.role not in ALLOWED or type(turn.blocks) is not tuple:
            return [*found, f"{where} is not a turn"]
        if turn.role != ("user", "assistant")[place % 2]:
            found.append(f"{where} is the {turn.role}'s")
        if turn.synthetic and place:
            found.append(f"{where} is synthetic and not the first")
        if not turn.blocks:
            found.append(f"{where} is empty")
        found.extend(f"{where}: {fault}" for fault in _bad_blocks(turn))
        found.extend(f"{where}: {fault}" for fault in _bad_answers(turn, asked))
        asked = [block.call_id for block in turn.blocks if isinstance(block, ToolUseBlock)]
        if len(set(asked)) != len(asked):
            found.append(f"{where} has two calls with one id")
    if asked:
        found.append(f"the conversation ends with calls {asked} unanswered")
    try:
        msgspec.json.encode(list(turns))
    except (UnicodeEncodeError, TypeError) as error:
        found.append(f"it can't be sent as JSON: {error}")
    return found


def _bad_blocks(turn: ChatTurn) -> list[str]:
    found: list[str] = []
    for block in turn.blocks:
        if type(block) not in ALLOWED[turn.role]:
            found.append(f"{type(block).__name__} in the {turn.role}'s turn")
            continue
        try:
            # Decoding is strict: each field has its declared type.
            msgspec.json.decode(msgspec.json.encode(block), type=type(block))
        except (msgspec.ValidationError, UnicodeEncodeError, TypeError) as error:
            found.append(f"{type(block).__name__}: {error}")
            continue
        if isinstance(block, TextBlock) and not block.text.strip():
            found.append("a text without a visible character")
        if isinstance(block, MediaBlock) and bool(block.url) == bool(block.blob):
            found.append("media from two places, or from none")
        if isinstance(block, ToolUseBlock) and not (block.call_id and block.name):
            found.append("a call without an id or a name")
    return found


def _bad_answers(turn: ChatTurn, asked: list[str]) -> list[str]:
    """Each call is answered once, in the next turn, before all else, in the order of the calls."""
    answered = [block.call_id for block in turn.blocks if isinstance(block, ToolResultBlock)]
    first = [block.call_id for block in turn.blocks[: len(answered)] if hasattr(block, "call_id")]
    found = [] if answered == asked else [f"asked for {asked}, got {answered}"]
    if turn.role == "user" and first != answered:
        found.append("results are not first")
    return found
