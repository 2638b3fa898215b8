"""What a PostgreSQL server says of itself, for `doctor`: settings, transactions, standbys, disk.

Each group is a query of its own: what a role may not see, or a server does not have, is left
out, and the rest is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnledger.ledger.errors import StoreUnavailableError
from turnledger.ledger.stores.postgres.sql_postgres_schema import RESTORED

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


def facts(ask: Ask) -> dict[str, str]:
    """Everything that this role may know; a name that is missing could not be found out."""
    settings = ", ".join(f"current_setting('{name}', true) AS {name}" for name in _SETTINGS)
    found = ask(f"SELECT {settings}")[0] | ask(_HERE)[0] | ask(_TRANSACTIONS)[0]
    for query in (_STANDBYS, _SLOTS, _FOLDER, _LOG):
        try:
            found |= ask(query)[0]
        except StoreUnavailableError:
            continue
    return {name: str(value) for name, value in found.items() if value is not None}
