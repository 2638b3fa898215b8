"""The command `backup`: the whole ledger in one file, while others write."""

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
@flag("--force", help="Replace FILE if it is there.")
@flag(
    "--no-verify",
    help="Do not verify the copy: quick, and takes a damaged SQLite ledger as it is.",
)
def backup(file: Path, force: bool, no_verify: bool) -> None:
    """Copy the whole ledger into FILE, while others write.

    FILE is a SQLite ledger, whatever store the ledger is in: every command works on it with
    --db. It holds the ledger as it stood at one moment, with everything that was
    acknowledged before, and appears when it is complete, verified and on disk. Writers are
    not held up. Leases are not copied: nobody works on a copy.

    Exits with 5 if something is not as it was recorded; there is no FILE then.
    """
    with open_ledger() as ledger, bar("copying") as progress:
        report = back_up(ledger, file, overwrite=force, verify=not no_verify, progress=progress)
    out = printer()
    pairs = msgspec.structs.asdict(report) | {"verified": "yes" if report.verified else "NO"}
    out.one(report, lambda: out.pairs((name, str(value)) for name, value in pairs.items()))
