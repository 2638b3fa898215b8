"""Commands that carry runs in and out: `export` and `import`.

Between ledgers as JSON lines with digests, into tests, and from and to what providers' APIs take.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from uuid import UUID

import click

from adapters.cli.bug_tests import write_test
from adapters.cli.exit_codes import ExitCode
from adapters.cli.invocation import LedgerCommand, finish, open_ledger, printer
from adapters.cli.output import Format, pretty_json, say, to_json
from adapters.cli.parameters import RUN
from adapters.transcripts import (
    FORMATS,
    EvaluationNotFoundError,
    ImportedRun,
    NothingSaidError,
    Wanted,
    export_transcript,
    import_transcripts,
    read_transcripts,
)
from ledger import Ledger, NotAnExportError, export_runs, import_runs

T = TypeVar("T")
# How many repairs and notes of a run people are told of.
TOLD = 5


@click.command(
    cls=LedgerCommand,
    without=("output",),
    example="""\
turnledger export 01890a5d-ac96-774b-bcce-b302099a8057 -O run.jsonl
turnledger export --all | turnledger import --db copy.db -
turnledger export --format anthropic 01890a5d-ac96-774b-bcce-b302099a8057 -O body.json
turnledger export 01890a5d-ac96-774b-bcce-b302099a8057 --test tests/test_bug.py --app shop:loop""",
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
@click.option(
    "--test",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a pytest test that runs this one run again on the code of the day, and its "
    "history into histories/ beside it.",
)
@click.option(
    "--app",
    metavar="MODULE:FACTORY",
    help="With --test: what builds the loop, as for `turnledger recover`.",
)
@click.option("--force", is_flag=True, help="With --test: replace files that are there.")
def export(
    runs: tuple[UUID, ...],
    everything: bool,
    output_file: Path | None,
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
        _export_runs(None if everything else runs, output_file)
        return
    if "evaluation" in given and len(runs) != 1:
        raise click.UsageError("--evaluation is one of a run's: give one run.")
    known: Any = given
    _export_transcripts(runs, Wanted(format=wire, **known), output_file)


def _export_runs(runs: tuple[UUID, ...] | None, output_file: Path | None) -> None:
    stdout = sys.stdout.buffer
    if output_file is None and stdout.isatty():
        raise click.UsageError("An export is not for a terminal: use -O FILE or a pipe.")
    with open_ledger() as ledger:
        totals = _written(output_file, lambda out: export_runs(ledger, out, runs))
    say(f"Exported {totals.runs} runs, {totals.records} records, {totals.blobs} blobs.")


def _export_transcripts(runs: tuple[UUID, ...], wanted: Wanted, output_file: Path | None) -> None:
    with open_ledger() as ledger:
        documents = _documents(ledger, runs, wanted)
        encode = pretty_json if len(runs) == 1 else to_json
        try:
            count = _written(output_file, lambda out: _write_lines(out, map(encode, documents)))
        except EvaluationNotFoundError as error:
            say(f"Error: {error}")
            finish(ExitCode.NOT_FOUND)
            return
    say(f"Exported {count} {'conversation' if count == 1 else 'conversations'}.")


def _documents(ledger: Ledger, runs: tuple[UUID, ...], wanted: Wanted) -> Iterator[dict[str, Any]]:
    """Each run's document; where all are meant, those in which nobody speaks are left out."""
    chosen = runs or [info.run_id for info in ledger.runs()][::-1]
    for run in chosen:
        try:
            yield export_transcript(ledger, run, wanted)
        except NothingSaidError:
            if runs:
                raise


def _write_lines(out: BinaryIO, lines: Iterable[bytes]) -> int:
    count = 0
    for line in lines:
        out.write(line + b"\n")
        count += 1
    return count


def _written(path: Path | None, write: Callable[[BinaryIO], T]) -> T:
    """Write to stdout or a file; there, whole or not at all: nobody finds half an export."""
    if path is None:
        result = write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return result
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("xb") as out:
            result = write(out)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return result


@click.command(
    "import",
    cls=LedgerCommand,
    example="""\
turnledger import run.jsonl --db copy.db
turnledger import --format openai-chat chats.jsonl""",
)
@click.argument("file", type=click.File("rb"))
@click.option(
    "--format",
    "wire",
    type=click.Choice(FORMATS),
    help="FILE has transcripts of this provider's API. Default: it is an export.",
)
def import_(file: BinaryIO, wire: str | None) -> None:
    """Take runs from an export, or from transcripts.

    FILE may be - for stdin. Nothing is written before everything is verified.
    Importing again is harmless: what is there is skipped, a run that is shorter here is
    extended, a longer one is left. Exits with 5 if the file is damaged or the ledger
    holds other events under the same ids. The ledger is created if need be.

    With --format, FILE is one JSON document or JSON lines, one transcript a line: a
    request body (with the answer, if it is there) or its list of messages. Each becomes
    a run that can be looked at, forked and exported. What a provider would refuse is
    repaired, what can't be taken over is noted; both are told, -o json tells all.
    """
    if wire is not None:
        _import_transcripts(file, wire)
        return
    try:
        with open_ledger(create=True) as ledger:
            report = import_runs(ledger, file)
    except NotAnExportError:
        say(f"If it holds transcripts, say of which API: --format {'|'.join(FORMATS)}.")
        raise
    out = printer()

    def table() -> None:
        out.pairs(
            (name.replace("_", " "), str(getattr(report, name)))
            for name in report.__struct_fields__
        )

    out.one(report, table)


def _import_transcripts(file: BinaryIO, wire: str) -> None:
    source = "stdin" if file is sys.stdin.buffer or file.name == "<stdin>" else str(file.name)
    plans = read_transcripts(file.read(), wire, source=source)
    with open_ledger(create=True) as ledger:
        imported = import_transcripts(ledger, plans)
    out = printer()
    if out.form is not Format.TABLE:
        out.many(imported, str, flush=False)
        return
    out.rows(
        ("run", "from", "outcome", "turns", "repairs", "notes"),
        (
            (
                str(one.run_id),
                one.place or "the file",
                one.outcome,
                str(one.turns),
                str(len(one.repairs)),
                str(len(one.notes)),
            )
            for one in imported
        ),
    )
    out.flush()
    for one in imported:
        _say_changes(one)


def _say_changes(run: ImportedRun) -> None:
    """What of a transcript is not in its run as it was, in a few lines."""
    counts = Counter((repair.kind, repair.detail) for repair in run.repairs)
    told = [f"{count} x {kind}: {detail}" for (kind, detail), count in counts.items()]
    told += [f"{note.path}: {note.text}" if note.path else note.text for note in run.notes]
    if not told:
        return
    where = f" ({run.place})" if run.place else ""
    say(f"Not in run {run.run_id}{where} as it was:")
    for line in told[:TOLD]:
        say(f"  {line}")
    if len(told) > TOLD:
        say(f"  and {len(told) - TOLD} more: -o json tells all.")
