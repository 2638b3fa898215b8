"""Several processes write to one ledger: all get their turn, and nobody waits for ever."""

from __future__ import annotations

import pytest

from tests.crash.driver import drive
from tests.crash.stopping import HOLDERS_FIRST, HOLDERS_SECOND, RUN, SHORT
from turnledger.ledger import Ledger


def test_no_writer_starves(file_url: str) -> None:
    """Of six that append in a loop, the slowest makes at least a third of the mean."""
    told = drive("sharing", seconds=60, url=file_url, writers=6, appends=3000)
    print(told)

    appends = told["appends"]
    assert 3000 <= sum(appends) < 3000 + 6
    assert min(appends) >= sum(appends) / 6 / 3
    with Ledger.open(file_url) as ledger:
        report = ledger.verify_all()
    assert (report.ok, report.records) == (True, sum(appends) + len(appends))


def recorded(url: str) -> list[int]:
    with Ledger.open(url) as ledger:
        assert ledger.verify_all().ok
        return [record.event_id.int for record in ledger.read(RUN)]


@pytest.mark.parametrize("then", ["it goes on", "it is killed"])
def test_a_writer_that_stands_still_in_its_append_makes_others_busy(
    ledger_url: str, then: str
) -> None:
    """Others of its run are told so after their wait, and succeed when it is over."""
    told = drive("stopping", seconds=40, url=ledger_url, then=then)

    assert len(told["busy"]) == 3
    for me, (seconds, message, retry, seen) in enumerate(told["busy"], 1):
        assert SHORT <= seconds < SHORT + 10
        assert "nothing was written" in message
        assert retry == [me]
        assert seen == [HOLDERS_FIRST]
    assert told["done"] == [[1, False], [2, False], [3, False]]
    first, *others = recorded(ledger_url)
    assert first == HOLDERS_FIRST
    of_holder = [HOLDERS_SECOND] if then == "it goes on" else []
    assert others[: len(of_holder)] == of_holder
    assert sorted(others[len(of_holder) :]) == [1, 2, 3]


def test_in_postgres_others_write_to_other_runs_meanwhile(server_url: str) -> None:
    """A writer that stands still in the middle of its append holds up nobody but its own run."""
    told = drive("stopping", seconds=40, url=server_url, then="others write elsewhere")

    assert told["done"] == [[1, False], [2, False], [3, False]]
    assert recorded(server_url) == [HOLDERS_FIRST]


def test_a_writer_that_stands_still_in_line_makes_others_busy(file_url: str) -> None:
    """Being next is no reason to wait for ever either, and the turn is taken when it goes on."""
    told = drive("stopping", seconds=40, url=file_url, then="the next in line stops too")

    [[seconds, _, retry, seen]] = told["busy"]
    assert SHORT <= seconds < SHORT + 10
    assert (retry, seen) == ([2], [HOLDERS_FIRST, HOLDERS_SECOND])
    assert told["done"] == [[1, False], [2, False]]
    assert recorded(file_url) == [HOLDERS_FIRST, HOLDERS_SECOND, 1, 2]


def test_an_interrupted_wait_leaves_no_lock_behind(file_url: str) -> None:
    """Ctrl-C in line, in a process that lives on: the others do not wait for it."""
    told = drive("stopping", seconds=40, url=file_url, then="the next in line is interrupted")

    assert told["done"] == [[2, False], [1, False]]
    assert recorded(file_url) == [HOLDERS_FIRST, HOLDERS_SECOND, 2, 1]
