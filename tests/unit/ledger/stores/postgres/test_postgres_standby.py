"""A ledger with a synchronous standby: what is acknowledged is on both, whatever happens.

A commit that waits for the standby is done on the primary. If the wait is cancelled, or the
primary crashes, everybody sees it there, and it is gone when the standby takes over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.crash.failover import both
from tests.matrices import cells
from tests.postgres import FAST, PostgresServer, eventually, new_database
from tests.postgres_proxy import SOCKET, Proxy
from tests.unit.ledger.stores.postgres.ledgers import Opened, Sql, note
from turnledger.ledger import (
    ANY,
    NEW,
    Appended,
    CustomEvent,
    Draft,
    Ledger,
    RunClaimedError,
    RunStarted,
    StaleEpochError,
    StoreUnavailableError,
    new_run_id,
)
from turnledger.ledger.runs.transaction import Transaction, Watermark
from turnledger.ledger.stores.postgres import connection
from turnledger.ledger.stores.postgres.connection import Connection, parse
from turnledger.ledger.transfer.backup import snapshot_of


class Pair:
    """A primary and its synchronous standby."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary = primary
        self.standby = standby

    def waiting(self) -> list[int]:
        """The primary's processes that have committed and wait for the standby."""
        with psycopg.connect(self.primary.url(), autocommit=True) as db:
            found = db.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
            return [pid for (pid,) in found]

    def one_that_waits(self) -> int:
        eventually(lambda: bool(self.waiting()))
        return self.waiting()[0]

    def tell(self, function: str, pid: int) -> None:
        with psycopg.connect(self.primary.url(), autocommit=True) as db:
            db.execute(f"SELECT {function}(%s)", (pid,))


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with PostgresServer(FAST) as primary, PostgresServer(standby_of=primary) as standby:
        primary.require(standby)
        yield Pair(primary, standby)


@pytest.fixture
def pair(servers: Pair) -> Iterator[Pair]:
    """A pair that is well, before the test and after it."""
    yield servers
    if not (servers.standby.data / "postmaster.pid").exists():
        servers.standby.start()


class Trial:
    """A run, and an append to it with ids of its own, in a thread."""

    def __init__(self, ledger: Ledger, pool: ThreadPoolExecutor) -> None:
        self.ledger = ledger
        self.run = new_run_id()
        self._pool = pool
        # With a blob it takes a whole transaction; without, it is one statement.
        self.blobs: list[bytes] = []
        self.drafts = [Draft(note(1), new_run_id()), Draft(note(2), new_run_id())]
        ledger.append(self.run, RunStarted(), NEW)

    def append(self) -> Future[Appended]:
        return self._pool.submit(
            self.ledger.append, self.run, self.drafts, 1, blobs=list(self.blobs)
        )


# What the role, or PGOPTIONS, lets through: the warning of a cancelled wait, or not even that.
HEARS = ["notice", "error"]


@pytest.fixture
def trial(pair: Pair, opened: Opened, pool: ThreadPoolExecutor) -> Trial:
    return Trial(opened(new_database(pair.primary.url())), pool)


def with_role(url: str, *settings: str, attributes: str = "") -> str:
    """The same ledger, as a role of its own that has these settings."""
    role = f"r{new_run_id().hex}"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN {attributes}")
        for setting in settings:
            db.execute(f"ALTER ROLE {role} SET {setting}")
    return url.replace("//postgres@", f"//{role}@")


# --- waits that end too early ---------------------------------------------------------


@pytest.mark.parametrize(("blobs", "hears"), cells([[], [b"with a blob"]], HEARS))
def test_a_cancelled_wait_for_the_standby_is_no_acknowledgement(
    pair: Pair,
    trial: Trial,
    opened: Opened,
    blobs: list[bytes],
    hears: str,
) -> None:
    """PostgreSQL says COMMIT and warns; the ledger says that the outcome is unknown."""
    url = with_role(trial.ledger.url, f"client_min_messages = {hears}", attributes="SUPERUSER")
    trial.ledger, trial.blobs = opened(url), blobs
    pair.standby.kill()
    appending = trial.append()
    pair.tell("pg_cancel_backend", pair.one_that_waits())
    with pytest.raises(StoreUnavailableError, match="whether the standby has it") as caught:
        appending.result(30)
    assert caught.value.drafts == tuple(trial.drafts)

    # It is there for all to see, and still a retry waits until the standby has it too.
    assert trial.ledger.head(trial.run) == 3
    again = trial.append()
    pid = pair.one_that_waits()
    assert not again.done()
    pair.tell("pg_cancel_backend", pid)
    with pytest.raises(StoreUnavailableError, match="whether the standby has it"):
        again.result(30)

    pair.standby.start()
    assert trial.append().result(30).duplicate


def test_a_retry_in_the_careful_way_waits_for_the_standby_too(
    pair: Pair, trial: Trial, opened: Opened, pool: ThreadPoolExecutor
) -> None:
    """Whoever finds the ids recorded, in whatever way, says so only when the standby has them."""
    pair.standby.kill()
    appending = trial.append()
    pair.tell("pg_cancel_backend", pair.one_that_waits())
    with pytest.raises(StoreUnavailableError):
        appending.result(30)
    # A head from before: the ids are met on insert, and looked up without touching the run.
    other = opened(trial.ledger.url)
    assert other.head(trial.run) == 3
    again = pool.submit(other.append, trial.run, trial.drafts, ANY)
    pair.one_that_waits()
    assert not again.done()
    pair.standby.start()
    assert again.result(30).duplicate


def test_a_terminated_wait_for_the_standby_is_found_out_about(pair: Pair, trial: Trial) -> None:
    """The answer is lost, the event is found: the append returns when the standby has it."""
    pair.standby.kill()
    appending = trial.append()
    first = pair.one_that_waits()
    pair.tell("pg_terminate_backend", first)
    eventually(lambda: pair.waiting() not in ([], [first]))
    assert not appending.done()
    pair.standby.start()
    assert appending.result(30).version == 3


def test_what_a_crash_made_visible_waits_for_the_standby(pair: Pair, trial: Trial) -> None:
    """A primary that restarts shows commits that its standby never got; none is acknowledged."""
    pair.standby.kill()
    appending = trial.append()
    pair.one_that_waits()
    pair.primary.kill()
    pair.primary.start()
    pair.one_that_waits()
    assert trial.ledger.head(trial.run) == 3
    assert not appending.done()
    pair.standby.start()
    assert appending.result(30).version == 3


def test_a_standby_that_stays_away_is_not_waited_for_for_ever(
    pair: Pair, trial: Trial, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `wait` it is said that it is away; the same ledger goes on when it is back."""
    monkeypatch.setattr(connection, "CANCEL_MARGIN", 0.25)
    other, claimed = new_run_id(), new_run_id()
    for run in (other, claimed):
        trial.ledger.append(run, RunStarted(), NEW)
    trial.ledger.append(trial.run, note(), 1)
    trial.ledger = opened(trial.ledger.url, wait=1.0)
    pair.standby.kill()
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError, match=r"standby did not confirm.*same ids") as caught:
        trial.ledger.append(trial.run, trial.drafts, 2)
    assert 1.0 < time.monotonic() - began < 1.0 + connection.LOST_MARGIN
    # A retry, and everything else that writes, is told the same, and leaves no process waiting.
    for act in (
        lambda: trial.ledger.append(trial.run, list(caught.value.drafts), 2),
        lambda: trial.ledger.append(other, note(), 1),
        lambda: trial.ledger.claim(claimed),
    ):
        with pytest.raises(StoreUnavailableError, match="standby did not confirm"):
            act()
        assert pair.waiting() == []
    assert trial.ledger.head(trial.run) == 4
    pair.standby.start()
    pair.primary.await_standbys(1)
    assert trial.ledger.claim(claimed).epoch == 1
    assert trial.ledger.append(trial.run, list(caught.value.drafts), 2).duplicate


@pytest.mark.parametrize("hears", HEARS)
def test_a_follower_is_shown_only_what_a_fail_over_can_not_take_back(
    pair: Pair, trial: Trial, opened: Opened, hears: str
) -> None:
    """A commit whose wait was cancelled is there for all to see, but not for a follower."""
    url = with_role(trial.ledger.url, f"client_min_messages = {hears}", attributes="SUPERUSER")
    follower = opened(url, wait=1.0)
    seen = follower.tail(follow=True)
    first = next(seen)
    pair.standby.kill()
    appending = trial.append()
    pair.tell("pg_cancel_backend", pair.one_that_waits())
    with pytest.raises(StoreUnavailableError):
        appending.result(30)
    assert [record.version for record in follower.tail()] == [1, 2, 3]
    with pytest.raises(StoreUnavailableError, match="not shown them yet"):
        next(seen)
    # It was asked to stop, so that followers who try again and again leave nothing behind.
    assert pair.waiting() == []

    # What it knows to be safe, it shows; so does one who begins now, once the standby is back.
    assert next(follower.tail(follow=True, page_size=1)).version == 1
    pair.standby.start()
    later = opened(trial.ledger.url).tail(first.position, follow=True)
    assert [next(later).version, next(later).version] == [2, 3]


def test_a_follower_asks_the_standby_once_for_all_that_is_there(
    trial: Trial, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for every page of a long ledger, and not at all who does not follow."""
    asked: list[str] = []
    confirmed = Connection.confirmed

    def counted(db: Connection, statement: str) -> bool:
        asked.append(statement)
        return confirmed(db, statement)

    monkeypatch.setattr(Connection, "confirmed", counted)
    trial.append().result(30)
    ledger = opened(trial.ledger.url)
    assert len(list(ledger.tail(page_size=1))) == 3
    assert asked == []
    seen = ledger.tail(follow=True, page_size=1)
    assert [next(seen).version for _ in range(3)] == [1, 2, 3]
    assert len(asked) == 1
    ledger.append(trial.run, note(), 3)
    assert next(seen).version == 4
    assert len(asked) == 2


@pytest.mark.parametrize("read_only", ["off", "on"])
def test_a_role_that_may_only_read_can_follow(trial: Trial, opened: Opened, read_only: str) -> None:
    """To have the standby confirm something takes no right to write, nor a transaction for it."""
    url = with_role(trial.ledger.url, f"default_transaction_read_only = {read_only}")
    role = parse(url).parameters["user"]
    with psycopg.connect(trial.ledger.url, autocommit=True) as db:
        db.execute(f"GRANT USAGE ON SCHEMA turnledger TO {role}")
        db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA turnledger TO {role}")
    assert next(opened(url).tail(follow=True)).version == 1


def test_a_follower_on_a_standby_waits_for_nobody(pair: Pair, trial: Trial, opened: Opened) -> None:
    """What is there to be read is there to take over with."""
    url = trial.ledger.url.replace(str(pair.primary.folder), str(pair.standby.folder))
    pair.standby.set(synchronous_standby_names="somebody")
    try:
        eventually(lambda: _has(url, trial.run))
        assert next(opened(url).tail(follow=True)).version == 1
    finally:
        pair.standby.set(synchronous_standby_names="")


def test_a_standby_is_read_and_not_written(pair: Pair, trial: Trial, opened: Opened) -> None:
    """A ledger can be opened on a standby; an append there says what to put into the URL."""
    url = trial.ledger.url.replace(str(pair.primary.folder), str(pair.standby.folder))
    eventually(lambda: _has(url, trial.run))
    standby = opened(url)
    assert [record.version for record in standby.read(trial.run)] == [1]
    assert [record.version for record in standby.tail()] == [1]
    assert standby.verify_all().problems == ()
    for act in (lambda: standby.append(trial.run, note(), 1), lambda: standby.claim(trial.run)):
        with pytest.raises(StoreUnavailableError, match="target_session_attrs=read-write"):
            act()


def test_on_a_standby_a_lease_counts_until_its_time_is_up(
    pair: Pair, trial: Trial, opened: Opened
) -> None:
    """Locks are not replicated: that nobody is seen to live there means nothing."""
    with trial.ledger.claim(trial.run, worker="somebody"):
        url = trial.ledger.url.replace(str(pair.primary.folder), str(pair.standby.folder))
        eventually(lambda: _has(url, trial.run, 2))
        standby = opened(url)
        eventually(lambda: standby.store.lease(str(trial.run)) is not None)
        assert standby.worker_of(trial.run) == "somebody"


def test_a_standby_is_opened_with_an_older_catalogue(
    pair: Pair, trial: Trial, opened: Opened
) -> None:
    """Nothing has to be written to be read."""
    with psycopg.connect(trial.ledger.url, autocommit=True) as db:
        db.execute("UPDATE meta SET value = '0' WHERE key = 'catalogue'")
    url = trial.ledger.url.replace(str(pair.primary.folder), str(pair.standby.folder))
    eventually(lambda: _has(url, trial.run))
    standby = opened(url)
    eventually(lambda: standby.store.written_catalogue() == 0)
    assert opened(url).head(trial.run) == 1


def test_an_address_that_led_to_a_standby_leads_back(
    pair: Pair, trial: Trial, opened: Opened
) -> None:
    """A ledger that landed on a server without writes finds the primary as soon as it is there."""
    url = trial.ledger.url
    standby = url.replace(str(pair.primary.folder), str(pair.standby.folder))
    eventually(lambda: _has(standby, trial.run))
    with Proxy(str(pair.primary.folder)) as address:
        ledger = opened(address.url(url))
        claim = ledger.claim(trial.run)
        home, address._server = address._server, f"{pair.standby.folder}/{SOCKET}"
        end_sessions(pair.primary, _sessions(url))
        # The first one was lost, and a standby can't tell what became of it.
        for said in ("outcome is unknown", "takes no writes"):
            with pytest.raises(StoreUnavailableError, match=said):
                ledger.append(trial.run, note(), 2, claim.epoch)
        assert ledger.head(trial.run) == 2
        address._server = home
        assert ledger.append(trial.run, note(), 2, claim.epoch).version == 3
        # What read there meanwhile is back too: a standby may fall behind for good.
        in_recovery = ledger.store.pool.read("SELECT pg_is_in_recovery()")
        assert in_recovery == [(False,)]
        claim.heartbeat()
        with pytest.raises(RunClaimedError):
            opened(url).claim(trial.run)
        ledger.close()


def test_a_standby_that_answers_does_not_say_that_nothing_was_written(
    pair: Pair, trial: Trial, opened: Opened
) -> None:
    """After a lost commit, what a standby does not show may be on the primary all the same."""
    draft = Draft(CustomEvent(kind="test.note", data="cut-here"), new_run_id())
    url = trial.ledger.url
    eventually(
        lambda: _has(url.replace(str(pair.primary.folder), str(pair.standby.folder)), trial.run)
    )
    with Proxy(str(pair.primary.folder)) as address:
        ledger = opened(address.url(url))
        ledger.append(trial.run, note(), 1)
        home, address._server = address._server, f"{pair.standby.folder}/{SOCKET}"
        address.cut(b"cut-here", "silently")
        with pytest.raises(StoreUnavailableError, match=r"a standby.*outcome is unknown"):
            ledger.append(trial.run, draft, 2)
        address._server = home
        assert ledger.append(trial.run, draft, 2).version == 3
        ledger.close()


def test_a_read_that_replay_is_in_the_way_of_is_asked_again(
    pair: Pair, trial: Trial, opened: Opened, pool: ThreadPoolExecutor
) -> None:
    """A query that a standby cancels for what it has to replay is no error of the reader's."""
    url = trial.ledger.url.replace(str(pair.primary.folder), str(pair.standby.folder))
    eventually(lambda: _has(url, trial.run))
    claim = trial.ledger.claim(trial.run)
    pair.standby.set(max_standby_streaming_delay="0")
    try:
        standby = opened(url)
        # Long the first time only: until the primary has taken away what it looks at.
        slow = (
            "SELECT pg_sleep(CASE WHEN EXISTS (SELECT FROM shelves) THEN 0 ELSE 600 END), "
            "(SELECT count(*) FROM leases)"
        )
        reading = pool.submit(standby.store.pool.read, slow)
        eventually(lambda: _asleep(pair.standby))
        for _ in range(20):
            claim.heartbeat()
        trial.ledger.derived_data("done").advance(None, Watermark("f", 1, "s"), {"k": "v"})
        with psycopg.connect(trial.ledger.url, autocommit=True) as db:
            db.execute("VACUUM leases")
        assert reading.result(30)[0][1] == 1
    finally:
        pair.standby.set(max_standby_streaming_delay="30s")


def _asleep(server: PostgresServer) -> bool:
    with psycopg.connect(server.url(), autocommit=True) as db:
        look = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        return bool(_one(db, look)[0])


def _sessions(url: str) -> list[int]:
    with psycopg.connect(url, autocommit=True) as db:
        found = db.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )
        return [pid for (pid,) in found]


def _has(url: str, run: UUID, version: int = 1) -> bool:
    try:
        with Ledger.open(url, create=False) as ledger:
            return ledger.head(run) >= version
    except StoreUnavailableError:
        return False


# --- fail-over ------------------------------------------------------------------------


def test_after_a_fail_over_claims_are_kept_or_fenced_and_the_stray_is_refused(
    opened: Opened,
) -> None:
    """Who is back first keeps its run, who is late is fenced, and the old primary is refused."""
    with PostgresServer(FAST) as primary, PostgresServer(standby_of=primary) as standby:
        primary.require(standby)
        url = both(new_database(primary.url()), primary, standby)
        ledger, other = opened(url), opened(url)
        kept, taken = new_run_id(), new_run_id()
        for run in (kept, taken):
            ledger.append(run, RunStarted(), NEW)
        keeper, loser = opened(url), opened(url)
        kept_claim, lost_claim = keeper.claim(kept), loser.claim(taken)
        positions = [record.position for record in ledger.tail()]

        primary.kill()
        standby.promote()
        # The locks that showed who is alive died with the primary.
        kept_claim.heartbeat()
        with pytest.raises(RunClaimedError):
            other.claim(kept)
        assert other.claim(taken).epoch == 2
        with pytest.raises(StaleEpochError):
            loser.append(taken, RunStarted(), ANY, epoch=lost_claim.epoch)
        ledger.append(kept, note(), ANY)
        assert [r.position for r in ledger.tail()][: len(positions)] == positions
        assert min(r.position for r in ledger.tail(positions[-1])) > positions[-1]
        assert ledger.verify_all().problems == ()
        head = ledger.head(kept)

        standby.kill()
        primary.start()
        for act in (
            lambda: ledger.append(kept, note(), ANY),
            lambda: ledger.head(kept),
            lambda: keeper.claim(taken),
        ):
            with pytest.raises(StoreUnavailableError, match="timeline 1"):
                act()
        primary.kill()
        standby.start()
        assert ledger.append(kept, note(), ANY).version == head + 1


def end_sessions(server: PostgresServer, pids: list[int]) -> None:
    with psycopg.connect(server.url(), autocommit=True) as db:
        for pid in pids:
            db.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))


def test_who_has_met_the_new_primary_leaves_the_old_one_that_lives_on(
    opened: Opened,
) -> None:
    """Connections that still work are given up when another one has found the new primary."""
    with PostgresServer(FAST) as primary, PostgresServer(standby_of=primary) as standby:
        own = new_database(primary.url())
        url = own.replace(
            f"host={primary.folder}",
            f"host={standby.folder},{primary.folder}&target_session_attrs=read-write",
        )
        ledger, run = opened(url), new_run_id()
        ledger.append(run, RunStarted(), NEW)
        claim = ledger.claim(run)
        pool = ledger.store.pool
        assert ledger.head(run) == 2
        eventually(lambda: _has(_on(standby, own), run))
        standby.promote()  # and nobody has ended the old one
        end_sessions(primary, [session.pid for session in pool._idle])
        assert ledger.head(run) == 2
        assert ledger.append(run, note(), 2, claim.epoch).version == 3
        with pytest.raises(RunClaimedError):
            opened(_on(standby, own)).claim(run)
        assert opened(own).head(run) == 2

        # The stray alone: it is neither copied nor changed.
        standby.kill()
        for act in (lambda: snapshot_of(ledger.store), ledger.rebase):
            with pytest.raises(StoreUnavailableError, match="timeline 1"):
                act()
        standby.start()
        snapshot = snapshot_of(ledger.store)
        assert snapshot.run(str(run)).version == 3
        snapshot.close()


def _on(server: PostgresServer, url: str) -> str:
    """The same database on another server."""
    base, _, _ = url.partition("?")
    return f"{base}?host={server.folder}"


# --- numbers that are given twice -----------------------------------------------------


def test_a_transaction_number_that_a_crash_gave_to_another_proves_nothing(
    opened: Opened,
) -> None:
    """Derived rows whose commit was lost in a crash are written again, not taken for written."""
    with PostgresServer({**FAST, "wal_writer_delay": "'10s'"}) as server:
        ledger = opened(new_database(server.url()))
        watermark, crashed = Watermark("print", 5, "state"), []

        def put(tx: Transaction) -> None:
            tx.derived.watermark("name")
            tx.derived.set_watermark("name", watermark)
            tx.derived.put("name", {"key": "text"})
            if not crashed:
                crashed.append(True)
                _crash_and_give_the_number_away(server)

        ledger.store.write(put)
        assert crashed
        assert ledger.derived_data("name").snapshot() == (watermark, {"key": "text"})


def _crash_and_give_the_number_away(server: PostgresServer) -> None:
    look = "SELECT max(backend_xid::text::bigint)::text FROM pg_stat_activity"
    with psycopg.connect(server.url(), autocommit=True) as db:
        (number,) = _one(db, look)
    server.kill()
    server.start()
    with psycopg.connect(server.url(), autocommit=True) as db:
        while int(_one(db, "SELECT pg_current_xact_id()::text")[0]) < int(number):
            pass
        assert _one(db, "SELECT pg_xact_status(%s::xid8)", number) == ("committed",)


def _one(db: Sql, query: str, *values: object) -> Any:
    return db.execute(query, values).fetchone()


# --- a server that says nothing -------------------------------------------------------


@pytest.fixture(scope="module")
def alone() -> Iterator[PostgresServer]:
    """A server without a standby."""
    with PostgresServer(FAST) as server:
        yield server


def soon_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second beyond `wait` a silent server counts as lost."""
    monkeypatch.setattr(connection, "CANCEL_MARGIN", 0.25)
    monkeypatch.setattr(connection, "LOST_MARGIN", 1.0)


def test_a_server_that_says_nothing_is_not_waited_for_for_ever(
    alone: PostgresServer, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose processes are all stopped is a typed error after `wait`, and then used again."""
    soon_lost(monkeypatch)
    ledger, run = opened(new_database(alone.url()), wait=1.0), new_run_id()
    ledger.append(run, RunStarted(), NEW)
    draft = Draft(note(), new_run_id())
    with alone.stopped():
        for act in (lambda: ledger.head(run), lambda: ledger.append(run, draft, 1)):
            with pytest.raises(StoreUnavailableError):
                act()
    assert ledger.append(run, draft, 1).version == 2
    assert ledger.verify_all().problems == ()


def test_rebuilding_the_index_of_a_server_that_says_nothing_ends(
    alone: PostgresServer, opened: Opened, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take the server as long as it needs, and not for ever when it stands still."""
    soon_lost(monkeypatch)
    url, run = new_database(alone.url()), new_run_id()
    ledger = opened(url, wait=1.0)
    ledger.append(run, RunStarted(tags={"a": "b"}), NEW)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            "CREATE FUNCTION turnledger.slow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(2.5); RETURN NULL; END $$"
        )
        db.execute(
            "CREATE TRIGGER slow AFTER DELETE ON turnledger.run_tags "
            "EXECUTE FUNCTION turnledger.slow()"
        )
    ledger.rebuild_index()  # longer than any other answer may take
    rebuilding = pool.submit(ledger.rebuild_index)
    eventually(lambda: _asleep(alone))
    with alone.stopped(), pytest.raises(StoreUnavailableError):
        rebuilding.result(60)
    with psycopg.connect(url, autocommit=True) as db:  # beside it, no append is made
        db.execute("DROP TRIGGER slow ON turnledger.run_tags")
    assert ledger.append(run, note(), 1).version == 2
