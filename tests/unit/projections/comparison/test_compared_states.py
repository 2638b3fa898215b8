"""States of two runs compared: what always differs is left out, a program's own data is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.conformance.samples import message
from turnledger.ledger import (
    ANY,
    NEW,
    Ledger,
    RunStarted,
    SliceEventApplied,
    new_run_id,
)
from turnledger.projections import state_at
from turnledger.projections.comparison.states import state_changes


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open("memory://") as opened:
        yield opened


def begun(ledger: Ledger, worker: str) -> UUID:
    run = new_run_id()
    started = RunStarted(request_id=uuid4(), session_id=uuid4())
    said = message("Hello.", message_id=uuid4())
    ledger.append(run, [started, said], NEW)
    ledger.claim(run, worker=worker).release()
    return run


def differences(ledger: Ledger, first: UUID, second: UUID) -> list[tuple[str, Any, Any]]:
    found = state_changes(state_at(ledger, first), state_at(ledger, second))
    return [(one.path, one.was, one.value) for one in found]


def test_ids_times_and_workers_are_left_out(ledger: Ledger) -> None:
    """Two runs that did the same do not differ, though no id or time is the same."""
    assert differences(ledger, begun(ledger, "one"), begun(ledger, "other")) == []


def test_fields_of_the_programs_own_data_are_compared(ledger: Ledger) -> None:
    """Also those that are named as something that is left out elsewhere."""
    runs = [begun(ledger, "one"), begun(ledger, "one")]
    for run, turn in zip(runs, (1, 2), strict=True):
        applied = SliceEventApplied(
            slice="Move", event_type="Move", payload={"turn": turn, "call_id": str(turn)}
        )
        ledger.append(run, applied, ANY)
    assert differences(ledger, *runs) == [
        ("/slices/Move/0/call_id", "1", "2"),
        ("/slices/Move/0/turn", 1, 2),
    ]


def test_a_fork_differs_in_what_it_did_itself(ledger: Ledger) -> None:
    """Not in what it was forked from."""
    run = begun(ledger, "one")
    fork = ledger.fork(run, ledger.head(run))
    assert differences(ledger, run, fork) == []
    ledger.append(fork, message("More.", 1, message_id=uuid4()), ANY)
    assert [path for path, *_ in differences(ledger, run, fork)] == ["/history/turns/0/blocks/1"]
