"""Waiting until a ledger has no other users: a killed client's last COMMIT may still be running."""

from __future__ import annotations

import time

PATIENCE = 20.0
OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


def wait_until_alone(url: str) -> None:
    """Return when PostgreSQL has let go of every other client; a file knows at once."""
    if "://" not in url:
        return
    import psycopg

    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(url, autocommit=True) as connection:
        while (others := connection.execute(OTHERS).fetchone()) != (0,):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{others} other clients are still there")
