"""`MessageHistory`: a conversation that is valid for every provider after every message.

What can't stand is repaired, and the repair is on record. docs/explanation/message-history.md has
the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, final

from turnledger.ledger import InnerMessage, MediaContent
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import InvalidInputError, short_repr
from turnledger.projections.digests import combine
from turnledger.projections.history.blocks import (
    STUB_TEXT,
    SYNTHETIC_LEAD,
    Block,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    TurnRole,
    stub_for,
)
from turnledger.projections.history.rules import (
    after_assistant,
    after_reply,
    after_result,
    after_user,
    without_open_calls,
)
from turnledger.projections.history.turns import (
    Turn,
    UserTurn,
    chain_at,
    turns_before,
    turns_until,
)
from turnledger.projections.history.validate import Repair, checked, encodable, well_formed
from turnledger.projections.persistent.containers import PersistentList, Stack, in_order, pushed

Incomplete: TypeAlias = Literal["stub", "skip"]
# A turn among the repairs stands for the stubs that its open calls were given.
Repairs: TypeAlias = "Stack[Repair | UserTurn] | None"


class _System:
    """The system text and, once it was asked for, its digest."""

    __slots__ = ("_digest", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._digest: bytes | None = None

    def digest(self) -> bytes:
        if self._digest is None:
            self._digest = combine("history.system", self.text.encode())
        return self._digest


_NO_SYSTEM = _System("")


@explain_methods()
@final
class MessageHistory:
    """One conversation: the system text, and turns of user and assistant that alternate."""

    __slots__ = ("_digest", "_repairs", "_system", "_tip")

    def __init__(
        self, _tip: Turn | None = None, _system: _System = _NO_SYSTEM, _repairs: Repairs = None
    ) -> None:
        self._tip = _tip
        self._system = _system
        self._repairs = _repairs
        self._digest: bytes | None = None

    # --- making one ------------------------------------------------------------------

    @classmethod
    def new(cls, system: str = "", *, synthetic_lead: bool = False) -> MessageHistory:
        """An empty history; `synthetic_lead` is a placeholder until a real user's first message."""
        history = cls().with_system(system)
        return history.add(SYNTHETIC_LEAD) if synthetic_lead else history

    @classmethod
    def from_list(cls, turns: Iterable[ChatTurn], system: str = "") -> MessageHistory:
        """The history that adding these one by one gives, with stubs for calls that are open."""
        history = cls.rebuilt(turns, system)
        stubs = tuple(stub_for(call) for call in history.open_calls)
        if not stubs:
            return history
        repairs = history._repairs
        for stub in stubs:
            repairs = pushed(repairs, Repair("stubbed", STUB_TEXT, stub.call_id))
        tip, repairs = add_turn(history._tip, repairs, ChatTurn("user", stubs))
        return cls(tip, history._system, repairs)

    @classmethod
    def rebuilt(cls, turns: Iterable[ChatTurn], system: str = "") -> MessageHistory:
        """The history that `to_list` gave these turns of: calls open at the end stay open."""
        history = cls.new(system)
        for turn in turns:
            history = history.add(turn)
        return history

    def with_system(self, text: str) -> MessageHistory:
        """The same conversation under another system text."""
        if not isinstance(text, str):
            raise TypeError(f"system is text, not {type(text).__name__}")
        repairs = self._repairs
        if not encodable(text):
            text = well_formed(text)
            repairs = pushed(repairs, Repair("replaced_text", "system had lone surrogates"))
        return MessageHistory(self._tip, _System(text), repairs)

    def add(self, turn: ChatTurn) -> MessageHistory:
        """The history with one more message. Never raises, whatever it is given."""
        tip, repairs = add_turn(self._tip, self._repairs, turn)
        return MessageHistory(tip, self._system, repairs)

    def add_user(self, *blocks: Block) -> MessageHistory:
        return self.add(ChatTurn("user", blocks))

    def add_assistant(self, *blocks: Block) -> MessageHistory:
        return self.add(ChatTurn("assistant", blocks))

    def add_user_text(self, text: str) -> MessageHistory:
        return self.add(ChatTurn("user", (TextBlock(text),)))

    # --- reading it ------------------------------------------------------------------

    @property
    def system(self) -> str:
        return self._system.text

    @property
    def last(self) -> ChatTurn | None:
        """The last turn as it is now; the next message may still add to it."""
        return None if self._tip is None else self._tip.turn()

    @property
    def open_calls(self) -> tuple[ToolUseBlock, ...]:
        """The calls of the last assistant turn that have no result."""
        return () if self._tip is None else tuple(self._tip.open_calls())

    @property
    def has_synthetic_lead(self) -> bool:
        """Whether the first turn is the placeholder."""
        return self._tip is not None and self._tip.led

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The differences from the messages that were added, in the order of those."""
        return tuple(repair for one in in_order(self._repairs) for repair in _repairs_of(one))

    @property
    def digest(self) -> bytes:
        """32 bytes that stand for the content: the system text and the turns as they are now."""
        if self._digest is None:
            self._digest = combine("history", self._system.digest(), chain_at(self._tip))
        return self._digest

    def to_list(self) -> list[ChatTurn]:
        """The turns, with calls at the end left open."""
        tip = self._tip
        return [] if tip is None else [*turns_until(tip.before), tip.turn()]

    def for_send(self, incomplete: Incomplete = "stub") -> tuple[ChatTurn, ...]:
        """The turns as the strictest provider takes them.

        Calls at the end that have no result get a stub, or are left out (`"skip"`).
        """
        if incomplete not in ("stub", "skip"):
            raise InvalidInputError(f"incomplete is 'stub' or 'skip', not {short_repr(incomplete)}")
        tip = self._tip
        if tip is None or not tip.waits:
            return tuple(turns_until(tip))
        if incomplete == "skip":
            return without_open_calls(tip)
        if type(tip) is UserTurn:
            return tuple(turns_until(tip))
        stubs = tuple(stub_for(call) for call in tip.open_calls())
        return (*turns_until(tip), ChatTurn("user", stubs))

    def for_send_after(self, sent: Sequence[ChatTurn]) -> tuple[int, list[ChatTurn]]:
        """How many of the turns that were sent still stand, and the turns that come after them.

        `sent` is what this gave for an earlier history, put together. It costs what is new
        and not the history: turns are known again by identity, as histories share them.
        """
        turn, fresh = self._tip, []
        if type(turn) is not UserTurn and turn is not None and turn.waits:
            fresh.append(ChatTurn("user", tuple(stub_for(call) for call in turn.open_calls())))
        while turn is not None:
            complete = turn.complete()
            if turn.number <= len(sent) and sent[turn.number - 1] is complete:
                break
            fresh.append(complete)
            turn = turn.before
        fresh.reverse()
        return (0 if turn is None else turn.number), fresh

    def describe(self) -> str:
        """Where the conversation stands, in one line for people."""
        tip = self._tip
        repaired = f" ({_counted(len(self.repairs), 'repair')})" if self._repairs else ""
        if tip is None:
            return "no turns" + repaired
        if tip.led and tip.number == 1:
            return "no messages: only the synthetic lead" + repaired
        lead = " after a synthetic lead" if tip.led else ""
        turns = _counted(tip.number - tip.led, "turn")
        who = "user" if isinstance(tip, UserTurn) else "assistant"
        names = [call.name for call in self.open_calls]
        waiting = f"; waiting for {_counted(len(names), 'tool')}: " if names else ""
        named = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        return f"{turns}{lead}, the {who} spoke last{waiting}{named}{repaired}"

    def __len__(self) -> int:
        return 0 if self._tip is None else self._tip.number

    def __eq__(self, other: object) -> bool:
        """Equal content: the same system text and turns, however they came about."""
        if not isinstance(other, MessageHistory):
            return NotImplemented
        return self is other or (len(self) == len(other) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<MessageHistory: {self.describe()}>"

    def __reduce__(self) -> tuple[object, ...]:
        """Copied as a list of turns: a long chain of turns would recurse."""
        return (_restored, (self.to_list(), self.system, self.repairs))


def add_turn(tip: Turn | None, repairs: Repairs, turn: ChatTurn) -> tuple[Turn | None, Repairs]:
    """The last turn and the repairs after one more message."""
    found: list[Repair] = []
    message = checked(turn, found)
    if message is not None:
        if message.role == "user":
            tip = after_user(tip, message, found)
        else:
            before = tip
            tip = after_assistant(tip, message, found)
            if tip is not before and type(before) is UserTurn and before.waits:
                repairs = pushed(repairs, before)
    for repair in found:
        repairs = pushed(repairs, repair)
    return tip, repairs


def earlier_turns(history: MessageHistory) -> PersistentList[Turn]:
    """The turns before the last one, as a list that goes on from those of earlier histories."""
    return PersistentList() if history._tip is None else turns_before(history._tip)


def listed_turns(history: MessageHistory) -> PersistentList[Turn | ChatTurn]:
    """The turns of `to_list`, each to be made by `completed` when it is read."""
    past: PersistentList[Any] = earlier_turns(history)
    return past if history.last is None else past.append(history.last)


def completed(turn: Turn | ChatTurn) -> ChatTurn:
    """A turn of `listed_turns`: all but the last have a stub for each call without a result."""
    return turn if isinstance(turn, ChatTurn) else turn.complete()


def _repairs_of(one: Repair | UserTurn) -> Sequence[Repair]:
    """What an entry among the repairs stands for."""
    if isinstance(one, Repair):
        return (one,)
    return [Repair("stubbed", STUB_TEXT, call.call_id) for call in one.open_calls()]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _restored(turns: list[ChatTurn], system: str, repairs: tuple[Repair, ...]) -> MessageHistory:
    history = MessageHistory.rebuilt(turns, system)
    known: Repairs = None
    for repair in repairs:
        known = pushed(known, repair)
    return MessageHistory(history._tip, history._system, known)


# --- recorded messages ---------------------------------------------------------------


def blocks_of(message: InnerMessage) -> tuple[Block, ...]:
    """A recorded message as blocks of a turn."""
    if message.role == "tool":
        return (ToolResultBlock(message.tool_call_id or "", message.content, message.is_error),)
    blocks: list[Block] = [_block(part) for part in message.parts]
    if not message.parts and message.content:
        blocks.append(TextBlock(message.content))
    blocks.extend(ToolUseBlock(c.call_id, c.name, c.arguments) for c in message.tool_calls)
    return tuple(blocks)


def _block(part: Any) -> Block:
    if isinstance(part, MediaContent):
        return MediaBlock(part.modality, part.url, part.blob, part.mime, part.prompt_hint, part.id)
    return TextBlock(part.text)


def add_message(
    tip: Turn | None, repairs: Repairs, message: InnerMessage
) -> tuple[Turn | None, Repairs]:
    """The last turn and the repairs after a recorded message that is not the system's."""
    if message.role == "tool":
        result = ToolResultBlock(message.tool_call_id or "", message.content, message.is_error)
        after = after_result(tip, result)
        if after is not None:
            return after, repairs
        return add_turn(tip, repairs, ChatTurn("user", (result,)))
    if message.role == "assistant" and type(tip) is UserTurn and not message.parts:
        replied = after_reply(tip, message.content, message.tool_calls)
        if replied is not None:
            return replied, pushed(repairs, tip) if tip.waits else repairs
    role: TurnRole = "assistant" if message.role == "assistant" else "user"
    return add_turn(tip, repairs, ChatTurn(role, blocks_of(message)))
