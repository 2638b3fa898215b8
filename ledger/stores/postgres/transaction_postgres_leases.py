"""Leases in PostgreSQL: the part of the transaction that knows who works on a run, and if still."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from psycopg import Cursor

from turnledger.ledger.runs.transaction import Lease, Transaction
from turnledger.ledger.stores.postgres.pool_postgres_life import key_of
from turnledger.ledger.stores.postgres.pool_postgres_writer import Writer
from turnledger.ledger.stores.postgres.sql import PUT_LEASE


class PostgresLeaseTransaction(Transaction):
    """Leases, read and written."""

    __slots__ = ("_writer", "_wrote")
    _writer: Writer
    _wrote: bool

    @abstractmethod
    def _execute(
        self, doing: str, statement: str, values: Any = (), *, prepare: bool = True
    ) -> Cursor[tuple[Any, ...]]: ...

    def _one(self, statement: str, *values: Any) -> Any:
        return self._execute("reading before an append", statement, values).fetchone()

    def lease(self, run_id: str) -> Lease | None:
        found = self._one(
            "SELECT run_id, worker, epoch, holder, expires_at FROM leases WHERE run_id = %s",
            run_id,
        )
        return Lease(*found) if found else None

    def put_lease(self, lease: Lease) -> None:
        self._execute("writing a lease", PUT_LEASE, tuple(lease))
        self._wrote = self._writer.leased = True

    def drop_lease(self, run_id: str) -> None:
        self._execute("dropping a lease", "DELETE FROM leases WHERE run_id = %s", (run_id,))
        self._wrote = True

    def holder_alive(self, holder: str) -> bool:
        key = key_of(holder)
        if key is None:
            return True
        # Shared: two who ask at once must not take each other for the holder. On a standby
        # nobody's lock is seen: there the lease's time is all that counts.
        alive: bool = self._one(
            "SELECT CASE WHEN pg_is_in_recovery() THEN true "
            "ELSE NOT pg_try_advisory_xact_lock_shared(%s) END",
            key,
        )[0]
        return alive

    def now(self) -> int:
        now: int = self._one("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0]
        return now
