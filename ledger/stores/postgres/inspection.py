"""A ledger in PostgreSQL as it is stored, for those who check it: undecoded, in pages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from turnledger.ledger.runs.record import RawRow, as_raw_row
from turnledger.ledger.stores.base import PAGE, LedgerRecorder
from turnledger.ledger.stores.sql import catalogue_number

_RAW = """position, convert_to(run_id, 'UTF8'), version, convert_to(tag, 'UTF8'),
    convert_to(event_id, 'UTF8'), recorded_at, digest, convert_to(data, 'UTF8')"""


class PostgresRawRows(LedgerRecorder):
    """What is stored, without a thought about what it means."""

    @abstractmethod
    def _all(self, statement: str, values: Any = ()) -> list[Any]: ...

    def written_catalogue(self) -> int | None:
        found = self._all("SELECT value FROM meta WHERE key = 'catalogue'")
        return catalogue_number(found[0][0] if found else None)

    def raw_run_ids(self) -> Iterator[Any]:
        last = ""
        while found := self._all(
            "SELECT run_id, count(*) FROM events WHERE run_id > %s "
            "GROUP BY run_id ORDER BY run_id LIMIT %s",
            (last, PAGE),
        ):
            yield from ((run_id.encode(), count) for run_id, count in found)
            last = found[-1][0]

    def raw_rows(self, run_id: Any, first: int | None = None) -> Iterator[RawRow]:
        key, last = run_id.decode(), (-(2**63) if first is None else first, -(2**63))
        # Who begins at a version wants a record or two from there.
        page = PAGE if first is None else 2
        while found := self._all(
            f"SELECT {_RAW} FROM events WHERE run_id = %s AND (version, position) > (%s, %s) "
            "ORDER BY version, position LIMIT %s",
            (key, *last, page),
        ):
            rows = list(map(as_raw_row, found))
            yield from rows
            page = PAGE
            last = (rows[-1].version, rows[-1].position)

    def raw_tags(self) -> Iterator[tuple[Any, Any, Any]]:
        last = ("", "", "")
        while found := self._all(
            "SELECT key, value, run_id FROM run_tags WHERE (key, value, run_id) > (%s, %s, %s) "
            "ORDER BY key, value, run_id LIMIT %s",
            (*last, PAGE),
        ):
            for key, value, run_id in found:
                yield run_id.encode(), key.encode(), value.encode()
            last = found[-1]
