"""The command `doctor`: judges a ledger's store, or what is left of it when it can't be opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from turnledger.adapters.cli.maintain.doctor.place import Place, look_at
from turnledger.adapters.cli.maintain.doctor.postgres import SERVER_RULES
from turnledger.adapters.cli.maintain.doctor.rules import (
    STORE_RULES,
    Check,
    Subject,
    Verdict,
    judge,
)
from turnledger.adapters.cli.maintain.doctor.sqlite import FILE_RULES, SETTINGS_RULES
from turnledger.adapters.cli.shared.command import command, finish, ledger_url, open_ledger, printer
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.output import Format
from turnledger.ledger import (
    IntegrityFailureError,
    NotALedgerError,
    StoreUnavailableError,
    SystemClock,
    TurnledgerError,
)
from turnledger.ledger.clock import to_datetime
from turnledger.ledger.stores.open import split_sqlite

# Facts that are times, in microseconds since 1970.
TIMES = ("newest_recorded_at", "server_clock")
DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
NOT_THERE = "Give the ledger's file or URL with --db; the first append creates a new ledger."
DAMAGED = (
    "Write nothing more to it. Copy the file with the files beside it, then continue from a "
    "backup or an export: events acknowledged since are in the copy only, as far as it is whole."
)
UNREACHABLE = (
    "Nothing can be read or written until this is fixed. Acknowledged events are not affected: "
    "they do not depend on the ledger being open."
)


@command(example="turnledger doctor --db postgresql://localhost/agents")
def doctor() -> None:
    """Check the store's settings, disk and durability.

    Prints the settings, and a verdict (ok, warn or fail) with advice for each check. Exits with
    1 if a check fails. A ledger that can't be opened is a failed check.
    """
    facts, checks = _examined()
    out = printer()

    def table() -> None:
        out.pairs(facts.items())
        out.line("")
        out.rows(
            ("check", "verdict", "found", "what to do"),
            ((c.name, c.verdict.value, c.found, c.advice) for c in checks),
        )

    out.one({"facts": facts, "checks": checks}, table)
    failed = any(check.verdict is Verdict.FAIL for check in checks)
    finish(ExitCode.ERROR if failed else ExitCode.OK)


def _examined() -> tuple[dict[str, str], list[Check]]:
    try:
        with open_ledger() as ledger:
            facts = ledger.store.diagnostics()
            written = ledger.store.written_catalogue()
    except (StoreUnavailableError, NotALedgerError, IntegrityFailureError) as error:
        checks = examine_closed(ledger_url(), error)
        if len(checks) == 1 and "://" not in ledger_url() and printer().form is Format.TABLE:
            raise  # There is no file: nothing to make a table of.
        return {}, checks
    return readable(facts), examine(facts, written, SystemClock().micros())


def examine(facts: Mapping[str, str], written: int | None, now: int) -> list[Check]:
    """All checks that apply to a store.

    Args:
        facts: What the store reports of itself.
        written: The newest event catalogue that was written with.
        now: This machine's clock, in microseconds.
    """
    store = facts.get("store", "")
    rules, place = STORE_RULES, None
    if store == "sqlite":
        rules, place = (*rules, *SETTINGS_RULES, *FILE_RULES), look_at(Path(facts.get("file", ".")))
    elif store.startswith("postgres"):
        rules, place = (*rules, *SERVER_RULES), _server_place(facts)
    return judge(rules, Subject(facts, place, now, written))


def _server_place(facts: Mapping[str, str]) -> Place | None:
    """The server's folder, if it is on this machine."""
    folder = Path(facts.get("data_directory", ""))
    with suppress(OSError):
        return look_at(folder) if "data_directory" in facts and folder.exists() else None
    return None


def examine_closed(url: str, error: TurnledgerError) -> list[Check]:
    """The checks that apply to a ledger that can't be opened, or can't be read."""
    checks = [
        Check("opening", Verdict.FAIL, str(error), DAMAGED if _is_damage(error) else UNREACHABLE)
    ]
    if "://" not in url or url.startswith("sqlite:///"):
        path = Path(split_sqlite(url)[0]).resolve()
        if not path.exists():
            return [Check("opening", Verdict.FAIL, str(error), NOT_THERE)]
        facts = {"store": "sqlite", "file": str(path), "locks": f"{path}-locks"}
        checks.extend(judge(FILE_RULES, Subject(facts, look_at(path))))
    return checks


def _is_damage(error: TurnledgerError) -> bool:
    """Whether the ledger is damaged, not only out of reach."""
    cause: BaseException | None = error
    while cause is not None:
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in DAMAGE_CODES:
            return True
        cause = cause.__cause__
    return isinstance(error, IntegrityFailureError | NotALedgerError)


def readable(facts: Mapping[str, str]) -> dict[str, str]:
    """Facts for people: times as dates, where they are times of a year that a date can have."""
    shown = dict(facts)
    for name in TIMES:
        micros = Subject(facts).number(name)
        if micros is not None:
            with suppress(OverflowError, IntegrityFailureError):
                moment = to_datetime(int(micros)).isoformat(timespec="milliseconds")
                shown[name] = moment if micros else "never"
    return shown
