"""PostgreSQL store: many processes write at once, with one order and no lock for all of them.

Each event's position holds the number of the transaction that wrote it. Commits happen side by
side, and a later number may be committed first. So a reader of the whole ledger stops below the
oldest transaction that is still open: no event can appear before those that it was given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

import psycopg

from turnledger.ledger.errors import (
    LimitExceededError,
    StoreBusyError,
    StoreUnavailableError,
)
from turnledger.ledger.events.limits import BATCH_CEILING
from turnledger.ledger.runs.record import Columns, RawRow
from turnledger.ledger.runs.transaction import Transaction
from turnledger.ledger.stores.derived_data import is_storable
from turnledger.ledger.stores.group_commit import Job
from turnledger.ledger.stores.postgres.connection import parse
from turnledger.ledger.stores.postgres.errors import (
    CrowdedError,
    LostConnectionError,
    RolledBackError,
    unavailable,
)
from turnledger.ledger.stores.postgres.inspection import RawRows, diagnostics
from turnledger.ledger.stores.postgres.pool import ConnectionPool
from turnledger.ledger.stores.postgres.schema import (
    END_OF_ID,
    REBASE,
    RESTORED,
    SETTLED,
    changed_schema,
    prepare_schema,
)
from turnledger.ledger.stores.postgres.transaction import (
    PostgresTransaction,
    TransactionFullError,
)
from turnledger.ledger.stores.sql import ROW, SQLStore

# PostgreSQL counts positions in 64 bits.
LAST_POSITION = 2**63 - 1
# Seconds that a reader of the whole ledger waits for open transactions below committed events.
GRACE = 1.0
SHORTEST_NAP, LONGEST_NAP = 0.001, 0.05
# Seconds that a write gives to renewing a lost liveness lock, and until the next try.
RENEWAL_WAIT, RENEWAL_PAUSE = 1.0, 5.0


class PostgresStore(SQLStore):
    """The store over one schema of a database."""

    gather_seconds = 0.002
    _end_of_id = END_OF_ID
    # PostgreSQL keeps a plan for any value only if plans for the values given seem hardly cheaper.
    # Behind a SELECT it sees no value, so both plans are one. Where nearly all runs have one value,
    # `=` alone would make that plan go by the newest runs, and so through all of them for a rare
    # value. Said twice, the index of the column is preferred.
    _equal = "{0} = (SELECT ?::text) AND {0} >= (SELECT ?::text)"
    # OFFSET keeps other conditions, which the planner may take for rarer, from choosing the index.
    _chosen = "(SELECT * FROM {0} WHERE run_id = ANY((SELECT ?::text[])::text[]) OFFSET 0) AS runs"

    def __init__(self, pool: ConnectionPool) -> None:
        super().__init__()
        self.pool = pool
        self._address = pool.address
        self._writer = pool.writer
        self._raw = RawRows(self._all)
        # Whether transactions wait in line for runs: after other writers were in the way.
        self._patient = False
        # Guards the pool's liveness lock. Which writer's connection it was last renewed with, and
        # until when it is not tried again after a failure (time.monotonic).
        self._liveness_lock = Lock()
        self._liveness_generation = 0
        self._liveness_pause = 0.0
        # The writer's connection since which readers on standbys were closed.
        self._generation = 0

    def prepare(self, *, create: bool = True) -> None:
        """Make the tables that are not there; refuse a schema that holds something else."""
        db = self._writer.db()
        try:
            self.has_tokens = prepare_schema(
                db, self._address.schema, str(self._address), create=create
            )
        except psycopg.Error as error:
            raise unavailable(error, "opening the ledger", db) from error

    # --- writing ---

    def _commit_alone(self, work: Callable[[Transaction], Any]) -> Any:
        job = Job(work)
        self._commit_group([job])
        if job.error is not None:
            raise job.error
        return job.result

    def _commit_group(self, jobs: list[Job[Transaction]]) -> None:
        self._commit_by(time.monotonic() + self.pool.wait, jobs)

    def _commit_by(self, deadline: float, jobs: list[Job[Transaction]]) -> None:
        """Commit, again or in smaller groups where that is safe: nothing was committed yet.

        - The connection was lost before the commit: again, once in any case and then in time.
        - Rolled back: one job of a group may be at fault, so each half is tried alone.
        - Crowded out by other writers: again, this time waiting in line for the runs.
        """
        lost = False
        self._patient = False
        while True:
            self._writer.deadline = deadline
            super()._commit_group(jobs)
            error, in_time = jobs[0].error, time.monotonic() < deadline
            if isinstance(error, LostConnectionError):
                if lost and not in_time:
                    return
                lost = True
            elif not isinstance(error, RolledBackError):
                return
            elif len(jobs) > 1 and (in_time or isinstance(error, TransactionFullError)):
                # What one of them met must not fail the others.
                middle = len(jobs) // 2
                self._commit_by(deadline, jobs[:middle])
                self._commit_by(deadline, jobs[middle:])
                return
            elif isinstance(error, TransactionFullError):
                jobs[0].error = LimitExceededError(
                    "Events in one transaction",
                    limit=BATCH_CEILING,
                    found=BATCH_CEILING + 1,
                    setting="max_batch_events",
                )
                return
            elif not isinstance(error, CrowdedError):
                return
            elif not in_time:
                for job in jobs:
                    job.error = StoreBusyError(str(error))
                return
            else:
                self._patient = True

    def _begin_group(self) -> None:
        self._check_open()

    def _end_group(self) -> None:
        self._writer.close_if_in_transaction()
        if self._closed:
            self.pool.close()
        elif self._writer.found_read_only:
            with self._liveness_lock:
                self.pool.disconnect()
            self._writer.found_read_only = False
        else:
            if self._generation != self._writer.generation:
                self._generation = self._writer.generation
                self.pool.leave_standbys()
            self._keep_alive()
        if self._appended.waiting:
            self._appended.wake_all()

    def _transaction(self, *, careful: bool) -> Transaction:
        return PostgresTransaction(
            self._writer, self._heads, careful=careful, patient=self._patient
        )

    def rebase(self) -> bool:
        """After a dump was restored: make new positions follow the stored ones.

        Gives whether there was anything to do. Waits for writers, and they for it.
        """
        self._check_open()
        db = self.pool.connect().db
        try:
            with db.transaction():
                db.execute("LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE")
                if db.execute(f"SELECT {RESTORED}").fetchone() == (False,):
                    return False
                db.execute(REBASE)
                return True
        except psycopg.Error as error:
            raise unavailable(error, "rebasing", db, writing=True) from error
        finally:
            db.close()

    # --- reading ---

    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        self._check_open()
        # Text that PostgreSQL refuses is in none of its rows.
        if not all(is_storable(value) for value in values if isinstance(value, str)):
            return []
        return self.pool.read(statement.replace("?", "%s"), values)

    def rows_after(self, position: int, limit: int, until: int | None = None) -> list[Columns]:
        return self._rows_after(position, limit, until, self.pool.read)

    def confirmed_rows_after(
        self, position: int, limit: int, until: int | None = None
    ) -> list[Columns]:
        return self._rows_after(position, limit, until, self.pool.read_confirmed)

    def _rows_after(
        self,
        position: int,
        limit: int,
        until: int | None,
        read: Callable[[str, Sequence[Any]], list[Any]],
    ) -> list[Columns]:
        last = until if until is not None else LAST_POSITION
        deadline, nap = time.monotonic() + GRACE, SHORTEST_NAP
        while True:
            self._check_open()
            # With the limit as a value, PostgreSQL would plan again for each read of a large table.
            found = read(
                f"SELECT {ROW} FROM events WHERE position > %s AND position < {SETTLED} "
                f"AND position <= %s ORDER BY position LIMIT {limit:d}",
                (position, last),
            )
            if found or time.monotonic() > deadline or not self._has_more(position, last):
                return found
            time.sleep(nap)
            nap = min(nap * 2, LONGEST_NAP)

    def rows_before(self, position: int, limit: int) -> list[Columns]:
        return self._all(
            f"SELECT {ROW} FROM events WHERE position < ? ORDER BY position DESC LIMIT {limit:d}",
            (position,),
        )

    def _has_more(self, position: int, last: int) -> bool:
        found: bool = self._all(
            "SELECT EXISTS (SELECT FROM events WHERE position > %s AND position <= %s)",
            (position, last),
        )[0][0]
        return found

    def last_position(self) -> int | None:
        newest: int | None = self._all("SELECT max(position) FROM events")[0][0]
        if newest is not None:
            self.rows_after(newest - 1, 1)  # gives transactions before it the time to end
        settled: int | None = self._all(
            f"SELECT max(position) FROM events WHERE position < {SETTLED}"
        )[0][0]
        return settled

    def raw_run_ids(self) -> Iterator[Any]:
        return self._raw.run_ids()

    def raw_rows(self, run_id: Any, first: int | None = None) -> Iterator[RawRow]:
        return self._raw.of_run(run_id, first)

    def raw_tags(self) -> Iterator[tuple[Any, Any, Any]]:
        return self._raw.tags()

    def own_findings(self) -> Iterator[str]:
        return changed_schema(self._all)

    def diagnostics(self) -> dict[str, str]:
        self._check_open()
        return {
            "store": "postgresql",
            "address": str(self._address),
            **diagnostics(self.pool.read_named),
        }

    # --- liveness ---

    def holder(self) -> str:
        self._check_open()
        with self._liveness_lock:
            self._check_open()
            self.pool.liveness.renew()
            self._liveness_generation = self._writer.generation
        return self.pool.liveness.name

    def _keep_alive(self) -> None:
        """After each write: renew the liveness lock if it may be lost.

        While it is lost, other workers may take this one's runs. It is checked with a round trip
        when a lease was prolonged, and after the writer had to reconnect, since what broke its
        connection probably broke the other one too.
        """
        if not self._writer.is_connected:
            return  # the writer comes first, where the server has one connection left
        liveness, generation = self.pool.liveness, self._writer.generation
        leased, self._writer.wrote_lease = self._writer.wrote_lease, False
        must_check = leased or generation != self._liveness_generation
        if not liveness.is_given or not (must_check or liveness.is_in_doubt()):
            return
        if not leased and time.monotonic() < self._liveness_pause:
            return  # it failed just now, and not every append shall wait for it
        with suppress(StoreUnavailableError), self._liveness_lock:
            self._liveness_pause = time.monotonic() + RENEWAL_PAUSE
            liveness.renew(RENEWAL_WAIT)
            self._liveness_generation, self._liveness_pause = generation, 0.0

    # --- closing ---

    def close(self) -> None:
        if self._closed:
            return
        self._closed = "This ledger was closed. Open it again."
        # A writing thread may finish; if that takes too long, it closes the pool itself.
        if self._write_lock.acquire(timeout=self.pool.wait):
            with self._liveness_lock:
                self.pool.close()
            self._write_lock.release()
        self._appended.wake_all()

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        self.pool.after_fork_in_child()


def open_postgres(url: str, *, wait: float, create: bool) -> PostgresStore:
    """The ledger at `postgresql://...`, in `?schema=NAME` or in the schema `turnledger`.

    Args:
        url: What libpq understands, and `schema`.
        wait: Seconds to wait for other writers, and for a server that was lost.
        create: Make the tables if there are none.
    """
    store = PostgresStore(ConnectionPool(parse(url), wait=wait))
    try:
        store.prepare(create=create)
    except BaseException:
        store.close()
        raise
    return store
