"""The sign of life of an open ledger: a lock that others see for as long as it lives."""

from __future__ import annotations

from contextlib import suppress
from select import POLLIN, poll
from uuid import uuid4

import psycopg

from turnledger.ledger.stores.postgres.connection import (
    Address,
    Connection,
    Session,
    Timelines,
    close_quietly,
    end_backend,
    reconnect,
)
from turnledger.ledger.stores.postgres.errors import unavailable


class LivenessLock:
    """An advisory lock that lasts as long as its connection: others see when it is gone.

    The key stays the same when the connection has to be made again.
    """

    def __init__(self, address: Address, wait: float, timelines: Timelines) -> None:
        self._address = address
        self._wait = wait
        self._timelines = timelines
        self._key = uuid4().int >> 65
        self._session: Session | None = None

    @property
    def name(self) -> str:
        return f"lock-{self._key}"

    @property
    def is_given(self) -> bool:
        return self._session is not None

    def is_in_doubt(self) -> bool:
        """Whether its connection is gone, or the server has said something there unasked.

        That costs no round trip, and misses a peer that vanished without a word.
        """
        session = self._session
        if session is None or session.db.closed or self._timelines.is_outdated(session):
            return True
        said = poll()
        try:
            said.register(session.db.fileno(), POLLIN)
        except psycopg.Error:
            return True
        return bool(said.poll(0))

    def renew(self, within: float | None = None) -> None:
        """Give the sign, again if the connection that gave it was lost."""
        lost = self._session
        if lost is not None:
            if not self._timelines.is_outdated(lost):
                with suppress(psycopg.Error):
                    lost.db.execute("SELECT 1")
                    return
            close_quietly(lost.db)
        new = reconnect(self._address, self._wait, within)
        session = self._timelines.admit(new, self._address)
        try:
            if lost is not None:
                end_backend(lost, session.db, self._wait)
            session.db.execute("SET tcp_keepalives_idle = 30")
            session.db.execute("SET tcp_keepalives_interval = 10")
            if session.db.info.server_version >= 140000:
                session.db.execute("SET idle_session_timeout = 0")
            session.db.execute("SELECT pg_advisory_lock(%s)", (self._key,))
        except psycopg.Error as error:
            session.db.close()
            raise unavailable(error, "giving a sign of life") from error
        except BaseException:
            session.db.close()
            raise
        self._session = session

    def disconnect(self) -> None:
        """Give the connection up; the next renewal makes another."""
        if self._session is not None:
            close_quietly(self._session.db)

    def close(self) -> None:
        if self._session is None:
            return
        # The server takes its time to notice that a connection is gone: say it.
        with suppress(psycopg.Error):
            self._session.db.execute("SELECT pg_advisory_unlock(%s)", (self._key,))
        close_quietly(self._session.db)

    def connections(self) -> list[Connection]:
        return [self._session.db] if self._session is not None else []


def key_of(holder: str) -> int | None:
    """The advisory lock that a life sign's name means; None if it is no such name."""
    number = holder.removeprefix("lock-")
    return int(number) if number != holder and number.isdecimal() else None
