"""A session's state: read and changed by type, in both spellings, each change an event."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.unit.runtime.clocks import StandingClock
from tests.unit.runtime.states import (
    Added,
    Counter,
    Email,
    Plan,
    Step,
    StepDone,
    answering,
    asking,
    mark_done,
    message,
    on_disk,
    prepared,
    slices,
)
from turnledger.ledger import InnerMessage, InvalidInputError, Ledger, SliceEventApplied
from turnledger.projections import replace_latest, upsert_by
from turnledger.runtime import (
    InProcessEventBus,
    SectionVisibility,
    Session,
    SetVisibilityOverride,
    VisibilityOverrides,
    enable_inner_message_recording,
)

BOTH = pytest.mark.parametrize("spelling", ["item", "mutate"])


def changing(session: Session, kind: Any, spelling: str) -> Any:
    return session[kind] if spelling == "item" else session.mutate(kind)


# --- reading and changing ------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Plan, [Plan(("a",)), Plan(("b",), {"n": 1})]),
        (Step, [Step("a"), Step("b", True)]),
        (Email, [Email(to="ann"), Email(to="bob", copies=("eve",))]),
    ],
)
def test_values_are_appended_and_read_back(kind: Any, values: list[Any], spelling: str) -> None:
    """S0-22: dataclasses, Structs and pydantic models, oldest first."""
    session = Session()
    assert session[kind].all() == ()
    assert session[kind].latest() is None
    for value in values:
        changing(session, kind, spelling).append(value)
    assert session[kind].all() == session.select_all(kind) == tuple(values)
    assert session[kind].latest() == values[-1]
    assert session[kind].where(lambda value: value == values[0]) == (values[0],)


@BOTH
def test_seed_takes_the_place_of_what_there_is_and_clear_leaves_nothing(spelling: str) -> None:
    """S0-22: from any iterable."""
    session = Session()
    session[Step].append(Step("old"))
    changing(session, Step, spelling).seed(Step(name) for name in "ab")
    assert session[Step].all() == (Step("a"), Step("b"))
    changing(session, Step, spelling).clear()
    assert session[Step].all() == ()


@BOTH
def test_an_event_goes_through_the_registered_reducer(spelling: str) -> None:
    """S0-22: apply in one spelling, dispatch in the other."""
    session = Session()
    changing(session, Step, spelling).register(StepDone, mark_done)
    session[Step].seed([Step("a"), Step("b")])
    if spelling == "item":
        session[Step].apply(StepDone("b"))
    else:
        session.mutate(Step).dispatch(StepDone("b"))
    assert session[Step].all() == (Step("a"), Step("b", True))


def test_appending_goes_through_the_reducer_of_the_slices_own_type() -> None:
    """Without one the value is kept; with one it is as the reducer says."""
    session = Session()
    session[Step].register(Step, upsert_by(lambda step: step.name))
    for value in (Step("a"), Step("b"), Step("a", True)):
        session[Step].append(value)
    assert session[Step].all() == (Step("a", True), Step("b"))
    session[Plan].register(Plan, replace_latest)
    session[Plan].append(Plan(("a",)))
    session.mutate(Plan).dispatch(Plan(("b",)))
    assert session[Plan].all() == (Plan(("b",)),)


def test_a_class_that_declares_reducers_needs_no_registering() -> None:
    """`@reducer(on=...)` is found when the class is first used."""
    session = Session()
    session[Counter].apply(Added(3))
    session[Counter].apply(Added(4))
    assert session[Counter].latest() == Counter(7)


def test_a_registered_reducer_goes_before_the_one_that_the_class_declares() -> None:
    """Whatever came first."""
    session = Session()
    session[Counter].register(Added, lambda values, event, *, context: (Counter(-event.by),))
    session[Counter].apply(Added(3))
    session.install(Counter)
    assert session[Counter].all() == (Counter(-3),)


def test_visibility_overrides_are_known_to_every_session() -> None:
    """S2-8: as the main loop sets them; each stays when the next comes."""
    session = Session()
    for path in ("reference", "reference.api"):
        session[VisibilityOverrides].apply(
            SetVisibilityOverride(path=path, visibility=SectionVisibility.FULL)
        )
    latest = session[VisibilityOverrides].latest()
    assert latest is not None
    assert latest.get("reference") is SectionVisibility.FULL
    assert latest.get("reference.api") is SectionVisibility.FULL


def test_reset_empties_every_slice_and_keeps_the_conversation() -> None:
    """S0-22, X16: in one event."""
    session = Session()
    enable_inner_message_recording(session)
    session[Plan].append(Plan())
    session[InnerMessage].append(message("system", "Hi", 0))
    session.mutate().reset()
    assert session[Plan].all() == ()
    assert session[InnerMessage].all() == (message("system", "Hi", 0),)


# --- what is recorded ----------------------------------------------------------------


def test_every_change_is_an_event_in_the_sessions_own_run() -> None:
    """Under declared names, after RunStarted; and the fold of it is what is read."""
    session = prepared(Session(tags={"loop": "review"}))
    session[Step].append(Step("a"))
    session.mutate(Step).dispatch(StepDone("a"))
    session[Plan].seed([Plan(("x",))])
    session.mutate(Plan).clear()
    journal = session.journal
    found = [record.event for record in journal.ledger.read(journal.run_id)]
    started, *rest = found
    assert (started.session_id, started.tags) == (session.session_id, {"loop": "review"})  # type: ignore[union-attr]
    assert rest == [
        SliceEventApplied(slice="Step", event_type="Step", payload={"name": "a", "done": False}),
        SliceEventApplied(slice="Step", event_type="StepDone", payload={"name": "a"}),
        SliceEventApplied(
            slice="Plan",
            event_type="Plan",
            operation="seed",
            payload=[{"steps": ["x"], "notes": {}}],
        ),
        SliceEventApplied(slice="Plan", event_type="Plan", operation="clear"),
    ]
    assert slices(session.state) == slices(on_disk(session))
    assert not journal.has_pending


def test_no_import_path_reaches_the_ledger() -> None:
    """Not even when a snapshot, which spells them, is restored."""
    session = prepared(Session())
    session[Step].append(Step("a"))
    session[Email].append(Email(to="ann"))
    session.restore(session.snapshot())
    journal = session.journal
    for record in journal.ledger.read(journal.run_id):
        assert "tests.unit" not in record.data


def test_a_type_may_have_a_name_of_its_own_in_the_ledger() -> None:
    """And keeps it in snapshots."""
    session = Session()
    session.declare(Step, name="plan.step")
    session[Step].append(Step("a"))
    assert list(session.state.slices.slices) == ["plan.step"]
    snapshot = session.snapshot()
    session[Step].clear()
    session.restore(snapshot)
    assert session[Step].all() == (Step("a"),)
    for name in ("", "a:b", None):
        with pytest.raises(InvalidInputError):
            session.declare(Plan, name=name)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="in use already"):
        session.declare(Step, name="other")


def test_two_classes_of_one_name_are_told_apart_by_a_declared_name() -> None:
    """Until then the second is refused, and nothing is recorded."""
    other = type("Step", (), {"__annotations__": {}})
    session = Session()
    session.install(Step)
    with pytest.raises(InvalidInputError, match="'Step' is declared already"):
        session[other].all()
    session.declare(other, name="OtherStep")
    assert session[other].all() == ()


def test_a_session_may_record_in_a_ledger_that_it_is_given() -> None:
    """Each change is there when the call returns."""
    ledger = Ledger.open("memory://")
    session = Session(ledger=ledger)
    assert session.run_in(ledger) is None
    session[Plan].append(Plan())
    run_id = session.run_in(ledger)
    assert run_id is not None
    assert ledger.head(run_id) == 2
    assert session.run_in(Ledger.open("memory://")) is None


def test_a_session_has_an_id_tags_a_bus_and_a_clock() -> None:
    """Made if they are not given; tags can't be changed behind its back."""
    clock, bus, tags = StandingClock(), InProcessEventBus(), {"loop": "review"}
    session = Session(bus=bus, tags=tags, clock=clock)
    tags["loop"] = "other"
    assert session.tags == {"loop": "review"}
    assert session.session_id == UUID(int=1)
    assert session.bus is session.event_bus is bus
    known = UUID(int=77)
    assert Session(session_id=known).session_id == known
    assert Session().session_id != Session().session_id
    assert isinstance(Session().bus, InProcessEventBus)
    assert str(known) in repr(Session(session_id=known))
    with pytest.raises(InvalidInputError, match="Invalid tag"):
        Session(tags={"n": 1})  # type: ignore[dict-item]


# --- messages ------------------------------------------------------------------------


def test_messages_are_always_recorded_and_a_slice_only_when_registered() -> None:
    """S0-23, X11: the ledger has them either way."""
    session = Session()
    session.mutate(InnerMessage).append(message("system", "Hi", 0))
    assert session.select_all(InnerMessage) == ()
    assert session[InnerMessage].latest() is None
    assert session.state.history.system == "Hi"
    enable_inner_message_recording(session)
    assert session.select_all(InnerMessage) == (message("system", "Hi", 0),)
    assert session[InnerMessage].latest() == message("system", "Hi", 0)


def test_enabling_the_recording_twice_is_harmless() -> None:
    """S0-6: and so is doing it after a reducer of one's own."""
    session = Session()
    enable_inner_message_recording(session)
    session[InnerMessage].append(message("system", "Hi", 0))
    enable_inner_message_recording(session)
    session[InnerMessage].append(message("user", "Hello", 1))
    assert len(session[InnerMessage].all()) == 2
    other = Session()
    other[InnerMessage].register(InnerMessage, replace_latest)
    enable_inner_message_recording(other)
    other[InnerMessage].append(message("system", "Hi", 0))
    other[InnerMessage].append(message("user", "Hello", 1))
    assert other[InnerMessage].all() == (message("user", "Hello", 1),)


@BOTH
def test_a_message_that_is_there_is_not_recorded_again(spelling: str) -> None:
    """S0-5, X1: not by append, nor by dispatch with another status."""
    session = Session()
    enable_inner_message_recording(session)
    asked = asking(1, "c1")
    changing(session, InnerMessage, spelling).append(asked)
    before = session.journal.known.version
    changing(session, InnerMessage, spelling).append(asked)
    session.mutate(InnerMessage).dispatch(asked)
    assert session.journal.known.version == before


def test_a_finished_calls_status_is_seen_wherever_messages_are_read() -> None:
    """S0-8, X1: it is projected from the tool's message."""
    session = Session()
    enable_inner_message_recording(session)
    for one in (asking(1, "c1", "c2"), answering(2, "c1")):
        session[InnerMessage].append(one)
    seen = session.select_all(InnerMessage)
    assert [call.status for call in seen[0].tool_calls] == ["completed", "pending"]
    assert session.select_all(InnerMessage) is seen
    session[InnerMessage].append(answering(3, "c2", is_error=True))
    statuses = [call.status for call in session.select_all(InnerMessage)[0].tool_calls]
    assert statuses == ["completed", "failed"]


def test_seeding_messages_records_those_that_are_missing() -> None:
    """And without the slice there is nothing else to do; nor is there to clear."""
    session = Session()
    session[InnerMessage].seed([message("system", "Hi", 0)])
    session[InnerMessage].clear()
    assert session.state.history.system == "Hi"
    assert session.state.slices.slices == {}
    enable_inner_message_recording(session)
    session[InnerMessage].seed([message("user", "Hello", 1)])
    assert session[InnerMessage].all() == (message("user", "Hello", 1),)
    session[InnerMessage].clear()
    assert session[InnerMessage].all() == ()
    assert len(session.state.conversation.messages) == 2


def test_a_value_that_is_read_is_the_folds_and_not_the_callers() -> None:
    """What the caller changes in its own object later was never recorded."""
    notes = {"n": 1}
    session = Session()
    session[Plan].append(Plan(notes=notes))
    notes["n"] = 2
    assert session[Plan].latest() == Plan(notes={"n": 1})
    assert slices(on_disk(session)) == slices(session.state)
