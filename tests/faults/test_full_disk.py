"""Disks that are really full, limited or read-only: typed errors, nothing lost, and on it goes."""

from __future__ import annotations

from pathlib import Path

from tests.crash.driver import drive
from tests.faults.mounting import on_a_small_disk


def test_a_disk_that_fills_up_loses_nothing_and_the_same_ledger_goes_on(tmp_path: Path) -> None:
    """What was acknowledged stays readable, errors say what to do, a retry settles the rest."""
    told = on_a_small_disk("full", tmp_path / "disk")

    assert "make room" in told["error"]
    assert "same ids" in told["error"]
    assert all("make room" in error for error in told["others"].values())
    assert len(told["stored"]) > 10
    assert told["read"] == told["stored"]
    assert told["elsewhere"] == {"ids": told["stored"], "ok": True}
    assert told["after"] == told["stored"] + told["retried"]
    assert told["reopened"] == {"ids": told["after"], "ok": True}
    assert told["left open"] == []


def test_a_full_disk_leaves_no_descriptor_open_after_close(tmp_path: Path) -> None:
    """Of a ledger that others use, too: an open file takes room, and a process has few of them."""
    told = on_a_small_disk("closing", tmp_path / "disk")

    assert told["left open"] == {"alone": [], "another process": [], "another ledger": []}


def test_opening_on_a_full_disk_says_so_and_works_with_room(tmp_path: Path) -> None:
    """Neither an old ledger nor a new one is harmed by the attempt."""
    told = on_a_small_disk("opening", tmp_path / "disk")

    assert all("full" in error for error in told["errors"])
    assert len(told["found"]["ids"]) == 1
    assert told["found"]["ok"]


def test_a_claim_without_room_for_its_file_is_a_typed_error(tmp_path: Path) -> None:
    """A worker's sign of life is a file: where none can be made, only claiming is impossible."""
    told = on_a_small_disk("no_files", tmp_path / "disk")

    assert "Make room" in told["error"]
    assert told["appended"] == 2
    assert told["epoch"] == 1


def test_a_read_only_disk_can_be_read(tmp_path: Path) -> None:
    """Closed or left by a killed process: all of it is read, and writing says why it can't."""
    told = on_a_small_disk("read_only", tmp_path / "disk")

    for name in ("runs.db", "killed.db"):
        assert told[name]["events"] == 5
        assert told[name]["ok"]
        assert "read-only" in told[name]["error"]
        assert "Nothing was written" in told[name]["error"]
        assert told[name]["drafts"] == 1
        assert told[name]["copied"] == 5
        assert "Read-only" in told[name]["claim"]
    # What is only in the WAL is never left out silently.
    assert "Copy" in told["no index"]
    assert "Read-only" in told["new"]
    for command in ("runs", "log", "verify"):
        code, shown = told[command]
        assert code == 0, shown
    assert "fault.fact" in told["log"][1]
    assert told["writable again"]["ok"]


def test_a_read_only_view_of_a_folder_shows_what_others_write_there(tmp_path: Path) -> None:
    """Opened, written, closed and opened again elsewhere: the view is never stale or damaged."""
    told = on_a_small_disk("both_ways", tmp_path / "disk")

    assert told["seen"]
    assert told["looks"] > 300
    assert told["wrong"] == []


def test_a_limit_for_the_size_of_files_loses_nothing(tmp_path: Path) -> None:
    """RLIMIT_FSIZE, met in the WAL again and again: typed errors, and on it goes without it."""
    limits = [200_000, 500_000, 900_000]
    told = drive("tests.faults.limited", seconds=60, url=str(tmp_path / "runs.db"), limits=limits)

    assert told["wrong"] == []
    for one in told["rounds"]:
        assert all("limit for the size" in error for error in one["errors"])
        assert one["lost at once"] == 0
    assert sum(len(one["acknowledged"]) for one in told["rounds"]) > 30
