"""Scenario: somebody keeps a transaction open while others append and follow."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.crash.processes import Crew, Voice
from turnledger.ledger import ANY, CustomEvent, Ledger, Record

RUN = "00000000-0000-4000-8000-000000000003"


def run(crew: Crew, *, url: str, appends: int) -> dict[str, Any]:
    """What a reader and a follower saw during the transaction, and a follower after it."""
    crew.join(crew.start("opener", _append, url, 0))
    sleeper = crew.start("sleeper", _keep_open, url)
    crew.expect(sleeper, "open")
    follower = crew.start("follower", _follow, url, appends)
    crew.join(crew.start("appender", _append, url, appends))
    reader = crew.start("reader", _read, url)
    read, followed = crew.expect(reader, "saw")
    crew.join(reader)
    sleeper.order("c")
    crew.join(sleeper)
    [seen] = crew.expect(follower, "saw")
    return {"read meanwhile": read, "followed meanwhile": followed, "followed after": seen}


def _append(voice: Voice, url: str, appends: int) -> None:
    with Ledger.open(url) as ledger:
        for number in range(appends):
            ledger.append(RUN, CustomEvent(kind="crash.fact", data=number), ANY)


def _keep_open(voice: Voice, url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT pg_current_xact_id()")
        voice.say("open")
        voice.hear()


def _read(voice: Voice, url: str) -> None:
    with Ledger.open(url) as ledger:
        voice.say("saw", len(list(ledger.read(RUN))), len(list(ledger.tail())))


def _follow(voice: Voice, url: str, records: int) -> None:
    seen = []
    with Ledger.open(url) as ledger:
        for record in ledger.tail(follow=True):
            seen.append(_row(record))
            if len(seen) == records:
                break
    voice.say("saw", seen)


def _row(record: Record) -> list[Any]:
    return [record.position, str(record.run_id), record.version, str(record.event_id)]
