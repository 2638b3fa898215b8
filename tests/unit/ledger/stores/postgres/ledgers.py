"""Ledgers in PostgreSQL: types of the fixtures, notes, and appends inside a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg

from turnledger.ledger import CustomEvent, Ledger, RunStarted
from turnledger.ledger.clock import SystemClock
from turnledger.ledger.runs.append import ANY_VERSION, AppendRequest, Entry, append
from turnledger.ledger.runs.codec import Codec
from turnledger.ledger.runs.transaction import Transaction

Opened = Callable[..., Ledger]
Sql = psycopg.Connection[Any]


def note(number: int = 0, **data: object) -> CustomEvent:
    return CustomEvent(kind="test.note", data={"number": number, **data})


def add(tx: Transaction, run: UUID, *events: CustomEvent | RunStarted) -> int:
    """Append in the middle of other work; the version."""
    clock, codec = SystemClock(), Codec()
    entries = [Entry(clock.new_id(), *codec.encode(event), event) for event in events]
    return append(tx, AppendRequest(str(run), entries, ANY_VERSION, None, {}), clock).version


def end_sessions(sql: Sql) -> None:
    """An administrator ends all others' sessions of the database."""
    sql.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
