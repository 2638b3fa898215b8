"""Stored folds of all runs are made anew, here or by several processes, and compared."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from tests.conformance.harness import StoreUnderTest
from tests.conformance.test_standing import begun, digests, goes_on, rows_of
from turnledger.ledger import Ledger
from turnledger.projections import standing, state_at
from turnledger.projections.run_state.rebuild import rebuild_folds
from turnledger.projections.run_state.stored import FEWEST_EVENTS, SHELF

VIEWS = 7


def test_long_runs_have_folds_afterwards_and_short_ones_none(ledger: Ledger) -> None:
    """And they are what a look at the run would have stored."""
    long, short = begun(ledger), begun(ledger, FEWEST_EVENTS)
    fork = ledger.fork(long, at=ledger.head(long))
    ledger.shelf(SHELF).put({f"{short} tools": "left over"}, 0)
    seen: list[tuple[int, int]] = []
    report = rebuild_folds(ledger, progress=lambda done, total: seen.append((done, total)))
    assert (report.rows, report.ok, report.verified) == (2 * VIEWS, True, False)
    assert report.events == ledger.head(long) + ledger.head(short) + 1
    assert seen[-1] == (report.events, report.events)
    assert rows_of(ledger, short) == {}
    made = rows_of(ledger, long)
    ledger.shelf(SHELF).drop()
    standing(ledger, long)
    assert rows_of(ledger, long) == made
    assert digests(standing(ledger, fork)) == digests(state_at(ledger, fork))


def test_verifying_changes_nothing_and_names_what_the_events_contradict(ledger: Ledger) -> None:
    """A fold that is behind is right as far as it goes; a changed or unreadable one is not."""
    run = begun(ledger)
    standing(ledger, run)
    goes_on(ledger, run)
    before = rows_of(ledger, run)
    assert rebuild_folds(ledger, verify=True).ok
    usage = json.loads(before[f"{run} usage"])
    usage["state"]["failed_calls"] += 1
    damaged = {f"{run} usage": json.dumps(usage), f"{run} tools": "?", f"{run} summary": "{}"}
    ledger.shelf(SHELF).put(damaged, 0)
    report = rebuild_folds(ledger, verify=True)
    assert {found.key for found in report.differences} == damaged.keys()
    assert not report.ok
    assert rows_of(ledger, run) == {**before, **damaged}
    assert rebuild_folds(ledger).ok
    assert rebuild_folds(ledger, verify=True).ok


def test_threads_make_the_same(ledger: Ledger) -> None:
    """Any executor will do."""
    runs = [begun(ledger, FEWEST_EVENTS + 1 + n) for n in range(4)]
    rebuild_folds(ledger)
    alone = [rows_of(ledger, run) for run in runs]
    ledger.shelf(SHELF).drop()
    with ThreadPoolExecutor(2) as pool:
        assert rebuild_folds(ledger, executor=pool, workers=2).rows == 4 * VIEWS
    assert [rows_of(ledger, run) for run in runs] == alone


def test_processes_make_the_same(shared_store: StoreUnderTest) -> None:
    """Each opens the ledger for itself."""
    ledger = shared_store.open()
    runs = [begun(ledger, FEWEST_EVENTS + 1 + n) for n in range(3)]
    rebuild_folds(ledger)
    alone = [rows_of(ledger, run) for run in runs]
    ledger.shelf(SHELF).drop()
    assert rebuild_folds(ledger, workers=2).rows == 3 * VIEWS
    assert [rows_of(ledger, run) for run in runs] == alone
