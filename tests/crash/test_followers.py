"""Followers of the whole ledger while other processes append to it."""

from __future__ import annotations

from typing import Any

from tests.crash.driver import drive
from turnledger.ledger import Ledger


def recorded(url: str) -> list[list[Any]]:
    """What is in the ledger in the end, run by run, put in order of position."""
    with Ledger.open(url) as ledger:
        assert ledger.verify_all().ok
        rows = [
            [record.position, str(record.run_id), record.version, str(record.event_id)]
            for run in ledger.runs()
            for record in ledger.read(run.run_id)
        ]
    return sorted(rows)


def test_followers_miss_nothing_and_see_nothing_twice(ledger_url: str) -> None:
    """Followers from several positions see exactly what came after them, in order, as do those
    who are killed and go on from the last position that they had seen."""
    told = drive("following", seconds=100, url=ledger_url, seed=5, appends=200)
    rows = recorded(ledger_url)

    assert len(told["followers"]) == 5
    assert [after > 0 for after, _ in told["followers"]] == [False, False, False, True, True]
    for after, seen in told["followers"]:
        assert seen == [row for row in rows if row[0] > after]
    assert told["killed follower"] == rows
    assert told["restarts"] > 3
    assert told["kills"] > 3
    assert set(told["acknowledged"]) <= {event_id for *_, event_id in rows}
    for run_id in {row[1] for row in rows}:
        versions = [row[2] for row in rows if row[1] == run_id]
        assert versions == list(range(1, len(versions) + 1))


def test_a_long_transaction_delays_followers_and_loses_nothing(server_url: str) -> None:
    """While any PostgreSQL transaction with a number is open, what came after it is read by run
    but not yet followed; then it comes, all of it and in order."""
    told = drive("delaying", seconds=60, url=server_url, appends=20)

    assert told["read meanwhile"] == 20
    assert told["followed meanwhile"] == 0
    assert told["followed after"] == recorded(server_url)
    assert len(told["followed after"]) == 20
