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
from turnledger.adapters.cli.shared.output import Format, Printer, line_width, short_id
from turnledger.adapters.cli.shared.parameters import (
    TYPE,
    flag,
    number_from,
    run_argument,
    version_option,
)
from turnledger.adapters.cli.shared.table_layout import cell_width, cut
from turnledger.adapters.cli.shared.views import RecordView, view_of
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import Ledger, Record
from turnledger.ledger.errors import DAMAGE

# Seconds between two reads of a followed run, at first and at most.
SHORTEST_NAP, LONGEST_NAP = 0.005, 0.1
# Width of the types of events, and least width of a summary.
WIDEST_TYPE, SHORTEST = 21, 16
# Colours by the first word of a type.
STYLES = {
    "run": "bold blue",
    "evaluation": "blue",
    "message": "cyan",
    "model": "magenta",
    "tool_call": "yellow",
    "approval": "bold yellow",
    "output": "red",
    "checkpoint": "dim",
    "slice": "green",
    "state": "green",
}

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
turnledger log 099a8057 --type 'tool_call.*'
turnledger log 099a8057 -f -o jsonl""",
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
        empty = not types and not after and until is None
        _print(out, _chosen(records, types), whole_ledger=False, follow=follow, empty=empty)


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
        empty = not types and not after
        _print(out, _chosen(records, types), whole_ledger=True, follow=follow, empty=empty)


@command(
    example="""\
turnledger show 099a8057
turnledger show 099a8057 3""",
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


def _chosen(records: Iterable[Record], types: tuple[str, ...]) -> Iterator[Record]:
    for record in records:
        if not types or any(fnmatchcase(record.tag, pattern) for pattern in types):
            yield record


def _print(
    out: Printer, records: Iterable[Record], *, whole_ledger: bool, follow: bool, empty: bool
) -> None:
    """Print records as JSON, or as a line each.

    Args:
        out: Prints them.
        records: Those to print.
        whole_ledger: Whether they are of several runs.
        follow: Flush after each.
        empty: Whether nothing was left out: then the ledger itself is empty.
    """
    if out.form is Format.TABLE:
        nothing = "" if follow else "No events yet." if empty else "No such events."
        out.many(records, _Lines(out, whole_ledger).show, nothing=nothing, flush=follow)
    else:
        out.many(map(view_of, records), flush=follow)


class _Lines:
    """Prints records as lines: place, time, type and a summary, cut to the line's width.

    On a terminal the time is that of day (UTC), under a line with the date; ids are short, and
    positions are left out.
    """

    def __init__(self, out: Printer, whole_ledger: bool) -> None:
        self._out = out
        self._whole_ledger = whole_ledger
        self._day = ""

    def show(self, record: Record) -> None:
        view = view_of(record)
        day, time = view.recorded_at[:10], view.recorded_at
        if self._out.fits:
            if day != self._day:
                self._out.styled((f"{day} (UTC)", "dim"))
                self._day = day
            time = time[11:19]
        head = f"{self._place(view)}{view.version:>6}  {time}  "
        tag = f"{visible(view.type):<{WIDEST_TYPE}}"
        room = max(line_width() - cell_width(head + tag) - 2, SHORTEST)
        style = _style(view.type)
        parts = [(f"{head}", "dim"), (tag, style), (f"  {cut(_summary(record, room), room)}", "")]
        if style == "dim":
            parts[2] = (parts[2][0], style)
        self._out.styled(*parts)

    def _place(self, view: RecordView) -> str:
        if not self._whole_ledger:
            return ""
        if self._out.fits:
            return short_id(view.run_id)
        return f"{view.position:>8}  {view.run_id}  "


def _summary(record: Record, room: int) -> str:
    """A record in one line; of one that can't be decoded, its data."""
    from turnledger.projections.comparison.normalize import event_line  # slow to import

    try:
        return visible(event_line(record.event, room))
    except DAMAGE:
        # Cut before, as sanitizing makes text longer.
        return visible(record.row.data[: room * 4])


def _style(tag: str) -> str:
    """The colour of a type of event: by its family, red if something failed."""
    if tag.endswith(("failed", "in_doubt", "rejected")):
        return "red"
    return STYLES.get(tag.partition(".")[0], "")


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
