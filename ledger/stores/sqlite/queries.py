"""What is read from a ledger in SQLite, as statements; `sqlite.py` says on which connection."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from turnledger.ledger.errors import IntegrityFailureError
from turnledger.ledger.runs.index import RunRow
from turnledger.ledger.runs.record import RawRow, Row, as_raw_row, as_row
from turnledger.ledger.runs.transaction import Lease
from turnledger.ledger.stores.base import LedgerRecorder, RunQuery
from turnledger.ledger.stores.sql import catalogue_number
from turnledger.ledger.stores.sql_run_conditions import run_conditions
from turnledger.ledger.stores.sqlite.schema import (
    RAW_ROW,
    ROW,
    RUN,
    as_text,
    changed_schema,
    stored_bytes,
)

# How many of its findings SQLite is asked for.
FINDINGS = 20


class SQLiteRows(LedgerRecorder):
    """Events, runs, blobs and leases, read."""

    @abstractmethod
    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]: ...

    @abstractmethod
    def _undecoded(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection that gives text as bytes."""

    def rows(
        self, run_id: str, after: int, until: int | None, *, backwards: bool, limit: int
    ) -> list[Row]:
        found = self._all(
            f"SELECT {ROW} FROM events WHERE run_id=? AND version>? AND version<=? "
            f"ORDER BY version {'DESC' if backwards else 'ASC'} LIMIT ?",
            (run_id, after, until if until is not None else 2**62, limit),
        )
        return list(map(as_row, found))

    def rows_after(self, position: int, limit: int) -> list[Row]:
        found = self._all(
            f"SELECT {ROW} FROM events WHERE position>? ORDER BY position LIMIT ?",
            (position, limit),
        )
        return list(map(as_row, found))

    def run(self, run_id: str) -> RunRow | None:
        found = self._all(f"SELECT {RUN} FROM runs WHERE run_id=?", (run_id,))
        return RunRow(*found[0]) if found else None

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        where, values = run_conditions(query, "?")
        return [
            RunRow(*row)
            for row in self._all(
                f"SELECT {RUN} FROM runs {where} ORDER BY started_at DESC, run_id DESC LIMIT ?",
                [*values, query.limit],
            )
        ]

    def blob(self, name: str) -> bytes | None:
        found = self._all("SELECT content FROM blobs WHERE name=?", (name,))
        return found[0][0] if found else None

    def blob_names(self) -> Iterator[str]:
        last = ""
        while names := self._all(
            "SELECT name FROM blobs WHERE name>? ORDER BY name LIMIT 500", (last,)
        ):
            yield from (name for (name,) in names)
            reached: object = names[-1][0]
            if not isinstance(reached, str) or reached <= last:
                # A damaged index gives the same names again and again.
                raise IntegrityFailureError("The names of blobs are not in their order: damaged.")
            last = reached

    def lease(self, run_id: str) -> Lease | None:
        found = self._all(
            "SELECT run_id, worker, epoch, holder, expires_at FROM leases WHERE run_id=?",
            (run_id,),
        )
        return Lease(*found[0]) if found else None

    def written_catalogue(self) -> int | None:
        found = self._all("SELECT value FROM meta WHERE key='catalogue'")
        return catalogue_number(found[0][0] if found else None)

    def raw_run_ids(self) -> Iterator[Any]:
        with self._undecoded() as db:
            yield from db.execute(
                f"SELECT {as_text('run_id')}, count(*) FROM events GROUP BY run_id"
            )

    def raw_rows(self, run_id: Any, first: int | None = None) -> Iterator[RawRow]:
        which, values = "run_id=CAST(? AS TEXT)", [run_id]
        if (stored := stored_bytes(run_id)) is not None:
            which, values = "run_id IN (CAST(? AS TEXT), ?)", [run_id, stored]
        if first is not None:
            which, values = f"{which} AND version>=?", [*values, first]
        with self._undecoded() as db:
            found = db.execute(
                f"SELECT {RAW_ROW} FROM events WHERE {which} ORDER BY version", values
            )
            yield from map(as_raw_row, found)

    def raw_tags(self) -> Iterator[tuple[Any, Any, Any]]:
        columns = ", ".join(map(as_text, ("run_id", "key", "value")))
        with self._undecoded() as db:
            yield from db.execute(f"SELECT {columns} FROM run_tags")

    def own_findings(self) -> Iterator[str]:
        with self._undecoded() as db:
            yield from changed_schema(db)
        # Indexes that part from their tables, too: a reader that goes by them misses rows.
        with self._undecoded() as db:
            for (found,) in db.execute(f"PRAGMA integrity_check({FINDINGS})"):
                if found != b"ok":
                    yield found.decode("utf-8", "backslashreplace")
