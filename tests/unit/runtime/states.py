"""Session state for tests: slices of all kinds, with reducers that are registered or declared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
import pydantic

from tests.unit.runtime.clocks import BEGIN
from turnledger.ledger import InnerMessage, Ledger, RunStarted, ToolCallRecord, new_run_id
from turnledger.projections import ReducerContext, RunState, reducer, state_at
from turnledger.runtime import Session
from turnledger.runtime.journal.journal import Journal


@dataclass(frozen=True)
class Plan:
    """A slice of plain values."""

    steps: tuple[str, ...] = ()
    notes: dict[str, int] = field(default_factory=dict)


class Step(msgspec.Struct, frozen=True):
    """A slice whose values have a key."""

    name: str
    done: bool = False


class Email(pydantic.BaseModel):
    """A slice of models, which JSON calls otherwise."""

    model_config = pydantic.ConfigDict(frozen=True, strict=True, populate_by_name=True)

    to: str = pydantic.Field(alias="recipient")
    copies: tuple[str, ...] = ()


class StepDone(msgspec.Struct, frozen=True):
    """An event for the steps."""

    name: str


class Added(msgspec.Struct, frozen=True):
    by: int


class Counter(msgspec.Struct, frozen=True):
    """A slice that declares what events do to it."""

    value: int = 0

    @reducer(on=Added)
    def add(self, event: Added) -> Counter:
        return Counter(self.value + event.by)


def mark_done(
    steps: tuple[Step, ...], event: StepDone, *, context: ReducerContext
) -> tuple[Step, ...]:
    """What a StepDone does to the steps."""
    return tuple(Step(step.name, True) if step.name == event.name else step for step in steps)


def message(role: Any, content: str, sequence: int, **fields: Any) -> InnerMessage:
    """A message of the evaluation "e1"."""
    number = fields.pop("number", sequence)
    values = {"evaluation_id": "e1", "created_at": BEGIN, "message_id": UUID(int=number), **fields}
    return InnerMessage(role, content, sequence=sequence, **values)


def asking(sequence: int, *call_ids: str, **fields: Any) -> InnerMessage:
    """The assistant asks for calls."""
    calls = tuple(ToolCallRecord(call_id, "search", "{}") for call_id in call_ids)
    return message("assistant", "", sequence, tool_calls=calls, turn=1, **fields)


def answering(sequence: int, call_id: str, **fields: Any) -> InnerMessage:
    """A tool answers."""
    return message("tool", "found", sequence, tool_call_id=call_id, turn=1, **fields)


def prepared(session: Session) -> Session:
    """A session that knows every slice of this module."""
    for kind in (Plan, Step, Email, Counter):
        session.install(kind)
    session[Step].register(StepDone, mark_done)
    return session


def new_run(ledger: Ledger, session: Session, **started: Any) -> Journal:
    """The journal of a new run in a ledger, as a loop makes it."""
    run_id = new_run_id()
    ledger.append(run_id, RunStarted(**started), expected_version=0)
    return Journal(ledger, run_id, declarations=session.declarations)


def on_disk(session: Session) -> RunState:
    """What somebody else folds from the session's run."""
    journal = session.journal
    return state_at(journal.ledger, journal.run_id, declarations=session.declarations)


def slices(state: RunState) -> dict[str, tuple[Any, ...]]:
    """All values of a state, by the slices' names."""
    return {name: state.slices.all(name) for name in state.slices.slices}
