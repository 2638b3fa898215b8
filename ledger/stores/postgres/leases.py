"""Leases in PostgreSQL, within a transaction: rows, and advisory locks that show who is alive."""

from __future__ import annotations

from typing import Any

from turnledger.ledger.runs.transaction import Lease
from turnledger.ledger.stores.postgres.derived_data import Execute
from turnledger.ledger.stores.postgres.pool import Writer, lock_key
from turnledger.ledger.stores.sql import SQLLeases


class PostgresLeases(SQLLeases):
    """Leases, read and written through the transaction's `execute`."""

    __slots__ = ("_writer",)

    def __init__(self, execute: Execute, writer: Writer) -> None:
        def one(statement: str, *values: Any) -> Any:
            done = execute("using a lease", statement.replace("?", "%s"), values)
            return done.fetchone() if done.description else None

        def every(statement: str, *values: Any) -> list[Any]:
            return execute("using leases", statement.replace("?", "%s"), values).fetchall()

        super().__init__(one, every)
        self._writer = writer

    def put(self, lease: Lease) -> None:
        super().put(lease)
        self._writer.wrote_lease = True

    def holder_alive(self, holder: str) -> bool:
        key = lock_key(holder)
        if key is None:
            return True
        # Shared: two that ask at once must not take each other for the holder. On a standby
        # no lock of the primary is seen: there the lease's time is all that counts.
        alive: bool = self._one(
            "SELECT CASE WHEN pg_is_in_recovery() THEN true "
            "ELSE NOT pg_try_advisory_xact_lock_shared(%s) END",
            key,
        )[0]
        return alive

    def now(self) -> int:
        now: int = self._one("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0]
        return now
