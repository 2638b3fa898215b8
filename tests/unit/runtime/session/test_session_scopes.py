"""A tool's changes: its own until its result is recorded, and gone if it is not."""

from __future__ import annotations

import contextvars
from threading import Barrier, Event, Thread
from typing import Any

import pytest

from tests.unit.runtime.states import (
    Added,
    Counter,
    Plan,
    Step,
    message,
    new_run,
    on_disk,
    prepared,
    slices,
)
from tests.unit.runtime.threads import side_by_side
from turnledger.ledger import InnerMessage, Ledger, LimitExceededError, Limits, SliceEventApplied
from turnledger.runtime import ScopeClosedError, Session
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.session import Overlay


def attached(session: Session | None = None) -> tuple[Session, Journal]:
    session = prepared(session or Session())
    journal = new_run(Ledger.open("memory://"), session)
    session.attach(journal)
    return session, journal


def in_thread(work: Any) -> list[BaseException]:
    """Run work in a thread with a context of its own; what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join(timeout=30)
    assert not thread.is_alive()
    return raised


def test_a_tools_changes_are_seen_by_that_tool_only() -> None:
    """Through whatever reference to the session it has; elsewhere it is as before."""
    session, journal = attached()
    session[Step].append(Step("before"))
    overlay = Overlay(journal, "c1")
    with session.scope(overlay):
        session[Step].append(Step("mine"))
        session.mutate(Plan).append(Plan())
        assert session[Step].all() == (Step("before"), Step("mine"))
        assert session.snapshot().slices[0].items == ({"steps": [], "notes": {}},)
        outside = contextvars.Context().run(session[Step].all)
        assert outside == (Step("before"),)
    assert session[Step].all() == (Step("before"),)
    assert overlay.state.slices.all("Step") == (Step("before"), Step("mine"))


def test_events_made_within_a_tool_carry_its_call_id() -> None:
    """Others carry none."""
    session, journal = attached()
    session[Step].append(Step("outside"))
    overlay = Overlay(journal, "c1")
    with session.scope(overlay):
        session[Step].append(Step("a"))
        session[Counter].apply(Added(1))
    events = overlay.close()
    assert [event.call_id for event in events if isinstance(event, SliceEventApplied)] == [
        "c1",
        "c1",
    ]
    assert [record.event.call_id for record in journal.pending_records()] == [None]  # type: ignore[union-attr]


def test_an_overlay_that_is_dropped_leaves_no_trace() -> None:
    """Neither in the state nor in the ledger: that is what rollback means."""
    session, journal = attached()
    session[Step].append(Step("a"))
    session.commit()
    before, version = session.state.state_digest, journal.known.version
    overlay = Overlay(journal, "c1")
    with session.scope(overlay):
        session[Step].clear()
        session[Plan].append(Plan())
        session[InnerMessage].append(message("user", "Hi", 0))
        session.mutate().reset()
    overlay.close()
    session.commit()
    assert (session.state.state_digest, journal.known.version) == (before, version)
    assert on_disk(session).state_digest == before


def test_an_overlays_events_added_to_the_journal_give_what_the_tool_saw() -> None:
    """When nothing else happened meanwhile."""
    session, journal = attached()
    overlay = Overlay(journal, "c1")
    with session.scope(overlay):
        session[Step].append(Step("a"))
        session[Counter].apply(Added(2))
        seen = slices(session.state)
    changes = overlay.changes
    journal.add(changes)
    assert journal.known is changes.after
    journal.commit()
    assert slices(session.state) == seen == slices(on_disk(session))
    assert list(journal.ledger.read(journal.run_id))[-1].event == overlay.events[-1]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_tools_side_by_side_see_their_start_and_themselves_and_are_merged(
    order: tuple[int, int],
) -> None:
    """In the order in which they end."""
    session, journal = attached()
    session[Counter].apply(Added(100))
    session.commit()
    overlays = [Overlay(journal, "c0"), Overlay(journal, "c1")]
    barrier = Barrier(2)

    def tool(number: int) -> None:
        with session.scope(overlays[number]):
            session[Step].append(Step(f"tool {number}"))
            barrier.wait(timeout=30)
            session[Counter].apply(Added(number + 1))
            barrier.wait(timeout=30)
            assert session[Step].all() == (Step(f"tool {number}"),)
            assert session[Counter].latest() == Counter(101 + number)

    side_by_side(lambda: tool(0), lambda: tool(1))
    for number in order:
        journal.add(overlays[number].changes)
    journal.commit()
    assert session[Counter].latest() == Counter(103)
    assert session[Step].all() == tuple(Step(f"tool {number}") for number in order)
    assert slices(session.state) == slices(on_disk(session))


def test_a_handler_in_another_thread_has_the_scope_with_its_context() -> None:
    """As a tool with a timeout is run, or what a handler starts in a copy of its context."""
    session, journal = attached()
    overlay = Overlay(journal, "c1")
    with session.scope(overlay):
        work = contextvars.copy_context()
        raised = in_thread(lambda: work.run(session[Step].append, Step("a")))
        assert raised == []
        assert session[Step].all() == (Step("a"),)
    assert session[Step].all() == ()


def test_a_thread_without_the_tools_context_may_not_write_past_the_tool() -> None:
    """While a tool runs; the loop's own thread may, and afterwards everybody."""
    session, journal = attached()
    overlay = Overlay(journal, "c1")
    with session.scope(overlay):
        (error,) = in_thread(lambda: session[Step].append(Step("stray")))
        assert isinstance(error, ScopeClosedError)
        assert "copy_context" in str(error)
        contextvars.Context().run(session[Step].append, Step("loop"))
    overlay.close()
    assert in_thread(lambda: session[Step].append(Step("later"))) == []
    assert session[Step].all() == (Step("loop"), Step("later"))


def test_what_a_handler_writes_after_its_scope_is_refused() -> None:
    """It timed out and goes on: neither its tool nor the session changes."""
    session, journal = attached()
    overlay = Overlay(journal, "c1")
    started, over = Event(), Event()
    raised: list[BaseException] = []
    read: list[Any] = []

    def handler() -> None:
        session[Step].append(Step("in time"))
        started.set()
        over.wait(timeout=30)
        read.append(session[Step].all())
        for attempt in (
            lambda: session[Step].append(Step("late")),
            lambda: session.mutate(Plan).clear(),
            lambda: session.mutate().reset(),
        ):
            try:
                attempt()
            except ScopeClosedError as error:
                raised.append(error)

    with session.scope(overlay):
        thread = Thread(target=contextvars.copy_context().run, args=(handler,))
        thread.start()
        assert started.wait(timeout=30)
    over.set()
    thread.join(timeout=30)
    assert len(raised) == 3
    assert "c1" in str(raised[0])
    assert read == [(Step("in time"),)]
    assert len(overlay.close()) == 1
    assert session[Step].all() == ()


def test_an_overlay_may_be_entered_again_until_it_is_closed() -> None:
    """By the handler, then by those who listen to its result; closing twice is harmless."""
    session, journal = attached()
    overlay = Overlay(journal, "c1")
    with session.scope(overlay):
        session[Step].append(Step("handler"))
    with session.scope(overlay) as same:
        assert same is overlay
        session[Step].append(Step("listener"))
        events = overlay.close()
        assert overlay.is_closed
        with pytest.raises(ScopeClosedError):
            session[Step].append(Step("late"))
    assert overlay.close() == events == overlay.events
    assert len(events) == 2


def test_scopes_of_several_sessions_do_not_meet() -> None:
    """A tool may run an agent of its own, which has tools."""
    session, journal = attached()
    inner, inner_journal = attached()
    overlay = Overlay(journal, "c1")
    with session.scope(overlay):
        session[Step].append(Step("outer"))
        inner[Step].append(Step("inner"))
        inner_overlay = Overlay(inner_journal, "c2")
        with inner.scope(inner_overlay):
            inner[Step].append(Step("innermost"))
            session[Step].append(Step("outer too"))
            assert inner[Step].all() == (Step("inner"), Step("innermost"))
        assert inner[Step].all() == (Step("inner"),)
        assert session[Step].all() == (Step("outer"), Step("outer too"))
    assert (len(overlay.events), len(inner_overlay.events)) == (2, 1)


def test_a_scope_is_left_by_an_error_too() -> None:
    """And the session is itself again."""
    session, journal = attached()
    with pytest.raises(ZeroDivisionError), session.scope(Overlay(journal)):
        raise ZeroDivisionError
    session[Step].append(Step("a"))
    assert session[Step].all() == (Step("a"),)


def test_a_tool_neither_commits_nor_moves_the_session() -> None:
    """Both are the loop's."""
    session, journal = attached()
    other = new_run(journal.ledger, session)
    with session.scope(Overlay(journal, "c1")):
        with pytest.raises(ScopeClosedError):
            session.commit()
        with pytest.raises(ScopeClosedError):
            session.attach(other)


def test_a_tool_that_changes_too_much_for_one_commit_is_told_so() -> None:
    """While it can still be a failed tool, and not when its result is committed."""
    session = prepared(Session())
    ledger = Ledger.open("memory://", limits=Limits(max_batch_events=60))
    journal = new_run(ledger, session)
    session.attach(journal)
    overlay = Overlay(journal, "c1")
    with session.scope(overlay):
        for number in range(10):
            session[Step].append(Step(str(number)))
        with pytest.raises(LimitExceededError, match="c1"):
            session[Step].append(Step("one too many"))
    assert len(overlay.close()) == 10


def test_a_clone_made_within_a_tool_has_that_tools_changes() -> None:
    """And goes its own way."""
    session, journal = attached()
    session[Step].append(Step("a"))
    overlay = Overlay(journal, "c1")
    with session.scope(overlay):
        session[Step].append(Step("b"))
        session[InnerMessage].append(message("user", "Hi", 0))
        twin = session.clone()
        twin[Step].append(Step("c"))
        assert session[Step].all() == (Step("a"), Step("b"))
    assert twin[Step].all() == (Step("a"), Step("b"), Step("c"))
    assert len(twin.state.conversation.messages) == 1


def test_many_threads_of_one_tool_lose_nothing() -> None:
    """An overlay is whole, whoever writes to it."""
    session, journal = attached()
    overlay = Overlay(journal, "c1")

    def work(name: str) -> None:
        for number in range(25):
            session[Step].append(Step(f"{name}{number}"))
            session[Counter].apply(Added(1))

    with session.scope(overlay):
        contexts = [contextvars.copy_context() for _ in range(4)]
        side_by_side(
            *(
                lambda context=context, name=name: context.run(work, name)
                for context, name in zip(contexts, "abcd", strict=True)
            )
        )
        assert session[Counter].latest() == Counter(100)
        assert len(set(session[Step].all())) == 100
    journal.add(*overlay.close())
    journal.commit()
    assert session[Counter].latest() == Counter(100)
