"""PostgreSQL connections: durable sessions with time limits, and reconnecting to them.

A session knows which backend process serves it. When its connection is lost, that backend is
ended before anything is tried again, so that what it left undone stays undone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from math import ceil, inf
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import quote, unquote, urlencode

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import Diagnostic
from psycopg.pq import Conninfo
from psycopg.rows import tuple_row

from turnledger.ledger.errors import InvalidUrlError, NotALedgerError, StoreUnavailableError
from turnledger.ledger.stores.postgres.errors import unavailable

Result = TypeVar("Result")
# Seconds; PostgreSQL counts milliseconds in 32 bits.
LONGEST_WAIT = 1e6
DEFAULT_SCHEMA = "turnledger"
OLDEST_SERVER = 130000
# Between attempts to reconnect, at first and at most.
SHORTEST_NAP, LONGEST_NAP = 0.005, 0.25
# For a connection to come about, for each host; libpq takes 1 for 2.
SHORTEST_CONNECT, LONGEST_CONNECT = 2, 10
# Beyond `wait`, in which the server itself ends a wait for a lock and says so: after this long
# it is asked to cancel the statement, and after this long it counts as lost.
CANCEL_MARGIN = 1.0
LOST_MARGIN = 5.0

# The function of the server that waits for a standby.
_SYNC_REP_WAIT = "SyncRepWaitForLSN"
# What the URL may overrule: notice a peer that vanished without a word.
_DEFAULTS: dict[str, Any] = {
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "fallback_application_name": "turnledger",
}
_SESSION = """SELECT
    set_config('search_path', quote_ident(%s), false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('lock_timeout', %s, false),
    -- A commit that no longer waited for its standby is told by a warning only.
    set_config('client_min_messages', 'warning', false),
    set_config('enable_seqscan', 'off', false),
    -- A plan for any value may take many rows for few, and sort them all to give the first.
    set_config('enable_bitmapscan', 'off', false),
    set_config('jit', 'off', false)"""
# When a session began: as text that no setting changes, or two sessions would differ.
_SINCE = "to_char(backend_start AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')"
# A role that has become another (ALTER ROLE ... SET role) may not see its own session.
_AS_ONESELF = "SET LOCAL ROLE NONE"
_IDENTITY = f"""{_AS_ONESELF};
    SELECT pg_backend_pid(), current_setting('server_encoding'),
        (SELECT {_SINCE} FROM pg_stat_activity WHERE pid = pg_backend_pid())"""
# A backend that may be another one (its start can't be seen) counts as there, and is not ended.
_LOOK_FOR = f"""FROM pg_stat_activity WHERE pid = %(pid)s AND pid <> pg_backend_pid()
    AND coalesce({_SINCE} = %(since)s, true)"""
_IS_THERE = f"SELECT 1 {_LOOK_FOR}"
_END = f"""SELECT CASE WHEN {_SINCE} = %(since)s AND wait_event IS DISTINCT FROM 'SyncRep'
    THEN pg_terminate_backend(pid) END {_LOOK_FOR}"""
# How often a standby took over before this server came to be; 0 on a standby.
_TIMELINE = """SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE
    ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int END"""


class SilentServerError(psycopg.OperationalError):
    """No answer came in time; the connection was closed."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits for an answer, but not for ever.

    First it asks the server to cancel the statement, which leaves nothing at work that no client
    waits for; then it counts the server as lost. It also notices when the server stopped waiting
    for a standby: that is a mere warning and the commit counts as done, but it is gone if the
    standby takes over now.
    """

    # Seconds without an answer until the statement is cancelled, and until the server is lost.
    cancels_after = inf
    lost_after = inf
    # Whether a commit since this was last reset may be on this server alone.
    unconfirmed = False
    # Whether the server is still at work on a statement that may take it long.
    _is_at_work: Callable[[], bool] | None = None

    def set_limits(self, wait: float) -> Self:
        """From now on: wait for this long, and notice warnings about standbys."""
        self.lost_after = wait + LOST_MARGIN
        self.cancels_after = wait + CANCEL_MARGIN
        self.add_notice_handler(self._notice_warning)
        return self

    def _notice_warning(self, notice: Diagnostic) -> None:
        # By the server's function, which is the same in whatever language it speaks.
        if notice.source_function == _SYNC_REP_WAIT:
            self.unconfirmed = True

    def wait(self, gen: Generator[Any, Any, Result], *args: Any, **options: Any) -> Result:
        try:
            return super().wait(self._limited(gen), *args, **options)
        except SilentServerError:
            self.close()
            raise

    def _limited(self, gen: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        """The same conversation, ended when the server has been silent for too long."""
        heard, has_cancelled = time.monotonic(), False
        try:
            asked = next(gen)
            while True:
                ready = yield asked
                silent = time.monotonic() - heard
                if ready:
                    heard = time.monotonic()
                elif silent > self.lost_after:
                    if self._is_at_work is None or not self._is_at_work():
                        raise SilentServerError(f"no answer for {silent:.0f} seconds")
                    heard = time.monotonic()
                elif silent > self.cancels_after and not has_cancelled:
                    has_cancelled = True
                    with suppress(psycopg.Error):
                        self.cancel_safe(timeout=LOST_MARGIN - CANCEL_MARGIN)
                asked = gen.send(ready)
        except StopIteration as done:
            result: Result = done.value
            return result

    def confirmed(self, statement: str) -> bool:
        """Commit something, and whether a standby has it, and all before it."""
        self.unconfirmed = False
        self.execute(statement)
        return not self.unconfirmed

    @contextmanager
    def without_limit(self, is_at_work: Callable[[], bool]) -> Iterator[None]:
        """For a long statement: the server is lost only when `is_at_work` says that it stopped."""
        before, self.cancels_after = self.cancels_after, inf
        self._is_at_work = is_at_work
        try:
            yield
        finally:
            self.cancels_after, self._is_at_work = before, None


class Address(NamedTuple):
    """Where a ledger is: what libpq needs to connect, and our schema there."""

    parameters: dict[str, Any]
    schema: str

    def __str__(self) -> str:
        known = self.parameters
        user = f"{known['user']}@" if "user" in known else ""
        host = known.get("host") or known.get("hostaddr") or ""
        port = f":{known['port']}" if "port" in known else ""
        return f"postgresql://{user}{host}{port}/{known.get('dbname', '')}?schema={self.schema}"


def public_url(url: str) -> str:
    """The URL of the same ledger without what libpq takes for secret: passwords and keys.

    libpq then looks for a password where it always does: PGPASSWORD, PGPASSFILE, PGSERVICE.
    """
    given, schema = _split(url)
    secret = {option.keyword.decode() for option in Conninfo.parse(b"") if option.dispchar}
    public = {name: value for name, value in given.items() if name not in secret}
    return f"postgresql:///?{urlencode({**public, 'schema': schema}, quote_via=quote)}"


def parse(url: str) -> Address:
    """The address that a URL names; `schema` is ours, everything else is libpq's."""
    given, schema = _split(url)
    return Address({**_DEFAULTS, **given, "client_encoding": "UTF8"}, schema)


def _split(url: str) -> tuple[dict[str, Any], str]:
    """What a URL says to libpq, by name, and the schema that it names."""
    base, _, query = url.partition("?")
    pairs = [pair for pair in query.split("&") if pair]
    schemas = [pair.removeprefix("schema=") for pair in pairs if pair.startswith("schema=")]
    rest = "&".join(pair for pair in pairs if not pair.startswith("schema="))
    schema = unquote(schemas[-1]) if schemas else DEFAULT_SCHEMA
    if not schema or len(schema.encode(errors="replace")) > 63 or not _is_text(schema):
        raise InvalidUrlError("Invalid schema in the URL: expected schema=NAME with 1 to 63 bytes.")
    try:
        given = conninfo_to_dict(f"{base}?{rest}" if rest else base)
        if not all(map(_is_text, (url, *map(str, given.values())))):
            raise ValueError
    except (psycopg.Error, ValueError):
        # Not libpq's own words: they may quote the password.
        raise InvalidUrlError(
            "Invalid PostgreSQL URL: libpq does not understand it. Expected "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME, "
            "with %-escapes for special characters."
        ) from None
    return given, schema


def _is_text(value: str) -> bool:
    """Whether it can be sent to a server: no NUL, no lone surrogates."""
    return "\0" not in value and value == value.encode(errors="replace").decode()


class Session(NamedTuple):
    """A connection, and which backend of which server serves it."""

    db: Connection
    pid: int
    # When the backend started; None if this role may not see it.
    since: str | None
    timeline: int


class Timelines:
    """The newest timeline that a ledger has met: a server on an older one was replaced.

    A promoted standby begins a new timeline. If the server that it replaced comes back, it would
    accept events that are on no other server.
    """

    def __init__(self) -> None:
        self._newest = 0

    def is_outdated(self, session: Session) -> bool:
        """Whether a standby has taken over from the server of this session."""
        return 0 < session.timeline < self._newest

    def admit(self, session: Session, address: Address) -> Session:
        """The session, if its server was not replaced; StoreUnavailableError if it was."""
        if self.is_outdated(session):
            close_quietly(session.db)
            raise StoreUnavailableError(
                f"The server that answers at {address} is on timeline {session.timeline}, and "
                f"this ledger has been used on timeline {self._newest}: a standby took over "
                "since, and the old server came back. Nothing was read or written there. "
                "Shut it down, or make it a standby of the new one (pg_rewind)."
            )
        self._newest = max(self._newest, session.timeline)
        return session


def open_session(address: Address, wait: float) -> Session:
    """A new connection, as durable as the ledger promises whatever the server's defaults."""
    soon = min(LONGEST_CONNECT, max(SHORTEST_CONNECT, ceil(wait)))
    parameters = {"connect_timeout": str(soon), **address.parameters}
    try:
        db = Connection.connect(**parameters, autocommit=True, row_factory=tuple_row)
    except psycopg.Error as error:
        raise _unreachable(address, error) from error
    # To psycopg: the pool keeps this one, so it may end with the process.
    db._pool = None
    db.set_limits(wait)
    try:
        if db.info.server_version < OLDEST_SERVER:
            raise NotALedgerError("A ledger needs PostgreSQL 13 or newer.")
        # 0 would mean "for ever".
        db.execute(_SESSION, (address.schema, f"{max(1, ceil(wait * 1000))}ms"))
        pid, encoding, since = _identity(db)
        timeline = _timeline(db)
        if encoding != "UTF8":
            raise NotALedgerError(
                f"The database's encoding is {encoding}; a ledger needs UTF8. "
                "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0 makes one."
            )
    except psycopg.Error as error:
        db.close()
        raise _unreachable(address, error) from error
    except BaseException:
        db.close()
        raise
    return Session(db, pid, since, timeline)


def _identity(db: Connection) -> tuple[int, str, str | None]:
    cursor = db.execute(_IDENTITY)
    cursor.nextset()
    found = cursor.fetchone()
    assert found is not None
    pid, encoding, since = found
    return pid, encoding, since


def _timeline(db: Connection) -> int:
    try:
        found = db.execute(_TIMELINE).fetchone()
    except (errors.InsufficientPrivilege, errors.FeatureNotSupported, errors.UndefinedFunction):
        return 0  # a server that does not tell
    assert found is not None
    timeline: int = found[0]
    return timeline


def _unreachable(address: Address, error: psycopg.Error) -> StoreUnavailableError:
    text = " ".join(str(error).split())
    password = address.parameters.get("password")
    if password:
        text = text.replace(password, "***")
    return StoreUnavailableError(f"PostgreSQL can't be reached at {address}: {text}")


def reconnect(address: Address, wait: float, within: float | None = None) -> Session:
    """A new connection to a server that was there before, with retries: it may be restarting.

    Args:
        address: Where it is.
        wait: For the connection's own limits.
        within: Seconds to try; `wait` if None.
    """
    deadline, nap = time.monotonic() + (wait if within is None else within), SHORTEST_NAP
    while True:
        try:
            return open_session(address, wait)
        except StoreUnavailableError:
            if time.monotonic() + nap > deadline:
                raise
        time.sleep(nap)
        nap = min(nap * 2, LONGEST_NAP)


def end_backend(lost: Session, db: Connection, wait: float) -> None:
    """End the backend of a lost connection: from then on it can't commit any more.

    One that only waits for a standby has committed; it is left to wait.

    Args:
        lost: The session whose connection was lost.
        db: Another connection to the same server.
        wait: Seconds to wait for the backend to end.
    """
    deadline, nap = time.monotonic() + wait, SHORTEST_NAP
    while True:
        try:
            if not _finds(db, _END, lost):
                return
        except psycopg.Error as error:
            raise unavailable(error, "looking for the lost connection's backend", db) from error
        if time.monotonic() + nap > deadline:
            raise StoreUnavailableError(
                f"The lost connection's backend (process {lost.pid}) is still at work."
            )
        time.sleep(nap)
        nap = min(nap * 2, LONGEST_NAP)


def is_served(address: Address, session: Session, wait: float) -> bool:
    """Whether the server is still at work for a silent session; asked by another connection."""
    try:
        other = open_session(address, wait)
    except StoreUnavailableError:
        return False
    try:
        return _finds(other.db, _IS_THERE, session)
    except psycopg.Error:
        return False
    finally:
        close_quietly(other.db)


def _finds(db: Connection, query: str, session: Session) -> bool:
    with db.transaction():
        db.execute(_AS_ONESELF)
        values = {"pid": session.pid, "since": session.since}
        return db.execute(query, values).fetchone() is not None


def close_quietly(db: Connection) -> None:
    with suppress(psycopg.Error):
        db.close()
