"""Where a run stands, on every store: from stored folds where they are right, else without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from benchmarks.workload import MESSAGE_ID, run_of
from tests.conformance.harness import StoreUnderTest
from turnledger.ledger import ANY, Ledger, ToolMessageAmended, new_run_id
from turnledger.ledger.stores.base import LedgerRecorder
from turnledger.projections import RunState, standing, state_at
from turnledger.projections.run_state.stored import FEWEST_EVENTS, SHELF

LONG = FEWEST_EVENTS + 100
MORE = 40


def begun(ledger: Ledger, count: int = LONG) -> UUID:
    run = new_run_id()
    ledger.append(run, list(run_of(count)), ANY)
    return run


def goes_on(ledger: Ledger, run: UUID, count: int = MORE) -> None:
    head = ledger.head(run)
    ledger.append(run, list(run_of(head + count))[head:], ANY)


def rows_of(ledger: Ledger, run: UUID) -> dict[str, str]:
    found = ledger.shelf(SHELF).shown()[1]
    return {key: row for key, row in found.items() if key.startswith(str(run))}


def digests(state: RunState) -> tuple[int, str, str]:
    return state.version, state.state_digest, state.outcome_digest


@pytest.fixture
def events_read(monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> list[int]:
    """How many rows each look at the events gave."""
    counts: list[int] = []
    kind = type(ledger.store)
    real: Callable[..., list[Any]] = kind.rows

    def counted(self: LedgerRecorder, *args: Any, **kwargs: Any) -> list[Any]:
        rows = real(self, *args, **kwargs)
        counts.append(len(rows))
        return rows

    monkeypatch.setattr(kind, "rows", counted)
    return counts


def test_a_long_run_is_known_by_its_tail(ledger: Ledger, events_read: list[int]) -> None:
    """The second look reads what came since, and knows what a fold of everything knows."""
    run = begun(ledger)
    assert digests(standing(ledger, run)) == digests(state_at(ledger, run))
    assert len(rows_of(ledger, run)) == 7
    goes_on(ledger, run)
    events_read.clear()
    state = standing(ledger, run)
    assert sum(events_read) == MORE + 1
    assert digests(state) == digests(state_at(ledger, run))


def test_another_process_would_know_it_too(store: StoreUnderTest) -> None:
    """What one handle stored serves another."""
    run = begun(store.open())
    first = standing(store.open(), run)
    assert digests(standing(store.open(), run)) == digests(first)


def test_a_short_run_stores_nothing(ledger: Ledger) -> None:
    """Folding it costs less than writing would."""
    run = begun(ledger, FEWEST_EVENTS)
    standing(ledger, run)
    assert rows_of(ledger, run) == {}


def test_a_fold_is_stored_anew_only_after_many_events(ledger: Ledger) -> None:
    """Not at each look."""
    run = begun(ledger)
    standing(ledger, run)
    first = rows_of(ledger, run)
    goes_on(ledger, run, FEWEST_EVENTS)
    standing(ledger, run)
    assert rows_of(ledger, run) == first
    goes_on(ledger, run, 1)
    standing(ledger, run)
    assert rows_of(ledger, run) != first


@pytest.mark.parametrize(
    "damage",
    [
        lambda row: row.replace('"version":', '"version":1'),
        lambda row: row.replace('"fingerprint":"', '"fingerprint":"x'),
        lambda row: row.replace('"chain":"', '"chain":"00'),
        lambda row: row[: len(row) // 2],
        lambda row: "",
        lambda row: "[]",
        lambda row: None,
    ],
    ids=["version", "maker", "chain", "cut", "empty", "other", "gone"],
)
def test_a_damaged_row_is_noticed_and_folded_again(ledger: Ledger, damage: Any) -> None:
    """One of the seven is enough; the rows are right again afterwards."""
    run = begun(ledger)
    standing(ledger, run)
    for key, row in rows_of(ledger, run).items():
        ledger.shelf(SHELF).put({key: damage(row)}, 0)
        assert digests(standing(ledger, run)) == digests(state_at(ledger, run))
        assert rows_of(ledger, run)[key] == row


def test_a_fold_of_another_history_is_not_used(ledger: Ledger) -> None:
    """A row under this run's name that was made of other events with the same versions."""
    one, other = begun(ledger), begun(ledger, LONG + 7)
    standing(ledger, one)
    standing(ledger, other)
    mixed = {key.replace(str(other), str(one)): row for key, row in rows_of(ledger, other).items()}
    ledger.shelf(SHELF).put(mixed, 0)
    assert digests(standing(ledger, one)) == digests(state_at(ledger, one))


def test_an_event_that_changes_something_old_is_folded_from_the_beginning(ledger: Ledger) -> None:
    """The first tool's message is amended when all of it is behind the stored fold."""
    run = begun(ledger)
    standing(ledger, run)
    first_result = UUID(int=MESSAGE_ID.int + 3)
    ledger.append(run, ToolMessageAmended(message_id=first_result, content="shorter"), ANY)
    state = standing(ledger, run)
    assert digests(state) == digests(state_at(ledger, run))
    assert state.tools.calls[0].result == "shorter"


def test_a_fork_and_a_continuation_stand_on_their_own(ledger: Ledger) -> None:
    """Their folds cover what they share with their parent."""
    run = begun(ledger)
    standing(ledger, run)
    for child in (ledger.fork(run, at=LONG), ledger.continuation(run)):
        assert digests(standing(ledger, child)) == digests(state_at(ledger, child))
        goes_on(ledger, child)
        assert digests(standing(ledger, child)) == digests(state_at(ledger, child))


def test_everything_stored_can_be_thrown_away(ledger: Ledger) -> None:
    """It is derived."""
    run = begun(ledger)
    before = digests(standing(ledger, run))
    ledger.shelf(SHELF).drop()
    assert digests(standing(ledger, run)) == before
    assert len(rows_of(ledger, run)) == 7
