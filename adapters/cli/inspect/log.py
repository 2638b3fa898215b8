"""Commands `log`, `show` and `tail`: print events, and follow new ones."""

from __future__ import annotations

import select
import signal
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from os import fstat
from threading import Event as Flag
from threading import Thread
from types import FrameType
from uuid import UUID

import click

from turnledger.adapters.cli.inspect.runs import show_run
from turnledger.adapters.cli.shared.command import command, open_ledger, printer, silence_stdout
from turnledger.adapters.cli.shared.output import Format, Printer, line_width, shortened
from turnledger.adapters.cli.shared.parameters import (
    TYPE,
    flag,
    number_from,
    run_argument,
    version_option,
)
from turnledger.adapters.cli.shared.views import RecordView, view_of
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import Ledger, Record

# Seconds between two reads of a followed run, at first and at most.
SHORTEST_NAP, LONGEST_NAP = 0.005, 0.1

_types = click.option(
    "--type",
    "types",
    type=TYPE,
    multiple=True,
    metavar="TYPE",
    help="Only events of this type or pattern (`tool_call.*`). May be repeated.",
)
_follow = flag("-f", "--follow", help="Keep printing new events, of any process, until Ctrl-C.")


@command(
    example="""\
turnledger log 01890a5d-ac96-774b-bcce-b302099a8057 --type 'tool_call.*'
turnledger log 01890a5d-ac96-774b-bcce-b302099a8057 -f -o jsonl""",
)
@run_argument
@version_option("--after", default=0, help="Only versions above N.")
@version_option("--until", help="Only versions up to N.")
@_types
@flag("--reverse", help="Newest event first.")
@_follow
def log(
    run: UUID, after: int, until: int | None, types: tuple[str, ...], reverse: bool, follow: bool
) -> None:
    """Print a run's events.

    A fork's include those that it shares with its parents. With -f and --until the command
    ends when that version is recorded.
    """
    out = printer()
    _check_follow(out, follow)
    if follow and reverse:
        raise click.UsageError("--follow and --reverse can't be combined.")
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger())
        if follow:
            ledger.run(run)
            stop = stack.enter_context(until_stopped())
            records = follow_run(ledger, run, after, until, stop)
        else:
            records = ledger.read(run, after, until, backwards=reverse)
        out.many(_views(records, types), lambda v: _line(v, whole_ledger=False), flush=follow)


@command(example="turnledger tail -f -o jsonl --type run.completed")
@version_option(
    "--after",
    default=0,
    metavar="POSITION",
    help="Only events after this position. Default: from the beginning.",
)
@_types
@_follow
def tail(after: int, types: tuple[str, ...], follow: bool) -> None:
    """Print the events of all runs, in the ledger's order."""
    out = printer()
    _check_follow(out, follow)
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger())
        stop = stack.enter_context(until_stopped()) if follow else None
        records = ledger.tail(after, follow=follow, stop=stop)
        out.many(_views(records, types), lambda v: _line(v, whole_ledger=True), flush=follow)


@command(
    example="""\
turnledger show 01890a5d-ac96-774b-bcce-b302099a8057
turnledger show 01890a5d-ac96-774b-bcce-b302099a8057 3""",
)
@run_argument
@click.argument("version", type=number_from(1), required=False)
def show(run: UUID, version: int | None) -> None:
    """Show a run or, with VERSION, one of its events in full."""
    with open_ledger() as ledger:
        if version is None:
            show_run(ledger, run, printer())
        else:
            printer().pretty(view_of(ledger.record(run, version)))


def _check_follow(out: Printer, follow: bool) -> None:
    if follow and out.form is Format.JSON:
        raise click.UsageError("-o json can't be combined with --follow: use -o jsonl.")


def _views(records: Iterable[Record], types: tuple[str, ...]) -> Iterator[RecordView]:
    for record in records:
        if not types or any(fnmatchcase(record.tag, pattern) for pattern in types):
            yield view_of(record)


def _line(view: RecordView, *, whole_ledger: bool) -> str:
    """A record on one line, its data cut to the line's width."""
    place = f"{view.position:>8}  {view.run_id}  " if whole_ledger else ""
    text = f"{place}{view.version:>6}  {view.recorded_at}  {visible(view.type):<22}  "
    room = max(line_width() - len(text), 20)
    # Cut before and after: sanitizing makes text longer.
    data = visible(bytes(view.data)[: room * 4].decode("utf-8", "ignore"))
    return text + shortened(data, room)


# --- following new events -----------------------------------------------------------


@contextmanager
def until_stopped() -> Iterator[Flag]:
    """A flag that is set on Ctrl-C, on SIGTERM, and when the reader of the pipe has closed it."""
    stop = Flag()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set():  # the second time: it may be stuck in a write
            raise KeyboardInterrupt
        stop.set()

    before = {sig: signal.signal(sig, ask_to_stop) for sig in (signal.SIGINT, signal.SIGTERM)}
    _watch_reader(stop)
    try:
        yield stop
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)


def _watch_reader(stop: Flag) -> None:
    try:
        fd = sys.stdout.fileno()
        mode = fstat(fd).st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return
    poll = select.poll()
    poll.register(fd, 0)  # errors and hang-ups are reported without asking

    def watch() -> None:
        with suppress(OSError):
            poll.poll()
            stop.set()

    Thread(target=watch, name="reader-watch", daemon=True).start()


def follow_run(
    ledger: Ledger, run_id: UUID, after: int, until: int | None, stop: Flag
) -> Iterator[Record]:
    """A run's records as any process appends them; ends after version `until`."""
    nap = SHORTEST_NAP
    while not stop.is_set() and (until is None or after < until):
        seen = after
        for record in ledger.read(run_id, after, until):
            after = record.version
            yield record
            if stop.is_set():
                return
        if after > seen:
            nap = SHORTEST_NAP
        else:
            stop.wait(nap)
            nap = min(nap * 2, LONGEST_NAP)
