"""The power fails after any call to the disk: what was acknowledged had been synced by then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.driver import drive


@pytest.mark.parametrize("faults", [False, True], ids=["well", "failing"])
def test_what_was_acknowledged_survives_a_power_cut_at_any_call(
    tmp_path: Path, faults: bool
) -> None:
    """Of what was not synced, nothing, all or pieces are left, and never what a sync dropped."""
    told = drive(
        "tests.faults.cutting",
        seconds=120,
        folder=str(tmp_path),
        seed=3,
        steps=10,
        every=8,
        faults=faults,
    )
    print(told)

    assert told["wrong"] == []
    assert told["cuts"] > 30
    assert told["acknowledged noted"] > 2
    assert told["delete noted"] > 1
    assert (told["syncs failed"] > 0) == faults


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_a_ledger_that_does_not_wait_for_the_disk_is_found_out(
    tmp_path: Path, synchronous: str
) -> None:
    """The check above can fail: with less than synchronous=FULL, acknowledged events are lost."""
    told = drive(
        "tests.faults.cutting",
        seconds=120,
        folder=str(tmp_path),
        seed=3,
        steps=8,
        every=25,
        synchronous=synchronous,
    )

    assert any("lost" in problem for problem in told["wrong"])
