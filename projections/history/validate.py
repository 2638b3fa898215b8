"""Validation of a single message: well-formed blocks under a known role, repairs for the rest."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, final, get_args

import msgspec

from turnledger.ledger.events.messages import Modality
from turnledger.projections.history.blocks import (
    Block,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    TurnRole,
)

RepairKind: TypeAlias = Literal[
    "not_a_turn",  # dropped: not a ChatTurn
    "bad_role",  # dropped: neither user nor assistant
    "not_a_block",  # dropped: something else among the blocks
    "bad_block",  # dropped: a block with a field that can't be right
    "empty_text",  # dropped: a text without a visible character
    "misplaced_call",  # dropped: a tool call in a user's turn
    "misplaced_result",  # dropped: a tool result in an assistant's turn
    "repeated_call",  # dropped: the turn has a call with this id
    "orphan_result",  # dropped: the last assistant turn did not ask for it
    "repeated_result",  # dropped: the call has a result
    "empty_message",  # dropped: no block is left
    "leading_assistant",  # dropped: there is no turn before it
    "late_lead",  # dropped: a synthetic turn that would not be the first
    "replaced_text",  # changed: lone surrogates, which no provider takes, became U+FFFD
    "merged",  # joined to the turn before, which is of the same role
    "stubbed",  # added: a result for a call that has none
]


@final
class Repair(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A difference between a history and the messages that were added to it, and its reason."""

    kind: RepairKind
    detail: str
    call_id: str | None = None


_BLOCKS = (TextBlock, MediaBlock, ToolUseBlock, ToolResultBlock)
_MODALITIES = frozenset(get_args(Modality))
# Text for the model, which is fixed if need be. Any other text is a name, and must be valid.
_PROSE = frozenset({"text", "content", "arguments", "prompt_hint"})
_OPTIONAL = frozenset({"url", "blob", "mime", "prompt_hint", "id"})


def checked(turn: object, repairs: list[Repair]) -> ChatTurn | None:
    """The valid part of a turn; None if it is not a turn. Appends to `repairs`.

    Its blocks are those that its role may have, in the order given; there may be none.
    """
    if type(turn) is not ChatTurn:
        repairs.append(Repair("not_a_turn", f"{_type_name(turn)} is not a ChatTurn"))
        return None
    if _is_sound(turn):
        return turn
    role, given, synthetic = turn.role, turn.blocks, turn.synthetic
    known = _role(role)
    if known is None:
        named = repr(role) if type(role) is str else _type_name(role)
        repairs.append(Repair("bad_role", f"the role is user or assistant, not {named:.80}"))
        return None
    if type(given) not in (tuple, list):
        repairs.append(Repair("not_a_block", f"blocks are a tuple, not {_type_name(given)}"))
        given = ()
    blocks = tuple(
        block for one in given if (block := _checked_block(one, known, repairs)) is not None
    )
    return ChatTurn(known, blocks, synthetic is True)


def _is_sound(turn: ChatTurn) -> bool:
    """Whether it is valid as it is. Almost all are: this is what an ordinary `add` costs."""
    role: object = turn.role  # what is declared is not always what is there
    blocks: object = turn.blocks
    if type(role) is not str or type(blocks) is not tuple or turn.synthetic is not False:
        return False
    if role != "user" and role != "assistant":
        return False
    for block in blocks:
        kind = type(block)
        if kind is TextBlock:
            text = block.text
            if type(text) is not str or not encodable(text) or not text or text.isspace():
                return False
        elif kind is ToolResultBlock:
            if role != "user" or type(block.is_error) is not bool:
                return False
            if not _is_name(block.call_id) or not _is_text(block.content):
                return False
        elif kind is ToolUseBlock:
            if role != "assistant" or not _is_name(block.call_id) or not _is_name(block.name):
                return False
            if not _is_text(block.arguments):
                return False
        else:
            return False
    return True


def _is_text(value: object) -> bool:
    return type(value) is str and (value.isascii() or encodable(value))


def _is_name(value: object) -> bool:
    return type(value) is str and bool(value) and (value.isascii() or encodable(value))


def well_formed(text: str) -> str:
    """The text as UTF-8 can hold it: surrogate pairs joined, lone ones replaced by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checked_block(block: object, role: TurnRole, repairs: list[Repair]) -> Block | None:
    if type(block) not in _BLOCKS:
        repairs.append(Repair("not_a_block", f"{_type_name(block)} is not a block"))
        return None
    assert isinstance(block, _BLOCKS)
    fixed = _fixed(block, repairs)
    if fixed is None:
        return None
    if isinstance(fixed, TextBlock) and not fixed.text.strip():
        repairs.append(Repair("empty_text", "a text without a visible character"))
        return None
    if isinstance(fixed, ToolUseBlock) and role == "user":
        repairs.append(Repair("misplaced_call", "a user does not call tools", fixed.call_id))
        return None
    if isinstance(fixed, ToolResultBlock) and role == "assistant":
        repairs.append(Repair("misplaced_result", "results come in the user's turn", fixed.call_id))
        return None
    return fixed


def _fixed(block: Block, repairs: list[Repair]) -> Block | None:
    """The block with its fields fixed; None if they can't be."""
    changes: dict[str, str] = {}
    for name in block.__struct_fields__:
        value: Any = getattr(block, name)
        if name == "is_error":
            if type(value) is not bool:
                return _bad(block, f"{name} is {_type_name(value)}", repairs)
            continue
        if value is None and name in _OPTIONAL:
            continue
        if not issubclass(type(value), str):
            return _bad(block, f"{name} is {_type_name(value)}", repairs)
        plain = value if type(value) is str else str.__str__(value)
        if not encodable(plain):
            if name not in _PROSE:
                return _bad(block, f"{name} is not valid text", repairs)
            plain = well_formed(plain)
            repairs.append(Repair("replaced_text", f"{name} had lone surrogates", _id_of(block)))
        if plain is not value:
            changes[name] = plain
    if changes:
        block = msgspec.structs.replace(block, **changes)
    fault = _fault(block)
    return block if fault is None else _bad(block, fault, repairs)


def _fault(block: Block) -> str | None:
    match block:
        case MediaBlock():
            if block.modality not in _MODALITIES:
                return f"modality is {block.modality!r:.80}"
            if bool(block.url) == bool(block.blob):
                return "media has exactly one of url and blob"
        case ToolUseBlock():
            if not block.call_id or not block.name:
                return "a call has an id and the name of a tool"
        case ToolResultBlock():
            if not block.call_id:
                return "a result has the id of its call"
        case TextBlock():
            pass
    return None


def _bad(block: Block, fault: str, repairs: list[Repair]) -> Block | None:
    repairs.append(Repair("bad_block", f"{type(block).__name__}: {fault}", _id_of(block)))
    return None


def _id_of(block: Block) -> str | None:
    call_id = getattr(block, "call_id", None)
    return call_id if type(call_id) is str and encodable(call_id) else None


def _role(value: object) -> TurnRole | None:
    plain = str.__str__(value) if issubclass(type(value), str) else ""
    if plain == "user":
        return "user"
    return "assistant" if plain == "assistant" else None


def _type_name(value: object) -> str:
    """The name of its type. Nothing of the value itself is called: it may be anything."""
    return str(type.__dict__["__name__"].__get__(type(value)))
