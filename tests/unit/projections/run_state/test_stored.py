"""Stored folds: a run goes on from one to the same digests, and none is trusted blindly."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.projections.given import (
    amends,
    answers,
    asks,
    changes,
    completes,
    records,
    said,
    starts,
    supersedes,
    system,
)
from tests.unit.projections.random_runs import small_world
from turnledger.ledger import Event, Record, RunStarted
from turnledger.projections import Declarations, RunState, SessionSlices
from turnledger.projections.persistent.containers import NotLoadedError
from turnledger.projections.projection import fold_pages
from turnledger.projections.run_state.state import built_in
from turnledger.projections.run_state.stored import Stored, row_of, state_of
from turnledger.projections.session.reducers import append_all

TALK: list[Event] = [
    RunStarted(request_type="Talk"),
    system("You are terse."),
    said("user", "Hi, SECRET-1", 1),
    asks(2, "c1", "c2"),
    starts("c1"),
    completes("c1", message=3),
    answers(3, "c1", "SECRET-2"),
    said("user", "SECRET-3", 4),
]


def through_store(state: RunState, last: Record) -> RunState:
    """The state as another process has it, from the rows alone."""
    projections = built_in()
    rows = [row_of(p, s, last) for p, s in zip(projections, state._states, strict=True)]
    kept = [msgspec.json.decode(row or "", type=Stored) for row in rows]
    states = [state_of(p, row) for p, row in zip(projections, kept, strict=True)]
    return RunState(last.version, projections, states)


def digests(state: RunState) -> tuple[str, str]:
    return state.state_digest, state.outcome_digest


@given(st.lists(small_world, min_size=1, max_size=25), st.data())
def test_a_run_goes_on_from_a_stored_fold_to_the_same_digests(
    events: list[Event], data: st.DataObject
) -> None:
    """Wherever it is cut, or else it says that it needs what is not loaded."""
    cut = data.draw(st.integers(1, len(events)))
    all_records = records(events)
    whole = RunState.initial().after(all_records)
    half = RunState.initial().after(all_records[:cut])
    thawed = through_store(half, all_records[cut - 1])
    assert digests(thawed) == digests(half)
    assert thawed.summary == half.summary
    assert thawed.usage.total == half.usage.total
    assert [call.call_id for call in thawed.tools.pending()] == [
        call.call_id for call in half.tools.pending()
    ]
    assert thawed.history.open_calls == half.history.open_calls
    assert len(thawed.history) == len(half.history)
    try:
        end = thawed.after(all_records[cut:])
    except NotLoadedError:
        assert any("amended" in record.tag for record in all_records[cut:])
    else:
        assert digests(end) == digests(whole)
        assert end.history.open_calls == whole.history.open_calls


def test_it_goes_on_one_event_at_a_time_too() -> None:
    """A fold that was stored, restored and stored again at each step ends the same."""
    more = [answers(5, "c2"), said("assistant", "Done", 6, turn=2), changes("Plan", {"n": 1})]
    all_records = records([*TALK, *more])
    state = RunState.initial()
    for record in all_records:
        state = through_store(state.after([record]), record)
    assert digests(state) == digests(RunState.initial().after(all_records))


def test_no_message_is_in_it() -> None:
    """Neither what the user said, nor the system text, nor a result."""
    all_records = records(TALK)
    state = RunState.initial().after(all_records)
    for projection, its_state in zip(built_in(), state._states, strict=True):
        row = row_of(projection, its_state, all_records[-1]) or ""
        assert "SECRET" not in row
        assert "terse" not in row


def test_what_is_not_loaded_is_not_shown_wrongly() -> None:
    """Each look at what lies behind says that it is not there, and what to do."""
    all_records = records([*TALK, said("assistant", " ", 5), said("assistant", "And?", 6, turn=2)])
    thawed = through_store(RunState.initial().after(all_records), all_records[-1])
    looks: list[Any] = [
        thawed.to_json,
        thawed.history.to_list,
        thawed.history.for_send,
        lambda: thawed.history.for_send("skip"),
        lambda: thawed.history.system,
        lambda: thawed.history.last,
        lambda: thawed.history.repairs,
        lambda: thawed.tools.calls,
        lambda: thawed.timeline.spans,
        lambda: thawed.conversation.said.last,
    ]
    for look in looks:
        with pytest.raises(NotLoadedError, match="state_at"):
            look()
    assert "(with repairs)" in repr(thawed.history)


def test_a_message_that_was_said_before_is_not_amended_by_guess() -> None:
    """The fold stops, so that the run can be folded from its beginning."""
    all_records = records(TALK)
    thawed = through_store(RunState.initial().after(all_records), all_records[-1])
    with pytest.raises(NotLoadedError):
        thawed.after(records([amends(3, "shorter")], after=len(TALK)))


def test_many_things_under_way_are_kept_too() -> None:
    """Forty open calls, and evaluations that were left."""
    ids = [f"c{number}" for number in range(40)]
    begin = [asks(1, *ids), *map(starts, ids), supersedes("e0"), said("user", "x", 2)]
    begin += [said("user", "Hi", 0, evaluation_id=f"e{n}") for n in range(2, 6)]
    end = [completes(ids[7], message=9), answers(9, ids[7]), answers(10, ids[8])]
    all_records = records([*begin, *end])
    half = RunState.initial().after(all_records[: len(begin)])
    thawed = through_store(half, all_records[len(begin) - 1])
    assert len(thawed.tools.pending()) == 40
    assert digests(thawed.after(all_records[len(begin) :])) == digests(
        RunState.initial().after(all_records)
    )


def test_slices_of_a_program_are_kept_only_under_a_version() -> None:
    """A reducer may change while its name stays: nobody could tell an old fold from a new one."""

    class Note(msgspec.Struct, frozen=True):
        n: int

    all_records = records([changes("Note", {"n": 1})])
    rows = {}
    for version in ("", "1", "2"):
        declared = Declarations(version=version)
        declared.register(Note, Note, append_all)
        view = SessionSlices(declared)
        states, last = fold_pages(all_records, [view], [view.initial()])
        assert last is not None
        rows[version] = row_of(view, states[0], last)
    assert rows[""] is None
    view = SessionSlices(declared)
    kept = {v: msgspec.json.decode(rows[v] or "", type=Stored) for v in ("1", "2")}
    assert state_of(view, kept["2"]).all("Note") == (Note(1),)
    with pytest.raises(ValueError, match="made by"):
        state_of(view, kept["1"])


@pytest.mark.parametrize("name", [view.name for view in built_in()])
def test_a_damaged_row_is_noticed(name: str) -> None:
    """Any changed state, digest or maker; a state that is whole but does not fit its digest."""
    place = [view.name for view in built_in()].index(name)
    view, all_records = built_in()[place], records(TALK)
    state = RunState.initial().after(all_records)._states[place]
    row = msgspec.json.decode(row_of(view, state, all_records[-1]) or "", type=Stored)
    empty = msgspec.json.decode(row_of(view, view.initial(), all_records[-1]) or "", type=Stored)
    assert view.digest(state_of(view, row)) == view.digest(state)
    damaged = [
        msgspec.structs.replace(row, fingerprint="other/1"),
        msgspec.structs.replace(row, state=msgspec.Raw(b"{}")),
        msgspec.structs.replace(row, check="0" * 64),
        msgspec.structs.replace(row, digest="0" * 64),
        msgspec.structs.replace(empty, digest="0" * 64),
        _with_state(row, b"[]"),
    ]
    for one in damaged:
        with pytest.raises(ValueError):
            state_of(view, one)


def _with_state(row: Stored, text: bytes) -> Stored:
    return msgspec.structs.replace(row, state=msgspec.Raw(text), check=sha256(text).hexdigest())
