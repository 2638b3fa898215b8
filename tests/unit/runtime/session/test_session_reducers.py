"""Reducers of a session: missing, failing, late; live state is what the ledger folds to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.runtime.states import (
    Added,
    Counter,
    Plan,
    Step,
    StepDone,
    mark_done,
    message,
    on_disk,
    slices,
)
from turnledger.ledger import InnerMessage, InvalidInputError, SliceEventApplied
from turnledger.projections import append_all, inner_message_append, reducer, replace_latest
from turnledger.runtime import (
    ReducerFailedError,
    ReducerNotFoundError,
    Session,
    SessionError,
    enable_inner_message_recording,
)
from turnledger.runtime.session import Overlay


def failing(values: Any, event: Any, *, context: Any) -> Any:
    raise ZeroDivisionError("no")


def as_on_disk(session: Session) -> bool:
    return session.state.state_digest == on_disk(session).state_digest


def test_an_event_without_a_reducer_is_refused_and_nothing_is_recorded() -> None:
    """The error names both types and what to do."""
    session = Session()
    before = session.journal.known.version
    for attempt in (session[Step].apply, session.mutate(Step).dispatch):
        with pytest.raises(ReducerNotFoundError) as caught:
            attempt(StepDone("a"))
        assert "session[Step].register(StepDone, reducer)" in str(caught.value)
        assert (caught.value.slice_type, caught.value.event_type) == ("Step", "StepDone")
    assert isinstance(caught.value, SessionError)
    assert isinstance(caught.value, LookupError)
    assert session.journal.known.version == before


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (failing, "ZeroDivisionError: no"),
        (lambda values, event, *, context: None, "TypeError"),
        (lambda values, event, *, context: (5,), "it returned a int for a slice of Step"),
        (lambda values, event, *, context: (Step(b"x"),), "not JSON"),  # type: ignore[arg-type]
        (lambda values, event: values, "TypeError"),
    ],
)
def test_a_reducer_that_fails_is_named_and_nothing_is_recorded(broken: Any, why: str) -> None:
    """Nor is anything pending: the session goes on as before."""
    session = Session()
    session[Step].append(Step("a"))
    session[Step].register(StepDone, broken)
    before = session.journal.known.version
    with pytest.raises(ReducerFailedError) as caught:
        session[Step].apply(StepDone("a"))
    error = caught.value
    assert (error.slice_type, error.event_type) == ("Step", "StepDone")
    assert error.reducer in str(error)
    assert why in str(error)
    assert session.journal.known.version == before
    assert not session.journal.has_pending
    session[Step].append(Step("b"))
    assert session[Step].all() == (Step("a"), Step("b"))


def test_several_events_of_one_change_are_all_recorded_or_none() -> None:
    """A message that a reducer fails on takes the restored state with it."""
    source = Session()
    enable_inner_message_recording(source)
    source[Plan].append(Plan(("a",)))
    source[InnerMessage].append(message("system", "Hi", 0))
    session = Session()
    session[Plan].append(Plan(("b",)))
    session[InnerMessage].register(InnerMessage, failing)
    with pytest.raises(ReducerFailedError):
        session.restore(source.snapshot())
    assert session[Plan].all() == (Plan(("b",)),)
    assert as_on_disk(session)


def test_a_reducer_that_comes_late_sees_what_was_recorded_before_it() -> None:
    """Live state is the fold of the ledger with what is declared today."""
    session = Session()
    for name in "ab":
        session[Step].append(Step(name))
    session[Step].register(Step, replace_latest)
    assert session[Step].all() == (Step("b"),)
    assert as_on_disk(session)
    session[Step].register(Step, append_all)
    assert session[Step].all() == (Step("a"), Step("b"))
    assert as_on_disk(session)


def test_an_event_that_nobody_could_apply_is_applied_when_somebody_can() -> None:
    """It was recorded by a program that knew more."""
    session = Session()
    done = SliceEventApplied(slice="Step", event_type="StepDone", payload={"name": "a"})
    session[Step].append(Step("a"))
    session.change(lambda known: [done])
    assert session.state.slices.unapplied == 1
    session[Step].register(StepDone, mark_done)
    assert session[Step].all() == (Step("a", True),)
    assert session.state.slices.unapplied == 0
    assert as_on_disk(session)


def test_a_late_reducer_that_fails_on_what_was_recorded_is_taken_back() -> None:
    """The one before it counts again."""
    session = Session()
    session[Step].append(Step("a"))
    with pytest.raises(ReducerFailedError):
        session[Step].register(Step, failing)
    assert session[Step].all() == (Step("a"),)
    session[Step].register(Step, replace_latest)
    with pytest.raises(ReducerFailedError):
        session[Step].register(Step, failing)
    session[Step].append(Step("b"))
    assert session[Step].all() == (Step("b"),)
    assert as_on_disk(session)


def test_a_class_whose_reducers_fail_on_what_was_recorded_is_not_installed() -> None:
    """The session goes on without it, and so does its loop."""

    class Broken(Plan):
        @reducer(on=Added)
        def add(self, event: Added) -> Broken:
            raise ZeroDivisionError

    session = Session()
    added = SliceEventApplied(slice="Broken", event_type="Added", payload={"by": 1})
    session.change(lambda known: [added])
    for _ in range(2):
        with pytest.raises(ReducerFailedError):
            session[Broken].all()
    session[Plan].append(Plan())
    assert session[Plan].all() == (Plan(),)


def test_values_are_typed_however_late_their_type_is_named() -> None:
    """Until then they are folded as JSON: a run can be resumed before its types are used."""
    session = Session()
    step = SliceEventApplied(slice="Step", event_type="Step", payload={"name": "a"})
    session.change(lambda known: [step])
    assert session.state.slices.all("Step") == ({"name": "a"},)
    assert session[Step].all() == (Step("a"),)
    assert as_on_disk(session)


def test_naming_what_was_never_used_folds_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a name that occurs in the run costs the run."""
    session = Session()
    session[Step].append(Step("a"))
    folds: list[int] = []
    folded = session.journal.folded
    monkeypatch.setattr(session.journal, "folded", lambda *given: folds.append(1) or folded(*given))
    session[Plan].append(Plan())
    session[Counter].apply(Added(1))
    session[Plan].register(StepDone, lambda values, event, *, context: values)
    session[Plan].all()
    assert len(folds) == 1
    session[Counter].register(Added, lambda values, event, *, context: values)
    assert len(folds) == 2


def test_registering_the_same_reducer_again_folds_nothing_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`enable_inner_message_recording` is called for every run of a reused session."""
    session = Session()
    enable_inner_message_recording(session)
    session[InnerMessage].append(message("system", "Hi", 0))
    monkeypatch.setattr(session.journal, "folded", None)
    enable_inner_message_recording(session)
    session[InnerMessage].register(InnerMessage, inner_message_append)
    assert len(session[InnerMessage].all()) == 1


def test_a_type_that_is_first_named_within_a_tool_is_known_to_all_tools() -> None:
    """Also to those that began before it was named."""
    session = Session()
    step = SliceEventApplied(slice="Step", event_type="Step", payload={"name": "a"})
    session.change(lambda known: [step])
    one, other = Overlay(session.journal, "c1"), Overlay(session.journal, "c2")
    with session.scope(one):
        session[Step].append(Step("b"))
        assert session[Step].all() == (Step("a"), Step("b"))
    with session.scope(other):
        assert session[Step].all() == (Step("a"),)
    assert session[Step].all() == (Step("a"),)


def test_a_reducer_that_fails_within_a_tool_leaves_the_tools_changes_as_they_were() -> None:
    """All or nothing there too."""
    session = Session()
    session[Step].register(StepDone, failing)
    overlay = Overlay(session.journal, "c1")
    with session.scope(overlay):
        session[Step].append(Step("a"))
        with pytest.raises(ReducerFailedError):
            session[Step].apply(StepDone("a"))
        assert session[Step].all() == (Step("a"),)
    assert len(overlay.events) == 1


@pytest.mark.parametrize(
    ("event_type", "one"), [("StepDone", mark_done), (StepDone, None), (StepDone, "mark_done")]
)
def test_what_is_no_event_type_or_no_function_is_refused(event_type: Any, one: Any) -> None:
    """Before it is registered."""
    session = Session()
    with pytest.raises(InvalidInputError):
        session[Step].register(event_type, one)
    with pytest.raises(ReducerNotFoundError):
        session[Step].apply(StepDone("a"))


def test_a_reducer_that_gives_back_what_it_got_changes_nothing() -> None:
    """The event is recorded all the same."""
    session = Session()
    session[Step].append(Step("a"))
    session[Step].register(StepDone, lambda values, event, *, context: values)
    before = slices(session.state)
    session[Step].apply(StepDone("zzz"))
    assert slices(session.state) == before
    assert session.journal.known.version == 3
