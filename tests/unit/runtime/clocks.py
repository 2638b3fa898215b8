"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from turnledger.ledger.clock import to_datetime, to_micros

BEGIN = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)


class StandingClock:
    """Time passes by `advance` only; ids are counted."""

    def __init__(self, begin: datetime = BEGIN) -> None:
        self._micros = to_micros(begin)
        self._ids = 0

    def micros(self) -> int:
        return self._micros

    def new_id(self) -> str:
        self._ids += 1
        return str(UUID(int=self._ids))

    def now(self) -> datetime:
        return to_datetime(self._micros)

    def advance(self, by: timedelta) -> None:
        self._micros += by // timedelta(microseconds=1)
