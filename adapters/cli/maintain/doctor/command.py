"""The command `doctor`."""

from __future__ import annotations

from turnledger.adapters.cli.maintain.doctor.check import readable
from turnledger.adapters.cli.maintain.doctor.checks import Check, Verdict, examine, examine_closed
from turnledger.adapters.cli.shared.command import (
    command,
    finish,
    ledger_url,
    open_ledger,
    printer,
)
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.output import Format
from turnledger.ledger import (
    IntegrityFailureError,
    NotALedgerError,
    StoreUnavailableError,
    SystemClock,
)


@command(example="turnledger doctor --db postgresql://localhost/agents")
def doctor() -> None:
    """Check that the store keeps what is promised.

    Shows its settings. Each check is ok, warn or fail, with what to do. Exits with 1 if one fails.
    A ledger that can't be opened is a check that failed.
    """
    facts, checks = _look()
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


def _look() -> tuple[dict[str, str], list[Check]]:
    try:
        with open_ledger() as ledger:
            facts = ledger.store.facts()
            written = ledger.store.written_catalogue()
    except (StoreUnavailableError, NotALedgerError, IntegrityFailureError) as error:
        checks = examine_closed(ledger_url(), error)
        if len(checks) == 1 and "://" not in ledger_url() and printer().form is Format.TABLE:
            raise  # There is no file: nothing to make a table of.
        return {}, checks
    return readable(facts), examine(facts, written, SystemClock().micros())
