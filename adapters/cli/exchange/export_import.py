"""Commands `export` and `import`: JSON lines with digests, tests, and transcripts of APIs."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

import click
import msgspec

from turnledger.adapters.cli.exchange.bug_test import write_test
from turnledger.adapters.cli.exchange.transcripts import (
    say_some,
    take_transcripts,
    write_transcripts,
)
from turnledger.adapters.cli.shared.command import (
    command,
    finish,
    is_served,
    open_ledger,
    printer,
    report,
)
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.files import read_path, written
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import RUN, app_option, file_option, flag
from turnledger.adapters.cli.shared.progress import counting, events_in
from turnledger.adapters.transcripts import FORMATS, Wanted
from turnledger.ledger import ImportReport, Ledger, NotAnExportError, export_runs, import_runs
from turnledger.ledger.integrity.seal import Seal, read_seal, seal_lines
from turnledger.ledger.integrity.signing import read_public_key

# The format of OpenTelemetry's spans.
OTLP = "otlp"


@command(
    example="""\
turnledger export 099a8057 -O run.jsonl
turnledger export --all | turnledger import --db copy.db -
turnledger export --all --seal seal.json -O runs.jsonl
turnledger export --format anthropic 099a8057 -O body.json
turnledger export --format otlp 099a8057 -O spans.json
turnledger export 099a8057 --test tests/test_bug.py --app shop:loop""",
)
@click.argument("runs", type=RUN, nargs=-1, metavar="RUN...")
@flag("--all", "everything", help="All runs of the ledger.")
@file_option(
    "-O",
    "--output-file",
    exists=False,
    help="Output file, written atomically. Default: stdout.",
)
@file_option(
    "--seal",
    "seal_file",
    exists=True,
    help="Include this seal, for `import` to check. The runs must match it.",
)
@click.option(
    "--format",
    "wire",
    type=click.Choice((*FORMATS, OTLP)),
    help="Write conversations as requests of this API, or runs as OpenTelemetry spans (otlp). "
    "Default: whole runs.",
)
@click.option(
    "--evaluation",
    metavar="ID",
    help="With --format: conversation of this evaluation. Default: the latest not superseded.",
)
@click.option(
    "--incomplete",
    type=click.Choice(["stub", "skip"]),
    help="With --format: give calls without a result at the end a stub result (the default), "
    "or leave them out.",
)
@click.option(
    "--unsupported-media",
    type=click.Choice(["error", "hint"]),
    help="With --format: refuse media that the API does not support (the default), or write "
    "a line of text instead.",
)
@click.option(
    "--model",
    metavar="NAME",
    help="With --format: model of the request. Default: the recorded one, if any.",
)
@flag(
    "--with-content",
    help="With --format otlp: add messages, arguments, results and notes to the spans.",
)
@file_option(
    "--test",
    exists=False,
    help="Write a pytest test that replays this run on your code, and the run's history into "
    "histories/ beside it.",
)
@app_option(
    help="With --test: your agent, workflow or loop, as for `turnledger recover`; for a block its "
    "script, as in shop.py."
)
@flag("--force", help="With --test: overwrite existing files.")
def export(
    runs: tuple[UUID, ...],
    everything: bool,
    output_file: Path | None,
    seal_file: Path | None,
    wire: str | None,
    with_content: bool,
    test: Path | None,
    app: str | None,
    force: bool,
    **wishes: str | None,
) -> None:
    """Export runs as JSON lines, provider requests, spans or a test.

    An export includes digests, ancestors and blobs. The same runs give the same bytes from
    any ledger: positions are left out, since an import assigns new ones. With -o json the
    summary on stderr is JSON.

    With --seal, the export contains the whole seal, including the ids of the ledger's other
    runs, and nothing else of them. Exits with 5 if the runs don't match it, and with --all
    also if the seal has a run that the ledger does not have.

    With --all and no seal, damaged runs and those that start from them are left out and named,
    and the exit code is 5.

    With --format, a run's conversation is written as a request body, with its media: one
    document for one run, one line each for several. Tool declarations are not recorded: add
    them yourself.

    With --format otlp, runs are written as OpenTelemetry spans in OTLP/JSON, as a collector
    takes them: one document for one run, one line each for several. Spans that have not ended
    are left out. The ids follow from runs and versions: a second export is the same.

    With --test, the run becomes a test of your code. The test is run once, and the result is
    printed: a bug that is still there may make it fail. Existing files are not overwritten
    without --force.
    """
    if bool(runs) == everything:
        raise click.UsageError("Give either RUN or --all.")
    given = {name: value for name, value in wishes.items() if value is not None}
    if seal_file is not None and (test is not None or wire is not None):
        raise click.UsageError("--seal can't be combined with --format or --test.")
    if with_content and wire != OTLP:
        raise click.UsageError("--with-content needs --format otlp.")
    if test is not None:
        if len(runs) != 1 or wire is not None or output_file is not None or given:
            raise click.UsageError(
                "--test takes one run, and can't be combined with --format or -O."
            )
        with open_ledger() as ledger:
            write_test(ledger, runs[0], test, app, force=force)
        return
    if app is not None or force:
        raise click.UsageError(f"--{'force' if app is None else 'app'} needs --test.")
    if wire == OTLP:
        if given:
            option = next(iter(given)).replace("_", "-")
            raise click.UsageError(f"--{option} can't be combined with --format otlp.")
        from turnledger.adapters.cli.exchange.spans import write_spans  # needs an extra

        write_spans(runs, output_file, content=with_content)
        return
    if wire is None:
        if given:
            option = next(iter(given)).replace("_", "-")
            raise click.UsageError(f"--{option} needs --format.")
        _export_runs(None if everything else runs, output_file, seal_file)
        return
    if "evaluation" in given and len(runs) != 1:
        raise click.UsageError("--evaluation needs exactly one run.")
    known: Any = given
    write_transcripts(runs, Wanted(format=wire, **known), output_file)


def _export_runs(
    runs: tuple[UUID, ...] | None, output_file: Path | None, seal_file: Path | None
) -> None:
    stdout = sys.stdout.buffer
    if output_file is None and stdout.isatty():
        raise click.UsageError("Exports are not printed on a terminal: use -O FILE or a pipe.")
    seal = read_seal(read_path(seal_file)) if seal_file is not None else None
    skipped = SkippedRuns() if runs is None else None
    with open_ledger() as ledger:

        def total() -> int | None:
            return events_in(ledger) if runs is None else None

        with counting("exporting", total) as progress:
            totals = written(
                output_file,
                lambda out: export_runs(
                    ledger, out, runs, seal=seal, progress=progress, on_damage=skipped
                ),
            )
    text = f"Exported {totals.runs} runs, {totals.records} records, {totals.blobs} blobs."
    if seal is not None:
        text += f"\nWith the seal of {seal.sealed_at}, {_signature(seal)}."
    counts = {name: getattr(totals, name) for name in ("runs", "records", "blobs")}
    report(text, {**counts, "sealed_at": seal and seal.sealed_at})
    finish(skipped.code if skipped is not None else ExitCode.OK)


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
@flag("--check", help="Verify the file and compare it with the ledger; write nothing.")
@file_option(
    "--public-key",
    exists=True,
    help="Require a seal in the export that is signed with this key (PEM).",
)
@file_option(
    "--seal-out",
    exists=False,
    help="Write the export's seal to FILE, which must not exist.",
)
@click.option(
    "--format",
    "wire",
    type=click.Choice(FORMATS),
    help="FILE holds transcripts of this API. Default: an export.",
)
def import_(
    file: BinaryIO,
    check: bool,
    public_key: Path | None,
    seal_out: Path | None,
    wire: str | None,
) -> None:
    """Import runs from an export or from transcripts.

    FILE may be - for stdin. Everything is verified before anything is written. Importing
    again is safe: existing events are skipped, a run that is shorter in the ledger is
    extended, a longer one is left. Exits with 5 if the file is damaged, or the ledger has
    other events under the same ids. The ledger is created if it does not exist. Secrets are
    masked, and the digests of the runs that had some then differ from the file's. With --db of
    a server, the token needs the role admin, and --public-key and --seal-out can't be used.

    A seal in the export is checked: the events that it seals must be in the file, unchanged.
    Without --public-key this shows that the file is complete, not who made it. The report
    counts runs that are not sealed, that grew since, and sealed runs missing in the file.

    With --check, the report says what would be imported, and the ledger must exist;
    --db memory:// checks the file alone.

    With --format, FILE is one JSON document or JSON lines, one transcript each: a request
    body (with the response, if there is one) or its list of messages. Each becomes a run that
    can be inspected, forked and exported. What a provider would refuse is repaired, what
    can't be imported is noted; both are printed, and listed in full with -o json.
    """
    if wire is not None:
        if check or public_key is not None or seal_out is not None:
            raise click.UsageError(
                "--format can't be combined with --check, --public-key or --seal-out."
            )
        take_transcripts(file, wire)
        return
    if seal_out is not None and seal_out.exists():
        raise click.UsageError(f"{seal_out} exists. Name another file for the seal.")
    key = read_public_key(public_key) if public_key is not None else None
    try:
        with open_ledger(create=not check) as ledger, counting("importing", _size(file)) as count:
            if is_served(ledger.url) and not (check or key or seal_out):
                _print(_served_import(ledger, file))
                return
            report = import_runs(
                ledger,
                file,
                public_key=key,
                sealed=seal_out is not None,
                check=check,
                progress=count,
            )
    except NotAnExportError:
        say(f"For transcripts, name their API: --format {'|'.join(FORMATS)}.")
        raise
    if seal_out is not None and report.seal is not None:
        lines = seal_lines(report.seal)
        written(seal_out, lambda out: out.writelines(lines))
    _print(report)
    if check:
        say("Checked only: nothing was written.")


def _served_import(ledger: Ledger, file: BinaryIO) -> ImportReport:
    """Have a server import a file."""
    from turnledger.adapters.http import LedgerClient

    assert isinstance(ledger, LedgerClient)
    return msgspec.convert(msgspec.structs.asdict(ledger.import_runs(file)), ImportReport)


def _size(file: BinaryIO) -> int | None:
    """How many bytes will be read: the file is read twice. None if its size is unknown."""
    try:
        return 2 * os.fstat(file.fileno()).st_size if file.seekable() else None
    except (OSError, io.UnsupportedOperation):
        return None


def _print(report: ImportReport) -> None:
    counts = ["runs", "records", "imported", "already_there", "blobs", "redacted"]
    if report.seal is not None:
        counts += ["sealed_runs", "grown_runs", "unsealed_runs", "missing_runs"]
    value = {name: getattr(report, name) for name in counts}
    pairs = [(name.replace("_", " "), count) for name, count in value.items()]
    if report.seal is not None:
        seal = report.seal
        names = ("sealed_at", "signed", "public_key", "runs", "events")
        value["seal"] = {name: getattr(seal, name) for name in names}
        pairs.append(("seal", f"of {seal.sealed_at}, {_signature(seal)}"))
    value["rechained"] = list(report.rechained)
    out = printer()
    out.one(value, lambda: out.pairs(pairs))
    if report.rechained:
        heading = "Secrets were masked. The digests of these runs differ from the file's:"
        say_some(heading, report.rechained)
