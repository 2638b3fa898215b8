"""A worker that holds a run's claim dies or stands still: another goes on, and it does not."""

from __future__ import annotations

from tests.crash.driver import drive
from tests.crash.holding import RUN
from turnledger.ledger import Ledger


def tags(url: str) -> list[str]:
    with Ledger.open(url) as ledger:
        assert ledger.verify_all().ok
        return [record.tag for record in ledger.read(RUN)]


def test_a_killed_workers_run_is_claimed_at_once(ledger_url: str) -> None:
    """While it lives, another is refused; once it is killed, its hour's lease is void."""
    told = drive("holding", seconds=40, url=ledger_url, holder="is killed")

    assert told["refused"] == ["holder", 1]
    assert told["taken"] == [2, 5]
    assert tags(ledger_url) == [
        "custom",
        "run.claimed",
        "run.resumed",
        "run.claimed",
        "run.resumed",
    ]


def test_a_worker_that_stood_still_past_its_lease_can_append_nothing(ledger_url: str) -> None:
    """Whatever it tries after another has claimed the run, its epoch is stale."""
    told = drive("holding", seconds=40, url=ledger_url, holder="stands still past its lease")

    assert told["taken"] == [2, 5]
    assert told["tried"] == [["stale", 1, 2]] * 4
    assert tags(ledger_url) == [
        "custom",
        "run.claimed",
        "run.resumed",
        "run.claimed",
        "run.resumed",
    ]


def test_a_claim_taken_during_an_append_is_not_overrun(server_url: str) -> None:
    """In PostgreSQL writers of one run work side by side: one that had passed the fence before
    it moved, and comes to write afterwards, writes nothing."""
    told = drive("holding", seconds=40, url=server_url, holder="stands still in an append")

    assert told["taken"] == [2, 4]
    assert told["tried"] == [["stale", 1, 2]]
    assert tags(server_url) == ["custom", "run.claimed", "run.claimed", "run.resumed"]
