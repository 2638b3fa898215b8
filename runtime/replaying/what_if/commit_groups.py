"""Groups the events of a commit: a reply with its message, a tool's result with its changes.

A loop commits what happened together with what it decided next. If an event is changed, the rest
of its group goes with it, and what the loop decided afterwards has to be decided again.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from uuid import UUID

from turnledger.ledger import (
    CheckpointReached,
    EvaluationStarted,
    Event,
    MessageAppended,
    ModelReplied,
    ResourceSnapshotted,
    SliceEventApplied,
    StateRestored,
    ToolCallCompleted,
    ToolCallFailed,
)

_Outcome = ToolCallCompleted | ToolCallFailed


def belonging(
    events: Sequence[Event], place: int, under_way: Collection[tuple[str, str]]
) -> list[int]:
    """The places after `place` whose events stay true if the event there is changed.

    These are the rest of its own group, and the outcomes of other calls that ran already.

    Args:
        events: The events of the commit.
        place: Where the changed event is.
        under_way: Calls (evaluation and call id) that were started before the commit: the change
            can't have mattered to them.
    """
    groups = _groups(events)
    own = groups[place]
    kept = {
        group
        for event, group in zip(events, groups, strict=True)
        if isinstance(event, _Outcome) and (event.evaluation_id, event.call_id) in under_way
    }
    if own is not None:
        kept.add(own)
    return [at for at in range(place + 1, len(events)) if groups[at] in kept]


def _groups(events: Sequence[Event]) -> list[Hashable]:
    """The group of each event; None if the loop decided it from what came before."""
    groups: list[Hashable] = [None] * len(events)
    messages: dict[UUID | None, int] = {
        event.message.message_id: at
        for at, event in enumerate(events)
        if isinstance(event, MessageAppended)
    }
    for at, event in enumerate(events):
        if isinstance(event, ModelReplied):
            _mark(groups, ("reply", at), at, messages.get(event.message_id))
    answered = {e.message_id for e in events if isinstance(e, _Outcome)}
    for at, event in enumerate(events):
        if isinstance(event, _Outcome):
            _mark_outcome(events, groups, at, messages.get(event.message_id), answered)
    for at, event in enumerate(events):
        if groups[at] is None:
            groups[at] = _by_kind(events, groups, at, event)
    return groups


def _mark(groups: list[Hashable], group: Hashable, *places: int | None) -> None:
    for at in places:
        if at is not None:
            groups[at] = group


def _mark_outcome(
    events: Sequence[Event],
    groups: list[Hashable],
    at: int,
    message: int | None,
    answered: Collection[UUID | None],
) -> None:
    """Group a result with the tool's changes before it, its message, and the checkpoint after."""
    outcome, group = events[at], ("outcome", at)
    assert isinstance(outcome, _Outcome)
    _mark(groups, group, at, message)
    before = at - 1
    while before >= 0 and groups[before] is None:
        event = events[before]
        by_tool = isinstance(event, ResourceSnapshotted | StateRestored)
        if isinstance(event, SliceEventApplied):
            by_tool = event.call_id == outcome.call_id
        elif isinstance(event, MessageAppended):
            by_tool = event.message.message_id not in answered
        if not by_tool:
            break
        groups[before] = group
        before -= 1
    last = max(at, message or 0) + 1
    if last < len(events) and isinstance(events[last], CheckpointReached):
        groups[last] = group


def _by_kind(
    events: Sequence[Event], groups: Sequence[Hashable], at: int, event: Event
) -> Hashable:
    """The group of an event that belongs to no reply or tool: perhaps that of the one before."""
    before = groups[at - 1] if at else None
    match event:
        case SliceEventApplied() | StateRestored() | ResourceSnapshotted():
            whose = event.call_id if isinstance(event, SliceEventApplied) else None
            goes_on = isinstance(before, tuple) and before[:2] == ("session", whose)
            return before if goes_on else ("session", whose, at)
        case MessageAppended():
            if at and isinstance(events[at - 1], EvaluationStarted):
                return ("opening", at)
            if isinstance(before, tuple) and before[0] == "opening":
                return before
            kind = {"system": "asked", "user": "asked"}.get(event.message.role, event.message.role)
            goes_on = isinstance(before, tuple) and before[0] == kind != "assistant"
            return before if goes_on else (kind, at)
        case _:
            return None
