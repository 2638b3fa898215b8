"""The checks of `doctor`: does the store, as it is set, keep what the ledger promises?

Pure functions over what a store says of itself and what the machine says of its disk. What
only one kind of store has is in `health_files` and `health_postgres`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from turnledger.adapters.cli.maintain.doctor.check import Check, Verdict, number_of, span
from turnledger.adapters.cli.maintain.doctor.postgres import check_postgres
from turnledger.adapters.cli.maintain.doctor.sqlite import check_file, look_at
from turnledger.ledger.errors import IntegrityFailureError, NotALedgerError, TurnledgerError
from turnledger.ledger.events.types import CATALOGUE

SECOND = 1_000_000
# Before and after these a machine's clock is not set: 2024-01-01 and 2100-01-01.
EARLIEST, LATEST = 1_704_067_200 * SECOND, 4_102_444_800 * SECOND
# What clocks may differ by, and a record may be ahead, before it is worth a word.
SKEW, AHEAD = 5 * SECOND, 60 * SECOND


_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def examine(facts: Mapping[str, str], written: int | None, now: int) -> list[Check]:
    """All checks that apply to a store that says this of itself; `now` by this machine's clock."""
    store = facts.get("store", "")
    checks = [_catalogue(written), clock(facts, now)]
    if store == "sqlite":
        checks.extend(check_file(facts, look_at(Path(facts.get("file", ".")))))
    elif store.startswith("postgres"):
        folder = Path(facts.get("data_directory", ""))
        checks.extend(check_postgres(facts, look_at(folder) if _is_here(folder, facts) else None))
    elif store == "memory":
        checks.append(
            Check(
                "durability",
                Verdict.WARN,
                "memory",
                "Everything is gone with this process. Keep runs in a file or PostgreSQL.",
            )
        )
    return checks


def examine_closed(url: str, error: TurnledgerError) -> list[Check]:
    """What can be said of a ledger that can't be opened, or not be read."""
    checks = [Check("opening", Verdict.FAIL, str(error), _advice_on(error))]
    if "://" not in url or url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///")).resolve()
        if not path.exists():
            return [Check("opening", Verdict.FAIL, str(error), _NOT_THERE)]
        facts = {"store": "sqlite", "file": str(path), "locks": f"{path}-locks"}
        checks.extend(check_file(facts, look_at(path)))
    return checks


_NOT_THERE = "Give the ledger's file or URL with --db; the first append makes a new one."
_DAMAGED = (
    "Write nothing more to it. Copy the file with all that lies beside it, then go on from a "
    "backup or an export: what was acknowledged since is in the copy only, as far as it is whole."
)
_UNREACHABLE = (
    "Nothing can be read or written until this is mended. What was acknowledged is where it "
    "was: it does not depend on the ledger being open."
)


def _advice_on(error: TurnledgerError) -> str:
    """Whether the ledger is broken, or only out of reach."""
    cause: BaseException | None = error
    while cause is not None:
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in _BROKEN:
            return _DAMAGED
        cause = cause.__cause__
    return _DAMAGED if isinstance(error, IntegrityFailureError | NotALedgerError) else _UNREACHABLE


def _is_here(folder: Path, facts: Mapping[str, str]) -> bool:
    """Whether the server's folder is one of this machine's: it said where, and it is there."""
    try:
        return "data_directory" in facts and folder.exists()
    except OSError:
        return False


def _catalogue(written: int | None) -> Check:
    found = f"written with {written}, this program knows {CATALOGUE}"
    if written is not None and written > CATALOGUE:
        return Check(
            "event catalogue",
            Verdict.WARN,
            found,
            "A newer turnledger wrote here. Upgrade this one to be able to read all events.",
        )
    return Check("event catalogue", Verdict.OK, found)


def clock(facts: Mapping[str, str], now: int) -> Check:
    """This machine's clock, against sense, the server's clock and the newest record."""
    troubles = list(_clock_troubles(facts, now))
    if not troubles:
        return Check("clock", Verdict.OK, "agrees with the records")
    return Check(
        "clock",
        Verdict.WARN,
        "; ".join(troubles),
        "Set the clocks of all machines that use the ledger by NTP. Nothing is lost: order is "
        "kept by version and position. But times of events, and what is found by time, are wrong.",
    )


def _clock_troubles(facts: Mapping[str, str], now: int) -> Iterator[str]:
    if not EARLIEST < now < LATEST:
        yield "this machine's clock is not set"
    server = number_of(facts, "server_clock")
    if server is not None and abs(server - now) > SKEW:
        word = "behind" if now < server else "ahead of"
        yield f"this machine is {_distance(server, now)} {word} the server"
    newest = number_of(facts, "newest_recorded_at")
    if newest is not None and newest - now > AHEAD:
        yield f"the newest records are {_distance(newest, now)} in the future"


def _distance(one: float, other: float) -> str:
    return span(timedelta(microseconds=abs(one - other)))


__all__ = ["Check", "Verdict", "clock", "examine", "examine_closed"]
