"""Changes of one value: all events that changed it, newest first."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings

from benchmarks.long_events import declarations as long_declarations
from benchmarks.long_events import long_run
from tests.unit.projections.forked_runs import Branch, branches, events, recorded
from tests.unit.projections.random_runs import declarations
from turnledger.ledger import NEW, Event, InvalidInputError, Ledger, new_run_id
from turnledger.projections import FoldCancelledError, Moments, RunState, blame, state_at
from turnledger.projections.digests import canonical
from turnledger.projections.persistent.lazy_json import MISSING, plain_json, pointer_parts, resolve
from turnledger.projections.run_state.blame import ValueChange, value_changes

POINTERS = (
    "/usage/total/calls",
    "/summary/status",
    "/tools",
    "/tools/0",
    "/tools/0/status",
    "/history",
    "/history/turns",
    "/history/turns/1",
    "/slices",
    "/slices/Step/0/done",
    "/slices/Undeclared",
    "/checkpoints/latest",
    "/timeline/spans/0/outcome",
    "/tools/nothing",
)


def text(value: Any) -> bytes | None:
    return None if value is MISSING else canonical(plain_json(value))


def compared(states: list[Any], pointer: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """The changes as they are found by looking at every version."""
    parts = pointer_parts(pointer)
    values = [text(resolve(state, parts)) for state in states]
    pairs = enumerate(pairwise(values), 1)
    return [(version, was, now) for version, (was, now) in pairs if was != now][::-1]


@settings(max_examples=40)
@given(events, branches)
def test_they_are_those_between_all_versions(first: list[Event], others: list[Branch]) -> None:
    """Of values that come and go, of lists and of what is in them, in every run of a family."""
    with Ledger.open("memory://") as ledger:
        moments = Moments(ledger, declarations=declarations())
        for run in recorded(ledger, first, others):
            states = [RunState.initial(declarations()).to_json()]
            states += [
                state_at(ledger, run, version, declarations=declarations()).to_json()
                for version in range(1, ledger.head(run) + 1)
            ]
            for pointer in POINTERS:
                found = [
                    (one.record.version, text(one.was), text(one.value))
                    for one in value_changes(ledger, run, pointer, moments=moments)
                    if isinstance(one, ValueChange)
                ]
                expected = compared(states, pointer)
                assert found == expected, pointer
                if expected and expected[0][2] is not None:
                    assert blame(ledger, run, pointer, moments=moments).version == expected[0][0]


def test_pages_of_a_long_run_go_on_where_they_ended(ledger: Ledger) -> None:
    """From any version that was reached; what is above it is not given again."""
    run = new_run_id()
    ledger.append(run, list(long_run(900)), NEW)
    moments = Moments(ledger, declarations=long_declarations())
    whole = list(value_changes(ledger, run, "/usage/total/calls", moments=moments))
    reached = [one for one in whole if isinstance(one, int)]
    assert reached == [751, 501, 251, 1]
    changes = [one.record.version for one in whole if isinstance(one, ValueChange)]
    assert changes == sorted(changes, reverse=True)
    for before in (751, changes[3], 2, 1, 0):
        page = value_changes(ledger, run, "/usage/total/calls", moments=moments, before=before)
        found = [one.record.version for one in page if isinstance(one, ValueChange)]
        assert found == [version for version in changes if version < before]


def test_it_ends_when_it_is_cancelled(ledger: Ledger) -> None:
    """And a pointer without a view is refused."""
    run = new_run_id()
    ledger.append(run, list(long_run(600)), NEW)
    moments = Moments(ledger)
    with pytest.raises(FoldCancelledError):
        list(value_changes(ledger, run, "/tools", moments=moments, cancelled=lambda: True))
    with pytest.raises(InvalidInputError, match="Unknown view"):
        list(value_changes(ledger, run, "/nothing", moments=moments))
