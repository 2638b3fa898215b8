"""Commands that carry runs in and out: `export` and `import`.

Between ledgers as JSON lines with digests, into tests, and from and to what providers' APIs take.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

import click

from turnledger.adapters.cli.exchange.bug_test import write_test
from turnledger.adapters.cli.exchange.transcripts import TOLD, take_transcripts, write_transcripts
from turnledger.adapters.cli.shared.command import command, open_ledger, printer
from turnledger.adapters.cli.shared.files import read_path, written
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import RUN, app_option, file_option, flag
from turnledger.adapters.cli.shared.progress import counting, events_in
from turnledger.adapters.transcripts import FORMATS, Wanted
from turnledger.ledger import ImportReport, NotAnExportError, export_runs, import_runs
from turnledger.ledger.integrity.seal import Seal, read_seal, seal_lines
from turnledger.ledger.integrity.signing import read_public_key


@command(
    without=("output",),
    example="""\
turnledger export 01890a5d-ac96-774b-bcce-b302099a8057 -O run.jsonl
turnledger export --all | turnledger import --db copy.db -
turnledger export --all --seal seal.json -O runs.jsonl
turnledger export --format anthropic 01890a5d-ac96-774b-bcce-b302099a8057 -O body.json
turnledger export 01890a5d-ac96-774b-bcce-b302099a8057 --test tests/test_bug.py --app shop:loop""",
)
@click.argument("runs", type=RUN, nargs=-1, metavar="RUN...")
@flag("--all", "everything", help="The whole ledger.")
@file_option(
    "-O",
    "--output-file",
    exists=False,
    help="Where to write; the file appears when it is complete. Default: stdout.",
)
@file_option(
    "--seal",
    "seal_file",
    exists=True,
    help="Put this seal into the export, for `import` to check. The runs must fit it.",
)
@click.option(
    "--format",
    "wire",
    type=click.Choice(FORMATS),
    help="Write conversations as this provider's API takes them. Default: whole runs.",
)
@click.option(
    "--evaluation",
    metavar="ID",
    help="With --format: this evaluation's conversation. Default: the latest not superseded.",
)
@click.option(
    "--incomplete",
    type=click.Choice(["stub", "skip"]),
    help="With --format: give calls at the end that have no result a stub (the default), "
    "or leave them out.",
)
@click.option(
    "--unsupported-media",
    type=click.Choice(["error", "hint"]),
    help="With --format: refuse media that the format can't take (the default), or write "
    "a line of text for them.",
)
@click.option(
    "--model",
    metavar="NAME",
    help="With --format: the model to name. Default: the one that the run recorded, if any.",
)
@file_option(
    "--test",
    exists=False,
    help="Write a pytest test that runs this one run again on the code of the day, and its "
    "history into histories/ beside it.",
)
@app_option(help="With --test: what builds the loop, as for `turnledger recover`.")
@flag("--force", help="With --test: replace files that are there.")
def export(
    runs: tuple[UUID, ...],
    everything: bool,
    output_file: Path | None,
    seal_file: Path | None,
    wire: str | None,
    test: Path | None,
    app: str | None,
    force: bool,
    **wishes: str | None,
) -> None:
    """Write runs as JSON lines, as requests, or as a test.

    Digests, ancestors and blobs go with them. The same runs give the same bytes, whatever
    ledger they are in: position is left out, since an import gives new ones. -o does
    not apply.

    With --seal, the export carries a seal, the whole of it: it shows the ids of the other
    runs of the ledger too, and nothing else of them. Exits with 5 if the runs don't fit it,
    and with --all also if the seal has a run that the ledger has not.

    With --format, the conversation of a run is written as the body of a request, media
    inside: one document for one run, a line for each of several. Tools are not recorded
    as they were declared, so they are yours to add.

    With --test, a run becomes a test of your code. It is run once, and you are told
    whether it passes now: a bug that is still there may well make it fail. Files that
    are there stay as they are, unless you say --force.
    """
    if bool(runs) == everything:
        raise click.UsageError("Give either runs or --all.")
    given = {name: value for name, value in wishes.items() if value is not None}
    if seal_file is not None and (test is not None or wire is not None):
        raise click.UsageError("--seal goes with whole runs: neither with --format nor --test.")
    if test is not None:
        if len(runs) != 1 or wire is not None or output_file is not None or given:
            raise click.UsageError("--test takes one run, and neither --format nor -O.")
        with open_ledger() as ledger:
            write_test(ledger, runs[0], test, app, force=force)
        return
    if app is not None or force:
        raise click.UsageError(f"--{'force' if app is None else 'app'} goes with --test.")
    if wire is None:
        if given:
            option = next(iter(given)).replace("_", "-")
            raise click.UsageError(f"--{option} goes with --format.")
        _export_runs(None if everything else runs, output_file, seal_file)
        return
    if "evaluation" in given and len(runs) != 1:
        raise click.UsageError("--evaluation is one of a run's: give one run.")
    known: Any = given
    write_transcripts(runs, Wanted(format=wire, **known), output_file)


def _export_runs(
    runs: tuple[UUID, ...] | None, output_file: Path | None, seal_file: Path | None
) -> None:
    stdout = sys.stdout.buffer
    if output_file is None and stdout.isatty():
        raise click.UsageError("An export is not for a terminal: use -O FILE or a pipe.")
    seal = read_seal(read_path(seal_file)) if seal_file is not None else None
    with open_ledger() as ledger:

        def total() -> int | None:
            return events_in(ledger) if runs is None else None

        with counting("exporting", total) as progress:
            totals = written(
                output_file,
                lambda out: export_runs(ledger, out, runs, seal=seal, progress=progress),
            )
    say(f"Exported {totals.runs} runs, {totals.records} records, {totals.blobs} blobs.")
    if seal is not None:
        say(f"With the seal of {seal.sealed_at}, {_signature(seal)}.")


def _signature(seal: Seal) -> str:
    return f"signed with {seal.public_key}" if seal.signed else "NOT SIGNED"


@command(
    "import",
    example="""\
turnledger import run.jsonl --db copy.db
turnledger import run.jsonl --check
turnledger import runs.jsonl --public-key seal.pub --seal-out seal.json
turnledger import --format openai-chat chats.jsonl""",
)
@click.argument("file", type=click.File("rb"))
@flag("--check", help="Check the file and compare it with the ledger, but write nothing.")
@file_option(
    "--public-key",
    exists=True,
    help="The export must carry a seal that is signed with this key (PEM).",
)
@file_option(
    "--seal-out",
    exists=False,
    help="Write the seal that the export carries, to keep it. FILE is never overwritten.",
)
@click.option(
    "--format",
    "wire",
    type=click.Choice(FORMATS),
    help="FILE has transcripts of this provider's API. Default: it is an export.",
)
def import_(
    file: BinaryIO,
    check: bool,
    public_key: Path | None,
    seal_out: Path | None,
    wire: str | None,
) -> None:
    """Take runs from an export, or from transcripts.

    FILE may be - for stdin. Nothing is written before everything is verified.
    Importing again is harmless: what is there is skipped, a run that is shorter here is
    extended, a longer one is left. Exits with 5 if the file is damaged or the ledger
    holds other events under the same ids. The ledger is created if need be. Secrets are
    taken out, and the runs that had some no longer have the digests of the file.

    If the export carries a seal, it is checked: what it has of the file's runs must be
    there, unchanged. Without --public-key that shows that the file is whole, not whose
    it is. What the seal does not know, what grew since, and how many of the sealed runs
    are not in the file, is told.

    With --check, the report says what would be imported, and the ledger must be there;
    --db memory:// checks the file alone.

    With --format, FILE is one JSON document or JSON lines, one transcript a line: a
    request body (with the answer, if it is there) or its list of messages. Each becomes
    a run that can be looked at, forked and exported. What a provider would refuse is
    repaired, what can't be taken over is noted; both are told, -o json tells all.
    """
    if wire is not None:
        if check or public_key is not None or seal_out is not None:
            raise click.UsageError("--check, --public-key and --seal-out are for exports.")
        take_transcripts(file, wire)
        return
    if seal_out is not None and seal_out.exists():
        raise click.UsageError(f"{seal_out} is there already. Name another file for the seal.")
    key = read_public_key(public_key) if public_key is not None else None
    try:
        with open_ledger(create=not check) as ledger, counting("importing", _size(file)) as count:
            report = import_runs(
                ledger,
                file,
                public_key=key,
                sealed=seal_out is not None,
                check=check,
                progress=count,
            )
    except NotAnExportError:
        say(f"If it holds transcripts, say of which API: --format {'|'.join(FORMATS)}.")
        raise
    if seal_out is not None and report.seal is not None:
        lines = seal_lines(report.seal)
        written(seal_out, lambda out: out.writelines(lines))
    _print(report)
    if check:
        say("Only checked: nothing was written.")


def _size(file: BinaryIO) -> int | None:
    """How many bytes will be checked: the file is read twice. None if that can't be known."""
    try:
        return 2 * os.fstat(file.fileno()).st_size if file.seekable() else None
    except (OSError, io.UnsupportedOperation):
        return None


def _print(report: ImportReport) -> None:
    value = {
        name: getattr(report, name)
        for name in ("runs", "records", "imported", "already_there", "blobs", "redacted")
    }
    pairs = [(name.replace("_", " "), str(count)) for name, count in value.items()]
    if report.seal is not None:
        seal = report.seal
        counts = ("sealed_runs", "grown_runs", "unsealed_runs", "missing_runs")
        value |= {name: getattr(report, name) for name in counts}
        pairs += [(name.replace("_", " "), str(getattr(report, name))) for name in counts]
        names = ("sealed_at", "signed", "public_key", "runs", "events")
        value["seal"] = {name: getattr(seal, name) for name in names}
        pairs.append(("seal", f"of {seal.sealed_at}, {_signature(seal)}"))
    value["rechained"] = list(report.rechained)
    out = printer()
    out.one(value, lambda: out.pairs(pairs))
    if report.rechained:
        say("Secrets were taken out. These runs no longer have the digests of the file:")
        for run_id in report.rechained[:TOLD]:
            say(f"  {run_id}")
        if len(report.rechained) > TOLD:
            say(f"  and {len(report.rechained) - TOLD} more: -o json tells all.")
