"""A ledger in PostgreSQL: many processes, one order, no lock that they all wait for.

Each event's position holds the number of the transaction that wrote it. Commits happen
side by side; whoever reads the whole ledger stops below the oldest transaction that is
still at work, so that nothing can appear behind it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

import psycopg
from eventsourcing.persistence import BaseInfrastructureFactory
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresFactory
from eventsourcing.utils import EnvType

from ledger.errors import (
    LimitExceededError,
    StoreBusyError,
    StoreUnavailableError,
)
from ledger.group_commit import Job
from ledger.limits import BATCH_CEILING
from ledger.recorder import PAGE, LedgerRecorder, RunQuery
from ledger.rows import RawRow, Row
from ledger.run_index import RunRow
from ledger.stores.bell import Bell
from ledger.stores.meta_values import catalogue_number
from ledger.stores.postgres_connection import DEFAULT_WAIT, parse
from ledger.stores.postgres_datastore import LedgerPostgresDatastore
from ledger.stores.postgres_facts import facts
from ledger.stores.postgres_faults import CrowdedError, LostConnectionError, unavailable
from ledger.stores.postgres_schema import REBASE, RESTORED, ROW, RUN, SETTLED, prepare
from ledger.stores.postgres_shelves import PostgresShelves
from ledger.stores.postgres_transaction import PostgresLedgerTransaction, TransactionFullError
from ledger.stores.run_conditions import run_conditions
from ledger.transaction import Lease, Transaction

# How long a reader of the whole ledger waits for transactions that hide what is committed.
GRACE = 1.0
SHORTEST_NAP, LONGEST_NAP = 0.001, 0.05
_RAW = """position, convert_to(run_id, 'UTF8'), version, convert_to(tag, 'UTF8'),
    convert_to(event_id, 'UTF8'), recorded_at, digest, convert_to(data, 'UTF8')"""


class PostgresLedgerRecorder(PostgresShelves, PostgresApplicationRecorder):
    """The store over one schema of a database."""

    datastore: LedgerPostgresDatastore
    patience = 0.002

    def __init__(
        self, datastore: LedgerPostgresDatastore, *, events_table_name: str = "events"
    ) -> None:
        super().__init__(datastore, events_table_name=events_table_name)
        self._address = datastore.address
        self._writer = datastore.writer
        self._patient = False
        self._life_lock = Lock()
        self._life_generation = 0
        self._appended = Bell()

    def create_table(self, *, create: bool = True) -> None:
        """Make the tables that are not there; refuse a schema that holds something else."""
        db = self._writer.db()
        try:
            prepare(db, self._address.schema, str(self._address), create=create)
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
        """Commit, in smaller groups or again where that is safe: nothing was committed yet."""
        deadline = time.monotonic() + self.datastore.wait
        lost = False
        self._patient = False
        while True:
            super()._commit_group(jobs)
            error = jobs[0].error
            if isinstance(error, LostConnectionError) and not lost:
                lost = True
            elif not isinstance(error, CrowdedError):
                return
            elif len(jobs) > 1:
                middle = len(jobs) // 2
                self._commit_group(jobs[:middle])
                self._commit_group(jobs[middle:])
                return
            elif isinstance(error, TransactionFullError):
                jobs[0].error = LimitExceededError(
                    "Events in one transaction",
                    limit=BATCH_CEILING,
                    found=BATCH_CEILING + 1,
                    setting="max_batch_events",
                )
                return
            elif time.monotonic() > deadline:
                jobs[0].error = StoreBusyError(str(error))
                return
            else:
                self._patient = True

    def _enter(self) -> None:
        self._check_open()

    def _leave(self) -> None:
        self._writer.tidy()
        if self._closed:
            self.datastore.close()
        else:
            self._keep_life_sign()
        if self._appended.waiting:
            self._appended.ring()

    def _transaction(self, *, careful: bool) -> Transaction:
        return PostgresLedgerTransaction(
            self._writer, self._heads, careful=careful, patient=self._patient
        )

    def rebase(self) -> bool:
        """After a dump was restored: make new positions follow the stored ones.

        Gives whether there was anything to do. Waits for writers, and they for it.
        """
        self._check_open()
        db = self.datastore.connect().db
        try:
            with db.transaction():
                db.execute("LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE")
                if db.execute(f"SELECT {RESTORED}").fetchone() == (False,):
                    return False
                db.execute(REBASE)
                return True
        except psycopg.Error as error:
            raise unavailable(error, "rebasing", db) from error
        finally:
            db.close()

    # --- reading ---

    def _all(self, statement: str, values: Any = ()) -> list[Any]:
        self._check_open()
        return self.datastore.read(statement, values)

    def rows(
        self, run_id: str, after: int, until: int | None, *, backwards: bool, limit: int
    ) -> list[Row]:
        return self._all(
            f"SELECT {ROW} FROM events WHERE run_id = %s AND version > %s AND version <= %s "
            f"ORDER BY version {'DESC' if backwards else 'ASC'} LIMIT %s",
            (run_id, after, until if until is not None else 2**62, limit),
        )

    def rows_after(self, position: int, limit: int) -> list[Row]:
        return self._rows_after(position, limit, self.datastore.read)

    def lasting_rows_after(self, position: int, limit: int) -> list[Row]:
        return self._rows_after(position, limit, self.datastore.read_confirmed)

    def _rows_after(
        self, position: int, limit: int, read: Callable[[str, Sequence[Any]], list[Any]]
    ) -> list[Row]:
        deadline, nap = time.monotonic() + GRACE, SHORTEST_NAP
        while True:
            self._check_open()
            rows = read(
                f"SELECT {ROW} FROM events WHERE position > %s AND position < {SETTLED} "
                "ORDER BY position LIMIT %s",
                (position, limit),
            )
            if rows or time.monotonic() > deadline or not self._more_after(position):
                return rows
            time.sleep(nap)
            nap = min(nap * 2, LONGEST_NAP)

    def _more_after(self, position: int) -> bool:
        more: bool = self._all(
            "SELECT EXISTS (SELECT FROM events WHERE position > %s)", (position,)
        )[0][0]
        return more

    def wait_for_more(self, position: int, seconds: float) -> None:
        self._appended.wait(seconds)

    def run(self, run_id: str) -> RunRow | None:
        if not _storable(run_id):
            return None
        found = self._all(f"SELECT {RUN} FROM runs WHERE run_id = %s", (run_id,))
        return RunRow(*found[0]) if found else None

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        where, values = run_conditions(query, "%s")
        if not all(_storable(value) for value in values if isinstance(value, str)):
            return []
        return [
            RunRow(*row)
            for row in self._all(
                f"SELECT {RUN} FROM runs {where} ORDER BY started_at DESC, run_id DESC LIMIT %s",
                [*values, query.limit],
            )
        ]

    def blob(self, name: str) -> bytes | None:
        if not _storable(name):
            return None
        found = self._all("SELECT content FROM blobs WHERE name = %s", (name,))
        return found[0][0] if found else None

    def blob_names(self) -> Iterator[str]:
        last = ""
        while names := self._all(
            "SELECT name FROM blobs WHERE name > %s ORDER BY name LIMIT %s", (last, PAGE)
        ):
            yield from (name for (name,) in names)
            last = names[-1][0]

    def lease(self, run_id: str) -> Lease | None:
        found = self._all(
            "SELECT run_id, worker, epoch, holder, expires_at FROM leases WHERE run_id = %s",
            (run_id,),
        )
        return Lease(*found[0]) if found else None

    def written_catalogue(self) -> int | None:
        found = self._all("SELECT value FROM meta WHERE key = 'catalogue'")
        return catalogue_number(found[0][0] if found else None)

    def raw_run_ids(self) -> Iterator[Any]:
        last = ""
        while found := self._all(
            "SELECT DISTINCT run_id FROM events WHERE run_id > %s ORDER BY run_id LIMIT %s",
            (last, PAGE),
        ):
            yield from (run_id.encode() for (run_id,) in found)
            last = found[-1][0]

    def raw_rows(self, run_id: Any, first: int | None = None) -> Iterator[RawRow]:
        key, last = run_id.decode(), (-(2**63) if first is None else first, -(2**63))
        while found := self._all(
            f"SELECT {_RAW} FROM events WHERE run_id = %s AND (version, position) > (%s, %s) "
            "ORDER BY version, position LIMIT %s",
            (key, *last, PAGE),
        ):
            yield from found
            last = (found[-1][2], found[-1][0])

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

    def max_notification_id(self) -> int | None:
        """The highest position that `rows_after` would give: a safe place to go on from."""
        newest: int | None = self._all("SELECT max(position) FROM events")[0][0]
        if newest is not None:
            self.rows_after(newest - 1, 1)  # gives those before it the time to appear
        settled: int | None = self._all(
            f"SELECT max(position) FROM events WHERE position < {SETTLED}"
        )[0][0]
        return settled

    def facts(self) -> dict[str, str]:
        self._check_open()
        return {
            "store": "postgresql",
            "address": str(self._address),
            **facts(self.datastore.read_named),
        }

    # --- the life sign ---

    def holder(self) -> str:
        self._check_open()
        with self._life_lock:
            self._check_open()
            self.datastore.life.renew()
            self._life_generation = self._writer.generation
        return self.datastore.life.name

    def _keep_life_sign(self) -> None:
        """What broke the writer's connection probably broke the other one too."""
        if self._life_generation in (0, self._writer.generation):
            return
        with suppress(StoreUnavailableError), self._life_lock:
            self._life_generation = self._writer.generation
            self.datastore.life.renew()

    # --- the end ---

    def close(self) -> None:
        if self._closed:
            return
        self._closed = "This ledger was closed. Open it again."
        # Who is writing may finish, and closes what it used if that takes too long.
        if self._turn.acquire(timeout=self.datastore.wait):
            with self._life_lock:
                self.datastore.close()
            self._turn.release()
        self._appended.ring()

    def abandon(self) -> None:
        super().abandon()
        self.datastore.abandon()


class PostgresLedgerFactory(PostgresFactory):
    """Builds the store the way the library builds its own, from an environment."""

    LEDGER_URL = "LEDGER_URL"
    LEDGER_WAIT = "LEDGER_WAIT"
    application_recorder_class: type[PostgresApplicationRecorder] = PostgresLedgerRecorder

    def __init__(self, env: EnvType) -> None:
        # Not the library's own: it asks for the parts of the address one by one.
        BaseInfrastructureFactory.__init__(self, env)
        self.datastore = LedgerPostgresDatastore(
            parse(self.env.get(self.LEDGER_URL) or ""),
            wait=float(self.env.get(self.LEDGER_WAIT) or DEFAULT_WAIT),
        )

    def application_recorder(self) -> PostgresLedgerRecorder:
        assert isinstance(self.datastore, LedgerPostgresDatastore)
        recorder = PostgresLedgerRecorder(self.datastore)
        try:
            recorder.create_table(create=self.env_create_table())
        except BaseException:
            recorder.close()
            raise
        return recorder


def open_postgres(url: str, *, wait: float, create: bool) -> LedgerRecorder:
    """The ledger at `postgresql://...`, in `?schema=NAME` or in the schema `turnledger`."""
    factory = PostgresLedgerFactory(
        {
            PostgresLedgerFactory.LEDGER_URL: url,
            PostgresLedgerFactory.LEDGER_WAIT: str(wait),
            PostgresLedgerFactory.CREATE_TABLE: "yes" if create else "no",
        }
    )
    return factory.application_recorder()


def _storable(text: str) -> bool:
    """Whether PostgreSQL could hold this text at all; if not, it holds nothing by that name."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
