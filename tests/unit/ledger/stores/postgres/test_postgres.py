"""What only the PostgreSQL store does: order without a lock, lost connections, dumps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any
from uuid import UUID

import psycopg
import pytest

import turnledger.ledger.stores.postgres.store as store_module
from tests.postgres import BINARIES, FAST, PostgresServer, eventually, new_database, new_schema
from tests.postgres_proxy import Proxy
from tests.unit.ledger.stores.postgres.ledgers import Opened, Sql, add, end_sessions, note
from turnledger.ledger import (
    ANY,
    NEW,
    Draft,
    InvalidUrlError,
    Ledger,
    NotALedgerError,
    Record,
    RunClaimedError,
    RunStarted,
    StoreBusyError,
    StoreUnavailableError,
    blob_name,
    new_run_id,
)
from turnledger.ledger.events.types import ResourceSnapshotted
from turnledger.ledger.runs.transaction import RedoError, Transaction, Watermark
from turnledger.ledger.stores.derived_data import DerivedData
from turnledger.ledger.stores.group_commit import Job
from turnledger.ledger.stores.postgres.connection import parse, public_url
from turnledger.ledger.stores.postgres.store import PostgresStore
from turnledger.ledger.stores.postgres.transaction import PostgresTransaction

ROOT = Path(__file__).parents[5]


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    with Proxy(parse(url).parameters["host"]) as proxy:
        yield proxy


def assert_whole(ledger: Ledger, *expected: tuple[UUID, int]) -> None:
    """Nothing is lost, doubled or out of order."""
    assert ledger.verify_all().problems == ()
    assert {run: ledger.head(run) for run, _ in expected} == dict(expected)
    positions = [record.position for record in ledger.tail()]
    assert positions == sorted(set(positions))
    assert len(positions) == sum(version for _, version in expected)


# --- the address, and what is found there ---------------------------------------------


def test_a_password_is_in_no_message(tmp_path: Path) -> None:
    """An address that can't be reached, or not be read, is named without its password."""
    for bad in (
        f"postgresql://me:s3cret@/db?host={tmp_path}",
        "postgresql://me:s3cret%zz@localhost/db",
        "postgresql://me:s3cret@localhost/db?nonsense=s3cret",
        f"postgresql://me@/db?host={tmp_path}&password=s3cret",
    ):
        with pytest.raises((StoreUnavailableError, InvalidUrlError)) as caught:
            Ledger.open(bad, wait=0.1)
        assert "s3cret" not in str(caught.value)


def test_a_url_without_its_secrets_names_the_same_ledger() -> None:
    """Hosts, options and schema stay, whatever characters they have; passwords and keys go."""
    url = (
        "postgresql://m%40e:s3cret%20%26@a:1,b:2/d%2Fb?schema=x%26y&options=-c%20a%3Db"
        "&sslpassword=s3cret&scram_client_key=s3cret"
    )
    public = public_url(url)
    assert "s3cret" not in public
    whole, left = parse(url), parse(public)
    assert left.schema == whole.schema == "x&y"
    gone = {name: value for name, value in whole.parameters.items() if "s3cret" in str(value)}
    assert left.parameters == {n: v for n, v in whole.parameters.items() if n not in gone}
    assert set(gone) == {"password", "sslpassword", "scram_client_key"}


def test_each_schema_is_a_ledger_of_its_own(url: str, opened: Opened) -> None:
    """`?schema=` names where the tables are, whatever characters the name has."""
    run = new_run_id()
    for address in (url, new_schema(url), f"{url}&schema=%22odd%20name%22%25s"):
        ledger = opened(address)
        ledger.append(run, RunStarted(), NEW)
        assert ledger.head(run) == 1
        assert opened(address, create=False).head(run) == 1
    with pytest.raises(InvalidUrlError):
        Ledger.open(f"{url}&schema=")


def test_without_create_nothing_is_made(url: str, sql: Sql) -> None:
    """A ledger that is not there is an error, and is still not there after it."""
    with pytest.raises(StoreUnavailableError, match="There is no ledger at"):
        Ledger.open(url, create=False)
    assert sql.execute("SELECT to_regnamespace('turnledger')").fetchone() == (None,)


@pytest.mark.parametrize("table", ["runs (a int)", "meta (a int)", "meta (key text, value text)"])
def test_somebody_elses_tables_are_left_alone(url: str, sql: Sql, table: str) -> None:
    """A schema that holds something else is refused."""
    sql.execute("CREATE SCHEMA turnledger")
    sql.execute(f"CREATE TABLE turnledger.{table}")
    with pytest.raises(NotALedgerError):
        Ledger.open(url)
    assert sql.execute("SELECT to_regclass('turnledger.events')").fetchone() == (None,)


def test_a_newer_format_is_refused(url: str, sql: Sql, opened: Opened) -> None:
    """A program does not touch a ledger of a format that it does not know."""
    opened(url)
    sql.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    with pytest.raises(NotALedgerError, match="format 99"):
        Ledger.open(url)


def test_a_database_that_can_not_hold_all_text_is_refused() -> None:
    """An encoding other than UTF8 is found when opening, not at the first emoji."""
    url = new_database()
    name = parse(url).parameters["dbname"]
    with psycopg.connect(url.replace(f"/{name}?", "/postgres?"), autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}l ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(NotALedgerError, match="UTF8"):
        Ledger.open(url.replace(f"/{name}?", f"/{name}l?"))


def test_all_who_create_a_ledger_at_once_get_it(url: str) -> None:
    """Whoever comes second finds the tables that the first has made."""
    together = Barrier(6)
    run = new_run_id()

    def create(number: int) -> int:
        together.wait(30)
        with Ledger.open(url) as ledger:
            return ledger.append(run, note(number), ANY).version

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(create, range(6))) == [1, 2, 3, 4, 5, 6]


def test_a_server_that_would_forget_commits_is_overruled(
    url: str, sql: Sql, opened: Opened
) -> None:
    """Defaults that weaken durability or isolation don't reach our sessions; stronger ones do."""
    name = parse(url).parameters["dbname"]
    sql.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    sql.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    assert opened(url).store.diagnostics()["synchronous_commit"] == "on"

    def isolation(tx: Any) -> Any:
        return tx._one("SHOW transaction_isolation")

    assert opened(url).store.write(isolation) == ("read committed",)
    sql.execute(f"ALTER DATABASE {name} SET synchronous_commit = remote_apply")
    assert opened(url).store.diagnostics()["synchronous_commit"] == "remote_apply"


def test_the_database_refuses_changes(url: str, sql: Sql, opened: Opened) -> None:
    """UPDATE, DELETE and TRUNCATE fail on events and blobs, even where no row is hit."""
    run, content = new_run_id(), b"bytes"
    event = ResourceSnapshotted(resource="files", files={"a": blob_name(content)})
    opened(url).append(run, event, NEW, blobs=[content])
    for table in ("events", "blobs"):
        for statement in (f"DELETE FROM {table}", f"TRUNCATE {table}"):
            with pytest.raises(psycopg.errors.RestrictViolation, match="never changed"):
                sql.execute(statement)
    with pytest.raises(psycopg.errors.RestrictViolation):
        sql.execute("UPDATE events SET data = '' WHERE false")
    with pytest.raises(psycopg.errors.RestrictViolation):
        sql.execute("UPDATE blobs SET content = '' WHERE false")


def test_people_can_read_it_with_psql(url: str, sql: Sql, opened: Opened) -> None:
    """The view `log` shows times and digests as text."""
    run = new_run_id()
    appended = opened(url).append(run, note(), NEW)
    (record,) = appended.records
    row = sql.execute("SELECT position, run_id, recorded_at, digest, data FROM log").fetchone()
    moment = record.recorded_at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    assert row == (record.position, str(run), moment, appended.digest, record.data)


# --- one order ------------------------------------------------------------------------


def test_a_follower_misses_nothing_that_many_write(url: str, opened: Opened) -> None:
    """Many writers, with connections of their own, on the same runs: all seen once, in order."""
    runs = [new_run_id() for _ in range(3)]
    writers, each = 6, 25
    seen: list[Record] = []
    stop = Event()
    follower = opened(url)

    def follow() -> None:
        for record in follower.tail(follow=True, stop=stop):
            seen.append(record)
            if len(seen) == writers * each * 2:
                return

    def write(number: int) -> None:
        with Ledger.open(url) as ledger:
            for turn in range(each):
                batch = [note(turn, writer=number), note(turn, writer=number)]
                ledger.append(runs[(turn + number) % len(runs)], batch, ANY)

    thread = Thread(target=follow)
    thread.start()
    try:
        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(write, range(writers)))
        thread.join(60)
    finally:
        stop.set()
        thread.join()
    positions = [record.position for record in seen]
    assert positions == sorted(set(positions))
    for run in runs:
        own = [record.version for record in seen if record.run_id == run]
        assert own == list(range(1, follower.head(run) + 1))
    assert len(seen) == writers * each * 2
    assert follower.verify_all().problems == ()


def test_what_may_still_be_preceded_is_not_shown_to_followers(
    url: str,
    sql: Sql,
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An older transaction that is still at work delays `tail`, never `read`."""
    monkeypatch.setattr(store_module, "GRACE", 0.0)
    ledger, run = opened(url), new_run_id()
    with sql.transaction():
        sql.execute("SELECT pg_current_xact_id()")
        ledger.append(run, note(), NEW)
        assert [record.version for record in ledger.read(run)] == [1]
        assert list(ledger.tail()) == []
        assert ledger.store.last_position() is None
        assert int(ledger.store.diagnostics()["transactions_tail_waits_for"]) > 0
    eventually(lambda: [record.version for record in ledger.tail()] == [1])
    assert ledger.store.last_position() == next(ledger.tail()).position


def test_a_tail_waits_a_moment_for_those_who_hide_what_is_committed(
    url: str,
    sql: Sql,
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was appended before `tail` is called is in it, if others let go soon enough."""
    ledger, run = opened(url), new_run_id()
    look = PostgresStore._has_more

    def let_go_and_look(store: PostgresStore, position: int, last: int) -> bool:
        sql.execute("COMMIT")
        return look(store, position, last)

    monkeypatch.setattr(PostgresStore, "_has_more", let_go_and_look)
    sql.execute("BEGIN")
    sql.execute("SELECT pg_current_xact_id()")
    ledger.append(run, note(), NEW)
    assert next(ledger.tail()).version == 1


def test_a_transaction_that_was_overtaken_gets_a_new_number(url: str, opened: Opened) -> None:
    """Who waited for another's append comes after it in the ledger's order too."""
    ledger, other, run, first = opened(url), opened(url), new_run_id(), new_run_id()
    tries = 0

    def overtaken(tx: Transaction) -> int:
        nonlocal tries
        tries += 1
        tx.run(str(first))
        add(tx, first, note())
        tx.row_at(str(first), 1)  # it has been written: the transaction has its number
        if tries == 1:
            other.append(run, note(1), ANY)
        return add(tx, run, note(2))

    assert ledger.store.write(overtaken) == 2
    assert tries > 1
    assert_whole(ledger, (first, 1), (run, 2))


def test_a_group_of_any_size_finds_room(url: str, sql: Sql, opened: Opened) -> None:
    """More events than a transaction can number are committed in several."""
    ledger = opened(url)
    runs = [new_run_id() for _ in range(7)]
    jobs = [
        Job[Transaction](lambda tx, run=run: add(tx, run, *[note(n) for n in range(1000)]))
        for run in runs
    ]
    ledger.store._commit_group(jobs)
    assert [(job.error, job.result) for job in jobs] == [(None, 1000)] * 7
    assert_whole(ledger, *[(run, 1000) for run in runs])
    strays = sql.execute("SELECT count(*) FROM events WHERE position >> 12 <> xmin::text::bigint")
    assert strays.fetchone() == (0,)


# --- others in the way ----------------------------------------------------------------


def test_who_waits_too_long_is_told_so(url: str, sql: Sql, opened: Opened) -> None:
    """A lock that others hold for longer than `wait` is StoreBusyError; nothing was written."""
    ledger, run = opened(url, wait=0.1), new_run_id()
    ledger.append(run, note(), NEW)
    with sql.transaction():
        sql.execute("SELECT 1 FROM runs FOR UPDATE")
        began = time.monotonic()
        with pytest.raises(StoreBusyError, match="nothing was written"):
            ledger.append(run, note(), ANY)
        assert time.monotonic() - began < 10
    ledger.append(run, note(), ANY)
    assert_whole(ledger, (run, 2))


def test_two_groups_that_block_each_other_both_go_through(
    url: str, sql: Sql, opened: Opened
) -> None:
    """A deadlock ends in two commits, not in an error."""
    sql.execute(f"ALTER DATABASE {parse(url).parameters['dbname']} SET deadlock_timeout = '20ms'")
    one, other = opened(url), opened(url)
    runs = [new_run_id(), new_run_id()]
    for run in runs:
        one.append(run, note(), NEW)
    crossing = Barrier(2)

    def crosswise(order: list[UUID]) -> Callable[[Transaction], None]:
        met = False

        def work(tx: Transaction) -> None:
            nonlocal met
            tx.run(str(order[0]))
            if not met:
                met = True
                crossing.wait(30)
            for run in (order[1], order[0]):
                tx.run(str(run))
                add(tx, run, note())

        return work

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(one.store.write, crosswise(runs))
        second = pool.submit(other.store.write, crosswise(runs[::-1]))
        assert (first.result(30), second.result(30)) == (None, None)
    assert_whole(one, (runs[0], 3), (runs[1], 3))


def test_the_same_ids_from_two_writers_at_once_are_recorded_once(url: str, opened: Opened) -> None:
    """Whoever comes second gets the first one's result, flagged."""
    ledgers = [opened(url) for _ in range(4)]
    run = new_run_id()
    ledgers[0].append(run, note(), NEW)
    for turn in range(10):
        draft, together = Draft(note(turn), new_run_id()), Barrier(4)

        def write(ledger: Ledger, draft: Draft = draft, together: Barrier = together) -> bool:
            together.wait(30)
            return ledger.append(run, draft, ANY).duplicate

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(write, ledgers)) == [False, True, True, True]
    assert_whole(ledgers[0], (run, 11))


def test_ids_that_appear_between_two_looks_are_found_in_the_end(
    url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer of the same ids who is quicker, even than the careful way, is no error."""
    ledger, other = opened(url), opened(url)
    run, draft = new_run_id(), Draft(note(7), new_run_id())
    ledger.append(run, note(), NEW)
    other.append(run, note(), ANY)
    look, careful = PostgresTransaction.run, []

    def look_too_late(tx: PostgresTransaction, run_id: str) -> Any:
        if tx.careful and not careful:
            careful.append(tx)
            other.append(run, draft, ANY)
        return look(tx, run_id)

    monkeypatch.setattr(PostgresTransaction, "run", look_too_late)
    appended = ledger.append(run, draft, ANY)
    assert (appended.version, appended.duplicate, len(careful)) == (3, True, 1)
    assert_whole(ledger, (run, 3))


@pytest.mark.parametrize("begun", [True, False], ids=["optimistic", "careful"])
def test_a_mirror_that_is_overtaken_after_its_look_leaves_out_what_came(
    url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Between looking for the ids and writing, another mirror records one of them.

    A careful transaction has locked a run that there is, but can't lock one that is yet to begin.
    """
    ledger, other = opened(url), opened(url)
    run, drafts = new_run_id(), [Draft(note(number), new_run_id()) for number in range(3)]
    if begun:
        ledger.append(run, note(), NEW)
    find, looks = PostgresTransaction.rows_by_id, []

    def find_too_early(tx: PostgresTransaction, event_ids: Any) -> Any:
        found = find(tx, event_ids)
        looks.append(tx.careful)
        if not begun and not tx.careful:
            raise RedoError
        if looks in ([False], [False, True]) and begun != tx.careful:
            other.append(run, drafts[1], ANY)
        return found

    monkeypatch.setattr(PostgresTransaction, "rows_by_id", find_too_early)
    appended = ledger.append(run, drafts, ANY, known="skip")
    assert looks == ([False, True] if begun else [False, True, True])
    assert [record.version for record in appended.new] == [begun + 2, begun + 3]
    assert {*appended.records} == {*ledger.read(run, after=int(begun))}
    assert_whole(ledger, (run, begun + 3))


def test_of_two_who_claim_at_once_one_is_told_about_the_other(url: str, opened: Opened) -> None:
    """The loser of a race for a claim gets RunClaimedError, as if it had come later."""
    ledgers = [opened(url) for _ in range(4)]
    for _ in range(5):
        run, together = new_run_id(), Barrier(4)
        ledgers[0].append(run, note(), NEW)

        def claim(ledger: Ledger, run: UUID = run, together: Barrier = together) -> bool:
            together.wait(30)
            try:
                ledger.claim(run)
            except RunClaimedError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(claim, ledgers)) == [False, False, False, True]
        assert ledgers[0].run(run).epoch == 1


# --- lost connections -----------------------------------------------------------------


@pytest.mark.parametrize("how", ["before", "after", "silently"])
def test_an_append_whose_answer_was_lost_is_there_once(url: str, how: str, opened: Opened) -> None:
    """Whether the server got it or not, a cut during the commit is found out about."""
    run, draft = new_run_id(), Draft(note(mark="cut-here"), new_run_id())
    with proxied(url) as proxy:
        ledger = opened(proxy.url(url))
        ledger.append(run, note(), NEW)
        proxy.cut(b"cut-here", how)
        appended = ledger.append(run, draft, 1)
        assert (proxy.cuts, appended.version, appended.duplicate) == (1, 2, False)
        assert appended.records[0] == ledger.record(run, 2)
        assert ledger.append(run, draft, 1).duplicate
        ledger.append(run, note(), 2)
        assert_whole(ledger, (run, 3))
        ledger.close()


@pytest.mark.parametrize("how", ["before", "after", "silently"])
def test_a_group_whose_answer_was_lost_is_there_once(url: str, how: str, opened: Opened) -> None:
    """Each of a group's appends is recorded once, and the refused one stays refused."""
    runs = [new_run_id() for _ in range(3)]
    with proxied(url) as proxy:
        ledger = opened(proxy.url(url))
        for run in runs:
            ledger.append(run, note(), NEW)

        def refused(tx: Transaction) -> int:
            add(tx, runs[0], note())
            raise LookupError

        jobs = [Job[Transaction](lambda tx, run=run: add(tx, run, note())) for run in runs]
        jobs.append(Job(refused))
        proxy.cut(b"COMMIT", how)
        ledger.store._commit_group(jobs)
        assert [job.result for job in jobs] == [2, 2, 2, None]
        assert [job.error for job in jobs[:-1]] == [None, None, None]
        assert isinstance(jobs[-1].error, LookupError)
        assert proxy.cuts == 1
        assert_whole(ledger, *[(run, 2) for run in runs])
        ledger.close()


@pytest.mark.parametrize("how", ["before", "after", "silently"])
def test_a_claim_whose_answer_was_lost_is_held_once(url: str, how: str, opened: Opened) -> None:
    """The run is claimed by one epoch, and the claim is the one that the caller holds."""
    run = new_run_id()
    with proxied(url) as proxy:
        ledger = opened(proxy.url(url))
        ledger.append(run, note(), NEW)
        ledger.store.holder()
        proxy.cut(b"COMMIT", how)
        claim = ledger.claim(run)
        assert (proxy.cuts, claim.epoch, claim.version, ledger.run(run).epoch) == (1, 1, 2, 1)
        with pytest.raises(RunClaimedError):
            opened(url).claim(run)
        for change in (claim.heartbeat, claim.release):
            proxy.cut(b"COMMIT", how)
            change()
        assert (proxy.cuts, ledger.store.lease(str(run))) == (3, None)
        assert_whole(ledger, (run, 2))
        ledger.close()


@pytest.mark.parametrize("then", [b"pg_terminate_backend", b"pg_is_in_recovery", b"digest = "])
def test_the_outcome_is_asked_for_again_if_that_answer_is_lost_too(
    url: str, then: bytes, opened: Opened
) -> None:
    """A server that crashes takes a connection or two before all of them end."""
    run, draft = new_run_id(), Draft(note(mark="cut-here"), new_run_id())
    with proxied(url) as proxy:
        ledger = opened(proxy.url(url))
        ledger.append(run, note(), NEW)
        proxy.cut(b"cut-here", "after", then=then)
        appended = ledger.append(run, draft, 1)
        assert (proxy.cuts, appended.version, appended.duplicate) == (2, 2, False)
        assert_whole(ledger, (run, 2))
        ledger.close()


def test_what_can_not_be_found_out_is_said_to_be_unknown(url: str, opened: Opened) -> None:
    """A server that stays away after the cut leaves the outcome open; the ids settle it later."""
    run, draft = new_run_id(), Draft(note(mark="cut-here"), new_run_id())
    with proxied(url) as proxy:
        ledger = opened(proxy.url(url), wait=0.2)
        ledger.append(run, note(), NEW)
        proxy.cut(b"cut-here", "after", then_refuse=True)
        with pytest.raises(StoreUnavailableError, match="outcome is unknown") as caught:
            ledger.append(run, draft, 1)
        with pytest.raises(StoreUnavailableError, match="can't be reached"):
            ledger.append(run, note(), ANY)
        proxy.accept_again()
        assert ledger.append(run, list(caught.value.drafts), 1).duplicate
        assert_whole(ledger, (run, 2))
        ledger.close()


def test_a_cut_before_the_commit_writes_nothing_twice(url: str, opened: Opened) -> None:
    """Work that was cut in the middle is done again, from its beginning."""
    run, content = new_run_id(), b"cut-here, in a blob"
    event = ResourceSnapshotted(resource="files", files={"a": blob_name(content)})
    with proxied(url) as proxy:
        ledger = opened(proxy.url(url))
        proxy.cut(b"cut-here", "after")
        assert ledger.append(run, event, NEW, blobs=[content]).version == 1
        assert (proxy.cuts, ledger.blob(blob_name(content))) == (1, content)
        assert_whole(ledger, (run, 1))
        ledger.close()


def test_idle_connections_that_were_ended_are_replaced(url: str, sql: Sql, opened: Opened) -> None:
    """Reading, appending and claiming go on after an administrator ended every session."""
    ledger, run = opened(url), new_run_id()
    ledger.append(run, note(), NEW)
    claim = ledger.claim(run)
    holder = ledger.store.holder()
    for act in (
        lambda: ledger.head(run),
        lambda: ledger.append(run, note(), ANY, claim.epoch),
        lambda: ledger.claim(run),
    ):
        end_sessions(sql)
        act()
    assert ledger.store.holder() == holder
    assert ledger.run(run).epoch == 1


def test_connections_may_be_lost_more_than_once(url: str, sql: Sql, opened: Opened) -> None:
    """Within `wait` a call tries again however often its connection is ended under it."""
    ledger, run, ended = opened(url), new_run_id(), []
    ledger.append(run, note(), NEW)

    def work(tx: Any) -> int:
        version = add(tx, run, note())
        tx._write_held()
        if len(ended) < 3:
            ended.append(tx._db.info.backend_pid)
            sql.execute("SELECT pg_terminate_backend(%s, 10000)", (ended[-1],))
        return version

    assert ledger.store.write(work) == 2
    assert len(set(ended)) == 3
    assert_whole(ledger, (run, 2))


def test_a_query_that_nobody_waits_for_any_more_is_stopped(
    url: str, sql: Sql, opened: Opened
) -> None:
    """After `wait` a read is a typed error, and the server no longer works on it."""
    ledger = opened(url, wait=0.1)
    with pytest.raises(StoreBusyError, match="longer wait"):
        ledger.store.pool.read("SELECT pg_sleep(600)")
    at_it = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' "
    assert sql.execute(at_it + "AND state = 'active' AND pid <> pg_backend_pid()").fetchone() == (
        0,
    )


def queued(ledger: Ledger, name: str) -> tuple[list[Job[Transaction]], DerivedData]:
    """Derived data whose writes are not made, but listed for a group commit."""
    jobs: list[Job[Transaction]] = []
    return jobs, DerivedData(ledger.store.derived, lambda work: jobs.append(Job(work)), name)


@pytest.mark.parametrize("neighbour", ["refused", "drops another"])
def test_derived_data_whose_answer_was_lost_is_written_once(
    url: str, opened: Opened, neighbour: str
) -> None:
    """What a neighbour in the group took back does not hide that the commit went through."""
    before, after = Watermark("f", 1, "a"), Watermark("f", 2, "b")

    def other(tx: Transaction) -> None:
        tx.derived.watermark("t")
        tx.derived.set_watermark("t", after if neighbour == "refused" else None)
        if neighbour == "refused":
            raise LookupError

    with proxied(url) as proxy:
        ledger = opened(proxy.url(url))
        ledger.derived_data("s").advance(None, before, {"k": "0"})
        jobs, data = queued(ledger, "s")
        data.advance(before, after, {"k": "1"})
        proxy.cut(b"COMMIT", "after")
        ledger.store._commit_group([*jobs, Job(other)])
        assert (proxy.cuts, jobs[0].result, jobs[0].error) == (1, True, None)
        assert ledger.derived_data("s").snapshot() == (after, {"k": "1"})
        ledger.close()


def test_derived_data_that_is_written_and_dropped_at_once_has_an_unknown_outcome(
    url: str, opened: Opened
) -> None:
    """With no trace left of it, a commit whose answer was lost has an unknown outcome."""
    before, after = Watermark("f", 1, "a"), Watermark("f", 2, "b")
    with proxied(url) as proxy:
        ledger = opened(proxy.url(url))
        ledger.derived_data("s").advance(None, before, {"k": "0"})
        jobs, data = queued(ledger, "s")
        data.advance(before, after, {"k": "1"})
        data.drop()
        proxy.cut(b"COMMIT", "after")
        ledger.store._commit_group(jobs)
        assert proxy.cuts == 1
        with pytest.raises(StoreUnavailableError, match="outcome is unknown"):
            raise jobs[0].error or AssertionError
        ledger.close()


def test_a_server_that_crashed_is_used_again_when_it_is_back(
    opened: Opened,
) -> None:
    """After kill -9 of the server everything acknowledged is there, and work goes on."""
    with PostgresServer(FAST) as server:
        ledger, run = opened(server.url(), wait=20), new_run_id()
        ledger.append(run, note(), NEW)
        claim = ledger.claim(run)
        server.kill()
        with ThreadPoolExecutor(2) as pool:
            waiting = pool.submit(ledger.append, run, note(), ANY, claim.epoch)
            reading = pool.submit(ledger.head, run)
            server.start()
            assert waiting.result(60).version == 3
            assert reading.result(60) in (2, 3)
        # Its sign of life came back with the writer's connection.
        with pytest.raises(RunClaimedError):
            opened(server.url()).claim(run)
        claim.heartbeat()
        assert_whole(ledger, (run, 3))
        ledger.close()


# --- signs of life --------------------------------------------------------------------

HOLD = """
import sys
from turnledger.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
claim = ledger.claim(sys.argv[2])
print(claim.epoch, flush=True)
sys.stdin.read()
"""


def test_a_killed_workers_run_can_be_claimed_at_once(url: str, opened: Opened) -> None:
    """The lock of a process that got SIGKILL is gone long before its lease is."""
    ledger, run = opened(url), new_run_id()
    ledger.append(run, note(), NEW)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, url, str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"1\n"
        with pytest.raises(RunClaimedError):
            ledger.claim(run)
        os.kill(worker.pid, signal.SIGKILL)

    def claimed() -> bool:
        try:
            return ledger.claim(run).epoch == 2
        except RunClaimedError:
            return False

    eventually(claimed)


def test_a_closed_ledger_gives_no_sign_of_life(url: str, opened: Opened) -> None:
    """Closing frees the lock, and leaves no connection behind."""
    ledger, run = opened(url), new_run_id()
    ledger.append(run, note(), NEW)
    ledger.claim(run)
    ledger.close()
    with psycopg.connect(url, autocommit=True) as db:
        eventually(
            lambda: (
                db.execute(
                    "SELECT count(*) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid() "
                    "AND backend_type = 'client backend'"
                ).fetchone()
                == (0,)
            )
        )
    assert opened(url).claim(run).epoch == 2


# --- dumps ----------------------------------------------------------------------------


def test_a_restored_dump_is_read_at_once_and_written_after_rebasing(
    url: str, sql: Sql, opened: Opened
) -> None:
    """On a server that counts from the beginning, new events still come after the old ones."""
    source, run = opened(url), new_run_id()
    # The shared server may be as young as the new one: let this ledger's numbers be high.
    sql.execute("UPDATE meta SET value = '1000000' WHERE key = 'xid_offset'")
    source.append(run, [RunStarted(), note(1)], NEW)
    dumped = subprocess.run([BINARIES / "pg_dump", "-O", url], capture_output=True, check=True)
    with PostgresServer(FAST) as server:
        target = server.url()
        subprocess.run(
            [BINARIES / "psql", "-q", "-v", "ON_ERROR_STOP=1", target],
            input=dumped.stdout,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        with psycopg.connect(target, autocommit=True) as db:
            db.execute("UPDATE turnledger.meta SET value = '0' WHERE key = 'xid_offset'")
        ledger = opened(target)
        assert [record.version for record in ledger.tail()] == [1, 2]
        for act in (lambda: ledger.append(run, note(2), 2), lambda: ledger.claim(run)):
            with pytest.raises(StoreUnavailableError, match="turnledger rebase"):
                act()
        assert ledger.store.rebase()
        assert not ledger.store.rebase()
        assert ledger.append(run, note(2), 2).version == 3
        assert opened(target).append(run, note(3), 3).version == 4
        assert_whole(ledger, (run, 4))
        ledger.close()
