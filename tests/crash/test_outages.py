"""PostgreSQL dies under its writers, or a standby takes over: nothing is lost or doubled."""

from __future__ import annotations

from random import Random

import pytest

from tests.crash.driver import drive
from tests.crash.outage import WAYS
from tests.soaking import Search


def test_what_was_acknowledged_survives_the_death_of_postgres() -> None:
    """Eight writers, and the server ended under them in every way: they go on by themselves."""
    figures = drive("outage", seconds=100, seed=21, ways=list(WAYS), between=40)
    print(figures)

    assert figures["problems"] == []
    assert figures["outages"] == len(WAYS)
    # The outages met what they were meant to meet. That some were told of an unknown outcome,
    # and had to retry with the same ids, is waited for.
    assert figures["caught in an append"] > 4 * len(WAYS)
    assert figures["followed again"] > 0
    assert figures["acknowledged"] > 500


def test_what_was_acknowledged_survives_a_fail_over() -> None:
    """The primary is killed, its synchronous standby promoted: the writers find it and go on."""
    figures = drive("failover", seconds=100, seed=22, failovers=1, between=40)
    print(figures)

    assert figures["problems"] == []
    assert figures["caught in an append"] > 4
    assert figures["acknowledged"] > 300


@pytest.mark.soak
def test_what_was_acknowledged_survives_hundreds_of_outages() -> None:
    """The same, with other moments each time, until the goal or the end of the time."""
    search = Search("outages-postgresql", goal={"outages": 200, "failovers": 20})
    for number in search.rounds(share=0.06):
        random = Random(number)
        ways = [random.choice(list(WAYS)) for _ in range(8)]
        for scenario, arguments in (
            ("outage", {"ways": ways, "between": 200}),
            ("failover", {"failovers": 2, "between": 200}),
        ):
            figures = drive(scenario, seconds=240, seed=10_000 + number, **arguments)
            search.blame(*(f"round {number}: {problem}" for problem in figures.pop("problems")))
            search.count(**{name.replace(" ", "_"): count for name, count in figures.items()})
    print(search.figures)

    assert search.problems == []
