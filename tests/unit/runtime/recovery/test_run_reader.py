"""The one pass over a run that a recovery makes: state, time used, and decisions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest

from tests.unit.runtime.clocks import StandingClock
from tests.unit.runtime.states import Step, asking, message
from turnledger.ledger import (
    ANY,
    CustomEvent,
    EvaluationStarted,
    Event,
    Ledger,
    MessageAppended,
    RunResumed,
    RunStarted,
    SliceEventApplied,
    ToolCallDecided,
    ToolCallStarted,
    new_run_id,
)
from turnledger.projections import Declarations
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.recovery.run_reader import RunReader

BEGUN = EvaluationStarted(evaluation_id="e", prompt_ns="n", prompt_key="k", prompt_digest="")


@pytest.fixture
def ledger(clock: StandingClock) -> Iterator[Ledger]:
    with Ledger.open("memory://", clock=clock) as opened:
        yield opened


def step(name: str) -> SliceEventApplied:
    return SliceEventApplied(slice="Step", event_type="Step", payload={"name": name})


def run_of(ledger: Ledger, *events: Event) -> UUID:
    run_id = new_run_id()
    ledger.append(run_id, [RunStarted(), *events], ANY)
    return run_id


def test_session_state_is_folded_when_its_types_are_declared(ledger: Ledger) -> None:
    """As by a journal with these declarations, also where the prompt was made."""
    said = MessageAppended(message=message("user", "Hi", 0))
    run_id = run_of(ledger, step("a"), said, BEGUN, step("b"))
    reader, declared = RunReader(ledger, run_id), Declarations()
    declared.declare(Step)
    assert reader.known.run.slices.all("Step") == ({"name": "a"}, {"name": "b"})
    ledger.append(run_id, step("c"), ANY)
    reader.read_on()
    known = reader.declare(declared)
    expected = Journal(ledger, run_id, declarations=declared).known
    assert known.run.slices.all("Step") == (Step("a"), Step("b"), Step("c"))
    assert known.run.state_digest == expected.run.state_digest
    assert (known.progress, known.version) == (expected.progress, expected.version)
    assert known.prompt_base is not None
    assert expected.prompt_base is not None
    assert known.prompt_base.run.slices.all("Step") == (Step("a"),)
    assert known.prompt_base.run.state_digest == expected.prompt_base.run.state_digest


def test_a_journal_goes_on_from_what_was_read(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads nothing itself, and adds to it as to any other."""
    run_id = run_of(ledger, step("a"))
    declared = Declarations()
    declared.declare(Step)
    known = RunReader(ledger, run_id).declare(declared)
    with monkeypatch.context() as patched:
        patched.setattr(ledger, "read", None)
        journal = Journal(ledger, run_id, declarations=declared, known=known)
        journal.add(step("b"))
        journal.commit()
    assert journal.state.slices.all("Step") == (Step("a"), Step("b"))
    assert journal.known.version == 3


def test_pauses_between_attempts_are_not_time_used(ledger: Ledger, clock: StandingClock) -> None:
    """Nor is what others record meanwhile; a continuation's time is its own."""
    run_id = run_of(ledger)
    minute = timedelta(minutes=1)
    clock.advance(2 * minute)
    ledger.append(run_id, step("a"), ANY)
    clock.advance(30 * minute)
    ledger.append(run_id, CustomEvent(kind="a.comment"), ANY)
    reader = RunReader(ledger, run_id)
    assert reader.time_used == 2 * minute
    clock.advance(30 * minute)
    ledger.append(run_id, RunResumed(attempt=1, from_version=3), ANY)
    clock.advance(minute)
    ledger.append(run_id, step("b"), ANY)
    reader.read_on()
    assert reader.time_used == 3 * minute
    assert RunReader(ledger, ledger.continuation(run_id)).time_used == timedelta(0)


def test_a_fork_does_not_inherit_that_a_call_is_to_run_again(ledger: Ledger) -> None:
    """It was decided for its parent; what is decided in the fork itself counts."""
    decided = ToolCallDecided(call_id="c1", decision="retry", decided_by="me")
    run_id = run_of(
        ledger,
        BEGUN,
        MessageAppended(message=asking(0, "c1")),
        ToolCallStarted(evaluation_id="e1", call_id="c1", name="search"),
    )
    assert in_doubt(ledger, run_id) == ["c1"]
    ledger.append(run_id, decided, ANY)
    assert in_doubt(ledger, run_id) == []
    fork = ledger.fork(run_id, at=5)
    assert in_doubt(ledger, fork) == ["c1"]
    ledger.append(fork, decided, ANY)
    assert in_doubt(ledger, fork) == []


def in_doubt(ledger: Ledger, run_id: UUID) -> list[str]:
    return [call.call_id for call in RunReader(ledger, run_id).in_doubt()]
