"""Any moment of a run: its state at a version, what changed, and which event changed it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import jsonpatch
import jsonpointer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.projections.given import (
    answers,
    asks,
    changes,
    completes,
    evaluation,
    said,
    starts,
    system,
)
from tests.unit.projections.random_runs import declarations, small_world
from turnledger.ledger import (
    ANY,
    NEW,
    Event,
    InvalidInputError,
    Ledger,
    RecordNotFoundError,
    RunCompleted,
    RunNotFoundError,
    RunStarted,
    SliceEventApplied,
    new_run_id,
)
from turnledger.ledger.clock import SystemClock
from turnledger.ledger.runs.append import ANY_VERSION, AppendRequest, Entry, append
from turnledger.projections import Moments, RunState, blame, diff, state_at, state_json
from turnledger.projections.digests import canonical
from turnledger.projections.projection import tags_read
from turnledger.projections.run_state.state import built_in

EVENTS: list[Event] = [
    RunStarted(),
    evaluation(),
    system(),
    said("user", "Hi", 1),
    asks(2, "c1"),
    starts(),
    changes("Plan", {"n": 1}),
    completes(),
    answers(3, "c1"),
    changes("Plan", {"n": 2}),
    said("assistant", "Done.", 4, turn=2),
    RunCompleted(output="Done."),
]


@pytest.fixture
def run(ledger: Ledger) -> UUID:
    run_id = new_run_id()
    for event in EVENTS:
        ledger.append(run_id, event, ANY)
    return run_id


def test_the_state_of_a_run_is_known_at_every_version(ledger: Ledger, run: UUID) -> None:
    """By default at its last; before its first event nothing is known."""
    assert state_at(ledger, run).version == len(EVENTS)
    assert state_at(ledger, run).summary.status == "completed"
    assert state_at(ledger, run, 6).tools.pending()[0].status == "started"
    assert state_at(ledger, str(run), 0).to_json() == RunState.initial().to_json()


@pytest.mark.parametrize("version", [len(EVENTS) + 1, 10**9, -1])
def test_a_version_that_is_not_there_is_an_error(ledger: Ledger, run: UUID, version: int) -> None:
    """It says how far the run goes; the same from all three questions."""
    for ask in (
        lambda: state_at(ledger, run, version),
        lambda: diff(ledger, run, 1, version),
        lambda: diff(ledger, run, version, 1),
        lambda: blame(ledger, run, "/summary/status", at=version),
    ):
        with pytest.raises(RecordNotFoundError, match=str(len(EVENTS))):
            ask()


def test_a_run_that_is_not_there_is_an_error(ledger: Ledger) -> None:
    """Not an empty state."""
    nobody = new_run_id()
    for ask in (
        lambda: state_at(ledger, nobody),
        lambda: diff(ledger, nobody, 0, 0),
        lambda: blame(ledger, nobody, "/summary/status"),
    ):
        with pytest.raises(RunNotFoundError):
            ask()


def test_a_child_has_its_parents_moments(ledger: Ledger, run: UUID) -> None:
    """A fork's state before its own first event is its parent's."""
    child = ledger.fork(run, at=6)
    assert state_at(ledger, child, 6).state_digest == state_at(ledger, run, 6).state_digest
    assert [call.status for call in state_at(ledger, child).tools.pending()] == ["in_doubt"]
    assert blame(ledger, child, "/tools/0/status").version == 7


def test_what_changed_between_two_versions_is_a_json_patch(ledger: Ledger, run: UUID) -> None:
    """In either direction; nothing changed from a version to itself."""
    assert diff(ledger, run, 9, 10) == [{"op": "add", "path": "/slices/Plan/1", "value": {"n": 2}}]
    assert diff(ledger, run, 10, 9) == [{"op": "remove", "path": "/slices/Plan/1"}]
    assert diff(ledger, run, 7, 7) == []


@pytest.mark.parametrize(
    ("pointer", "version"),
    [
        ("/summary/status", 12),
        ("/summary/prompt", 2),
        ("/summary/started_at", 1),
        ("/summary", 12),
        ("/history/system", 3),
        ("/history/turns/0/blocks/0/text", 4),
        ("/tools/0/status", 8),
        ("/tools/0/started_at", 6),
        ("/tools/0/result", 9),
        ("/slices/Plan/0", 7),
        ("/slices/Plan", 10),
        ("/usage/failed_calls", 1),
        ("/timeline/spans/0/outcome", 8),
    ],
)
def test_the_event_that_last_set_a_value_is_found(
    ledger: Ledger, run: UUID, pointer: str, version: int
) -> None:
    """What nothing has changed yet was set by the first event that the view reads."""
    assert blame(ledger, run, pointer).version == version


def test_blame_is_asked_of_any_version(ledger: Ledger, run: UUID) -> None:
    """As if the run ended there."""
    assert blame(ledger, run, "/summary/status", at=11).version == 1
    assert blame(ledger, run, "/slices/Plan", at=9).version == 7


@pytest.mark.parametrize(
    "pointer",
    ["", "/", "summary", "/nobody", "/nobody/x", "/summary/~2"],
)
def test_a_pointer_that_names_no_view_is_an_error(ledger: Ledger, run: UUID, pointer: str) -> None:
    """It says how pointers begin, or that it is none."""
    with pytest.raises(InvalidInputError, match=r"one of history, tools|Invalid JSON Pointer"):
        blame(ledger, run, pointer)


@pytest.mark.parametrize(
    "pointer",
    [
        "/summary/nothing",
        "/tools/1",
        "/tools/-",
        "/tools/01",
        "/tools/x",
        "/tools/0/status/0",
        "/tools/-1",
        "/slices/Plan/0/n/0",
        "/usage/failed_calls/0",
        "/tools/" + "9" * 5000,
    ],
)
def test_a_pointer_that_names_nothing_is_an_error(ledger: Ledger, run: UUID, pointer: str) -> None:
    """Characters of a text and the end of a list are nothing."""
    with pytest.raises(InvalidInputError, match="names nothing"):
        blame(ledger, run, pointer)


def test_a_pointer_into_a_view_that_read_nothing_yet_is_an_error(ledger: Ledger) -> None:
    """No event can be named."""
    run_id = new_run_id()
    ledger.append(run_id, said("user", "Hi", 0), NEW)
    with pytest.raises(InvalidInputError, match="names nothing"):
        blame(ledger, run_id, "/usage/failed_calls")


def test_values_that_python_takes_for_equal_are_told_apart(ledger: Ledger) -> None:
    """1, 1.0 and true are three values."""
    run_id = new_run_id()
    for payload in (1, 1.0, True):
        seed = SliceEventApplied(
            slice="Plan", event_type="Plan", operation="seed", payload=[payload]
        )
        ledger.append(run_id, seed, ANY)
    assert blame(ledger, run_id, "/slices/Plan/0").version == 3
    assert blame(ledger, run_id, "/slices/Plan/0", at=2).version == 2
    assert diff(ledger, run_id, 2, 3)


def test_an_event_of_a_retired_tag_counts_at_every_moment(ledger: Ledger) -> None:
    """It is in the state, in the difference, and can be blamed."""
    run_id = new_run_id()
    ledger.append(run_id, RunStarted(), NEW)
    old = (
        b'{"role":"user","content":"Hi","evaluation_id":"e1","sequence":0,'
        b'"created_at":"2025-11-03T09:15:27Z","message_id":"2f1b6f0e-6f5c-4b4e-9a53-0a4b1c7a9d10"}'
    )
    clock = SystemClock()
    entry = Entry(clock.new_id(), "message.recorded", old, RunStarted())
    request = AppendRequest(str(run_id), [entry], ANY_VERSION, None, {})
    ledger.store.write(lambda tx: append(tx, request, clock))
    assert len(state_at(ledger, run_id).history) == 1
    assert diff(ledger, run_id, 1, 2)
    assert blame(ledger, run_id, "/history/turns/0").tag == "message.recorded"


# --- properties ----------------------------------------------------------------------

random_runs = st.lists(small_world, min_size=6, max_size=20).map(lambda more: [RunStarted(), *more])


def recorded(ledger: Ledger, events: list[Event]) -> UUID:
    run_id = new_run_id()
    ledger.append(run_id, events, NEW)
    return run_id


def states(ledger: Ledger, run_id: UUID) -> list[RunState]:
    """The state at every version, step by step."""
    found = [RunState.initial(declarations())]
    for record in ledger.read(run_id):
        found.append(found[-1].after([record]))
    return found


@settings(max_examples=50)
@given(random_runs)
def test_the_state_at_a_version_is_the_fold_up_to_it(events: list[Event]) -> None:
    """Digests and JSON, at every version."""
    with Ledger.open("memory://") as ledger:
        run_id = recorded(ledger, events)
        for state in states(ledger, run_id):
            asked = state_at(ledger, run_id, state.version, declarations=declarations())
            assert asked.to_json() == state.to_json()
            assert asked.state_digest == state.state_digest
            assert asked.outcome_digest == state.outcome_digest


@settings(max_examples=50)
@given(random_runs, st.data())
def test_a_difference_applied_to_one_state_gives_the_other(
    events: list[Event], data: st.DataObject
) -> None:
    """Forwards and backwards."""
    versions = st.integers(0, len(events))
    with Ledger.open("memory://") as ledger:
        run_id = recorded(ledger, events)
        known = [state.to_json() for state in states(ledger, run_id)]
        moments = Moments(ledger, declarations=declarations())
        a, b = data.draw(versions), data.draw(versions)
        patch = diff(ledger, run_id, a, b, declarations=declarations())
        assert canonical(jsonpatch.apply_patch(known[a], patch)) == canonical(known[b])
        assert diff(ledger, run_id, a, b, moments=moments) == patch


def pointers(value: Any, so_far: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield so_far
    if isinstance(value, dict | list):
        for key, inside in value.items() if isinstance(value, dict) else enumerate(value):
            yield from pointers(inside, (*so_far, str(key)))


def value_at(state: RunState, pointer: str) -> bytes | None:
    nothing = object()
    found = jsonpointer.resolve_pointer(state.to_json(), pointer, nothing)
    return None if found is nothing else canonical(found)


@settings(max_examples=50)
@given(random_runs, st.data())
def test_the_blamed_event_is_the_one_since_which_the_value_is_what_it_is(
    events: list[Event], data: st.DataObject
) -> None:
    """It differs at the version before, and equals from there on."""
    with Ledger.open("memory://") as ledger:
        run_id = recorded(ledger, events)
        known = states(ledger, run_id)
        every = [p for p in pointers(known[-1].to_json()) if p]
        moments = Moments(ledger, declarations=declarations())
        for parts in data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=8)):
            pointer = jsonpointer.JsonPointer.from_parts(parts).path
            values = [value_at(state, pointer) for state in known]
            version = blame(ledger, run_id, pointer, declarations=declarations()).version
            assert blame(ledger, run_id, pointer, moments=moments).version == version
            assert all(value == values[-1] for value in values[version:])
            if values[version - 1] == values[-1]:
                # It was so from the beginning: the first event that the view reads.
                assert all(value == values[-1] for value in values)
                view = next(view for view in built_in() if view.name == parts[0])
                tags = tags_read(view)
                assert version == next(r.version for r in ledger.read(run_id) if r.tag in tags)


# --- as JSON ---------------------------------------------------------------------------


def test_the_state_as_json_is_that_of_the_run_state(ledger: Ledger) -> None:
    """At every version; with a pointer, the value that it names in the whole."""
    run = new_run_id()
    ledger.append(run, EVENTS, NEW)
    for version in (None, *range(len(EVENTS) + 1)):
        whole = state_json(ledger, run, version)
        assert whole == state_at(ledger, run, version).to_json()
        for pointer in ("/summary", "/history/turns", "/tools", "/usage/total", "/summary/status"):
            expected = jsonpointer.resolve_pointer(whole, pointer)
            assert state_json(ledger, run, version, pointer=pointer) == expected
    assert state_json(ledger, run, pointer="/history/turns/0")["role"] == "user"
    declared = declarations()
    assert (
        state_json(ledger, run, declarations=declared)
        == state_at(ledger, run, declarations=declared).to_json()
    )


@pytest.mark.parametrize(
    ("pointer", "told"),
    [
        ("summary", "begins with '/'"),
        ("/nothing", "one of history, tools"),
        ("/tools/7", "no value at '/tools/7'"),
        ("/usage/total/~2", "'~'"),
    ],
)
def test_a_pointer_to_nothing_is_an_error(ledger: Ledger, pointer: str, told: str) -> None:
    """It says what is wrong with it."""
    run = new_run_id()
    ledger.append(run, EVENTS, NEW)
    with pytest.raises(InvalidInputError, match=told):
        state_json(ledger, run, pointer=pointer)


def test_the_json_of_a_version_that_is_not_there_is_an_error(ledger: Ledger) -> None:
    """Of the whole and of a part."""
    run = new_run_id()
    for pointer in ("", "/summary"):
        with pytest.raises(RunNotFoundError):
            state_json(ledger, run, pointer=pointer)
    ledger.append(run, EVENTS, NEW)
    for pointer in ("", "/summary"):
        with pytest.raises(RecordNotFoundError):
            state_json(ledger, run, len(EVENTS) + 1, pointer=pointer)
