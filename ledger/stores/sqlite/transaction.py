"""SQLite transaction: appends are held back and written many in a statement.

It runs on the writer's connection, under the lock between processes, so no other writer comes in
between. What costs time in SQLite is the number of statements: an optimistic transaction collects
the rows of all its appends, and the new heads of their runs, and writes them in `flush`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from turnledger.ledger.errors import IntegrityFailureError, StoreUnavailableError
from turnledger.ledger.runs.index import RebuiltIndex, RunRow
from turnledger.ledger.runs.record import NewColumns, Row, as_row
from turnledger.ledger.runs.transaction import (
    EventIdTakenError,
    IndexFold,
    RedoError,
    TokenRow,
    Transaction,
    WorkQuery,
)
from turnledger.ledger.stores.sql import GET_TOKEN, PUT_TOKEN, ROW, RUN, run_values, work_query
from turnledger.ledger.stores.sqlite.derived_data import SQLiteDerivedWriter
from turnledger.ledger.stores.sqlite.errors import RETRY, unknown, unwritten
from turnledger.ledger.stores.sqlite.leases import SQLiteLeases
from turnledger.ledger.stores.sqlite.wal import OpenFiles

# Rows of one statement. A number in between takes several, of few lengths in all, so that SQLite
# keeps them prepared; and the longest has fewer values than any SQLite allows.
ROWS_AT_ONCE = (64, 32, 16, 8, 4, 2)
_INSERT = "INSERT INTO events (run_id, version, tag, event_id, recorded_at, digest, data) VALUES "
MOVE_ONE = "UPDATE runs SET version=?, digest=?, recorded_at=? WHERE run_id=? AND version=?"
MOVE_MANY = {
    count: "UPDATE runs SET version=v.column1, digest=v.column2, recorded_at=v.column3 "
    f"FROM (VALUES {','.join(['(?,?,?,?,?)'] * count)}) AS v "
    "WHERE runs.run_id=v.column4 AND runs.version=v.column5"
    for count in ROWS_AT_ONCE
}
# Written when an append is answered by what an earlier transaction recorded. That one may have
# been killed before its flush, or its flush failed: it can be read and may not be on disk. This
# change means nothing, but its commit flushes the whole WAL. It alternates, because SQLite does
# not write a row that is set to what it was.
CONFIRM = """INSERT INTO meta VALUES ('confirmed', '0')
    ON CONFLICT (key) DO UPDATE SET value = CASE value WHEN '0' THEN '1' ELSE '0' END"""
INSERT_ONE = _INSERT + "(?,?,?,?,?,?,?)"
INSERT_MANY = {count: _INSERT + ",".join(["(?,?,?,?,?,?,?)"] * count) for count in ROWS_AT_ONCE}


def _rows_at_once(left: int) -> int:
    """How many rows the next statement takes when so many are left, two at least."""
    return next(size for size in ROWS_AT_ONCE if size <= left)


class Executor:
    """Runs single statements of one transaction; `failed` says whether one has failed.

    The transaction and its leases share it. (What is done for every event calls SQLite directly.)
    """

    __slots__ = ("_db", "failed")

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.failed = False

    def one(self, statement: str, *values: Any) -> Any:
        """The first row of a statement; None if it has none."""
        try:
            return self._db.execute(statement, values).fetchone()
        except sqlite3.Error as error:
            if "decode" in str(error):
                raise IntegrityFailureError(
                    f"The ledger holds damaged text: {error}. Run `turnledger verify`."
                ) from error
            raise self.failure(error, "preparing an append") from error

    def every(self, statement: str, *values: Any) -> list[Any]:
        """All rows of a statement."""
        try:
            return self._db.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self.failure(error, "preparing an append") from error

    def failure(self, error: sqlite3.Error, doing: str) -> StoreUnavailableError:
        """Note that a statement failed; the error to raise."""
        self.failed = True
        return unwritten(error, doing)


class SQLiteTransaction(Transaction):
    """A transaction on the writer's connection, under the lock between processes.

    There is one object for a connection, and `begin` makes it another transaction: making it and
    its parts for every commit costs as much as a statement.
    """

    __slots__ = (
        "_changes",
        "_db",
        "_execute",
        "_files",
        "_found_recorded",
        "_held",
        "_moves",
        "_one",
        "begun",
        "bytes_written",
        "executor",
    )
    derived: SQLiteDerivedWriter

    def __init__(
        self, db: sqlite3.Connection, heads: dict[str, RunRow], folder: Path, files: OpenFiles
    ) -> None:
        super().__init__(heads, careful=False)
        self._db = db
        self._execute = db.execute
        self._files = files
        self._changes = 0
        self.executor = Executor(db)
        self._one = self.executor.one
        self.derived = SQLiteDerivedWriter(db)
        self.leases = SQLiteLeases(self.executor.one, self.executor.every, folder)
        # About how much it adds to the WAL, beside derived data and a few pages for each commit.
        self.bytes_written = 0
        # Whether SQLite's own lock was ours: then what is at the end of the WAL is ours, too.
        self.begun = False
        # Held back: by run, the version that it was at and its row with the appends; the rows of
        # each append, with the list for their positions.
        self._moves: dict[str, tuple[int, RunRow]] = {}
        self._held: list[tuple[Sequence[NewColumns], list[int]]] = []
        # Whether events were found that an earlier transaction recorded: see CONFIRM.
        self._found_recorded = False

    def begin(self) -> None:
        derived, executor = self.derived, self.executor
        self._wrote = derived.wrote = self.leases.wrote = self._found_recorded = False
        executor.failed = derived.failed = self.begun = False
        self.bytes_written = derived.bytes_written = 0
        self.staged, self._moves, self._held = {}, {}, []
        try:
            self._execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise executor.failure(error, "beginning a transaction") from error
        self.begun = True
        self._changes = self._db.total_changes
        self._files.before_commit()

    def commit(self) -> None:
        try:
            if self._found_recorded:
                self._execute(CONFIRM)
            self._execute("COMMIT")
        except sqlite3.Error as error:
            # Not "nothing was written": it may have failed after the WAL had all of it.
            self.executor.failed = True
            self.rollback()
            raise unknown(error) from error
        self._files.after_commit(wrote=self._db.total_changes != self._changes)

    def rollback(self) -> None:
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._execute("ROLLBACK")

    def savepoint(self) -> None:
        self._one("SAVEPOINT job")

    def release_savepoint(self) -> None:
        self._one("RELEASE job")

    def rollback_to_savepoint(self) -> None:
        if not self._db.in_transaction:  # some errors end the whole transaction (a full disk)
            raise StoreUnavailableError(
                f"SQLite rolled the transaction back. Nothing was written. {RETRY}"
            )
        self._one("ROLLBACK TO job")

    def advance(
        self,
        before: RunRow | None,
        after: RunRow,
        rows: Sequence[NewColumns],
        blobs: Mapping[str, bytes],
    ) -> list[int] | None:
        try:
            # Held back only if the run's head is all that changes in the index. Otherwise it is
            # written now; a careful transaction has to know at once whether it goes through.
            if (
                not self.careful
                and before is not None
                and before.status == after.status
                and before.epoch == after.epoch
                and before.prompt == after.prompt
            ):
                first = self._moves.get(after.run_id) if self._moves else None
                self._moves[after.run_id] = (first[0] if first else before.version, after)
            elif not self._move_run(before, after):
                return None
            self._wrote = True
            if blobs:
                self._write_blobs(blobs)
        except sqlite3.Error as error:
            raise self.executor.failure(error, "appending") from error
        positions: list[int] = []
        self._held.append((rows, positions))
        if self.careful:
            self.flush()
        self.staged[after.run_id] = after
        return positions

    def _write_blobs(self, blobs: Mapping[str, bytes]) -> None:
        for name, content in blobs.items():
            self._execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (name, content))
            self.bytes_written += len(content)

    def flush(self) -> None:
        """Insert the rows of all appends so far, many in a statement, and place them."""
        held = self._held
        try:
            if self._moves:
                self._move_runs()
            if not held:
                return
            first, positions = held[0]
            rows = first if len(held) == 1 else [row for rows, _ in held for row in rows]
            count = len(rows)
            last = self._insert(rows, count)
        except sqlite3.IntegrityError as error:
            # SQLite has no code that tells which index it was.
            if "events.event_id" in str(error):
                raise EventIdTakenError from error
            raise self.executor.failure(error, "appending") from error
        except sqlite3.Error as error:
            raise self.executor.failure(error, "appending") from error
        self._held = []
        # Under the lock no other writer takes a position in between: they are consecutive.
        place = last - count + 1
        if rows is first:
            positions.extend(range(place, last + 1))
            return
        for rows, positions in held:
            end = place + len(rows)
            positions.extend(range(place, end))
            place = end

    def _move_runs(self) -> None:
        moves: list[tuple[int, bytes, int, str, int]] = []
        for seen, after in self._moves.values():
            moves += ((after.version, after.digest, after.recorded_at, after.run_id, seen),)
        self._moves = {}
        moved, count, done = 0, len(moves), 0
        while count - done > 1:
            size = _rows_at_once(count - done)
            values = tuple(chain.from_iterable(moves[done : done + size]))
            moved += self._execute(MOVE_MANY[size], values).rowcount
            done += size
        if done < count:
            moved += self._execute(MOVE_ONE, moves[done]).rowcount
        # Another process has moved one of the runs: the heads that were remembered are old.
        if moved != count:
            raise RedoError

    def _insert(self, rows: Sequence[NewColumns], count: int) -> int:
        last: int | None = None
        done = 0
        while count - done > 1:
            size = _rows_at_once(count - done)
            values = tuple(chain.from_iterable(rows[done : done + size]))
            last = self._execute(INSERT_MANY[size], values).lastrowid
            done += size
        if done < count:
            last = self._execute(INSERT_ONE, rows[done]).lastrowid
        for _, _, _, _, _, _, data in rows:
            self.bytes_written += len(data)
        assert last is not None
        return last

    def _move_run(self, before: RunRow | None, after: RunRow) -> bool:
        if self._moves:
            self._move_runs()
        if before is None:
            moved = self._execute(
                f"INSERT INTO runs ({RUN}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?) "
                "ON CONFLICT (run_id) DO NOTHING",
                run_values(after),
            ).rowcount
            tags = after.tag_map if moved else {}
            for key, value in tags.items():
                self._execute("INSERT INTO run_tags VALUES (?, ?, ?)", (key, value, after.run_id))
            return moved == 1
        head = (after.version, after.digest, after.recorded_at)
        changed = self._execute(
            "UPDATE runs SET version=?, digest=?, recorded_at=?, status=?, epoch=?, prompt=? "
            "WHERE run_id=? AND version=?",
            (*head, after.status, after.epoch, after.prompt, after.run_id, before.version),
        )
        return changed.rowcount == 1

    def run(self, run_id: str) -> RunRow | None:
        if self._moves:
            self.flush()
        found = self._one(f"SELECT {RUN} FROM runs WHERE run_id=?", run_id)
        return RunRow(*found) if found else None

    def find_work(self, query: WorkQuery) -> tuple[int, str] | None:
        self.flush()
        statement, values = work_query(query, "instr")
        found = self._one(statement, *values)
        return tuple(found) if found else None

    def row_at(self, run_id: str, version: int) -> Row | None:
        self.flush()
        found = self._one(f"SELECT {ROW} FROM events WHERE run_id=? AND version=?", run_id, version)
        return as_row(found) if found else None

    def rows_by_id(self, event_ids: Sequence[str]) -> list[Row]:
        self.flush()
        found = (self._one(f"SELECT {ROW} FROM events WHERE event_id=?", i) for i in event_ids)
        rows = [as_row(row) for row in found if row is not None]
        self._found_recorded = self._found_recorded or bool(rows)
        return rows

    def has_blob(self, name: str) -> bool:
        return self._one("SELECT 1 FROM blobs WHERE name=?", name) is not None

    def token(self, token_id: str) -> TokenRow | None:
        found = self._one(GET_TOKEN, token_id)
        return TokenRow(*found) if found else None

    def put_token(self, row: TokenRow) -> None:
        self._wrote = True
        self._one(PUT_TOKEN, *row)

    def rebuild_index(self, fold: IndexFold) -> RebuiltIndex:
        self._wrote = True
        self.flush()
        try:
            # Ids as bytes: text that can't be decoded would stop what is to repair it.
            old = self._execute("SELECT CAST(run_id AS BLOB), version, epoch FROM runs")
            heads = {bytes(i or b"").decode(errors="replace"): (v, e) for i, v, e in old}
            rebuilt = fold(self._execute(f"SELECT {ROW} FROM events ORDER BY position"), heads)
            kept = (msgspec.json.encode(sorted(rebuilt.kept)).decode(),)
            for table in ("runs", "run_tags"):
                self._execute(
                    f"DELETE FROM {table} WHERE run_id NOT IN (SELECT value FROM json_each(?))",
                    kept,
                )
            for row in rebuilt.rows:
                self._move_run(None, row)
            return rebuilt
        except sqlite3.Error as error:
            raise self.executor.failure(error, "rebuilding the run index") from error
