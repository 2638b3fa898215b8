"""View of the conversation: recorded messages, folded into one history for each evaluation.

A conversation that begins with the assistant has a synthetic leading turn.
"""

from __future__ import annotations

from datetime import datetime
from itertools import chain
from typing import Any, ClassVar, NamedTuple, final
from uuid import UUID

import msgspec

from turnledger.ledger import (
    EvaluationStarted,
    EvaluationSuperseded,
    InnerMessage,
    MessageAppended,
    Record,
    RunStarted,
    ToolMessageAmended,
)
from turnledger.ledger.arguments import explain_methods
from turnledger.projections.digests import combine, list_add
from turnledger.projections.history.blocks import ChatTurn, ToolResultBlock
from turnledger.projections.history.message_history import (
    MessageHistory,
    Repairs,
    add_message,
    completed,
    listed_turns,
)
from turnledger.projections.history.turns import Turn
from turnledger.projections.persistent.containers import PersistentList, Stack, in_order, pushed
from turnledger.projections.persistent.hashed import HashedList, HashedMap
from turnledger.projections.persistent.lazy_json import lazy_list, plain_json
from turnledger.projections.projection import BulkProjection, Folding, Takes, as_json


class MessageEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A message without its content; `place` is the number of a tool result's turn, or 0.

    `step_num` is the message's own, else that of the message before it in its evaluation.
    """

    message_id: UUID
    evaluation_id: str
    sequence: int
    turn: int
    created_at: datetime
    call_id: str | None = None
    place: int = 0
    step_num: int | None = None


def _add_entry(running: bytes, entry: MessageEntry) -> bytes:
    """Without the step, which follows from the messages: digests are older than it is."""
    if entry.step_num is not None:
        entry = msgspec.structs.replace(entry, step_num=None)
    return list_add(running, entry)


class _LastResult(NamedTuple):
    """The last tool message, the history before it and the messages after it, for amendments."""

    message: InnerMessage
    tip: Turn | None
    repairs: Repairs
    after: Stack[InnerMessage] | None = None


def _history_digest(history: MessageHistory) -> bytes:
    return history.digest


@final
class ConversationState(msgspec.Struct, frozen=True):
    """The histories of all evaluations of a run: the current one, and the earlier ones."""

    evaluation_id: str = ""
    current: MessageHistory = MessageHistory.new()
    earlier: HashedMap[MessageHistory] = HashedMap(plain=_history_digest)
    superseded: HashedMap[bool] = HashedMap()
    messages: HashedList[MessageEntry] = HashedList("messages", _add_entry)
    # The superseded ones in order.
    superseded_names: PersistentList[str] = PersistentList()
    last_result: _LastResult | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled without the last result: its chain of turns would recurse."""
        parts = (self.evaluation_id, self.current, self.earlier, self.superseded, self.messages)
        return (ConversationState, (*parts, self.superseded_names))

    @property
    def latest(self) -> str:
        """The latest evaluation that was not superseded; "" if there is none."""
        if self.evaluation_id not in self.superseded:
            return self.evaluation_id
        for known in reversed(self.earlier):
            if known not in self.superseded:
                return known
        return ""

    def history(self, evaluation_id: str | None = None) -> MessageHistory:
        """One evaluation's history; by default the latest that was not superseded."""
        wanted = self.latest if evaluation_id is None else evaluation_id
        if wanted == self.evaluation_id:
            return self.current
        return self.earlier.get(wanted) or MessageHistory.new()


@explain_methods(skip=("apply", "apply_all", "begin"))
class Conversation(BulkProjection[ConversationState]):
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

    def begin(self, state: ConversationState) -> _Folding:
        return _Folding(state)

    def to_json(self, state: ConversationState) -> Any:
        return plain_json(self.lazy_json(state))

    def lazy_json(self, state: ConversationState) -> Any:
        latest = state.latest
        history = state.history(latest)
        return {
            "evaluation_id": latest,
            "system": history.system,
            "turns": lazy_list(listed_turns(history), _turn_json),
            "superseded": lazy_list(state.superseded_names, str),
            "messages": lazy_list(state.messages, as_json),
        }

    def digest(self, state: ConversationState) -> bytes:
        return combine(
            "conversation",
            state.evaluation_id.encode(),
            state.current.digest,
            state.earlier.digest,
            state.superseded.digest,
            state.messages.digest,
        )

    def outcome(self, state: ConversationState) -> bytes:
        return state.history().digest


def _turn_json(turn: Turn | ChatTurn) -> Any:
    return as_json(completed(turn))


class _Folding(Folding[ConversationState]):
    """A conversation while records are folded."""

    def __init__(self, state: ConversationState) -> None:
        self._evaluation_id = state.evaluation_id
        self._switch_history(state.current)
        self._earlier = state.earlier
        self._superseded, self._superseded_names = state.superseded, state.superseded_names
        self._before = state.messages
        self._added: list[MessageEntry] = []
        self._latest = state.messages.last
        self._keep_last(state.last_result)

    def _keep_last(self, last: _LastResult | None) -> None:
        """Keep the last tool message; messages from now on are added to those after it."""
        self._last = None if last is None else (last.message, last.tip, last.repairs)
        self._after = None if last is None else last.after
        self._since: list[InnerMessage] = []

    def _switch_history(self, history: MessageHistory) -> None:
        self._history: MessageHistory | None = history
        self._tip = history._tip
        self._system = history._system
        self._repairs = history._repairs

    @property
    def _current(self) -> MessageHistory:
        if self._history is None:
            self._history = MessageHistory(self._tip, self._system, self._repairs)
        return self._history

    def _run_started(self, event: RunStarted, record: Record) -> None:
        if event.kind == "continuation":
            self.__init__(ConversationState())  # type: ignore[misc]

    def _evaluation_started(self, event: EvaluationStarted, record: Record) -> None:
        self._switch_evaluation(event.evaluation_id, event.after)

    def _supersede(self, event: EvaluationSuperseded, record: Record) -> None:
        if event.evaluation_id not in self._superseded:
            self._superseded = self._superseded.put(event.evaluation_id, True)
            self._superseded_names = self._superseded_names.append(event.evaluation_id)

    def done(self) -> ConversationState:
        return ConversationState(
            self._evaluation_id,
            self._current,
            self._earlier,
            self._superseded,
            self._before.extend(self._added),
            self._superseded_names,
            self._last_result(),
        )

    def _switch_evaluation(self, evaluation_id: str, after: str = "") -> None:
        begun = bool(self._evaluation_id or self._tip is not None)
        if begun and evaluation_id == self._evaluation_id:
            return
        current = self._earlier.get(evaluation_id) or self._new_history(after)
        self._earlier = self._earlier.remove(evaluation_id)
        if begun:
            self._earlier = self._earlier.put(self._evaluation_id, self._current)
        self._evaluation_id = evaluation_id
        self._switch_history(current)
        self._keep_last(None)

    def _new_history(self, after: str) -> MessageHistory:
        """The history of an evaluation that begins: it shares the turns of the one before it."""
        before = self._current if after == self._evaluation_id else self._earlier.get(after)
        if not after or before is None:
            return MessageHistory.new(synthetic_lead=True)
        return before.with_system("")

    def _append(self, event: MessageAppended, record: Record) -> None:
        message = event.message
        evaluation_id, role = message.evaluation_id, message.role
        if evaluation_id != self._evaluation_id or not evaluation_id:
            self._switch_evaluation(evaluation_id)
        place = 0
        if role == "tool":
            before = self._tip
            self._last = (message, before, self._repairs)
            if self._since or self._after is not None:
                self._after, self._since = None, []
            self._tip, self._repairs = add_message(before, self._repairs, message)
            # A result that has no place in the history can't be amended there either.
            if self._tip is not before and self._tip is not None:
                place = self._tip.number
            self._history = None
        else:
            self._since.append(message)
            if role == "system":
                self._switch_history(self._current.with_system(message.content))
            else:
                self._tip, self._repairs = add_message(self._tip, self._repairs, message)
                self._history = None
        latest, step_num = self._latest, message.step_num
        if step_num is None and latest is not None and latest.evaluation_id == evaluation_id:
            step_num = latest.step_num
        self._latest = MessageEntry(
            message.message_id,
            evaluation_id,
            message.sequence,
            message.turn,
            message.created_at,
            message.tool_call_id,
            place,
            step_num,
        )
        self._added.append(self._latest)

    def _last_result(self) -> _LastResult | None:
        """The last tool message, with the messages since."""
        if self._last is None:
            return None
        message, tip, repairs = self._last
        after = self._after
        for later in self._since:
            after = pushed(after, later)
        self._after, self._since = after, []
        return _LastResult(message, tip, repairs, after)

    def _amend(self, event: ToolMessageAmended, record: Record) -> None:
        message_id, text = event.message_id, event.content
        last = self._last_result()
        if last is not None and last.message.message_id == message_id:
            self._amend_last(last, text)
            return
        result = self._entry_of(message_id)
        if result is None:
            return
        if result.evaluation_id == self._evaluation_id:
            self._switch_history(_amended(self._current, result, text))
            self._keep_last(None)
            return
        earlier = self._earlier.get(result.evaluation_id) or MessageHistory.new()
        amended = _amended(earlier, result, text)
        self._earlier = self._earlier.put(result.evaluation_id, amended)

    def _amend_last(self, last: _LastResult, text: str) -> None:
        message = msgspec.structs.replace(last.message, content=text)
        tip, repairs = add_message(last.tip, last.repairs, message)
        for later in in_order(last.after):
            if later.role != "system":
                tip, repairs = add_message(tip, repairs, later)
        self._switch_history(MessageHistory(tip, self._system, repairs))
        self._keep_last(_LastResult(message, last.tip, last.repairs, last.after))

    def _entry_of(self, message_id: UUID) -> MessageEntry | None:
        """The tool message with this id, if its result has a place."""
        for entry in chain(reversed(self._added), reversed(self._before)):
            if entry.message_id == message_id:
                return entry if entry.place else None
        return None

    takes: ClassVar[Takes] = {
        RunStarted: _run_started,
        EvaluationStarted: _evaluation_started,
        MessageAppended: _append,
        ToolMessageAmended: _amend,
        EvaluationSuperseded: _supersede,
    }


def _amended(history: MessageHistory, result: MessageEntry, text: str) -> MessageHistory:
    """The history with another text in one result. It costs the whole history, and is rare."""
    turns = history.to_list()
    turn = turns[result.place - 1]
    turns[result.place - 1] = ChatTurn(
        turn.role,
        tuple(
            msgspec.structs.replace(block, content=text)
            if isinstance(block, ToolResultBlock) and block.call_id == result.call_id
            else block
            for block in turn.blocks
        ),
        turn.synthetic,
    )
    amended = MessageHistory.rebuilt(turns)
    return MessageHistory(amended._tip, history._system, history._repairs)
