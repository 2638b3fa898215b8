"""What roles, and the settings that an administrator gives them, do to a ledger in PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest

from tests.postgres_proxy import Proxy
from tests.unit.ledger.stores.postgres.ledgers import Opened, Sql, add, end_sessions, note
from turnledger.ledger import (
    ANY,
    NEW,
    AppendRefusedError,
    CustomEvent,
    InvalidEventError,
    InvalidUrlError,
    Ledger,
    RunClaimedError,
    RunStarted,
    StoreUnavailableError,
    blob_name,
    new_run_id,
)
from turnledger.ledger.events.types import CATALOGUE, ResourceSnapshotted
from turnledger.ledger.runs.transaction import Transaction
from turnledger.ledger.stores.group_commit import Job
from turnledger.ledger.stores.postgres import transaction as postgres_transaction
from turnledger.ledger.stores.postgres.connection import parse
from turnledger.ledger.transfer.backup import snapshot_of

pytestmark = pytest.mark.process


def new_role(sql: Sql, attributes: str = "LOGIN") -> str:
    role = f"r{new_run_id().hex}"
    sql.execute(f"CREATE ROLE {role} {attributes}")
    return role


def as_role(url: str, role: str) -> str:
    return url.replace("//postgres@", f"//{role}@")


# --- settings -------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["German", "SQL, DMY", "Postgres"])
def test_dates_may_be_written_in_any_style(url: str, sql: Sql, opened: Opened, style: str) -> None:
    """A ledger opens and finds back to its server, whatever dates look like there."""
    ledger, run = opened(url), new_run_id()
    ledger.append(run, RunStarted(), NEW)
    sql.execute(f"ALTER DATABASE {parse(url).parameters['dbname']} SET datestyle = '{style}'")
    end_sessions(sql)
    assert ledger.append(run, note(), 1).version == 2
    assert opened(url).head(run) == 2


def test_a_snapshot_lasts_longer_than_a_transaction_may(url: str, sql: Sql, opened: Opened) -> None:
    """Limits on the time of a transaction are lifted for the one that reads a whole ledger."""
    ledger = opened(url)
    for setting in ("transaction", "idle_in_transaction_session", "statement"):
        name = parse(url).parameters["dbname"]
        sql.execute(f"ALTER DATABASE {name} SET {setting}_timeout = '40min'")
    snapshot = snapshot_of(ledger.store)
    for setting in ("transaction", "idle_in_transaction_session", "statement"):
        assert snapshot.pool.read(f"SHOW {setting}_timeout") == [("0",)]
    snapshot.close()


# --- who may see and end a session ----------------------------------------------------


def test_a_lost_session_of_a_role_that_becomes_another_is_ended(
    url: str, sql: Sql, opened: Opened
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


# --- rights ---------------------------------------------------------------------------


def reader(sql: Sql) -> str:
    """A role that may read the ledger, and no more."""
    role = new_role(sql)
    sql.execute(f"GRANT USAGE ON SCHEMA turnledger TO {role}")
    sql.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA turnledger TO {role}")
    return role


def test_a_role_without_the_schema_is_told_what_to_grant(
    url: str, sql: Sql, opened: Opened
) -> None:
    """Not that a table is missing, which is there."""
    opened(url)
    role = new_role(sql)
    with pytest.raises(StoreUnavailableError, match=f'GRANT USAGE ON SCHEMA "turnledger".*{role}'):
        Ledger.open(as_role(url, role))


def test_a_role_that_may_only_read_is_refused_for_good(url: str, sql: Sql, opened: Opened) -> None:
    """An append or a claim says that trying again does not help, and reading goes on."""
    ledger, run = opened(url), new_run_id()
    ledger.append(run, RunStarted(), NEW)
    reading = opened(as_role(url, reader(sql)))
    for act in (lambda: reading.append(run, note(), ANY), lambda: reading.claim(run)):
        with pytest.raises(AppendRefusedError, match="trying again does not help"):
            act()
    assert (reading.head(run), reading.worker_of(run)) == (1, None)


def test_a_role_that_may_only_read_opens_a_ledger_of_an_older_catalogue(
    url: str, sql: Sql, opened: Opened
) -> None:
    """That the catalogue has grown is written down by those who may."""
    opened(url)
    sql.execute("UPDATE meta SET value = '0' WHERE key = 'catalogue'")
    assert opened(as_role(url, reader(sql))).store.written_catalogue() == 0
    assert opened(url).store.written_catalogue() == CATALOGUE


# --- signs of life --------------------------------------------------------------------


def life_sign(ledger: Ledger) -> int:
    """The process that serves the sign of life."""
    pid: int = ledger.store.pool.liveness._session.pid
    return pid


@pytest.mark.parametrize("how", ["heartbeat", "append"])
def test_a_lost_sign_of_life_is_given_again(url: str, sql: Sql, opened: Opened, how: str) -> None:
    """A worker whose sign alone was ended keeps its run as soon as it writes anything."""
    ledger, run = opened(url), new_run_id()
    ledger.append(run, RunStarted(), NEW)
    claim = ledger.claim(run)
    sql.execute("SELECT pg_terminate_backend(%s, 10000)", (life_sign(ledger),))
    if how == "append":
        ledger.append(run, note(), ANY, claim.epoch)
    else:
        claim.heartbeat()
    with pytest.raises(RunClaimedError):
        opened(url).claim(run)


def test_a_sign_of_life_that_could_not_be_given_is_tried_again(
    url: str, sql: Sql, opened: Opened
) -> None:
    """Without a place for its connection the worker goes on, and gives it when there is one."""
    ledger, run, role = opened(url), new_run_id(), new_role(sql)
    ledger.append(run, RunStarted(), NEW)
    sql.execute(f"GRANT USAGE ON SCHEMA turnledger TO {role}")
    sql.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA turnledger TO {role}")
    worker = opened(as_role(url, role), wait=1)
    claim = worker.claim(run)
    sql.execute(f"ALTER ROLE {role} CONNECTION LIMIT 1")
    sql.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = %s", (role,)
    )
    claim.heartbeat()
    sql.execute(f"ALTER ROLE {role} CONNECTION LIMIT 10")
    claim.heartbeat()
    with pytest.raises(RunClaimedError):
        ledger.claim(run)


# --- what PostgreSQL can't take -------------------------------------------------------


def test_what_can_not_be_indexed_is_refused_and_its_neighbours_are_not(
    url: str, opened: Opened
) -> None:
    """A record from elsewhere may be too long for an index here: that is its own error."""
    ledger = opened(url)
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 512)))
    runs = [new_run_id() for _ in range(3)]
    jobs = [Job[Transaction](lambda tx, run=run: add(tx, run, note())) for run in runs]
    poison = Job[Transaction](lambda tx: add(tx, new_run_id(), RunStarted(tags={many: many})))
    ledger.store._commit_group([jobs[0], poison, *jobs[1:]])
    assert [job.error for job in jobs] == [None, None, None]
    assert isinstance(poison.error, InvalidEventError)
    assert [ledger.head(run) for run in runs] == [1, 1, 1]


def test_a_group_of_which_the_server_refuses_one_is_split(
    url: str, sql: Sql, opened: Opened
) -> None:
    """Whatever the server has against one append, the others of its group go through."""
    ledger = opened(url)
    runs = [new_run_id() for _ in range(4)]
    for run in runs:
        ledger.append(run, RunStarted(), NEW)
    sql.execute(
        "CREATE FUNCTION turnledger.refuse() RETURNS boolean LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'; END $$"
    )
    # Not by a trigger: beside one that is not the ledger's, nothing is written at all.
    sql.execute(
        "ALTER TABLE events ADD CONSTRAINT refuse "
        f"CHECK (run_id <> '{runs[1]}' OR turnledger.refuse()) NOT VALID"
    )
    jobs = [Job[Transaction](lambda tx, run=run: add(tx, run, note())) for run in runs]
    ledger.store._commit_group(jobs)
    assert [job.error is None for job in jobs] == [True, False, True, True]
    with pytest.raises(StoreUnavailableError, match=r"nothing was written.*with the same ids"):
        raise jobs[1].error or AssertionError
    assert [ledger.head(run) for run in runs] == [2, 1, 2, 2]


def test_one_statement_carries_only_so_much(
    url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of large appends is one commit, in several statements."""
    monkeypatch.setattr(postgres_transaction, "CHARACTERS_AT_ONCE", 1000)
    sent: list[str] = []
    send = postgres_transaction.Executor.send

    def counted(tx: Any, doing: str, *args: Any, **options: Any) -> Any:
        sent.append(doing)
        return send(tx, doing, *args, **options)

    ledger = opened(url)
    runs = [new_run_id() for _ in range(4)]
    for run in runs:
        ledger.append(run, RunStarted(), NEW)
    monkeypatch.setattr(postgres_transaction.Executor, "send", counted)
    event = CustomEvent(kind="test.note", data="x" * 400)
    # Each run twice, so that a run goes on that was written a moment ago.
    jobs = [Job[Transaction](lambda tx, run=run: add(tx, run, event)) for run in runs * 2]
    ledger.store._commit_group(jobs)
    assert [job.result for job in jobs] == [2, 2, 2, 2, 3, 3, 3, 3]
    assert (sent.count("appending"), sent.count("committing")) == (4, 1)
    assert ledger.verify_all().problems == ()


@pytest.mark.parametrize(
    "bad",
    [
        "postgresql://a\udcff@/x",
        "postgresql://a%00b@/x",
        "postgresql:///x?schema=\udcff",
        "postgresql://a\0@/x",
    ],
)
def test_an_address_that_no_server_could_be_told_is_refused(bad: str) -> None:
    """Text that can't be sent is an InvalidUrlError, like every URL that is none."""
    with pytest.raises(InvalidUrlError):
        parse(bad)
