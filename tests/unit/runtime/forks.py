"""Forks to look at: where events are, what a fork has of its own, and whether it is right."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

from tests.unit.runtime.loops import Goal, Planner
from turnledger.ledger import (
    ANY,
    NEW,
    CheckpointReached,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    RunStarted,
    ToolCallCompleted,
    ToolCallRecord,
    ToolCallStarted,
    new_run_id,
)
from turnledger.projections import Declarations, RunState, fold_together
from turnledger.runtime import MessageBuilder, enable_inner_message_recording
from turnledger.runtime.journal.loop_progress import Progress
from turnledger.runtime.journal.session_index import SessionIndex

TEXT = {"/message/content": "Something else."}


def version_of(ledger: Ledger, run_id: UUID, tag: str, role: str = "", number: int = 1) -> int:
    """The version of a run's n-th event with a tag and, of messages, with a role."""
    found = [
        record.version
        for record in ledger.read(run_id)
        if record.tag == tag
        and (not isinstance(record.event, MessageAppended) or record.event.message.role == role)
    ]
    return found[number - 1]


def message_of(ledger: Ledger, run_id: UUID, role: str, number: int = 1) -> int:
    return version_of(ledger, run_id, "message.appended", role, number)


def own(ledger: Ledger, fork: UUID) -> list[Event]:
    """What a fork has of its own."""
    return [one.event for one in ledger.read(fork, after=ledger.run(fork).parent_version)]


def own_tags(ledger: Ledger, fork: UUID) -> list[str]:
    return [event.tag for event in own(ledger, fork)]


def rows(ledger: Ledger, *runs: UUID) -> list[Any]:
    return [record.row for run_id in runs for record in ledger.read(run_id)]


def check_fork(ledger: Ledger, fork: UUID, declared: Declarations | None = None) -> int:
    """Verify and fold a fork; how many of its checkpoints were found right."""
    assert ledger.verify(fork).ok
    fold_together(ledger.read(fork), (Progress(), SessionIndex()))
    first = ledger.run(fork).parent_version + 1
    state, checked = RunState.initial(declared), 0
    for record in ledger.read(fork):
        event = record.event
        if isinstance(event, CheckpointReached) and record.version > first:
            assert event.state_digest == state.state_digest
            assert event.outcome_digest == state.outcome_digest
            checked += 1
        state = state.after([record])
    assert state.summary.status == "running"
    assert json.dumps(state.to_json())
    return checked


def session_declarations() -> Declarations:
    """What the planner's sessions declare."""
    session = Planner().create_session()
    enable_inner_message_recording(session)
    return session.declarations


class Asked(Planner):
    """The planner, with a message of the user's."""

    def create_prompt(self, request: Goal) -> Any:
        said = MessageBuilder.next_step(None).add_text("Book Lisbon.")
        return super().create_prompt(request).with_messages(said)


def begun(ledger: Ledger, *commits: Sequence[Event]) -> UUID:
    """A run that was written by hand, one append after the other."""
    run = new_run_id()
    ledger.append(run, RunStarted(request_id=uuid4(), request={}), NEW)
    for commit in commits:
        ledger.append(run, commit, ANY)
    return run


def said(role: Any, content: str, sequence: int = 0, **more: Any) -> MessageAppended:
    return MessageAppended(message=InnerMessage(role, content, "e", sequence, **more))


def ended(call_id: str, text: str, value: Any = None) -> tuple[Event, Event]:
    message = said("tool", text, 5, tool_call_id=call_id, tool_name="look")
    completed = ToolCallCompleted(
        evaluation_id="e",
        call_id=call_id,
        name="look",
        message_id=message.message.message_id,
        value=value,
    )
    return completed, message


def started(call_id: str) -> ToolCallStarted:
    return ToolCallStarted(evaluation_id="e", call_id=call_id, name="look")


def asked(*ids: str) -> Iterator[ToolCallRecord]:
    return (ToolCallRecord(one, "look", "{}") for one in ids)
