"""How often an event is encoded, folded and read: counted on a whole run and on a recovery."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.event_cost import Cost, Counting, recovery_cost, run_cost
from tests.unit.runtime.loops import ANSWER, Goal, Planner, asks, call
from turnledger.ledger import Ledger, new_run_id
from turnledger.runtime import ToolContext

STORES = ["memory", "sqlite"]


def test_an_event_is_encoded_once_and_folded_at_most_twice(ledger: Ledger) -> None:
    """When it is added, and when the store has given its time, position and digest."""
    cost = run_cost(ledger)
    assert cost.written > 50
    assert cost.encodes == cost.written
    # RunStarted and RunClaimed are folded once, when the journal reads them; and no single
    # projection may want an event of which there is nothing more to learn from the store.
    assert cost.written < cost.folds <= 2 * cost.written - 2
    assert cost.too_high == []


def test_a_recovery_reads_each_record_once(ledger: Ledger) -> None:
    """After its claim only what came since: the claim."""
    cost = recovery_cost(ledger)
    assert cost.found > 30
    assert cost.read == cost.found + 1
    assert cost.encodes == cost.written
    assert cost.too_high == []


@pytest.mark.parametrize("width", [1, 3])
def test_what_tools_change_is_encoded_once(ledger: Ledger, width: int) -> None:
    """Session state and resources. Side by side, a tool's changes may be folded once more.

    It sees its own changes on top of its start, and they are recorded on top of the others'.
    """

    class Pages:
        written = 0

        def snapshot(self) -> int:
            return self.written

        def restore(self, snapshot: Any, /) -> None:
            self.written = snapshot

    pages = Pages()

    def write(context: ToolContext) -> None:
        pages.written += 1

    replies = [asks(call("c1"), call("c2"), call("c3")), ANSWER]
    loop = Planner(replies, ledger=ledger, in_tool=write, resources={"pages": pages})
    loop._adapter.parallel_tools = width
    run = new_run_id()
    with Counting(ledger) as counted:
        loop.execute(Goal(), run_id=run)
    tags = [record.tag for record in ledger.read(run)]
    assert (tags.count("slice.event_applied"), tags.count("resource.snapshotted")) == (3, 4)
    assert counted.encodes == len(tags)
    again = 0 if width == 1 else 3 + 3
    assert counted.folds <= 2 * len(tags) - 2 + again


def test_a_count_that_is_too_high_is_named() -> None:
    """The script can fail."""
    cost = Cost(found=10, tail=1, written=5, encodes=6, folds=31, read=12)
    assert cost.too_high == ["encodes", "folds", "read"]
