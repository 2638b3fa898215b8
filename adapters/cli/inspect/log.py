"""Commands that read records: `log`, `show` and `tail`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from fnmatch import fnmatchcase
from uuid import UUID

import click

from turnledger.adapters.cli.inspect.log_following import follow_run, until_stopped
from turnledger.adapters.cli.inspect.runs import show_run
from turnledger.adapters.cli.shared.command import LedgerCommand, open_ledger, printer
from turnledger.adapters.cli.shared.output import Format, Printer, RecordView, view_of
from turnledger.adapters.cli.shared.parameters import RUN, TYPE
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import Record

# How much of an event a line shows where no screen sets the width.
LINE_WIDTH = 240

_types = click.option(
    "--type",
    "types",
    type=TYPE,
    multiple=True,
    metavar="TYPE",
    help="Only events of this type, or of types like `tool_call.*`. May be repeated.",
)
_follow = click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Go on with what is recorded from now on, by any process, until Ctrl-C.",
)


@click.command(
    cls=LedgerCommand,
    example="""\
turnledger log 01890a5d-ac96-774b-bcce-b302099a8057 --type 'tool_call.*'
turnledger log 01890a5d-ac96-774b-bcce-b302099a8057 -f -o jsonl""",
)
@click.argument("run", type=RUN)
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="N", help="Only versions above N."
)
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="Only versions up to N.")
@_types
@click.option("--reverse", is_flag=True, help="The last event first.")
@_follow
def log(
    run: UUID, after: int, until: int | None, types: tuple[str, ...], reverse: bool, follow: bool
) -> None:
    """Print a run's records.

    Those that it shares with its parents are included. With -f and --until it ends when
    that version is there.
    """
    out = printer()
    _check_follow(out, follow)
    if follow and reverse:
        raise click.UsageError("--follow and --reverse exclude each other.")
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger())
        if follow:
            ledger.run(run)
            stop = stack.enter_context(until_stopped())
            records = follow_run(ledger, run, after, until, stop)
        else:
            records = ledger.read(run, after, until, backwards=reverse)
        out.many(_views(records, types), lambda v: _line(v, whole_ledger=False), flush=follow)


@click.command(cls=LedgerCommand, example="turnledger tail -f -o jsonl --type run.completed")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    metavar="POSITION",
    help="Only records after this position. Default: from the beginning.",
)
@_types
@_follow
def tail(after: int, types: tuple[str, ...], follow: bool) -> None:
    """Print all runs' records, in the ledger's order."""
    out = printer()
    _check_follow(out, follow)
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger())
        stop = stack.enter_context(until_stopped()) if follow else None
        records = ledger.tail(after, follow=follow, stop=stop)
        out.many(_views(records, types), lambda v: _line(v, whole_ledger=True), flush=follow)


@click.command(
    cls=LedgerCommand,
    example="""\
turnledger show 01890a5d-ac96-774b-bcce-b302099a8057
turnledger show 01890a5d-ac96-774b-bcce-b302099a8057 3""",
)
@click.argument("run", type=RUN)
@click.argument("version", type=click.IntRange(min=1), required=False)
def show(run: UUID, version: int | None) -> None:
    """Show a run or, with VERSION, a record in full."""
    with open_ledger() as ledger:
        if version is None:
            show_run(ledger, run, printer())
        else:
            printer().pretty(view_of(ledger.record(run, version)))


def _check_follow(out: Printer, follow: bool) -> None:
    if follow and out.form is Format.JSON:
        raise click.UsageError("A JSON array never ends with --follow: use -o jsonl.")


def _views(records: Iterable[Record], types: tuple[str, ...]) -> Iterator[RecordView]:
    for record in records:
        if not types or any(fnmatchcase(record.tag, pattern) for pattern in types):
            yield view_of(record)


def _line(view: RecordView, *, whole_ledger: bool) -> str:
    """A record on one line, its data cut to what fits."""
    place = f"{view.position:>8}  {view.run_id}  " if whole_ledger else ""
    text = f"{place}{view.version:>6}  {view.recorded_at}  {visible(view.type):<22}  "
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else LINE_WIDTH
    room = max(width - len(text), 20)
    # Cut before and after: what is written out may be longer than it was.
    data = visible(bytes(view.data)[: room * 4].decode("utf-8", "ignore"))
    return text + (data if len(data) <= room else data[: room - 1] + "…")
