"""What roles, and the settings that an administrator gives them, do to a ledger in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from ledger import ANY, NEW, CustomEvent, Ledger, RunStarted, blob_name, new_run_id
from ledger.backing_up import snapshot_of
from ledger.events import ResourceSnapshotted
from ledger.stores.postgres_connection import parse
from tests.postgres import new_database
from tests.postgres_proxy import Proxy


def note(number: int = 0) -> CustomEvent:
    return CustomEvent(kind="test.note", data={"number": number})


@pytest.fixture
def url() -> str:
    """A database without a ledger."""
    return new_database()


@pytest.fixture
def sql(url: str) -> Iterator[psycopg.Connection[Any]]:
    """The administrator of the same database."""
    with psycopg.connect(url, autocommit=True) as db:
        yield db


@pytest.fixture
def opened() -> Iterator[Callable[..., Ledger]]:
    with ExitStack() as stack:
        yield lambda url, **options: stack.enter_context(Ledger.open(url, **options))


def new_role(sql: psycopg.Connection[Any], attributes: str = "LOGIN") -> str:
    role = f"r{new_run_id().hex}"
    sql.execute(f"CREATE ROLE {role} {attributes}")
    return role


def as_role(url: str, role: str) -> str:
    return url.replace("//postgres@", f"//{role}@")


# --- settings -------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["German", "SQL, DMY", "Postgres"])
def test_dates_may_be_written_in_any_style(
    url: str, sql: psycopg.Connection[Any], opened: Callable[..., Ledger], style: str
) -> None:
    """A ledger opens and finds back to its server, whatever dates look like there."""
    ledger, run = opened(url), new_run_id()
    ledger.append(run, RunStarted(), NEW)
    sql.execute(f"ALTER DATABASE {parse(url).parameters['dbname']} SET datestyle = '{style}'")
    end_all_sessions(sql)
    assert ledger.append(run, note(), 1).version == 2
    assert opened(url).head(run) == 2


def test_a_snapshot_lasts_longer_than_a_transaction_may(
    url: str, sql: psycopg.Connection[Any], opened: Callable[..., Ledger]
) -> None:
    """Limits on the time of a transaction are lifted for the one that reads a whole ledger."""
    ledger = opened(url)
    for setting in ("transaction", "idle_in_transaction_session", "statement"):
        name = parse(url).parameters["dbname"]
        sql.execute(f"ALTER DATABASE {name} SET {setting}_timeout = '40min'")
    snapshot = snapshot_of(ledger.store)
    for setting in ("transaction", "idle_in_transaction_session", "statement"):
        assert snapshot.datastore.read(f"SHOW {setting}_timeout") == [("0",)]
    snapshot.close()


def end_all_sessions(sql: psycopg.Connection[Any]) -> None:
    sql.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


# --- who may see and end a session ----------------------------------------------------


def test_a_lost_session_of_a_role_that_becomes_another_is_ended(
    url: str, sql: psycopg.Connection[Any], opened: Callable[..., Ledger]
) -> None:
    """Its own session is hidden from the role that it has become; it is laid to rest still."""
    owner = new_role(sql, "NOLOGIN")
    login = new_role(sql, f"LOGIN IN ROLE {owner}")
    sql.execute(f"ALTER ROLE {login} SET role = {owner}")
    sql.execute(f"GRANT CREATE ON DATABASE {parse(url).parameters['dbname']} TO {owner}")
    run, content = new_run_id(), b"content"
    event = ResourceSnapshotted(resource="files", files={"a": blob_name(content)})
    with Proxy(parse(url).parameters["host"]) as proxy:
        ledger = opened(proxy.url(as_role(url, login)), wait=10)
        ledger.append(run, RunStarted(), NEW)
        proxy.cut(b"COMMIT", "silently")
        # The one that was lost holds the run's row until it is ended.
        assert ledger.append(run, event, ANY, blobs=[content]).version == 2
        assert proxy.cuts == 1
        ledger.close()
