"""Inspection of a ledger in PostgreSQL: rows as they are stored, and the server's own state.

`verify` reads rows undecoded and in pages; `doctor` shows the diagnostics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from turnledger.ledger.errors import StoreUnavailableError
from turnledger.ledger.runs.record import RawRow, as_raw_row
from turnledger.ledger.stores.base import PAGE
from turnledger.ledger.stores.postgres.schema import RESTORED

_RAW = """position, convert_to(run_id, 'UTF8'), version, convert_to(tag, 'UTF8'),
    convert_to(event_id, 'UTF8'), recorded_at, digest, convert_to(data, 'UTF8')"""
_SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "data_checksums",
    "zero_damaged_pages",
    "synchronous_standby_names",
    "default_transaction_read_only",
)
_HERE = f"""SELECT pg_is_in_recovery()::text AS standby,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text AS server_clock,
    (SELECT coalesce(max(recorded_at), 0)::text FROM
        (SELECT recorded_at FROM events ORDER BY position DESC LIMIT 1000) AS last)
        AS newest_recorded_at,
    (SELECT value FROM meta WHERE key = 'xid_offset') AS xid_offset,
    ({RESTORED})::text AS needs_rebase,
    has_table_privilege('public', 'events', 'SELECT')::text AS public_may_read"""
_TRANSACTIONS = """SELECT
    (SELECT coalesce(round(max(extract(epoch FROM clock_timestamp() - xact_start))::numeric, 3), 0)
        FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid())::text
        AS longest_write_seconds,
    (SELECT coalesce(round(max(extract(epoch FROM clock_timestamp() - state_change))::numeric, 3),
        0) FROM pg_stat_activity WHERE state IN
        ('idle in transaction', 'idle in transaction (aborted)'))::text
        AS longest_idle_in_transaction_seconds,
    (SELECT count(*) FROM pg_stat_activity WHERE query = '<insufficient privilege>')::text
        AS hidden_sessions,
    (SELECT count(*) FROM pg_prepared_xacts)::text AS prepared_transactions,
    (SELECT coalesce(round(max(extract(epoch FROM clock_timestamp() - prepared))::numeric, 3), 0)
        FROM pg_prepared_xacts)::text AS oldest_prepared_seconds,
    (pg_snapshot_xmax(now.s)::text::bigint - pg_snapshot_xmin(now.s)::text::bigint)::text
        AS transactions_tail_waits_for,
    (SELECT max(age(datfrozenxid)) FROM pg_database)::text AS oldest_frozen_age
    FROM (SELECT pg_current_snapshot() AS s) AS now"""
# To others than the server's watchers a standby's state is null.
_STANDBYS = """SELECT count(*)::text AS standbys,
    CASE WHEN count(*) = count(sync_state)
        THEN (count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')))::text END
        AS standbys_in_sync
    FROM pg_stat_replication"""
_SLOTS = """SELECT count(*)::text AS idle_slots,
    coalesce(max(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
        ELSE pg_current_wal_lsn() END, restart_lsn)), 0)::bigint::text AS idle_slots_bytes
    FROM pg_replication_slots WHERE NOT active"""
_FOLDER = "SELECT current_setting('data_directory') AS data_directory"
_LOG = "SELECT sum(size)::text AS wal_bytes FROM pg_ls_waldir()"

Ask = Callable[[str], list[dict[str, Any]]]


class RawRows:
    """Rows as they are stored, in pages; `read` runs a query."""

    def __init__(self, read: Callable[[str, Sequence[Any]], list[Any]]) -> None:
        self._read = read

    def run_ids(self) -> Iterator[tuple[bytes, int]]:
        """Every run id that the events name, and how many events it has."""
        last = ""
        while found := self._read(
            "SELECT run_id, count(*) FROM events WHERE run_id > %s "
            "GROUP BY run_id ORDER BY run_id LIMIT %s",
            (last, PAGE),
        ):
            yield from ((run_id.encode(), count) for run_id, count in found)
            last = found[-1][0]

    def of_run(self, run_id: bytes, first: int | None) -> Iterator[RawRow]:
        """A run's rows by version: all, or from one on."""
        key, last = run_id.decode(), (-(2**63) if first is None else first, -(2**63))
        # A caller that begins at a version wants a record or two from there.
        page = PAGE if first is None else 2
        while found := self._read(
            f"SELECT {_RAW} FROM events WHERE run_id = %s AND (version, position) > (%s, %s) "
            "ORDER BY version, position LIMIT %s",
            (key, *last, page),
        ):
            rows = list(map(as_raw_row, found))
            yield from rows
            page = PAGE
            last = (rows[-1].version, rows[-1].position)

    def tags(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Run, key and value of every tag."""
        last = ("", "", "")
        while found := self._read(
            "SELECT key, value, run_id FROM run_tags WHERE (key, value, run_id) > (%s, %s, %s) "
            "ORDER BY key, value, run_id LIMIT %s",
            (*last, PAGE),
        ):
            for key, value, run_id in found:
                yield run_id.encode(), key.encode(), value.encode()
            last = found[-1]


def diagnostics(ask: Ask) -> dict[str, str]:
    """The server's settings, transactions, standbys and disk, as far as this role may see."""
    settings = ", ".join(f"current_setting('{name}', true) AS {name}" for name in _SETTINGS)
    found = ask(f"SELECT {settings}")[0] | ask(_HERE)[0] | ask(_TRANSACTIONS)[0]
    for query in (_STANDBYS, _SLOTS, _FOLDER, _LOG):
        try:
            found |= ask(query)[0]
        except StoreUnavailableError:
            continue
    return {name: str(value) for name, value in found.items() if value is not None}
