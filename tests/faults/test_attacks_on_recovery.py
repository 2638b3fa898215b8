"""Damage to interrupted runs: nothing is done twice, and every healthy run is recovered.

A few rounds here, two thousand in `make soak`. A failure names its round, which
`python -m tests.faults.attacking --first ROUND --rounds 1` does again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from uuid import UUID

import pytest

from tests.faults.attacking import Attack, Database, Place, file, undamaged
from tests.faults.damage import Damage
from tests.faults.interrupted import Order, Run, repeated
from tests.postgres import new_database
from tests.soaking import Search

STORES = ("sqlite", "postgresql")
# What a round costs is mostly the opening of ledgers, which takes longer on a server.
FEW = {"sqlite": range(1030, 1060), "postgresql": range(1040, 1044)}
GOALS = {"sqlite": 2000, "postgresql": 200}
SHARES = {"sqlite": 0.15, "postgresql": 0.05}
# Attacks in one round of the search.
MANY = 50


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(store: str) -> Iterator[Place]:
    if store == "postgresql":
        yield Database(new_database())
        return
    with file() as made:
        yield made


def attacked(place: Place, rounds: Iterable[int]) -> tuple[list[str], Counter[str]]:
    """All problems and figures of these rounds."""
    attack = Attack(place)
    problems: list[str] = []
    figures: Counter[str] = Counter()
    for number in rounds:
        found, counted = attack.round(number)
        problems += found
        figures.update(counted)
    return problems, figures


def test_damage_repeats_no_effect_and_stops_no_healthy_run(store: str, place: Place) -> None:
    """Whatever one place of one table holds: recovery refuses that run, and recovers the others."""
    problems, figures = attacked(place, FEW[store])
    assert problems == []
    assert figures["recovered"] > 0
    assert figures["healthy"] > 0


@pytest.mark.soak
def test_thousands_of_attacks_on_recovery(store: str, place: Place) -> None:
    """The same, with other numbers each time, until so many were made."""
    search = Search(f"recovery-{store}", goal={"attacks": GOALS[store]})
    for number in search.rounds(share=SHARES[store]):
        problems, figures = attacked(place, range(number * MANY, (number + 1) * MANY))
        search.count(**figures)
        search.blame(*problems)
    assert search.problems == []


# --- the attack itself ---------------------------------------------------------------------


def test_without_damage_every_run_ends_as_its_copy_does() -> None:
    """In whatever order an operator proceeds: what a round finds, the damage has done."""
    with file() as place:
        attack = Attack(place)
        for number in (1, 2, 3, 11, 12):
            problems, figures = attack.round(number, damaged=False)
            assert problems == []
            assert figures["healthy"] > 0


def test_an_effect_that_happens_once_too_often_is_found() -> None:
    """Of an ask or fail tool, without a decision, or in a fork that did not begin the call."""
    parent = Run(UUID(int=1), Order("o1", "ask,retry"))
    fork = Run(UUID(int=2), parent.order, parent, 9, "fork", inherited={"o1.1.0"})

    def found(policy: str, in_parent: int, in_fork: int, elsewhere: int = 0) -> int:
        runs = (parent.id, fork.id, UUID(int=3))
        counts = (in_parent, in_fork, elsewhere)
        paid = zip(runs, counts, strict=True)
        bank = Counter({(str(run), f"o1.1.0/{policy}"): count for run, count in paid})
        return len(repeated([parent, fork], bank))

    assert found("retry", 3, 3) == 0
    for policy in ("ask", "fail"):
        assert found(policy, 1, 0) == 0
        assert found(policy, 2, 0) == 1
        assert found(policy, 1, 1) == 1
        assert found(policy, 1, 0, elsewhere=1) == 1
    for run in (parent, fork):
        run.retries["o1.1.0"] += 1
    assert found("ask", 2, 1) == 0
    assert found("ask", 3, 2) == 2


def test_a_run_is_healthy_if_all_that_it_shares_is() -> None:
    """A fork has what its parent recorded before it, and nothing of what came after."""
    parent = Run(UUID(int=1), Order("o1", "ask"))
    fork = Run(UUID(int=2), parent.order, parent, 9, "fork")
    runs = [parent, fork]

    def healthy(table: str, **row: object) -> list[Run]:
        damage = Damage("", table, [{"run_id": str(parent.id), **row}])
        return [run for run in runs if str(run.id) in undamaged(runs, damage)]

    assert healthy("events", version=9) == []
    assert healthy("events", version=10) == [fork]
    assert healthy("runs") == []
    assert healthy("run_tags") == [fork]
    assert healthy("blobs", content=b'{"title":"o1"}') == []
    assert healthy("blobs", content=b'{"title":"o2"}') == runs
    assert undamaged(runs, Damage("", "events", None)) == set()
