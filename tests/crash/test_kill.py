"""Writers are SIGKILLed at random moments: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.crash.driver import drive
from tests.soaking import SOAK_MINUTES


def test_what_was_acknowledged_survives_hundreds_of_kills(ledger_url: str) -> None:
    """Eight writers, killed and replaced: after each round all they were promised is there once."""
    figures = drive("killing", seconds=150, url=ledger_url, seed=20, kills_a_round=25, rounds=10)
    print(figures)

    assert figures["problems"] == []
    assert figures["rounds"] == 10
    assert figures["kills"] >= 250
    # Others' deaths are nobody's trouble: no append was left without an answer.
    assert "outcome unknown" not in figures
    # The kills met what they were meant to meet: appends on their way, and held claims.
    assert figures["acknowledged"] > 1000
    assert figures["killed in an append"] > 50
    assert figures["settled"] > 25
    assert figures["taken over"] > 10
    assert figures["conflicts"] > 0
    assert figures["forks"] > 0


def test_what_was_acknowledged_survives_the_death_of_postgres() -> None:
    """Eight writers, and the server killed under them: they go on, nothing is lost or doubled."""
    figures = drive("outage", seconds=100, seed=21, outages=4)
    print(figures)

    assert figures["problems"] == []
    assert figures["acknowledged"] > 500


@pytest.mark.soak
def test_what_was_acknowledged_survives_thousands_of_kills(
    new_ledger_url: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The same for this store's share of SOAK_MINUTES, on a new ledger every minute."""
    minutes = SOAK_MINUTES * 0.3
    ends = time.monotonic() + minutes * 60
    total: Counter[str] = Counter()
    problems: list[str] = []
    seed = 1000
    while (left := ends - time.monotonic()) > 0 and not problems:
        seed += 1
        figures = drive(
            "killing",
            seconds=240,
            url=new_ledger_url(),
            seed=seed,
            kills_a_round=100,
            at_least=min(left, 60.0),
        )
        problems = figures.pop("problems")
        total.update(figures)
    found = Counter(problem.split(":")[0] for problem in problems)
    with capsys.disabled():
        print(f"\n{dict(total)}, lost {found['lost']}, doubled {found['doubled']}, ", end="")
        print(f"gaps {found['gap']}, all problems {problems}")

    assert problems == []
    assert total["kills"] > 200 * minutes
