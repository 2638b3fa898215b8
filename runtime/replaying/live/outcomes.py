"""Index of the recorded outcomes of a run, by what was asked.

`runtime.replaying.effects` reads outcomes in the order of the record; a fork may ask in another
order. A reply is found by its evaluation and turn, a tool's outcome by its call, each once.
Attempts that were interrupted have no outcome; of several outcomes of one call the last counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from turnledger.ledger import (
    ApprovalDecided,
    ApprovalRequested,
    EvaluationStarted,
    EvaluationSuperseded,
    Event,
    InnerMessage,
    MessageAppended,
    ModelCallFailed,
    ModelReplied,
    Record,
    ResourceSnapshotted,
    RunFailed,
    RunResumed,
    RunStarted,
    SliceEventApplied,
    StateRestored,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRecord,
    ToolCallStarted,
    ToolMessageAmended,
)
from turnledger.projections import ToolCallView
from turnledger.runtime.agent.models.request import Reply, ToolCall
from turnledger.runtime.replaying.older_records import with_failure_fields

Ending: TypeAlias = ToolCallCompleted | ToolCallFailed | EvaluationSuperseded


class Outcome(NamedTuple):
    """How a call ended: with a result, an error, or a request to open sections.

    `changes` are what the tool changed, and `text` is the tool's message. `requested` and
    `approval` are whether it needed approval, and the last decision about that.
    """

    version: int
    evaluation_id: str
    event: Ending
    changes: tuple[Event, ...] = ()
    text: str = ""
    requested: ApprovalRequested | None = None
    approval: ApprovalDecided | None = None


class Replied(NamedTuple):
    """The outcome of a turn: a reply, or the failure that ended the run."""

    version: int
    came: Reply | ModelCallFailed


class RecordedOutcomes:
    """The outcomes that a run recorded after a version."""

    def __init__(self, records: Iterable[Record], *, after: int) -> None:
        collected = _Collector(after)
        for record in records:
            collected.take(record)
        self._replies = collected.replies
        # By tool and arguments, in order: the id of each call, and its outcome.
        self._outcomes: dict[tuple[str, str], list[tuple[str, Outcome]]] = {}
        for call, outcome in collected.outcomes.values():
            key = (call.name, _canonical(call.arguments))
            self._outcomes.setdefault(key, []).append((call.call_id, outcome))

    def reply(self, evaluation: int, turn: int) -> Replied | None:
        """The outcome of a turn, by the number of its evaluation and its own."""
        return self._replies.get((evaluation, turn))

    def take(self, call: ToolCallView) -> Outcome | None:
        """Take the outcome of this call, else of the first with the same arguments."""
        known, place = self._found(call)
        return known.pop(place)[1] if known else None

    def find(self, call: ToolCallView) -> Outcome | None:
        """The outcome that `take` would take."""
        known, place = self._found(call)
        return known[place][1] if known else None

    def _found(self, call: ToolCallView) -> tuple[list[tuple[str, Outcome]], int]:
        known = self._outcomes.get((call.name, _canonical(call.arguments)), [])
        places = (place for place, (call_id, _) in enumerate(known) if call_id == call.call_id)
        return known, next(places, 0)


def _canonical(arguments: str) -> str:
    """Arguments in one spelling: equal values give equal text."""
    try:
        value = msgspec.json.decode(arguments) if arguments.strip() else {}
        return msgspec.json.encode(value, order="sorted").decode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return arguments


class _Collector:
    """Collects the outcomes in a pass over a run's records."""

    def __init__(self, after: int) -> None:
        self.replies: dict[tuple[int, int], Replied] = {}
        # By evaluation, turn and call id.
        self.outcomes: dict[tuple[str, int, str], tuple[ToolCallRecord, Outcome]] = {}
        self._after = after
        self._evaluations = 0
        self._catalogue = 0  # of the program that wrote the records
        # Calls that were asked for, with their turn, and those that were started and not ended.
        self._asked: dict[tuple[str, str], tuple[int, ToolCallRecord]] = {}
        self._started: dict[tuple[str, str], None] = {}
        self._requested: dict[tuple[str, str], ApprovalRequested] = {}
        self._approvals: dict[str, ApprovalDecided] = {}  # by the id of the call
        self._reply_message: InnerMessage | None = None
        self._answer: UUID | None = None
        self._failed: Record | None = None
        # What may be a tool's changes, in the commit that is read.
        self._commit = 0
        self._changes: list[Event] = []

    def take(self, record: Record) -> None:
        if record.commit != self._commit:
            self._commit, self._changes = record.commit, []
        event = record.event
        match event:
            case MessageAppended():
                self._message(event)
            case (
                SliceEventApplied() | StateRestored() | ResourceSnapshotted() | ToolMessageAmended()
            ):
                self._changes.append(event)
            case _:
                self._step(record, event)
                self._changes = []

    def _message(self, event: MessageAppended) -> None:
        message = event.message
        if message.message_id == self._answer:
            self._answered(message)
            return
        self._changes.append(event)
        if message.role == "assistant":
            self._reply_message = message
            for call in message.tool_calls:
                self._asked[message.evaluation_id, call.call_id] = (message.turn, call)

    def _answered(self, message: InnerMessage) -> None:
        """The message of a call, which follows its end."""
        turn, _ = self._asked.get((message.evaluation_id, message.tool_call_id or ""), (0, None))
        key = (message.evaluation_id, turn, message.tool_call_id or "")
        if key in self.outcomes:
            call, outcome = self.outcomes[key]
            self.outcomes[key] = (call, outcome._replace(text=message.content))

    def _step(self, record: Record, event: Event) -> None:
        if isinstance(event, RunStarted | RunResumed):
            self._catalogue = event.catalogue
        match event:
            case RunStarted() if event.kind != "fork":
                self._evaluations = 0
            case EvaluationStarted():
                self._evaluations += 1
            case ModelReplied():
                self._reply(record, event)
            case ModelCallFailed():
                self._failed = record
            case RunFailed():
                self._gave_up()
            case ApprovalRequested():
                self._requested[event.evaluation_id, event.call_id] = event
                self._approvals.pop(event.call_id, None)
            case ApprovalDecided():
                self._approvals[event.call_id] = event
            case ToolCallStarted():
                self._started[event.evaluation_id, event.call_id] = None
            case ToolCallCompleted() | ToolCallFailed():
                changes = self._changes_of(event.call_id)
                key, self._answer = (event.evaluation_id, event.call_id), event.message_id
                self._end(key, Outcome(record.version, event.evaluation_id, event, changes))
            case EvaluationSuperseded():
                # By one call, or by several in parallel: they have no result of their own.
                for key in [one for one in self._started if one[0] == event.evaluation_id]:
                    self._end(key, Outcome(record.version, event.evaluation_id, event))

    def _reply(self, record: Record, event: ModelReplied) -> None:
        message, self._failed = self._reply_message, None
        if (
            message is None
            or message.message_id != event.message_id
            or record.version <= self._after
        ):
            return
        reply = _reply_of(message, event)
        self.replies[self._evaluations, event.turn] = Replied(record.version, reply)

    def _gave_up(self) -> None:
        """A failed model call is an outcome if it ended the run; else it was tried again."""
        record, self._failed = self._failed, None
        if record is not None and record.version > self._after:
            assert isinstance(record.event, ModelCallFailed)
            event = with_failure_fields(record.event, self._catalogue)
            self.replies[self._evaluations, event.turn] = Replied(record.version, event)

    def _end(self, key: tuple[str, str], outcome: Outcome) -> None:
        self._started.pop(key, None)
        turn, call = self._asked.get(key, (0, None))
        if call is not None and outcome.version > self._after:
            requested = self._requested.get(key)
            approval = self._approvals.get(key[1]) if requested is not None else None
            outcome = outcome._replace(requested=requested, approval=approval)
            self.outcomes[key[0], turn, key[1]] = (call, outcome)

    def _changes_of(self, call_id: str) -> tuple[Event, ...]:
        """The changes right before a call's end that are not another call's."""
        changes = self._changes
        first = len(changes)
        while first and _may_be_of(call_id, changes[first - 1]):
            first -= 1
        return tuple(changes[first:])


def _may_be_of(call_id: str, event: Event) -> bool:
    return not isinstance(event, SliceEventApplied) or event.call_id == call_id


def _reply_of(message: InnerMessage, came: ModelReplied) -> Reply:
    """The recorded reply, without its usage: a replay uses no tokens."""
    data = came.provider_data if isinstance(came.provider_data, dict) else {}
    return Reply(
        text=message.content,
        tool_calls=tuple(ToolCall(c.call_id, c.name, c.arguments) for c in message.tool_calls),
        finish_reason=came.finish_reason,
        model=came.model,
        parsed=data.get("parsed"),
        provider_data=data.get("provider"),
    )
