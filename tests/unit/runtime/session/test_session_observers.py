"""Observers of a slice: told once per commit that changed it, when it is on disk."""

from __future__ import annotations

import logging
from threading import Lock
from typing import Any

import pytest

from tests.unit.runtime.states import (
    Plan,
    Step,
    StepDone,
    answering,
    asking,
    message,
    new_run,
    on_disk,
    prepared,
)
from tests.unit.runtime.threads import side_by_side
from turnledger.ledger import EvaluationStarted, InnerMessage, Ledger
from turnledger.runtime import Session, enable_inner_message_recording
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.session import Overlay

STORES = ["sqlite"]

BEGUN = EvaluationStarted(evaluation_id="e1", prompt_ns="n", prompt_key="k", prompt_digest="d")
Seen = list[tuple[tuple[Any, ...], tuple[Any, ...]]]


def observed(session: Session, kind: Any) -> Seen:
    seen: Seen = []
    session.observe(kind, lambda old, new: seen.append((old, new)))
    return seen


def test_an_observer_gets_the_values_before_and_after() -> None:
    """S0-22: once per change of a session by itself."""
    session = prepared(Session())
    seen = observed(session, Step)
    session[Step].append(Step("a"))
    session[Plan].append(Plan())
    session[Step].apply(StepDone("a"))
    session[Step].clear()
    assert seen == [
        ((), (Step("a"),)),
        ((Step("a"),), (Step("a", True),)),
        ((Step("a", True),), ()),
    ]


def test_an_observer_is_told_when_the_change_is_on_disk(ledger: Ledger) -> None:
    """S0-22: another process would already see it."""
    session = prepared(Session())
    session.attach(new_run(ledger, session))
    found: list[Any] = []
    session.observe(Step, lambda old, new: found.append(on_disk(session).slices.all("Step") == new))
    session[Step].append(Step("a"))
    assert found == []
    session.commit()
    assert found == [True]


def test_several_changes_of_one_commit_are_one_call_for_each_slice(ledger: Ledger) -> None:
    """With the values before the first and after the last."""
    session = prepared(Session())
    journal = new_run(ledger, session)
    session.attach(journal)
    steps, plans = observed(session, Step), observed(session, Plan)
    for name in "abc":
        session[Step].append(Step(name))
    session[Plan].append(Plan())
    journal.commit()
    journal.commit()
    assert steps == [((), (Step("a"), Step("b"), Step("c")))]
    assert plans == [((), (Plan(),))]


def test_a_commit_that_changes_nothing_in_a_slice_tells_nobody(ledger: Ledger) -> None:
    """Neither when it was emptied and filled again, nor when it was empty all along."""
    session = prepared(Session())
    session.attach(new_run(ledger, session))
    session[Step].append(Step("a"))
    session.commit()
    seen, plans = observed(session, Step), observed(session, Plan)
    session[Step].clear()
    session[Step].append(Step("a"))
    session[Plan].clear()
    session.commit()
    assert seen == plans == []


def test_a_tools_changes_are_told_when_its_result_is_committed(ledger: Ledger) -> None:
    """And never if they are dropped."""
    session = prepared(Session())
    journal = new_run(ledger, session)
    session.attach(journal)
    seen = observed(session, Step)
    kept, dropped = Overlay(journal, "c1"), Overlay(journal, "c2")
    for overlay, name in ((kept, "kept"), (dropped, "dropped")):
        with session.scope(overlay):
            session[Step].append(Step(name))
    dropped.close()
    journal.add(*kept.close())
    assert seen == []
    journal.commit()
    assert seen == [((), (Step("kept"),))]


def test_what_is_handed_to_a_run_is_not_told_again(ledger: Ledger) -> None:
    """It was told when it was recorded; what comes after it is news."""
    session = prepared(Session())
    seen = observed(session, Step)
    session[Step].append(Step("a"))
    assert len(seen) == 1
    journal = new_run(ledger, session)
    session.attach(journal)
    journal.commit()
    assert len(seen) == 1
    session[Step].append(Step("b"))
    session.commit()
    assert seen[1:] == [((Step("a"),), (Step("a"), Step("b")))]


def test_what_is_handed_over_and_changed_in_one_commit_is_told_as_the_change(
    ledger: Ledger,
) -> None:
    """From what was told last."""
    session = prepared(Session())
    seen = observed(session, Step)
    session[Step].append(Step("a"))
    session.attach(new_run(ledger, session))
    session[Step].append(Step("b"))
    session.commit()
    assert seen[1:] == [((Step("a"),), (Step("a"), Step("b")))]


def test_what_changed_between_runs_is_told_in_the_next(ledger: Ledger) -> None:
    """Once, when it is on disk there."""
    session = prepared(Session())
    first = new_run(ledger, session)
    session.attach(first)
    session[Step].append(Step("a"))
    session.commit()
    seen = observed(session, Step)
    session[Step].append(Step("between"))
    child = ledger.continuation(first.run_id)
    session.attach(Journal(ledger, child, declarations=session.declarations))
    assert seen == []
    session.commit()
    assert seen == [((Step("a"),), (Step("a"), Step("between")))]


def test_taking_up_a_run_is_no_change(ledger: Ledger) -> None:
    """What it held was told to those who listened then."""
    first = prepared(Session())
    journal = new_run(ledger, first)
    first.attach(journal)
    journal.add(BEGUN)
    first[Step].append(Step("a"))
    first.commit()
    session = prepared(Session())
    session[Step].append(Step("of create_session"))
    seen = observed(session, Step)
    session.attach(Journal(ledger, journal.run_id, declarations=session.declarations))
    session[Step].append(Step("b"))
    session.commit()
    assert seen == [((Step("a"),), (Step("a"), Step("b")))]


def test_messages_are_observed_with_the_status_of_their_calls() -> None:
    """S0-8: as they are read."""
    session = Session()
    enable_inner_message_recording(session)
    session[InnerMessage].append(asking(1, "c1"))
    seen = observed(session, InnerMessage)
    session[InnerMessage].append(answering(2, "c1"))
    ((old, new),) = seen
    assert [call.status for call in old[0].tool_calls] == ["pending"]
    assert [call.status for call in new[0].tool_calls] == ["completed"]


def test_recording_messages_late_is_no_change_of_them() -> None:
    """The slice appears; what comes after it is told."""
    session = Session()
    session[InnerMessage].append(message("system", "Hi", 0))
    seen = observed(session, InnerMessage)
    enable_inner_message_recording(session)
    session[Plan].append(Plan())
    assert seen == []
    session[InnerMessage].append(message("user", "Hello", 1))
    assert [(len(old), len(new)) for old, new in seen] == [(1, 2)]


def test_an_observer_may_be_taken_back() -> None:
    """Twice is harmless, and others stay."""
    session = Session()
    seen: list[Any] = []

    def observer(old: Any, new: Any) -> None:
        seen.append(new)

    first = session.observe(Plan, observer)
    session.observe(Plan, observer)
    session[Plan].append(Plan())
    assert len(seen) == 2
    first()
    session[Plan].append(Plan())
    assert len(seen) == 3
    first()
    session[Plan].append(Plan())
    assert len(seen) == 3


def test_an_observer_that_fails_is_logged_and_keeps_nobody_from_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The change is recorded, and others are told."""
    session = Session()

    def broken(old: Any, new: Any) -> None:
        raise ZeroDivisionError

    session.observe(Plan, broken)
    seen = observed(session, Plan)
    with caplog.at_level(logging.ERROR, "turnledger.session"):
        session[Plan].append(Plan(("secret",)))
    assert len(seen) == 1
    assert "An observer of Plan failed" in caplog.text
    assert "secret" not in caplog.records[0].getMessage()


def test_an_observer_that_changes_the_session_is_told_of_it_in_turn() -> None:
    """All observers hear of the first change before anybody hears of the second."""
    session = Session()
    told: list[tuple[str, int]] = []

    def adding(old: Any, new: Any) -> None:
        told.append(("adding", len(new)))
        if len(new) < 3:
            session[Plan].append(Plan())

    session.observe(Plan, adding)
    session.observe(Plan, lambda old, new: told.append(("watching", len(new))))
    session[Plan].append(Plan())
    assert told == [(who, count) for count in (1, 2, 3) for who in ("adding", "watching")]


def test_observers_are_told_in_order_and_one_at_a_time() -> None:
    """However many threads change the session."""
    session = prepared(Session())
    told: list[tuple[int, int]] = []
    at_once: list[bool] = []
    busy = Lock()

    def observer(old: Any, new: Any) -> None:
        at_once.append(not busy.acquire(blocking=False))
        told.append((len(old), len(new)))
        busy.release()

    session.observe(Step, observer)

    def work() -> None:
        for _ in range(30):
            session[Step].append(Step("x"))

    side_by_side(work, work, work)
    assert told == [(number, number + 1) for number in range(90)]
    assert not any(at_once)
