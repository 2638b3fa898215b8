"""Commands `verify`, `rebuild-index` and `rebase`."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import click

from turnledger.adapters.cli.shared.command import command, finish, open_ledger, printer
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.files import read_path
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import (
    RUN,
    file_option,
    flag,
    optional_run_argument,
)
from turnledger.adapters.cli.shared.progress import verifying
from turnledger.ledger import Report
from turnledger.ledger.integrity.seal import Seal, check_seal, read_seal
from turnledger.ledger.integrity.signing import read_public_key


@command(
    example="""\
turnledger verify
turnledger verify 099a8057 -o json
turnledger verify --seal seal.json --public-key seal.pub""",
)
@optional_run_argument
@flag("--all", "everything", help="All runs and blobs. The default.")
@file_option(
    "--seal",
    "seal_file",
    exists=True,
    help="Also check that everything in this seal exists, unchanged.",
)
@file_option(
    "--public-key",
    exists=True,
    help="With --seal: require a signature by this key (PEM). Default: the key in the seal, "
    "which does not prove who made it.",
)
def verify(
    run: UUID | None, everything: bool, seal_file: Path | None, public_key: Path | None
) -> None:
    """Verify the digests of a run or of the whole ledger.

    Recomputes the digests of RUN and its ancestors, or of all runs and blobs. Names the first
    bad record of each run, and exits with 5 if there is one.

    With --seal, also finds what digests can't show: a run that was truncated, removed, or
    rewritten with matching digests. Events after the seal are allowed, and so is an imported
    copy, which has other positions: a note says so.
    """
    if run is not None and (everything or seal_file is not None):
        raise click.UsageError(f"Give either RUN or --{'all' if everything else 'seal'}.")
    if public_key is not None and seal_file is None:
        raise click.UsageError("--public-key needs --seal.")
    seal = _read(seal_file, public_key) if seal_file is not None else None
    with open_ledger() as ledger:
        if run is not None:
            report = ledger.verify(run)
        else:
            with verifying(ledger) as progress:
                if seal is not None:
                    report = check_seal(ledger, seal, progress)
                else:
                    report = ledger.verify_all(progress)
    _print(report, seal)
    finish(ExitCode.OK if report.ok else ExitCode.INTEGRITY_FAILURE)


def _read(seal_file: Path, public_key: Path | None) -> Seal:
    key = read_public_key(public_key) if public_key is not None else None
    return read_seal(read_path(seal_file), key)


def _print(report: Report, seal: Seal | None) -> None:
    out = printer()
    counts = {name: getattr(report, name) for name in ("runs", "records", "blobs")}
    value = {"ok": report.ok, **counts, "problems": report.problems}
    pairs = [("verdict", "ok" if report.ok else "FAILED"), *counts.items()]
    if seal is not None:
        names = ("sealed_at", "signed", "public_key", "runs", "events", "position")
        value["seal"] = {name: getattr(seal, name) for name in names}
        value["notes"] = report.notes
        by = f"signed with {seal.public_key}" if seal.signed else "NOT SIGNED"
        pairs.append(("seal", f"of {seal.sealed_at}, {seal.runs} runs, {seal.events} events, {by}"))
    pairs += [("problem", str(p) if p.run_id else p.what) for p in report.problems]
    pairs += [("note", note) for note in report.notes]
    out.one(value, lambda: out.pairs(pairs))


@command(
    "rebuild-index",
    example="""\
turnledger rebuild-index --db runs.db
turnledger rebuild-index --accept-loss 099a8057""",
)
@click.option(
    "--accept-loss",
    type=RUN,
    multiple=True,
    metavar="RUN",
    help="Give up the lost records of this run, and park it. May be repeated.",
)
def rebuild_index(accept_loss: tuple[UUID, ...]) -> None:
    """Rebuild the run index from the events.

    The index serves `runs` and the heads of runs, and is derived from the events. Needed only
    if `verify` reports that it is wrong.

    A row that names later records than there are shows that records were lost. It is left as it
    is and named, and the exit code is 5. With --accept-loss it is lowered to the records that
    there are, and the run is parked with a note of what is missing: nothing recovers it by
    itself, and a person forks or abandons it.
    """
    with open_ledger() as ledger:
        count = ledger.rebuild_index(accept_loss)
    out = printer()
    out.one({"runs": count}, lambda: out.pairs([("runs", count)]))
    say("The run index was rebuilt from the events.")


@command(example="turnledger rebase --db postgresql://me@db.example/runs")
def rebase() -> None:
    """Allow appending again after restoring a PostgreSQL dump.

    Positions follow the server's transaction numbers, and a new server counts from the
    beginning. Appends are refused until this has run once. Safe to run when not needed.
    """
    with open_ledger() as ledger:
        needed = ledger.rebase()
    out = printer()
    out.one({"rebased": needed}, lambda: out.pairs([("rebased", "yes" if needed else "no")]))
    say("New positions follow the stored ones." if needed else "Not needed: nothing was changed.")
