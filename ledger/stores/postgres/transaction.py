"""PostgreSQL transaction: appends in one statement, and finding out what a lost commit did.

Appends are held back until the end, so that a group is one statement, and a lone append is one
round trip: the statement is the whole transaction, without BEGIN and COMMIT.

Positions follow transaction numbers, and a transaction has its number before it may wait for
others. So a run whose last event has a later number than this transaction's can't be written by
it, or positions would not grow within the run: the group is rolled back and gets a new number.

A commit without an answer has an unknown outcome. The transaction remembers a landmark (the id
and digest of an event, or a watermark of derived data) that is in the database if and only if it
was committed, and looks for it on a new connection.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b, sha256
from typing import Any

import psycopg
from psycopg import Cursor, errors
from psycopg.pq import TransactionStatus

from turnledger.ledger.errors import (
    AppendRefusedError,
    InvalidEventError,
    LimitExceededError,
    StoreUnavailableError,
)
from turnledger.ledger.events.limits import BATCH_CEILING
from turnledger.ledger.runs.index import RebuiltIndex, RunRow
from turnledger.ledger.runs.record import Columns, NewColumns, Row, as_row
from turnledger.ledger.runs.transaction import (
    EventIdTakenError,
    IndexFold,
    RedoError,
    TokenRow,
    Transaction,
    WorkQuery,
)
from turnledger.ledger.stores.base import PAGE
from turnledger.ledger.stores.postgres.connection import close_quietly
from turnledger.ledger.stores.postgres.derived_data import PostgresDerivedWriter
from turnledger.ledger.stores.postgres.errors import (
    RIGHTS,
    CrowdedError,
    LostConnectionError,
    told,
    unavailable,
)
from turnledger.ledger.stores.postgres.leases import PostgresLeases
from turnledger.ledger.stores.postgres.pool import CONFIRM, Writer
from turnledger.ledger.stores.postgres.schema import UNTOUCHED
from turnledger.ledger.stores.postgres.sql import (
    ADVANCE_MANY,
    LOCK_RUN,
    REBUILT_RUN,
    Move,
    advance_many,
    advance_one,
)
from turnledger.ledger.stores.sql import GET_TOKEN, PUT_TOKEN, ROW, run_values, work_query

_REBUILDING = "rebuilding the run index"
# The space of advisory locks in which patient transactions wait in line for a run.
_QUEUE = 0x544C4447  # "TLDG"
# To look for a run along the index of their order. A planner that takes running runs for few (the
# statistics are those of an hour ago) would rather read and sort all of a long queue.
_FOLLOW_THE_INDEX = """SELECT set_config('enable_sort', 'off', true),
    set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true)"""
# Characters of one statement, unless one append has more: client and server hold it in memory.
CHARACTERS_AT_ONCE = 8 * 1024 * 1024


class TransactionFullError(CrowdedError):
    """More events than a transaction's positions can number."""


class Executor:
    """Runs the statements of one transaction, and turns PostgreSQL's errors into the ledger's.

    The transaction and its parts (leases, derived data) share it.
    """

    __slots__ = ("_careful", "_writer", "cursor", "db", "has_begun")

    def __init__(self, writer: Writer, *, careful: bool) -> None:
        self._writer = writer
        self._careful = careful
        self.db, self.cursor = writer.cursor()
        self.has_begun = False

    def execute(
        self, doing: str, statement: str, values: Any = (), *, prepare: bool = True
    ) -> Cursor[tuple[Any, ...]]:
        """Run a statement within the transaction, which begins here if it has not.

        Args:
            doing: What it is for, to be named in errors.
            statement: SQL with `%s` for each value.
            values: What to bind.
            prepare: Whether the server shall keep its plan.
        """
        if not self.has_begun:
            self.send("beginning a transaction", "BEGIN", prepare=False)
            self.has_begun = True
        return self.send(doing, statement, values, prepare=prepare)

    def send(
        self, doing: str, statement: str, values: Any = (), *, prepare: bool = True
    ) -> Cursor[tuple[Any, ...]]:
        """Run a statement as it is; alone, it is a transaction of its own."""
        try:
            return self.cursor.execute(statement, values, prepare=prepare)
        except errors.UniqueViolation as error:
            if error.diag.constraint_name != "events_by_id":
                raise unavailable(error, doing, writing=True) from error
            if not self._careful:
                raise EventIdTakenError from error
            # It was not there a moment ago, so another writer has just recorded it.
            raise CrowdedError(
                "Another writer is recording the same event ids at this moment; nothing was "
                "written. Append the same events again."
            ) from error
        except (psycopg.DataError, errors.ProgramLimitExceeded) as error:
            # In a group it is one job's fault: a careful transaction finds out whose.
            if not self._careful:
                raise RedoError from error
            raise InvalidEventError(f"PostgreSQL can't hold this: {error}") from error
        except errors.InsufficientPrivilege as error:
            if not self._careful:
                raise RedoError from error
            raise AppendRefusedError(
                f"This role may not write to the ledger ({told(error)}); nothing was written, "
                f"and trying again does not help. {RIGHTS}"
            ) from error
        except errors.ReadOnlySqlTransaction as error:
            self._writer.found_read_only = True
            raise unavailable(error, doing, self.db) from error
        except psycopg.Error as error:
            raise unavailable(error, doing, self.db, writing=True) from error


class PostgresTransaction(Transaction):
    """One transaction of the writer's connection. A `patient` one waits in line for runs."""

    __slots__ = (
        "_blobs",
        "_db",
        "_execute",
        "_executor",
        "_found_recorded",
        "_held",
        "_held_characters",
        "_held_rows",
        "_landmark",
        "_ordinal",
        "_patient",
        "_saved",
        "_writer",
    )
    derived: PostgresDerivedWriter

    def __init__(
        self, writer: Writer, heads: dict[str, RunRow], *, careful: bool, patient: bool
    ) -> None:
        super().__init__(heads, careful=careful)
        self._writer = writer
        self._executor = executor = Executor(writer, careful=careful)
        self._execute = executor.execute
        self._db = executor.db
        self._db.unconfirmed = False
        self.derived = PostgresDerivedWriter(executor.execute)
        self.leases = PostgresLeases(executor.execute, writer)
        self._patient = patient
        # Whether events were found that an earlier transaction recorded: they may be on this
        # server alone, so the commit waits for a standby.
        self._found_recorded = False
        self._ordinal = 0
        self._held: dict[str, Move] = {}
        self._held_rows = 0
        self._held_characters = 0
        self._blobs: dict[str, bytes] = {}
        # Id and digest of an event that is in the ledger if and only if this was committed.
        self._landmark: tuple[str, bytes] | None = None
        self._saved = self._landmarks()

    # --- beginning and end ---

    def begin(self) -> None:
        """Nothing yet: what can be done in one statement needs no BEGIN."""

    def flush(self) -> None:
        if self._executor.has_begun or len(self._held) > 1 or self._blobs:
            self._write_held()

    def commit(self) -> None:
        if self._held:
            self._commit_in_one_statement()
        elif self._executor.has_begun:
            if self._found_recorded:
                self._execute("waiting for a standby", CONFIRM)
            self._commit()

    def _commit_in_one_statement(self) -> None:
        ((_, move),) = self._held.items()
        self._held = {}
        self._landmark = move.landmark()
        try:
            done = self._executor.send("appending", *advance_one(move, self._ordinal))
            first = _first(done, move.rows, committed=True)
        except LostConnectionError as error:
            last = self._settle(error)
            move.place(last - len(move.rows) + 1)
            return
        if first is None:
            raise RedoError
        self._check_confirmed()
        move.place(first)

    def _commit(self) -> None:
        try:
            done = self._executor.send("committing", "COMMIT", prepare=False)
        except LostConnectionError as error:
            self._settle(error)
            return
        if done.statusmessage != "COMMIT":
            raise StoreUnavailableError(
                "PostgreSQL rolled the transaction back; nothing was written."
            )
        self._check_confirmed()

    def _check_confirmed(self) -> None:
        """Refuse to acknowledge a commit that the server did not wait for its standby with."""
        if self._db.unconfirmed:
            raise StoreUnavailableError(
                "The synchronous standby did not confirm the commit: it is away or slow, or "
                "the wait for it was cancelled. This server has committed, and whether the "
                "standby has it too is unknown, so a fail-over could take it back. See to the "
                "standby. Append the same events again, with the same ids: that waits for it."
            )

    def _settle(self, error: LostConnectionError) -> int:
        """After a commit without an answer: its landmark's position if it was committed.

        Raises:
            LostConnectionError: If it was not committed, or only wrote leases or access tokens,
                which may be written twice: it can be run again.
            StoreUnavailableError: If the outcome stays unknown.
        """
        close_quietly(self._db)
        found = self._found_after(error)
        if found is None and self.derived.trace.erased:
            raise StoreUnavailableError(
                "The connection to PostgreSQL was lost during the commit, and derived data that "
                "was written and dropped in it shows no trace, so the outcome is unknown."
            ) from error
        if found is None:
            raise LostConnectionError(
                "The connection to PostgreSQL was lost before the commit; nothing was written."
            ) from error
        return found

    def _found_after(self, error: LostConnectionError) -> int | None:
        """What is found of the commit; asked again if that connection is lost too, in time."""
        while True:
            try:
                if self._writer.is_on_standby():
                    raise StoreUnavailableError("the server that answers is a standby")
                found = self._find()
                if found is not None:
                    self._writer.confirm()
                return found
            except StoreUnavailableError as trouble:
                # A server that crashes takes connections until it has noticed it.
                in_time = time.monotonic() < self._writer.deadline
                if isinstance(trouble, LostConnectionError) and in_time:
                    continue
                raise StoreUnavailableError(
                    "The connection to PostgreSQL was lost during the commit, and whether it went "
                    f"through can't be found out now ({trouble}), so the outcome is unknown. "
                    "Append the same events again, with the same ids."
                ) from error

    def _find(self) -> int | None:
        if self._landmark is not None:
            return self._writer.find(*self._landmark)
        written = self.derived.trace.written
        if written is not None and self._writer.shows(*written):
            return 0  # a watermark, and no event that would have a position
        return None

    def rollback(self) -> None:
        self._held, self._blobs = {}, {}
        if self._db.closed or self._db.info.transaction_status == TransactionStatus.IDLE:
            return
        try:
            self._executor.cursor.execute("ROLLBACK", prepare=False)
        except psycopg.Error:
            close_quietly(self._db)

    def _landmarks(self) -> tuple[Any, ...]:
        return self._landmark, self.derived.trace

    def savepoint(self) -> None:
        self._saved = self._landmarks()
        self._execute("setting a savepoint", "SAVEPOINT job", prepare=False)

    def release_savepoint(self) -> None:
        self._execute("releasing a savepoint", "RELEASE SAVEPOINT job", prepare=False)

    def rollback_to_savepoint(self) -> None:
        self._landmark, self.derived.trace = self._saved
        self._execute("going back to a savepoint", "ROLLBACK TO SAVEPOINT job", prepare=False)

    # --- appending ---

    def advance(
        self,
        before: RunRow | None,
        after: RunRow,
        rows: Sequence[NewColumns],
        blobs: Mapping[str, bytes],
    ) -> list[int] | None:
        self._check_room(len(rows))
        if self.careful:
            move = Move(before)
            positions = move.add(after, rows)
            if not self._write_one(move):
                return None
            self._write_blobs(blobs)
        else:
            self._make_room(sum(len(data) for _, _, _, _, _, _, data in rows))
            positions = self._held.setdefault(after.run_id, Move(before)).add(after, rows)
            self._held_rows += len(rows)
            self._blobs.update(blobs)
        self._wrote = True
        self.staged[after.run_id] = after
        return positions

    def _make_room(self, characters: int) -> None:
        """Write what is held if it would become too much for one statement."""
        if self._held and self._held_characters + characters > CHARACTERS_AT_ONCE:
            self._write_held()
        self._held_characters += characters

    def _check_room(self, count: int) -> None:
        if count > BATCH_CEILING:
            raise LimitExceededError(
                "Events in one transaction",
                limit=BATCH_CEILING,
                found=count,
                setting="max_batch_events",
            )
        if self._ordinal + self._held_rows + count > BATCH_CEILING:
            raise TransactionFullError(
                f"One transaction holds {BATCH_CEILING} events; nothing was written. "
                "Append the same events again."
            )

    def _write_held(self) -> None:
        moves = sorted(self._held.values(), key=lambda move: move.after.run_id)
        self._held, self._held_rows, self._held_characters = {}, 0, 0
        begun = [move for move in moves if move.before is not None]
        if len(begun) > 1:
            moves = [move for move in moves if move.before is None]
            self._write_many(begun)
        if not all(map(self._write_one, moves)):
            raise RedoError
        self._write_blobs(self._blobs)
        self._blobs = {}

    def _write_one(self, move: Move) -> bool:
        first = _first(self._execute("appending", *advance_one(move, self._ordinal)), move.rows)
        if first is not None:
            self._written([move], first)
        elif self.careful and not self._one(f"SELECT {UNTOUCHED}")[0]:
            raise StoreUnavailableError(
                "The triggers or rules on the ledger's tables are not those that it made, so "
                "nothing was written. `turnledger verify --all` names them: remove them, make "
                "those that are missing again, and append the same events again."
            )
        return first is not None

    def _write_many(self, moves: Sequence[Move]) -> None:
        values = advance_many(moves, self._ordinal)
        rows = [row for move in moves for row in move.rows]
        first = _first(self._execute("appending", ADVANCE_MANY, values), rows)
        if first is None:
            raise RedoError
        self._written(moves, first)

    def _written(self, moves: Sequence[Move], first: int) -> None:
        for move in moves:
            move.place(first)
            first += len(move.rows)
            self._ordinal += len(move.rows)
            self._landmark = move.landmark()

    def _write_blobs(self, blobs: Mapping[str, bytes]) -> None:
        # In the order of the names, so that two writers of the same blobs can't deadlock.
        for name in sorted(blobs):
            self._execute(
                "storing a blob",
                "INSERT INTO blobs VALUES (%s, %s) ON CONFLICT DO NOTHING",
                (name, blobs[name]),
            )

    # --- reading, with what this transaction wrote ---

    def run(self, run_id: str) -> RunRow | None:
        """A run's row in the index, locked until this transaction ends."""
        if run_id in self._held:
            self._write_held()
        if self._patient:
            place = int.from_bytes(blake2b(run_id.encode(), digest_size=4).digest(), signed=True)
            self._one("SELECT pg_advisory_xact_lock(%s, %s)", _QUEUE, place)
        found = self._one(LOCK_RUN, self._ordinal, run_id)
        if found is None:
            return None
        *row, overtaken = found
        if overtaken:
            raise CrowdedError(
                f"Other writers kept appending to run {run_id}; nothing was written. Try again."
            )
        return RunRow(*row)

    def find_work(self, query: WorkQuery) -> tuple[int, str] | None:
        if self._held:
            self._write_held()
        if query.after is None:
            self._one(_FOLLOW_THE_INDEX)
        # Another worker's transaction that has locked the oldest run is about to claim it.
        statement, values = work_query(query, "strpos", "FOR NO KEY UPDATE OF r SKIP LOCKED")
        found = self._one(statement.replace("?", "%s"), *values)
        return tuple(found) if found else None

    def row_at(self, run_id: str, version: int) -> Row | None:
        if run_id in self._held:
            self._write_held()
        found = self._one(
            f"SELECT {ROW} FROM events WHERE run_id = %s AND version = %s", run_id, version
        )
        return as_row(found) if found else None

    def rows_by_id(self, event_ids: Sequence[str]) -> list[Row]:
        if self._held:
            self._write_held()
        found = self._execute(
            "looking for event ids",
            f"SELECT {ROW} FROM events WHERE event_id = ANY(%s)",
            (list(event_ids),),
        ).fetchall()
        self._found_recorded = self._found_recorded or bool(found)
        return list(map(as_row, found))

    def has_blob(self, name: str) -> bool:
        if name in self._blobs:
            return True
        return self._one("SELECT 1 FROM blobs WHERE name = %s", name) is not None

    def _one(self, statement: str, *values: Any) -> Any:
        return self._execute("reading before an append", statement, values).fetchone()

    # --- the run index ---

    def token(self, token_id: str) -> TokenRow | None:
        found = self._execute("reading a token", GET_TOKEN.replace("?", "%s"), (token_id,))
        row: Any = found.fetchone()
        return TokenRow(*row) if row else None

    def put_token(self, row: TokenRow) -> None:
        self._wrote = True
        self._execute("writing a token", PUT_TOKEN.replace("?", "%s"), row)

    def rebuild_index(self, fold: IndexFold) -> RebuiltIndex:
        self._write_held()
        self._execute(_REBUILDING, "LOCK TABLE runs IN EXCLUSIVE MODE", prepare=False)
        self._wrote = True
        old = self._execute(_REBUILDING, "SELECT run_id, version, epoch FROM runs").fetchall()
        heads = {run_id: (version, epoch) for run_id, version, epoch in old}
        rebuilt = fold(self._all_rows(), heads)
        with self._db.without_limit(self._writer.is_at_work):
            self._write_index(rebuilt.rows, rebuilt.kept)
        return rebuilt

    def _write_index(self, rows: Sequence[RunRow], kept: Collection[str]) -> None:
        for table in ("run_tags", "runs"):
            statement = f"DELETE FROM {table} WHERE run_id <> ALL(%s)"
            self._execute(_REBUILDING, statement, (sorted(kept),))
        tags = [(k, v, row.run_id) for row in rows for k, v in row.tag_map.items()]
        try:
            self._executor.cursor.executemany(
                REBUILT_RUN, [(*run_values(row), row.run_id, row.version) for row in rows]
            )
            self._executor.cursor.executemany("INSERT INTO run_tags VALUES (%s, %s, %s)", tags)
        except psycopg.Error as error:
            raise unavailable(error, _REBUILDING, self._db, writing=True) from error

    def _all_rows(self) -> Iterator[Columns]:
        last = -1
        while True:
            page: list[Any] = self._execute(
                "reading all events",
                f"SELECT {ROW} FROM events WHERE position > %s ORDER BY position LIMIT %s",
                (last, PAGE),
            ).fetchall()
            if not page:
                return
            yield from page
            last = as_row(page[-1]).position


def _first(
    inserted: Cursor[tuple[Any, ...]], rows: Sequence[NewColumns], *, committed: bool = False
) -> int | None:
    """The position of the first event that a statement inserted; None if it moved no run.

    Args:
        inserted: The statement's answer: what is stored, with the SHA-256 of the data.
        rows: What was to be inserted.
        committed: Whether the statement was the whole transaction.

    Raises:
        StoreUnavailableError: If something else was stored.
    """
    stored = sorted(inserted)
    if not stored:
        return None
    expected = [(*row[:-1], sha256(row[-1].encode()).digest()) for row in rows]
    if [tuple(row[1:]) for row in stored] != expected:
        raise StoreUnavailableError(
            "PostgreSQL stored other events than it was given: something in the database changes "
            "them on their way. "
            + ("They are in the ledger, and not acknowledged. " if committed else "")
            + "Write nothing more to it, and see what `turnledger verify --all` says."
        )
    position: int = stored[0][0]
    return position
