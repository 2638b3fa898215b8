"""Command `backup`: copies the whole ledger into a SQLite file while it is in use."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from turnledger.adapters.cli.shared.command import command, open_ledger, printer
from turnledger.adapters.cli.shared.parameters import flag
from turnledger.adapters.cli.shared.progress import bar
from turnledger.ledger.transfer.backup import back_up


@command(
    example="""\
turnledger backup monday.db
turnledger backup --db postgresql://localhost/agents monday.db
turnledger runs --db monday.db""",
)
@click.argument("file", type=click.Path(path_type=Path))
@flag("--force", help="Overwrite FILE if it exists.")
@flag(
    "--no-verify",
    help="Do not verify the copy: faster, and copies a damaged SQLite ledger as it is.",
)
def backup(file: Path, force: bool, no_verify: bool) -> None:
    """Copy the whole ledger into FILE while it is in use.

    FILE is a SQLite ledger, for every store: all commands work on it with --db. It is a
    snapshot of the ledger with every event acknowledged before, and appears when it is
    complete, verified and on disk. Writers are not blocked. Leases are not copied.

    Exits with 5, and writes no FILE, if the integrity check fails.
    """
    with open_ledger() as ledger, bar("copying") as progress:
        report = back_up(ledger, file, overwrite=force, verify=not no_verify, progress=progress)
    out = printer()
    pairs = msgspec.structs.asdict(report) | {"verified": "yes" if report.verified else "NO"}
    out.one(report, lambda: out.pairs(pairs.items()))
