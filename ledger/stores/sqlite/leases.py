"""Leases in SQLite, within a transaction: rows, and locked files that show who is alive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnledger.ledger.stores.sql import SQLLeases
from turnledger.ledger.stores.sqlite.file_lock import is_alive

_NOW = "SELECT CAST((julianday('now') - 2440587.5) * 86400e6 AS INTEGER)"


class SQLiteLeases(SQLLeases):
    """Leases, whose holders keep a file locked in `folder`."""

    __slots__ = ("_folder",)

    def __init__(
        self, one: Callable[..., Any], every: Callable[..., list[Any]], folder: Path
    ) -> None:
        super().__init__(one, every)
        self._folder = folder

    def holder_alive(self, holder: str) -> bool:
        return is_alive(self._folder, holder)

    def now(self) -> int:
        now: int = self._one(_NOW)[0]
        return now
