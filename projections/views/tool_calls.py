"""State of the view of tool calls: one call, and all calls of a run."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any, Literal, final
from uuid import UUID

import msgspec

from turnledger.ledger.events.types import OnInterruptName, SliceChange
from turnledger.projections.digests import list_add
from turnledger.projections.persistent.containers import PersistentList, PersistentMap
from turnledger.projections.persistent.hashed import HashedList, OpenItems

CallStatus = Literal["pending", "started", "completed", "failed", "in_doubt"]
# What a step calls: a function, or a model.
CallKind = Literal["tool", "model"]
# Whether a call needs a person's approval, and what the person decided about its next attempt;
# empty if nothing is recorded about that.
ApprovalState = Literal["", "not_needed", "needed", "approved", "denied", "edited"]


class ToolCallView(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One tool call, the run's `number`th; `message_id` is of the tool message that answered it.

    `result` is what the tool said, and `amended` what its message was changed to for the model.
    """

    call_id: str
    name: str
    arguments: str = "{}"
    evaluation_id: str = ""
    turn: int = 0
    number: int = 0
    status: CallStatus = "pending"
    attempts: int = 0
    asked_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    message_id: UUID | None = None
    result: str | None = None
    value: Any = None
    error_type: str | None = None
    error_message: str | None = None
    decision: str | None = None
    decision_value: Any = None
    decision_text: str = ""
    decided_by: str = ""
    superseded: bool = False
    # The policy that was recorded with the start; empty if none was.
    on_interrupt: OnInterruptName = ""
    # What a decision changes in the session.
    decision_changes: tuple[SliceChange, ...] = ()
    # The decision is consent for the attempt of the run that is under way.
    until_resumed: bool = False
    traceback: str = ""
    # Why it is in doubt.
    doubt: str = ""
    amended: str | None = None
    approval: ApprovalState = ""
    # Why it was denied, for the model, and who decided.
    approval_text: str = ""
    approval_by: str = ""
    # The arguments that a person gave the call instead of the model's; they stay for a retry.
    edited_arguments: str = ""
    # Of a step, the call that it is in; empty if it is in none.
    parent: str = ""
    kind: CallKind = "tool"
    # Of a step, the digest of its arguments, which are left out if they are long.
    digest: str = ""
    # Why the result of a step that happened can't be recorded; empty if it can.
    unrecordable: str = ""

    @property
    def is_step(self) -> bool:
        """Whether it is a durable step: a call that no message asked for."""
        return self.asked_at is None and not self.evaluation_id

    @property
    def given_arguments(self) -> str:
        """The arguments that the handler gets: the model's, or a person's instead."""
        return self.edited_arguments or self.arguments

    @property
    def takes_approval(self) -> bool:
        """Whether a person may approve or deny its next attempt now.

        A call in doubt is tried again by its policy only; any other takes a decision about its
        outcome instead.
        """
        if self.approval in ("", "not_needed"):
            return False
        is_retried = self.status == "in_doubt" and self.on_interrupt == "retry"
        return self.status == "pending" or is_retried

    @property
    def awaits_approval(self) -> bool:
        """Whether its next attempt needs a person's approval, and has none."""
        return self.approval == "needed" and self.takes_approval

    @property
    def awaits_outcome(self) -> bool:
        """Whether a person has to say how it ended, and has not."""
        is_known = self.lasting_decision in ("completed", "failed")
        return self.status == "in_doubt" and self.on_interrupt == "ask" and not is_known

    @property
    def lasting_decision(self) -> str | None:
        """The decision that the next resume of the run goes by."""
        return None if self.until_resumed else self.decision

    @property
    def is_over(self) -> bool:
        return self.status == "completed" or self.status == "failed"


def plain_call(call: ToolCallView) -> tuple[object, ...]:
    """What the digest of a call is of.

    Not the times: the store sets them, after a digest is made. Not the result: the message that
    `message_id` names is in the conversation's digest. Not what merely describes the call.
    """
    return (
        call.call_id,
        call.name,
        call.arguments,
        call.evaluation_id,
        call.turn,
        call.number,
        call.status,
        call.attempts,
        call.message_id,
        call.value,
        call.error_type,
        call.error_message,
        call.decision,
        call.decision_value,
        call.decision_text,
        call.decided_by,
        call.superseded,
        *(call.decision_changes and (msgspec.to_builtins(call.decision_changes),)),
        *(("until_resumed",) if call.until_resumed else ()),
        *((_plain_approval(call),) if call.approval else ()),
        *((_plain_step(call),) if call.is_step and call.digest else ()),
    )


def _plain_approval(call: ToolCallView) -> tuple[str, ...]:
    words = (call.approval, call.approval_text, call.approval_by, call.edited_arguments)
    return ("approval", *words)


def _plain_step(call: ToolCallView) -> tuple[str, ...]:
    return ("step", call.kind, call.parent, call.digest, call.unrecordable)


def add_call(running: bytes, call: ToolCallView) -> bytes:
    return list_add(running, plain_call(call))


def itself(value: bool) -> bool:
    return value


@final
class ToolsState(msgspec.Struct, frozen=True):
    """The calls of a run: all in order, and by key those that events may still change."""

    settled: HashedList[ToolCallView] = HashedList("tool calls", add_call)
    # Neither completed nor failed.
    open: OpenItems[ToolCallView] = {}
    # Completed or failed in the assistant's last turn: a result or an end may still come.
    ended: OpenItems[ToolCallView] = {}
    superseded: OpenItems[bool] = {}
    # What tool messages were changed to: message id and text; and the last text by message id.
    amended: HashedList[tuple[UUID, str]] = HashedList("amended tool messages")
    texts: PersistentMap[str] = PersistentMap()
    # The evaluation and turn of the assistant's last message.
    last_turn: str = ""
    # All calls by their numbers, in the order in which they were asked for: whatever becomes
    # known of a call replaces it where it stands.
    calls: PersistentList[ToolCallView] = PersistentList()
    # The number of each evaluation's first call.
    first: PersistentMap[int] = PersistentMap()

    def last_completed(self, evaluation_id: str) -> ToolCallView | None:
        """The last completed call of an evaluation with a tool message."""
        first = self.first.get(evaluation_id)
        if first is None:
            return None
        for call in islice(reversed(self.calls), len(self.calls) - first + 1):
            if (
                call.evaluation_id == evaluation_id
                and call.status == "completed"
                and call.message_id is not None
            ):
                return call
        return None

    def pending(self) -> tuple[ToolCallView, ...]:
        """The calls that are not completed, failed or superseded.

        Without inner steps of a call that has ended: it is not performed again, so they aren't.
        Only a step that a person has to decide about is pending all the same.
        """
        left = [call for call in self.open.values() if not call.superseded]
        if any(call.parent for call in left):
            under_way = {"", *(call.call_id for call in left)}
            while len(kept := [c for c in left if c.parent in under_way or c.awaits_outcome]) < len(
                left
            ):
                left, under_way = kept, {"", *(call.call_id for call in kept)}
        return tuple(left)

    def get(self, call_id: str, evaluation_id: str | None = None) -> ToolCallView | None:
        """A call by its id, the latest if it was used several times."""
        for call in reversed(self.calls):
            if call.call_id == call_id and evaluation_id in (None, call.evaluation_id):
                return call
        return None


def call_key(evaluation_id: str, call_id: str) -> str:
    return f"{evaluation_id}\n{call_id}"
