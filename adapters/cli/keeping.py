"""Commands that keep a ledger well: `verify`, `doctor`, `rebuild-index` and `rebase`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from adapters.cli.exit_codes import ExitCode
from adapters.cli.health import Verdict, examine
from adapters.cli.invocation import LedgerCommand, finish, open_ledger, printer
from adapters.cli.output import console_on, say
from adapters.cli.parameters import RUN
from ledger import Ledger, Report
from ledger.verifying import every_run


@click.command(
    cls=LedgerCommand,
    example="""\
turnledger verify
turnledger verify 01890a5d-ac96-774b-bcce-b302099a8057 -o json""",
)
@click.argument("run", type=RUN, required=False)
@click.option("--all", "everything", is_flag=True, help="Every run and blob. The default.")
def verify(run: UUID | None, everything: bool) -> None:
    """Recompute digests: is everything as it was recorded?

    Checks RUN and what it descends from, or the whole ledger. Names the first bad
    record of each run, and exits with 5 if there is one.
    """
    if run is not None and everything:
        raise click.UsageError("Give either a run or --all.")
    with open_ledger() as ledger:
        if run is not None:
            report = ledger.verify(run)
        else:
            with _progress(ledger) as progress:
                report = ledger.verify_all(progress)
    _print(report)
    finish(ExitCode.OK if report.ok else ExitCode.INTEGRITY_FAILURE)


def _print(report: Report) -> None:
    out = printer()
    value = {
        "ok": report.ok,
        "runs": report.runs,
        "records": report.records,
        "blobs": report.blobs,
        "problems": report.problems,
    }

    def table() -> None:
        out.pairs(
            [
                ("verdict", "ok" if report.ok else "NOT as recorded"),
                ("runs", str(report.runs)),
                ("records", str(report.records)),
                ("blobs", str(report.blobs)),
                *(("problem", str(problem)) for problem in report.problems),
            ]
        )

    out.one(value, table)


@contextmanager
def _progress(ledger: Ledger) -> Iterator[Callable[[int], None] | None]:
    """A bar on stderr for a person to watch; nothing for a program."""
    if not sys.stderr.isatty():
        yield None
        return
    total = sum(row.version - row.parent_version for row in every_run(ledger.store))
    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console_on(sys.stderr), transient=True) as bar:
        task = bar.add_task("verifying", total=total)
        yield lambda records: bar.update(task, completed=records)


@click.command(cls=LedgerCommand, example="turnledger doctor --db postgresql://localhost/agents")
def doctor() -> None:
    """Check that the store keeps what is promised.

    Shows its settings. Each check is ok, warn or fail, with what to do. Exits with 1 if one fails.
    """
    with open_ledger() as ledger:
        facts = ledger.store.facts()
        checks = examine(facts, ledger.store.written_catalogue())
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


@click.command("rebuild-index", cls=LedgerCommand, example="turnledger rebuild-index --db runs.db")
def rebuild_index() -> None:
    """Fold the run index again from the events.

    The index serves listing and heads; no fact lives there alone. Needed only if
    `verify` says that the index is wrong.
    """
    with open_ledger() as ledger:
        count = ledger.rebuild_index()
    out = printer()
    out.one({"runs": count}, lambda: out.pairs([("runs", str(count))]))
    say("The run index was rebuilt from the events.")


@click.command(cls=LedgerCommand, example="turnledger rebase --db postgresql://me@db.example/runs")
def rebase() -> None:
    """Allow appending again after restoring a PostgreSQL dump.

    Positions follow the server's transaction numbers, and a new server counts from the
    beginning. Appends are refused until this has run once. Harmless where it isn't needed.
    """
    with open_ledger() as ledger:
        needed = ledger.rebase()
    out = printer()
    out.one({"rebased": needed}, lambda: out.pairs([("rebased", "yes" if needed else "no")]))
    say("New positions follow the stored ones." if needed else "There was nothing to do.")
