"""Processes that keep tables are SIGKILLed at every step: the tables end equal to a clean fold."""

from __future__ import annotations

from tests.crash.driver import drive


def test_catching_up_survives_a_kill_at_every_step(ledger_url: str) -> None:
    """Before each read, each write of a transaction and each commit, and after it."""
    figures = drive("tables", seconds=100, url=ledger_url, work="catch up")
    print(figures)
    assert figures["problems"] == []
    for name in ("rows_after", "read get", "put", "set_watermark", "commit", "committed"):
        assert figures["died"][name] >= 4, name


def test_a_rebuild_survives_a_kill_at_every_step(ledger_url: str) -> None:
    """During the fold, at every step of the swap, and after it."""
    figures = drive("tables", seconds=100, url=ledger_url, work="rebuild")
    print(figures)
    assert figures["problems"] == []
    assert figures["died"]["rows_as_found"] >= 4
    for name in ("list_runs", "set_watermark", "clear", "put", "commit", "committed"):
        assert figures["died"][name] >= 1, name


def test_a_rebuild_with_processes_survives_a_kill(ledger_url: str) -> None:
    """While they work; the workers end with it: the driver waits until its pipes are closed."""
    figures = drive("tables", seconds=100, url=ledger_url, work="rebuild", workers=2)
    print(figures)
    assert figures["problems"] == []
    assert min(figures["died"]["submit"], figures["died"]["result"]) >= 2
