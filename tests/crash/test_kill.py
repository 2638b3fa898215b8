"""Writers are SIGKILLed at random moments: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import TimeoutExpired

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.crash.driver import DriverFailedError, drive
from tests.soaking import Search

INTERRUPTED = "interrupted in an append"


def test_what_was_acknowledged_survives_hundreds_of_kills(ledger_url: str) -> None:
    """Eight writers, killed and replaced: after each round all they were promised is there once."""
    figures = drive("killing", seconds=150, url=ledger_url, seed=20, kills=150, kills_a_round=50)
    print(figures)

    assert figures["problems"] == []
    assert figures["kills"] >= 150
    # Others' deaths are nobody's trouble: no append was left without an answer.
    assert "outcome unknown" not in figures
    # The kills met what they were meant to meet: appends on their way, and held claims.
    assert figures["acknowledged"] > 1000
    assert figures["killed in an append"] > 50
    assert figures["killed in several appends at once"] > 0
    assert figures["killed amid a transaction"] > 0
    assert figures["killed amid opening"] > 0
    assert figures["stopped, then killed"] > 0
    assert figures["all killed at once"] > 0
    assert figures["settled"] > 25
    assert figures["taken over"] > 10
    for name in ("conflicts", "forks", "imports", "appends with blobs", "repeats found"):
        assert figures[name] > 0, name


def test_a_new_ledger_opens_for_the_others_when_some_are_killed_at_it(
    new_ledger_url: Callable[[], str],
) -> None:
    """Tables are made whole or not at all, and nobody is told to go away for another's death."""
    urls = [new_ledger_url()]
    # A database costs more than a file.
    urls += [new_ledger_url() for _ in range(5 if "://" in urls[0] else 24)]
    figures = drive("creating", seconds=100, urls=urls, seed=22)
    print(figures)

    assert figures["problems"] == []
    assert figures["kills"] == len(urls) * 3
    assert figures["opened"] >= len(urls) * 3


@pytest.mark.soak
def test_what_was_acknowledged_survives_thousands_of_kills(
    new_ledger_url: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    """5,000 kills and 500,000 acknowledged events on each store, on a new ledger every 250."""
    store = request.node.callspec.params["new_ledger_url"]
    search = Search(f"kills-{store}", goal={"kills": 5_000, "acknowledged": 500_000})
    for number in search.rounds(share=0.12):
        plan = {"kills": 250, "events": 25_000, "kills_a_round": 60}
        _play(search, new_ledger_url(), seed=number, seconds=300, **plan)
    print(search.figures)

    assert search.problems == []


@pytest.mark.soak
def test_what_was_acknowledged_survives_thousands_of_interrupts(
    new_ledger_url: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    """Ctrl-C anywhere in an append, beside kills: whoever appends again is served, and once."""
    store = request.node.callspec.params["new_ledger_url"]
    search = Search(f"interrupts-{store}", goal={INTERRUPTED: 3_000})
    for number in search.rounds(share=0.01):
        plan = {"kills": 60, "kills_a_round": 60, "interrupts": 6}
        _play(search, new_ledger_url(), seed=number, seconds=100, **plan)
    print(search.figures)

    assert search.problems == []


def _play(search: Search, url: str, *, seed: int, seconds: float, **plan: int) -> None:
    """One round on one ledger, which is left only if something is wrong with it."""
    try:
        figures = drive("killing", seconds=seconds, url=url, seed=seed, **plan)
    except (DriverFailedError, TimeoutExpired) as error:
        search.blame(f"round {seed}: {error}")
        return
    found = figures.pop("problems")
    search.count(**figures)
    search.blame(*(f"round {seed}: {problem}" for problem in found))
    if not found:
        _remove(url)


def _remove(url: str) -> None:
    """Half a million events would be gigabytes."""
    if "://" not in url:
        for file in (url, f"{url}-wal", f"{url}-shm"):
            Path(file).unlink(missing_ok=True)
        shutil.rmtree(f"{url}-locks")
        return
    with psycopg.connect(make_conninfo(url, dbname="postgres"), autocommit=True) as db:
        db.execute(f"DROP DATABASE {conninfo_to_dict(url)['dbname']} WITH (FORCE)")
