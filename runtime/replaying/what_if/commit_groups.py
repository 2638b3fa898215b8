"""Which events of a commit are one fact: a reply and its message, a tool's result and all of it.

A loop commits what happened together with what it decided next. Whoever changes what happened
needs to know which of the rest goes with it, and which has to be decided again.
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
    """The places after `place` whose events stay true if the event there says something else.

    Those are the rest of its own fact, and how other calls ended: `under_way` are the calls
    (evaluation and call id) that ran before the commit, so that it could not matter to them.
    """
    facts = _facts(events)
    own = facts[place]
    kept = {
        fact
        for event, fact in zip(events, facts, strict=True)
        if isinstance(event, _Outcome) and (event.evaluation_id, event.call_id) in under_way
    }
    if own is not None:
        kept.add(own)
    return [at for at in range(place + 1, len(events)) if facts[at] in kept]


def _facts(events: Sequence[Event]) -> list[Hashable]:
    """For each event what it is a part of; None if it is decided by what came before."""
    facts: list[Hashable] = [None] * len(events)
    messages = {
        event.message.message_id: at
        for at, event in enumerate(events)
        if isinstance(event, MessageAppended)
    }
    for at, event in enumerate(events):
        if isinstance(event, ModelReplied):
            _mark(facts, ("reply", at), at, messages.get(event.message_id))
    answered = {e.message_id for e in events if isinstance(e, _Outcome)}
    for at, event in enumerate(events):
        if isinstance(event, _Outcome):
            _mark_outcome(events, facts, at, messages.get(event.message_id), answered)
    for at, event in enumerate(events):
        if facts[at] is None:
            facts[at] = _by_kind(events, facts, at, event)
    return facts


def _mark(facts: list[Hashable], fact: Hashable, *places: int | None) -> None:
    for at in places:
        if at is not None:
            facts[at] = fact


def _mark_outcome(
    events: Sequence[Event],
    facts: list[Hashable],
    at: int,
    message: int | None,
    answered: Collection[UUID],
) -> None:
    """What the tool changed before its result, the message after it, and the checkpoint then."""
    outcome, fact = events[at], ("outcome", at)
    assert isinstance(outcome, _Outcome)
    _mark(facts, fact, at, message)
    before = at - 1
    while before >= 0 and facts[before] is None:
        event = events[before]
        by_tool = isinstance(event, ResourceSnapshotted | StateRestored)
        if isinstance(event, SliceEventApplied):
            by_tool = event.call_id == outcome.call_id
        elif isinstance(event, MessageAppended):
            by_tool = event.message.message_id not in answered
        if not by_tool:
            break
        facts[before] = fact
        before -= 1
    last = max(at, message or 0) + 1
    if last < len(events) and isinstance(events[last], CheckpointReached):
        facts[last] = fact


def _by_kind(events: Sequence[Event], facts: Sequence[Hashable], at: int, event: Event) -> Hashable:
    """The fact of an event that is neither of a reply nor of a tool: it may go on with the last."""
    before = facts[at - 1] if at else None
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
