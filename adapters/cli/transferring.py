"""Commands that carry runs between ledgers: `export` and `import`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import click

from adapters.cli.invocation import LedgerCommand, open_ledger, printer
from adapters.cli.output import say
from adapters.cli.parameters import RUN
from ledger import Ledger, export_runs, import_runs
from ledger.transfer import Totals


@click.command(
    cls=LedgerCommand,
    without=("output",),
    example="""\
turnledger export 01890a5d-ac96-774b-bcce-b302099a8057 -O run.jsonl
turnledger export --all | turnledger import --db copy.db -""",
)
@click.argument("runs", type=RUN, nargs=-1, metavar="RUN...")
@click.option("--all", "everything", is_flag=True, help="The whole ledger.")
@click.option(
    "-O",
    "--output-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write; the file appears when it is complete. Default: stdout.",
)
def export(runs: tuple[UUID, ...], everything: bool, output_file: Path | None) -> None:
    """Write runs as JSON lines, with their digests.

    Their ancestors and blobs go with them. The same runs give the same bytes, whatever
    ledger they are in: position is left out, since an import gives new ones. -o does
    not apply.
    """
    if bool(runs) == everything:
        raise click.UsageError("Give either runs or --all.")
    stdout = sys.stdout.buffer
    if output_file is None and stdout.isatty():
        raise click.UsageError("An export is not for a terminal: use -O FILE or a pipe.")
    chosen = None if everything else runs
    with open_ledger() as ledger:
        if output_file is None:
            totals = export_runs(ledger, stdout, chosen)
            stdout.flush()
        else:
            totals = _export_to(output_file, ledger, chosen)
    say(f"Exported {totals.runs} runs, {totals.records} records, {totals.blobs} blobs.")


def _export_to(path: Path, ledger: Ledger, runs: tuple[UUID, ...] | None) -> Totals:
    """Whole or not at all: a reader never finds half an export under its name."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("xb") as out:
            totals = export_runs(ledger, out, runs)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return totals


@click.command("import", cls=LedgerCommand, example="turnledger import run.jsonl --db copy.db")
@click.argument("file", type=click.File("rb"))
def import_(file: BinaryIO) -> None:
    """Take runs from an export, verified first.

    FILE may be - for stdin. Nothing is written before everything is verified.
    Importing again is harmless: what is there is skipped, a run that is shorter here is
    extended, a longer one is left. Exits with 5 if the file is damaged or the ledger
    holds other events under the same ids. The ledger is created if need be.
    """
    with open_ledger(create=True) as ledger:
        report = import_runs(ledger, file)
    out = printer()

    def table() -> None:
        out.pairs(
            (name.replace("_", " "), str(getattr(report, name)))
            for name in report.__struct_fields__
        )

    out.one(report, table)
