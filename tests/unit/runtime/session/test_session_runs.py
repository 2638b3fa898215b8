"""A session and its runs: by itself, attached to one, handed from one to the next, cloned."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.unit.runtime.states import (
    Added,
    Counter,
    Plan,
    Step,
    StepDone,
    answering,
    asking,
    message,
    new_run,
    on_disk,
    prepared,
    slices,
)
from tests.unit.runtime.threads import side_by_side
from turnledger.ledger import (
    EvaluationStarted,
    InnerMessage,
    InvalidInputError,
    Ledger,
    MessageAppended,
    RunResumed,
    RunStarted,
    SliceEventApplied,
    StoreUnavailableError,
    new_run_id,
)
from turnledger.runtime import InProcessEventBus, Session, enable_inner_message_recording
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.session.changes import recorded_by_session

STORES = ["memory", "sqlite"]

BEGUN = EvaluationStarted(evaluation_id="e1", prompt_ns="n", prompt_key="k", prompt_digest="d")


def created() -> Session:
    """What a create_session gives."""
    session = prepared(Session())
    session[Plan].seed([Plan(("a",))])
    session[Counter].apply(Added(2))
    return session


def again(ledger: Ledger, run_id: Any, session: Session) -> Journal:
    """The journal of a run that another process left."""
    return Journal(ledger, run_id, declarations=session.declarations)


def following(ledger: Ledger, session: Session) -> Journal:
    """The journal of the run that continues the session's last one."""
    parent = session.run_in(ledger)
    assert parent is not None
    child = ledger.continuation(parent)
    return again(ledger, child, session)


def recorded(journal: Journal) -> list[str]:
    return [record.tag for record in journal.ledger.read(journal.run_id)]


# --- pending and durable -------------------------------------------------------------


def test_changes_by_itself_are_on_record_at_once_and_attached_with_the_next_commit(
    ledger: Ledger,
) -> None:
    """Reads see them either way."""
    session = prepared(Session(ledger=ledger))
    session[Plan].append(Plan())
    assert slices(on_disk(session)) == {"Plan": (Plan(),)}
    session.attach(new_run(ledger, session))
    session[Plan].append(Plan(("b",)))
    assert session[Plan].all() == (Plan(), Plan(("b",)))
    assert slices(on_disk(session)) == {}
    session.commit()
    assert slices(on_disk(session)) == slices(session.state)


def test_an_append_that_is_refused_leaves_a_session_by_itself_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And one whose outcome is unknown is kept, to be settled by the next."""
    session = prepared(Session())
    session[Plan].append(Plan())
    refused = InvalidInputError("no")
    real = session.journal.ledger.append

    def refuse(*given: Any, **more: Any) -> Any:
        raise refused

    monkeypatch.setattr(session.journal.ledger, "append", refuse)
    with pytest.raises(InvalidInputError):
        session[Plan].append(Plan(("b",)))
    assert session[Plan].all() == (Plan(),)
    refused = StoreUnavailableError("who knows")  # type: ignore[assignment]
    with pytest.raises(StoreUnavailableError):
        session[Plan].append(Plan(("c",)))
    monkeypatch.setattr(session.journal.ledger, "append", real)
    session[Plan].append(Plan(("d",)))
    assert session[Plan].all() == (Plan(), Plan(("c",)), Plan(("d",)))
    assert slices(on_disk(session)) == slices(session.state)


def test_threads_that_share_a_session_lose_nothing() -> None:
    """By itself, where each change is a commit."""
    session = prepared(Session())

    def work(name: str) -> None:
        for number in range(20):
            session[Step].append(Step(f"{name}{number}"))
            session[Counter].apply(Added(1))

    side_by_side(*(lambda name=name: work(name) for name in "abcd"))
    assert session[Counter].latest() == Counter(80)
    assert len(set(session[Step].all())) == 80
    assert session.state.state_digest == on_disk(session).state_digest


# --- attaching -----------------------------------------------------------------------


def test_what_was_recorded_before_a_new_run_is_handed_to_it(ledger: Ledger) -> None:
    """As pending events, all but RunStarted; they commit with the loop's first."""
    session = created()
    session[InnerMessage].append(message("user", "Hi", 0))
    before = slices(session.state)
    expected = session.take_recorded()
    journal = new_run(ledger, session, session_id=session.session_id)
    assert session.attach(journal) == ()
    assert session.journal is journal
    assert slices(session.state) == before
    assert [record.event for record in journal.pending_records()] == expected
    assert recorded(journal) == ["run.started"]
    journal.commit()
    assert slices(on_disk(session)) == before
    assert len(on_disk(session).conversation.messages) == 1
    assert recorded(journal)[1:] == [
        "slice.event_applied",
        "slice.event_applied",
        "message.appended",
    ]


def test_a_run_that_was_begun_gets_nothing_and_what_differs_can_be_compared(
    ledger: Ledger,
) -> None:
    """Another process recovers it, and its create_session is called again."""
    first = created()
    journal = new_run(ledger, first)
    first.attach(journal)
    journal.add(BEGUN)
    first[Plan].append(Plan(("b",)))
    journal.commit()

    session = created()
    resumed = again(ledger, journal.run_id, session)
    would_be = session.attach(resumed)
    assert list(would_be) == recorded_by_session(ledger.read(journal.run_id))[:-1]
    assert not resumed.has_pending
    assert slices(session.state) == slices(on_disk(first))
    assert session[Plan].all() == (Plan(("a",)), Plan(("b",)))


def test_a_run_that_died_before_its_first_commit_gets_all_of_it(ledger: Ledger) -> None:
    """It was started, perhaps resumed, and nothing more: a resume is a fresh run."""
    dead = new_run_id()
    ledger.append(dead, RunStarted(), expected_version=0)
    ledger.append(dead, RunResumed(attempt=1, from_version=1), expected_version=1)
    session = created()
    journal = again(ledger, dead, session)
    assert session.attach(journal) == ()
    journal.commit()
    assert slices(on_disk(session)) == slices(created().state)


def test_a_reused_session_goes_on_in_a_continuation(ledger: Ledger) -> None:
    """S2-11: its state is there already; what was changed between the runs is pending."""
    session = created()
    enable_inner_message_recording(session)
    first = new_run(ledger, session)
    session.attach(first)
    session[InnerMessage].append(message("user", "Hi", 0))
    session.commit()
    session[Plan].append(Plan(("between",)))
    assert first.has_pending

    second = following(ledger, session)
    session.attach(second)
    assert not first.has_pending
    assert [record.tag for record in second.pending_records()] == ["slice.event_applied"]
    assert session[Plan].all() == (Plan(("a",)), Plan(("between",)))
    assert session[Counter].latest() == Counter(2)
    assert session[InnerMessage].all() == (message("user", "Hi", 0),)
    assert len(session.state.conversation.messages) == 0
    session.commit()
    assert slices(on_disk(session)) == slices(session.state)
    assert "between" not in str(slices(first.state))


def test_only_what_the_session_added_moves_to_the_next_run(ledger: Ledger) -> None:
    """What a loop left pending when it was interrupted did not happen."""
    session = created()
    first = new_run(ledger, session)
    session.attach(first)
    session.commit()
    first.add(MessageAppended(message=message("user", "never said", 0)))
    session[Plan].append(Plan(("between",)))
    assert session.take_recorded() == [
        SliceEventApplied(
            slice="Plan", event_type="Plan", payload={"steps": ["between"], "notes": {}}
        )
    ]
    assert [record.tag for record in first.pending_records()] == ["message.appended"]
    assert session.take_recorded() == []


def test_a_continuation_that_another_process_takes_up_has_its_state_from_the_ledger(
    ledger: Ledger,
) -> None:
    """What create_session does there was done before the first run."""
    first = created()
    journal = new_run(ledger, first)
    first.attach(journal)
    first[Counter].apply(Added(5))
    first.commit()
    child = ledger.continuation(journal.run_id)
    session = created()
    would_be = session.attach(again(ledger, child, session))
    assert not session.journal.has_pending
    assert session[Counter].latest() == Counter(7)
    journal.add(BEGUN)
    journal.commit()
    assert list(would_be) == recorded_by_session(ledger.read(child))[:2]


def test_a_session_that_moves_to_another_ledger_brings_its_state(tmp_path: Path) -> None:
    """Its slices, as in a continuation; the conversation stays where it was."""
    session = created()
    enable_inner_message_recording(session)
    session.declare(Step, name="Step")
    session.attach(new_run(Ledger.open("memory://"), session))
    session[InnerMessage].append(message("user", "Hi", 0))
    session.commit()
    session[Step].append(Step("pending"))
    before = slices(session.state)
    with Ledger.open(tmp_path / "other.db") as other:
        assert session.run_in(other) is None
        session.attach(new_run(other, session))
        assert slices(session.state) == before
        session.commit()
        assert slices(on_disk(session)) == before
        assert len(session.state.conversation.messages) == 0


def test_the_same_run_may_be_attached_again(ledger: Ledger) -> None:
    """It failed, somebody changed the state, and it is recovered with the same session."""
    session = created()
    journal = new_run(ledger, session)
    session.attach(journal)
    assert session.attach(journal) == ()
    journal.add(BEGUN)
    session.commit()
    session[Step].append(Step("mended"))
    resumed = again(ledger, journal.run_id, session)
    assert session.attach(resumed) == ()
    assert session[Step].all() == (Step("mended"),)
    assert resumed.has_pending
    assert not journal.has_pending


def test_a_journal_that_folds_other_types_is_refused(ledger: Ledger) -> None:
    """It would show the session something else than it declares."""
    session = created()
    journal = Journal(ledger, uuid4())
    with pytest.raises(InvalidInputError, match=r"declarations=session\.declarations"):
        session.attach(journal)


def test_types_that_are_named_after_the_journal_was_made_count(ledger: Ledger) -> None:
    """A run is folded, and only then does a tool name its slice."""
    first = prepared(Session())
    journal = new_run(ledger, first)
    first.attach(journal)
    first[Step].append(Step("a"))
    first[Step].apply(StepDone("a"))
    first.commit()
    session = Session()
    resumed = again(ledger, journal.run_id, session)
    prepared(session)
    session.attach(resumed)
    assert session[Step].all() == (Step("a", True),)
    assert session.state.state_digest == on_disk(session).state_digest


def test_more_than_a_ledger_takes_at_once_is_handed_over_all_the_same(ledger: Ledger) -> None:
    """In several appends."""
    session = prepared(Session())
    for number in range(1100):
        session[Step].append(Step(str(number)))
    session.attach(new_run(ledger, session))
    session.commit()
    assert len(session[Step].all()) == 1100
    assert slices(on_disk(session)) == slices(session.state)


# --- runs of its own -----------------------------------------------------------------


def test_a_session_without_a_ledger_continues_in_its_own_memory() -> None:
    """A second run has the state and another conversation, and is recorded at once."""
    session = created()
    session[InnerMessage].append(message("user", "Hi", 0))
    first = session.journal
    journal = session.begin_run(RunStarted(request_type="Ask"))
    assert journal is session.journal is not first
    assert session[Counter].latest() == Counter(2)
    assert len(session.state.conversation.messages) == 0
    assert journal.progress.started is not None
    assert journal.progress.started.request_type == "Ask"
    assert journal.progress.started.parent == first.run_id
    session[Counter].apply(Added(1))
    assert not journal.has_pending
    assert slices(on_disk(session)) == slices(session.state)


def test_a_session_that_was_attached_can_go_on_by_itself(ledger: Ledger) -> None:
    """With the state that it had there, pending changes included."""
    session = created()
    session.attach(new_run(ledger, session))
    session.commit()
    session[Counter].apply(Added(1))
    session.begin_run()
    assert session[Counter].latest() == Counter(3)
    session[Counter].apply(Added(1))
    assert slices(on_disk(session)) == slices(session.state)


# --- clones --------------------------------------------------------------------------


def test_a_clone_has_the_same_state_and_goes_its_own_way(ledger: Ledger) -> None:
    """Types, reducers, tags and conversation too; bus and id are its own."""
    session = prepared(Session(tags={"loop": "review"}))
    enable_inner_message_recording(session)
    session.attach(new_run(ledger, session))
    session[Step].append(Step("a"))
    for one in (asking(1, "c1"), answering(2, "c1")):
        session[InnerMessage].append(one)
    session.commit()
    session[Plan].append(Plan(("pending",)))
    before = slices(session.state)
    twin = session.clone()
    assert slices(twin.state) == before
    assert twin.select_all(InnerMessage) == session.select_all(InnerMessage)
    assert twin.tags == session.tags
    assert twin.session_id != session.session_id
    assert twin.bus is not session.bus
    twin[Step].apply(StepDone("a"))
    twin.install(Later)
    assert slices(session.state) == before
    session[Step].clear()
    assert twin[Step].all() == (Step("a", True),)
    assert session.declarations.type_of("Later") is None
    assert slices(on_disk(twin)) == slices(twin.state)
    bus = InProcessEventBus()
    assert session.clone(bus=bus).bus is bus


class Later(Step, frozen=True):
    pass


def test_a_clone_has_the_messages_of_a_continued_session_as_a_slice_only() -> None:
    """The conversation of the run before is not the clone's."""
    session = Session()
    enable_inner_message_recording(session)
    session[InnerMessage].append(message("user", "before", 0))
    session.begin_run()
    session[InnerMessage].append(message("user", "now", 1))
    twin = session.clone()
    assert twin.select_all(InnerMessage) == session.select_all(InnerMessage)
    assert len(twin.state.conversation.messages) == 1


def test_a_clone_of_a_session_that_was_never_used_is_empty() -> None:
    """And may be used."""
    twin = Session().clone()
    assert slices(twin.state) == {}
    twin[Plan].append(Plan())
    assert twin[Plan].all() == (Plan(),)
