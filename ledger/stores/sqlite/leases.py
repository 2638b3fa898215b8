"""Leases in SQLite, within a transaction: rows, and locked files that show who is alive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnledger.ledger.runs.transaction import Lease, Leases
from turnledger.ledger.stores.sqlite.file_lock import is_alive

_GET = "SELECT run_id, worker, epoch, holder, expires_at FROM leases WHERE run_id=?"
_PUT = """INSERT INTO leases VALUES (?,?,?,?,?) ON CONFLICT (run_id) DO UPDATE SET
    worker=excluded.worker, epoch=excluded.epoch, holder=excluded.holder,
    expires_at=excluded.expires_at"""
_NOW = "SELECT CAST((julianday('now') - 2440587.5) * 86400e6 AS INTEGER)"


class SQLiteLeases(Leases):
    """Leases, read and written by `one`, which runs a statement and gives its first row."""

    __slots__ = ("_folder", "_one")

    def __init__(self, one: Callable[..., Any], folder: Path) -> None:
        super().__init__()
        self._one = one
        self._folder = folder

    def get(self, run_id: str) -> Lease | None:
        found = self._one(_GET, run_id)
        return Lease(*found) if found else None

    def put(self, lease: Lease) -> None:
        self.wrote = True
        self._one(_PUT, *lease)

    def drop(self, run_id: str) -> None:
        self.wrote = True
        self._one("DELETE FROM leases WHERE run_id=?", run_id)

    def holder_alive(self, holder: str) -> bool:
        return is_alive(self._folder, holder)

    def now(self) -> int:
        now: int = self._one(_NOW)[0]
        return now
