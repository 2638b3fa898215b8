"""Snapshots: S0's JSON, read without types, restored only into what is declared."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.unit.runtime.kinds import json_data
from tests.unit.runtime.states import (
    Added,
    Counter,
    Email,
    Plan,
    Step,
    answering,
    asking,
    message,
    on_disk,
    prepared,
    slices,
)
from turnledger.ledger import InnerMessage, StateRestored, TurnledgerError
from turnledger.projections import get_pending_tool_calls, state_at
from turnledger.runtime import (
    Session,
    Snapshot,
    SnapshotRestoreError,
    enable_inner_message_recording,
)
from turnledger.runtime.session import Overlay, SnapshotSlice

STATES = "tests.unit.runtime.states"


def of(**found: list[Any]) -> Snapshot:
    """A snapshot of slices of the test's module."""
    return Snapshot(
        tuple(
            SnapshotSlice(f"{STATES}:{name}", f"{STATES}:{name}", tuple(items))
            for name, items in found.items()
        )
    )


def recording() -> Session:
    session = prepared(Session())
    enable_inner_message_recording(session)
    return session


# --- the JSON ------------------------------------------------------------------------


def test_a_snapshots_json_is_as_specified() -> None:
    """S0-9: slices with their types as "module:Class", and items one by one."""
    session = recording()
    session[Step].append(Step("a"))
    session[Email].append(Email(to="ann"))
    session[InnerMessage].append(message("system", "Hi", 0))
    found = json.loads(session.snapshot().to_json())
    assert list(found) == ["slices"]
    assert [list(one) for one in found["slices"]] == [["slice_type", "item_type", "items"]] * 3
    by_type = {one["slice_type"]: one for one in found["slices"]}
    assert list(by_type) == [
        f"{STATES}:Email",
        "turnledger.ledger.events.messages:InnerMessage",
        f"{STATES}:Step",
    ]
    assert all(one["item_type"] == one["slice_type"] for one in found["slices"])
    assert by_type[f"{STATES}:Step"]["items"] == [{"name": "a", "done": False}]
    assert by_type[f"{STATES}:Email"]["items"] == [{"recipient": "ann", "copies": []}]
    item = by_type["turnledger.ledger.events.messages:InnerMessage"]["items"][0]
    assert (item["role"], item["sequence"], item["content"]) == ("system", 0, "Hi")


def test_a_snapshot_may_have_a_tag() -> None:
    """It comes back with it."""
    session = Session()
    session[Step].append(Step("a"))
    snapshot = session.snapshot("before the storm")
    assert snapshot.tag == "before the storm"
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
    assert Snapshot.from_json(snapshot.to_json().encode()) == snapshot


def test_reading_a_snapshot_needs_no_types_and_imports_nothing() -> None:
    """S0-22: whatever module it names."""
    text = json.dumps(
        {"slices": [{"slice_type": "no.such.module:Thing", "item_type": "x:Y", "items": [1, None]}]}
    )
    (found,) = Snapshot.from_json(text).slices
    assert (found.slice_type, found.items) == ("no.such.module:Thing", (1, None))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "5",
        "null",
        "{}",
        '{"slices": 5}',
        '{"slices": [5]}',
        '{"slices": [{}]}',
        '{"slices": [{"slice_type": 1, "item_type": "x:Y", "items": []}]}',
        '{"slices": [{"slice_type": "x:Y", "item_type": "x:Y", "items": {}}]}',
        '{"slices": [], "tag": 5}',
        '{"slices": [{"slice_type": "x:Y", "item_type": "x:Y", "items": [NaN]}]}',
        "[" * 100_000,
        b"\xff\xfe",
        '{"slices": [{"slice_type": "x:Y", "item_type": "x:Y", "items": ["\\ud800"]}]}',
    ],
)
def test_what_is_no_snapshot_is_refused(text: Any) -> None:
    """S0-20: as SnapshotRestoreError, which is a ValueError."""
    with pytest.raises(SnapshotRestoreError) as caught:
        Snapshot.from_json(text)
    assert isinstance(caught.value, ValueError)


@given(json_data)
def test_any_json_is_a_snapshot_or_refused(data: Any) -> None:
    """Never another error, neither when it is read nor when it is restored."""
    try:
        snapshot = Snapshot.from_json(json.dumps(data))
    except SnapshotRestoreError:
        return
    Session().restore(snapshot)


@given(json_data)
def test_any_items_are_restored_or_refused(items: Any) -> None:
    """And what is refused changes nothing."""
    session = prepared(Session())
    session[Step].append(Step("a"))
    before = session.journal.known.version
    try:
        session.restore(of(Step=items if isinstance(items, list) else [items]))
    except SnapshotRestoreError:
        assert session.journal.known.version == before
    assert session.state.state_digest == on_disk(session).state_digest


# --- restoring -----------------------------------------------------------------------


@pytest.mark.parametrize("way", ["restore", "rollback"])
def test_state_goes_back_to_a_snapshot(way: str) -> None:
    """S0-22: all slices; what is not in it is gone. Both spellings are one event."""
    session = prepared(Session())
    session[Step].append(Step("a"))
    session[Counter].apply(Added(2))
    snapshot = session.snapshot()
    session[Step].append(Step("b"))
    session[Plan].append(Plan())
    session[Counter].apply(Added(5))
    before = session.journal.known.version
    if way == "restore":
        session.restore(snapshot)
    else:
        session.mutate().rollback(snapshot)
    assert slices(session.state) == {"Step": (Step("a"),), "Counter": (Counter(2),)}
    assert session.journal.known.version == before + 1
    assert slices(on_disk(session)) == slices(session.state)


def test_a_snapshot_with_a_slice_that_nobody_declared_is_refused() -> None:
    """S0-22: it is named, and nothing is changed."""
    session = Session()
    session[Plan].append(Plan())
    before = session.journal.known.version
    with pytest.raises(SnapshotRestoreError, match=f"{STATES}:Step"):
        session.restore(of(Plan=[], Step=[{"name": "a"}]))
    assert session.journal.known.version == before
    session.install(Step)
    session.restore(of(Plan=[], Step=[{"name": "a"}]))
    assert session[Step].all() == (Step("a"),)


def test_a_slice_that_nobody_declared_may_be_kept_until_somebody_does() -> None:
    """A tool may be the first to name its type, in a run that is recovered."""
    session = Session()
    session.restore(of(Step=[{"name": "a"}]), undeclared="keep")
    assert session.snapshot().slices[0].slice_type == "Step"
    assert session[Step].all() == (Step("a"),)
    with pytest.raises(SnapshotRestoreError):
        session.restore(Snapshot((SnapshotSlice("x:", "x:", ()),)), undeclared="keep")
    with pytest.raises(SnapshotRestoreError):
        session.restore(Snapshot((SnapshotSlice("x:Y", "x:Y", (), "a:b"),)), undeclared="keep")


def test_a_class_that_moved_is_found_by_its_name() -> None:
    """A module's path in old data is compared, never imported."""
    session = prepared(Session())
    moved = SnapshotSlice("old.place:Step", "old.place:Step", ({"name": "a"},))
    session.restore(Snapshot((moved,)))
    assert session[Step].all() == (Step("a"),)
    nested = SnapshotSlice("old.place:Outer.Plan", "old.place:Outer.Plan", ({"steps": ["x"]},))
    session.restore(Snapshot((nested,)))
    assert session[Plan].all() == (Plan(("x",)),)


@pytest.mark.parametrize(
    ("items", "where"),
    [
        ([{"nam": "a"}], r"Step\[0\]\.name"),
        ([{"name": "a"}, {"name": 5}], r"Step\[1\]\.name"),
        ([5], r"Step\[0\]"),
    ],
)
def test_items_that_do_not_fit_are_refused(items: list[Any], where: str) -> None:
    """The error names the item and the field; nothing is changed."""
    session = prepared(Session())
    session[Step].append(Step("kept"))
    with pytest.raises(SnapshotRestoreError, match=where):
        session.restore(of(Plan=[], Step=items))
    assert session[Step].all() == (Step("kept"),)


def test_a_slice_that_stands_twice_is_refused() -> None:
    """Which one should count?"""
    with pytest.raises(SnapshotRestoreError, match="twice"):
        prepared(Session()).restore(
            Snapshot((*of(Step=[]).slices, SnapshotSlice("other:Step", "other:Step", ())))
        )


def test_messages_are_never_removed_and_missing_ones_come_back() -> None:
    """X16: state rolls back, the conversation does not."""
    session = recording()
    session[InnerMessage].append(message("system", "Hi", 0))
    early = session.snapshot()
    session[InnerMessage].append(asking(1, "c1"))
    session[Step].append(Step("a"))
    session.restore(early)
    assert session[Step].all() == ()
    assert len(session[InnerMessage].all()) == 2

    other = recording()
    other[InnerMessage].append(message("user", "mine", 7))
    other.restore(session.snapshot())
    assert [one.sequence for one in other[InnerMessage].all()] == [0, 1, 7]
    assert len(other.state.conversation.messages) == 3
    other.restore(session.snapshot())
    assert len(other.state.conversation.messages) == 3


def test_calls_that_were_completed_stay_completed() -> None:
    """X16: in the message itself, and for those who ask what is pending."""
    session = recording()
    for one in (asking(1, "c1", "c2"), answering(2, "c1")):
        session[InnerMessage].append(one)
    other = recording()
    other.restore(Snapshot.from_json(session.snapshot().to_json()))
    statuses = [call.status for call in other.select_all(InnerMessage)[0].tool_calls]
    assert statuses == ["completed", "pending"]
    assert [call.call_id for call in get_pending_tool_calls(other, "e1")] == ["c2"]
    assert [call.call_id for call in other.state.tools.pending()] == ["c2"]


def test_messages_come_back_into_a_slice_that_was_cleared() -> None:
    """Though the conversation never lost them."""
    session = recording()
    session[InnerMessage].append(message("system", "Hi", 0))
    snapshot = session.snapshot()
    session[InnerMessage].clear()
    assert session[InnerMessage].all() == ()
    session.restore(snapshot)
    assert session[InnerMessage].all() == (message("system", "Hi", 0),)
    assert len(session.state.conversation.messages) == 1


def test_a_session_that_does_not_record_messages_has_them_in_its_conversation() -> None:
    """X11: the ledger always records; the slice appears when it is registered."""
    source = recording()
    source[InnerMessage].append(message("system", "Hi", 0))
    session = Session()
    session.restore(source.snapshot())
    assert session.select_all(InnerMessage) == ()
    assert session.state.history.system == "Hi"
    enable_inner_message_recording(session)
    assert session.select_all(InnerMessage) == source.select_all(InnerMessage)


def test_a_large_state_is_restored_in_pieces() -> None:
    """Larger than an event may be; so are many messages."""
    session = recording()
    text = "x" * 700_000
    for number in range(14):
        session[Step].append(Step(f"{number}{text}"))
    for number in range(1200):
        session[InnerMessage].append(message("user", str(number), number))
    snapshot = Snapshot.from_json(session.snapshot().to_json())
    before = slices(session.state)
    session[Step].clear()
    session.restore(snapshot)
    assert slices(session.state) == before
    fresh = recording()
    fresh.restore(snapshot)
    assert slices(fresh.state) == before
    assert slices(session.clone().state) == before


def test_restoring_within_a_tool_is_the_tools() -> None:
    """And is gone with it."""
    session = prepared(Session())
    session[Step].append(Step("a"))
    snapshot = session.snapshot()
    session[Step].append(Step("b"))
    overlay = Overlay(session.journal, "c1")
    with session.scope(overlay):
        session.mutate().rollback(snapshot)
        assert session[Step].all() == (Step("a"),)
    assert session[Step].all() == (Step("a"), Step("b"))
    assert isinstance(overlay.close()[0], StateRestored)


def test_folded_state_can_be_snapshotted_without_a_session() -> None:
    """As of any version, with or without its types."""
    session = prepared(Session())
    session[Step].append(Step("a"))
    session[Step].append(Step("b"))
    journal = session.journal
    state = state_at(journal.ledger, journal.run_id, 2)
    bare = Snapshot.of_slices(state.slices)
    assert bare.slices[0].slice_type == "Step"
    typed = state_at(journal.ledger, journal.run_id, declarations=session.declarations)
    assert Snapshot.of_slices(typed.slices, session.declarations) == session.snapshot()
    session.restore(bare)
    assert session[Step].all() == (Step("a"),)


def test_what_is_no_snapshot_can_not_be_restored() -> None:
    """A text has to be read first."""
    with pytest.raises(SnapshotRestoreError, match="from_json"):
        Session().mutate().rollback('{"slices": []}')  # type: ignore[arg-type]


def test_restore_errors_are_the_projects() -> None:
    """Under its one root."""
    assert issubclass(SnapshotRestoreError, TurnledgerError)
