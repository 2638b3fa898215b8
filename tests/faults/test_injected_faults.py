"""Writes, syncs and other calls to the disk fail by plan: what was acknowledged is stored.

Nothing else is said to be, reading goes on, the same ledger works when the disk does, and
after reopening in another process the chain verifies.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.crash.driver import drive
from tests.faults.lying_disk import DROPPING, FOREVER
from tests.soaking import Search


def play(folder: Path, cases: list[dict[str, Any]], seconds: float = 120) -> Counter[str]:
    told = drive("tests.faults.failing", seconds=seconds, folder=str(folder), cases=cases)
    print(told)
    assert told.pop("wrong") == []
    assert told["cases"] == len(cases)
    return Counter(told)


@pytest.mark.parametrize("fault", ["sync error", "sync error, pages dropped"])
def test_every_kth_sync_fails(tmp_path: Path, fault: str) -> None:
    """Whatever k: an append whose sync failed is not acknowledged, and its retry settles it."""
    told = play(tmp_path, [{"fault": fault, "every": k, "seed": k} for k in range(1, 9)])

    assert told["faults"] > 40
    assert told["settled"] > 10
    # Killed in the failure, the last append of some was found stored: unknown means that.
    assert fault != "sync error" or told["found stored"] > 0


def test_one_sync_fails_and_all_later_ones_are_well(tmp_path: Path) -> None:
    """From the first sync of a ledger's life on, each in turn: none is passed over in silence."""
    told = play(tmp_path, [{"fault": "sync error", "at": at} for at in range(1, 13)])

    assert told["faults"] >= 12
    assert told["errors"] > 5


@pytest.mark.parametrize("fault", ["full", "full, torn", "write error", "write error, torn"])
def test_the_disk_is_full_from_some_write_on(tmp_path: Path, fault: str) -> None:
    """From the first write of a ledger's life or a later one, until there is room again."""
    starts = (1, 2, 5, 12, 25, 40)
    told = play(
        tmp_path, [{"fault": fault, "at": at, "times": FOREVER, "seed": at} for at in starts]
    )

    assert told["faults"] >= len(starts)
    assert told["errors"] >= len(starts)


@pytest.mark.parametrize("fault", ["full, torn", "sync error, pages dropped"])
def test_a_wal_that_can_not_be_moved_fails_no_append(tmp_path: Path, fault: str) -> None:
    """Nothing can be written to the database itself, once it is there: all is kept in the WAL."""
    case = {"fault": fault, "files": ["db"], "at": 2, "times": FOREVER, "pages": 1}
    told = play(tmp_path, [{**case, "seed": seed, "closes": True} for seed in range(3)])

    assert told["faults"] > 10
    assert told["errors"] == 0
    assert told["acknowledged"] > 10


def test_anything_fails_at_any_time(tmp_path: Path) -> None:
    """A storm of faults of all kinds, a new one at each step, killed or closed at the end."""
    told = play(tmp_path, [{"seed": seed, "closes": seed % 3 == 0} for seed in range(24)])

    assert told["faults"] > 70
    assert told["settled"] > 15
    assert told["for sure"] > 0
    assert told["read on"] > 60
    assert told["found stored"] > 0


def test_all_threads_whose_commit_failed_are_told_so(tmp_path: Path) -> None:
    """A group's commit is everybody's: nobody in it is acknowledged if it fails."""
    told = play(tmp_path, [{"seed": seed, "threads": 6} for seed in range(6)])

    # How many it meets is up to the scheduler; that it meets some is enough.
    assert told["faults"] > 5
    assert told["settled"] > 0


def test_what_was_moved_while_others_read_is_not_believed_when_a_sync_fails(
    tmp_path: Path,
) -> None:
    """SQLite flushes a part of the WAL that it moved only later, and that may be thrown away."""
    case = {"fault": DROPPING, "every": 2, "threads": 6, "pages": 12}
    told = play(tmp_path, [{**case, "seed": seed} for seed in range(16)])

    assert told["faults"] > 100
    assert told["acknowledged"] > 200


def test_a_commit_that_failed_does_not_come_back_unflushed(tmp_path: Path) -> None:
    """When the WAL's index is made anew after a failed checkpoint, its frames are still there."""
    told = play(tmp_path, [{"closes": True, "seed": seed} for seed in ("24.6", "a", "b", "c")])

    assert told["settled"] > 0


def test_processes_that_share_a_failing_disk(tmp_path: Path) -> None:
    """Three processes, each with faults of its own: none of them harms what others were told."""
    told = play(tmp_path, [{"seed": seed, "processes": 3} for seed in range(5)])

    assert told["faults"] > 15
    assert told["acknowledged"] > 50


@pytest.mark.soak
def test_thousands_of_faults(tmp_path: Path) -> None:
    """The same storms, threads and processes, until so many faults were met."""
    search = Search("faults-sqlite", goal={"faults": 5000, "power cuts": 1000})
    for number in search.rounds(share=0.05):
        folder = tmp_path / str(number)
        folder.mkdir()
        kinds: list[dict[str, Any]] = [{}, {"closes": True}, {"threads": 6}, {"processes": 3}]
        kinds += [{"fault": DROPPING, "every": 2 + number % 3, "threads": 6, "pages": 12}]
        cases = [{**kinds[n % 5], "seed": f"{number}.{n}"} for n in range(60)]
        told = drive("tests.faults.failing", seconds=400, folder=str(folder), cases=cases)
        search.blame(*told.pop("wrong"))
        cut = drive(
            "tests.faults.cutting",
            seconds=400,
            folder=str(folder),
            seed=number,
            steps=10,
            every=7,
            faults=number % 2 == 0,
        )
        search.blame(*cut.pop("wrong"))
        names = ("faults", "errors", "acknowledged", "settled", "read on")
        search.count(
            **{name: told.get(name, 0) for name in names},
            **{"found stored": told.get("found stored", 0), "power cuts": cut["cuts"]},
        )
    assert search.problems == []
