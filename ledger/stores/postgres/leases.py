"""Leases in PostgreSQL, within a transaction: rows, and advisory locks that show who is alive."""

from __future__ import annotations

from typing import Any

from turnledger.ledger.runs.transaction import Lease, Leases
from turnledger.ledger.stores.postgres.derived_data import Execute
from turnledger.ledger.stores.postgres.pool import Writer, lock_key

_GET = "SELECT run_id, worker, epoch, holder, expires_at FROM leases WHERE run_id = %s"
_PUT = """INSERT INTO leases VALUES (%s, %s, %s, %s, %s) ON CONFLICT (run_id) DO UPDATE SET
    worker = excluded.worker, epoch = excluded.epoch, holder = excluded.holder,
    expires_at = excluded.expires_at"""


class PostgresLeases(Leases):
    """Leases, read and written through the transaction's `execute`."""

    __slots__ = ("_execute", "_writer")

    def __init__(self, execute: Execute, writer: Writer) -> None:
        super().__init__()
        self._execute = execute
        self._writer = writer

    def _one(self, statement: str, *values: Any) -> Any:
        return self._execute("reading a lease", statement, values).fetchone()

    def get(self, run_id: str) -> Lease | None:
        found = self._one(_GET, run_id)
        return Lease(*found) if found else None

    def put(self, lease: Lease) -> None:
        self._execute("writing a lease", _PUT, tuple(lease))
        self.wrote = self._writer.wrote_lease = True

    def drop(self, run_id: str) -> None:
        self._execute("dropping a lease", "DELETE FROM leases WHERE run_id = %s", (run_id,))
        self.wrote = True

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
