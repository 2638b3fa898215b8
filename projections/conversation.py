"""The conversation of a run: its recorded messages, folded into histories that can be sent.

One history is one evaluation's. `history()` is the latest that was not superseded.
Nothing of a recorded conversation is dropped because it begins with the assistant: such
a history has the synthetic leading turn that encoders may leave out.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, final

import msgspec

from ledger import (
    EvaluationStarted,
    EvaluationSuperseded,
    InnerMessage,
    MediaContent,
    MessageAppended,
    Record,
    RunStarted,
    ToolMessageAmended,
)
from projections.blocks import (
    Block,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    TurnRole,
)
from projections.containers import PersistentMap, Stack, in_order
from projections.history import MessageHistory
from projections.persistent import HashedList, HashedMap
from projections.projection import Projection, as_json
from projections.running_hash import combine


class Said(msgspec.Struct, frozen=True, gc=False):
    """What identifies a message beside its content."""

    message_id: str
    evaluation_id: str
    sequence: int
    turn: int
    created_at: datetime


class _LastResult(msgspec.Struct, frozen=True):
    """The last tool message, the history before it and the messages after it.

    What is amended is nearly always this one, and then costs only what came since.
    """

    message: InnerMessage
    before: MessageHistory
    after: Stack[InnerMessage] | None = None


class _Result(msgspec.Struct, frozen=True, gc=False):
    """Where the result that a tool message brought stands: in which history and turn."""

    evaluation_id: str
    turn: int
    call_id: str


def _digest_of(history: MessageHistory) -> bytes:
    return history.digest


@final
class ConversationState(msgspec.Struct, frozen=True):
    """All evaluations of a run, the current one apart."""

    evaluation_id: str = ""
    current: MessageHistory = MessageHistory.new()
    earlier: HashedMap[MessageHistory] = HashedMap(plain=_digest_of)
    superseded: HashedMap[bool] = HashedMap()
    said: HashedList[Said] = HashedList("said")
    results: PersistentMap[_Result] = PersistentMap()
    last_result: _LastResult | None = None

    @property
    def latest(self) -> str:
        """The latest evaluation that was not superseded; "" if there is none."""
        if self.evaluation_id not in self.superseded:
            return self.evaluation_id
        for known in reversed(tuple(self.earlier)):
            if known not in self.superseded:
                return known
        return ""

    def history(self, evaluation_id: str | None = None) -> MessageHistory:
        """One evaluation's history; by default the latest that was not superseded."""
        wanted = self.latest if evaluation_id is None else evaluation_id
        if wanted == self.evaluation_id:
            return self.current
        return self.earlier.get(wanted) or MessageHistory.new()


def blocks_of(message: InnerMessage) -> tuple[Block, ...]:
    """A recorded message as blocks of a turn."""
    if message.role == "tool":
        return (ToolResultBlock(message.tool_call_id or "", message.content, message.is_error),)
    said: list[Block] = [_block(part) for part in message.parts]
    if not message.parts and message.content:
        said.append(TextBlock(message.content))
    said.extend(ToolUseBlock(c.call_id, c.name, c.arguments) for c in message.tool_calls)
    return tuple(said)


def _block(part: Any) -> Block:
    if isinstance(part, MediaContent):
        return MediaBlock(part.modality, part.url, part.blob, part.mime, part.prompt_hint, part.id)
    return TextBlock(part.text)


def say(history: MessageHistory, message: InnerMessage) -> MessageHistory:
    """A history with one more recorded message."""
    if message.role == "system":
        return history.with_system(message.content)
    role: TurnRole = "assistant" if message.role == "assistant" else "user"
    return history.add(ChatTurn(role, blocks_of(message)))


class Conversation(Projection[ConversationState]):
    """Folds messages into histories, evaluation by evaluation."""

    name = "history"
    reads = (
        RunStarted,
        EvaluationStarted,
        MessageAppended,
        ToolMessageAmended,
        EvaluationSuperseded,
    )

    def initial(self) -> ConversationState:
        return ConversationState()

    def apply(self, state: ConversationState, record: Record) -> ConversationState:
        event = record.event
        if isinstance(event, MessageAppended):
            return self._append(state, event.message)
        if isinstance(event, EvaluationStarted):
            return self._turn_to(state, event.evaluation_id)
        if isinstance(event, ToolMessageAmended):
            return self._amend(state, str(event.message_id), event.content)
        if isinstance(event, EvaluationSuperseded):
            if event.evaluation_id in state.superseded:
                return state
            superseded = state.superseded.put(event.evaluation_id, True)
            return msgspec.structs.replace(state, superseded=superseded)
        if isinstance(event, RunStarted) and event.kind == "continuation":
            return self.initial()
        return state

    def _turn_to(self, state: ConversationState, evaluation_id: str) -> ConversationState:
        begun = bool(state.evaluation_id or len(state.current))
        if begun and evaluation_id == state.evaluation_id:
            return state
        earlier = state.earlier.remove(evaluation_id)
        current = state.earlier.get(evaluation_id) or MessageHistory.new(synthetic_lead=True)
        if begun:
            earlier = earlier.put(state.evaluation_id, state.current)
        return msgspec.structs.replace(
            state,
            evaluation_id=evaluation_id,
            current=current,
            earlier=earlier,
            last_result=None,
        )

    def _append(self, state: ConversationState, message: InnerMessage) -> ConversationState:
        state = self._turn_to(state, message.evaluation_id)
        message_id = str(message.message_id)
        current = say(state.current, message)
        results, last = state.results, state.last_result
        if message.role == "tool":
            # A result that has no place in the history can't be amended there either.
            if current._tip is not state.current._tip:
                place = _Result(message.evaluation_id, len(current), message.tool_call_id or "")
                results = results.put(message_id, place)
            last = _LastResult(message, state.current)
        elif last is not None:
            last = _LastResult(last.message, last.before, Stack(last.after, message))
        said = Said(
            message_id,
            message.evaluation_id,
            message.sequence,
            message.turn,
            message.created_at,
        )
        return ConversationState(
            state.evaluation_id,
            current,
            state.earlier,
            state.superseded,
            state.said.append(said),
            results,
            last,
        )

    def _amend(self, state: ConversationState, message_id: str, text: str) -> ConversationState:
        last = state.last_result
        if last is not None and str(last.message.message_id) == message_id:
            message = msgspec.structs.replace(last.message, content=text)
            history = say(last.before, message)
            for later in in_order(last.after):
                history = say(history, later)
            return msgspec.structs.replace(
                state,
                current=history,
                last_result=_LastResult(message, last.before, last.after),
            )
        result = state.results.get(message_id)
        if result is None:
            return state
        history = _amended(state.history(result.evaluation_id), result, text)
        if result.evaluation_id == state.evaluation_id:
            return msgspec.structs.replace(state, current=history, last_result=None)
        earlier = state.earlier.put(result.evaluation_id, history)
        return msgspec.structs.replace(state, earlier=earlier)

    def to_json(self, state: ConversationState) -> Any:
        return {
            "evaluation_id": state.latest,
            "system": state.history().system,
            "turns": as_json(state.history().to_list()),
            "superseded": list(state.superseded),
            "messages": [as_json(said) for said in state.said],
        }

    def digest(self, state: ConversationState) -> bytes:
        return combine(
            "conversation",
            state.evaluation_id.encode(),
            state.current.digest,
            state.earlier.digest,
            state.superseded.digest,
            state.said.digest,
        )

    def outcome(self, state: ConversationState) -> bytes:
        return state.history().digest


def _amended(history: MessageHistory, result: _Result, text: str) -> MessageHistory:
    """The history with another text in one result. It costs the history, as nothing else does."""
    turns = history.to_list()
    turn = turns[result.turn - 1]
    turns[result.turn - 1] = ChatTurn(
        turn.role,
        tuple(
            msgspec.structs.replace(block, content=text)
            if isinstance(block, ToolResultBlock) and block.call_id == result.call_id
            else block
            for block in turn.blocks
        ),
        turn.synthetic,
    )
    told = MessageHistory.from_list(turns)
    return MessageHistory(told._tip, history._system, history._repairs)
