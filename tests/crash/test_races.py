"""Two processes want the same version, event or run: exactly one gets it."""

from __future__ import annotations

from tests.crash.driver import drive
from turnledger.ledger import Ledger


def test_of_two_writers_for_one_version_exactly_one_wins(ledger_url: str) -> None:
    """In 1,000 races one append is recorded, and the other names the version it met."""
    races = drive("racing", seconds=60, url=ledger_url, seed=2, races=1000, prize="version")[
        "races"
    ]

    assert len(races) == 1000
    for number, race in enumerate(races):
        winner, loser = sorted(race, reverse=True)
        assert (winner[0], loser[0]) == ("won", "lost"), f"race {number}: {race}"
        _, run_id, expected, found, message = loser
        assert [run_id, expected, found] == winner[1:4]
        assert found == expected + 1
        assert f"at version {found}" in message
        assert ("to be new" if expected == 0 else f"at version {expected},") in message
    with Ledger.open(ledger_url) as ledger:
        report = ledger.verify_all()
    assert (report.ok, report.records) == (True, 1000)


def test_the_same_events_by_two_writers_are_recorded_once(ledger_url: str) -> None:
    """In 300 races with the same ids both are told the same place, and one that it came second."""
    races = drive("racing", seconds=60, url=ledger_url, seed=3, races=300, prize="event")["races"]

    assert len(races) == 300
    for number, (one, other) in enumerate(races):
        assert sorted([one[0], other[0]]) == [False, True], f"race {number}: {one}, {other}"
        assert one[1] == other[1], f"race {number}: {one}, {other}"
    with Ledger.open(ledger_url) as ledger:
        report = ledger.verify_all()
    assert (report.ok, report.records) == (True, 600)


def test_two_mirrors_record_every_event_once(ledger_url: str) -> None:
    """In 100 races both are done, and each event that both brought is new to one of them."""
    races = drive("racing", seconds=60, url=ledger_url, seed=5, races=100, prize="mirror")["races"]

    assert len(races) == 100
    for number, (one, other) in enumerate(races):
        assert sorted([*one, *other]) == [0, 1, 2, 3], f"race {number}: {one}, {other}"
    with Ledger.open(ledger_url) as ledger:
        report = ledger.verify_all()
    assert (report.ok, report.records) == (True, 400)


def test_of_two_workers_that_claim_one_run_exactly_one_gets_it(ledger_url: str) -> None:
    """In 200 races one claim is granted, with the next epoch, and the other names its holder."""
    races = drive("racing", seconds=60, url=ledger_url, seed=4, races=200, prize="claim")["races"]

    assert len(races) == 200
    for number, race in enumerate(races):
        winner, loser = sorted(race, reverse=True)
        assert (winner[0], loser[0]) == ("won", "lost"), f"race {number}: {race}"
        assert winner[1:] == loser[1:]
        assert winner[2] == number + 1
    with Ledger.open(ledger_url) as ledger:
        assert ledger.verify_all().ok
