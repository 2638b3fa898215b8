"""Command `compare`: aligns the events of two runs and shows the first difference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from difflib import unified_diff
from itertools import islice
from uuid import UUID

import click

from turnledger.adapters.cli.shared.command import command, finish, open_ledger, printer
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.output import (
    Printer,
    from_to,
    json_text,
    line_width,
    say,
    shortened,
)
from turnledger.adapters.cli.shared.parameters import OTHER_RUN, RUN, flag
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import Ledger
from turnledger.projections import Comparison, compare
from turnledger.projections.comparison.runs import Row, RowKind, compare_states
from turnledger.projections.run_state.json_diff import Change
from turnledger.runtime.session.types import SliceTypes

SIGNS: dict[RowKind, str] = {"same": "=", "changed": "~", "only_first": "<", "only_second": ">"}
STYLES: dict[RowKind, str] = {
    "same": "dim",
    "changed": "yellow",
    "only_first": "red",
    "only_second": "green",
}
MARKS = {"add": ("+", "green"), "remove": ("-", "red"), "replace": ("~", "yellow")}
# Least width of a value; how much text is shown before a change in it.
LEAST_ROOM, LEAD = 20, 20
# Longer texts are shown as values, without a line diff; a longer diff is cut.
MOST_LINES, MOST_SHOWN = 2_000, 40


def as_versions(text: str) -> tuple[int, int]:
    """Parse a pair of versions, one of each run: `V1:V2`."""
    if not re.fullmatch("[0-9]{1,15}:[0-9]{1,15}", text):
        raise click.BadParameter(f"Invalid pair of versions {text!r}: expected V1:V2, like 12:14.")
    first, second = text.split(":")
    return int(first), int(second)


@command(
    "compare",
    example="""\
turnledger compare 099a8057 0c2e7a11
turnledger compare 099a8057 0c2e7a11 \\
    --other-db yesterday.db --state 12:14""",
)
@click.argument("run1", type=RUN)
@click.argument("run2", type=OTHER_RUN)
@flag("--all", "everything", help="Also list events that are equal, and bookkeeping.")
@click.option(
    "--state",
    "versions",
    type=as_versions,
    metavar="V1:V2",
    help="Compare the state of RUN1 at V1 with that of RUN2 at V2.",
)
@click.option(
    "--other-db", metavar="URL", is_eager=True, help="Ledger of RUN2. Default: that of RUN1."
)
def compare_command(
    run1: UUID,
    run2: UUID,
    everything: bool,
    versions: tuple[int, int] | None,
    other_db: str | None,
) -> None:
    """Compare two runs and show the first difference.

    Events are compared by content, without ids and times. = is equal, ~ has changed, < is
    in RUN1 only and > in RUN2 only; → marks the first divergence. Bookkeeping (claims,
    checkpoints, digests, token counts) is not a divergence. Exits with 0 if the runs are
    equal and with 6 if not. With --state, with 0 if both states have the same outcome.
    """
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger())
        other = None
        if other_db is not None:
            other = stack.enter_context(open_ledger(url=other_db))
        if versions is not None:
            same = _states(ledger, run1, run2, versions, other)
        else:
            same = _events(compare(ledger, run1, run2, other_ledger=other), everything)
    finish(ExitCode.OK if same else ExitCode.REPLAY_DIVERGENCE)


def _states(
    ledger: Ledger, run1: UUID, run2: UUID, versions: tuple[int, int], other: Ledger | None
) -> bool:
    """Print the changes between two states; whether the outcome is the same."""
    found = compare_states(
        ledger,
        run1,
        versions[0],
        run2,
        versions[1],
        other_ledger=other,
        declarations=SliceTypes().declarations,  # those of the package's own slices
    )
    out = printer()
    out.one(found, lambda: _print_changes(out, found.changes, ""))
    if not found.changes:
        say("The states are equal.")
    elif found.same:
        say("The outcome is the same.")
    return found.same


def _events(found: Comparison, everything: bool) -> bool:
    """Print the aligned events and the first divergence; whether the runs are equal."""
    out = printer()
    names = ("first", "second", "same", "shared", "counts", "divergence", "rows")
    value = {name: getattr(found, name) for name in names}
    out.one(value, lambda: _Table(out, found).show(everything))
    if found.same:
        say("The runs are equal.")
    return found.same


class _Table:
    """Prints a comparison as text, a line for each row."""

    def __init__(self, out: Printer, found: Comparison) -> None:
        self._out = out
        self._found = found
        self._marked = found.divergence.rows if found.divergence is not None else ()
        self._tag_width = max((len(row.tag) for row in found.rows), default=0)

    def show(self, everything: bool) -> None:
        heading = f"  {'':1} {'run1':>6} {'run2':>6}  {'event':<{self._tag_width}}"
        self._out.styled((heading, "bold"))
        folded: list[Row] = []
        for place, row in enumerate(self._found.rows):
            if not everything and (row.kind == "same" or row.bookkeeping):
                folded.append(row)
                continue
            self._fold(folded)
            folded = []
            self._row(row, marked=place in self._marked)
        self._fold(folded)
        if self._marked:
            self._divergence()

    def _row(self, row: Row, *, marked: bool) -> None:
        place = "→" if marked else " "
        head = f"{place} {SIGNS[row.kind]} {row.first or '':>6} {row.second or '':>6}  "
        head += f"{visible(row.tag):<{self._tag_width}}  "
        room = max(line_width() - len(head), LEAST_ROOM)
        text = _what(row, room)
        if row.bookkeeping:
            text = f"(bookkeeping) {text}"
        style = "dim" if row.bookkeeping else STYLES[row.kind]
        style = f"bold {style}" if marked else style
        self._out.styled((head + shortened(text, room), style))

    def _fold(self, rows: list[Row]) -> None:
        """Print one line for consecutive rows that are equal or bookkeeping."""
        same = sum(row.kind == "same" for row in rows)
        parts = [f"{same} the same"] if same else []
        if len(rows) > same:
            parts.append(f"{len(rows) - same} bookkeeping")
        if parts:
            self._out.styled((f"  … {', '.join(parts)}", "dim"))

    def _divergence(self) -> None:
        self._out.line("")
        rows = [self._found.rows[place] for place in self._marked]
        where = " and ".join(_where(row) for row in rows)
        self._out.styled((f"First divergence: {where}", "bold"))
        for row in rows:
            _print_changes(self._out, row.changes, "  ")
            if not row.changes:
                text = shortened(visible(row.text), max(line_width() - 4, LEAST_ROOM))
                self._out.styled((f"  {SIGNS[row.kind]} {text}", STYLES[row.kind]))


def _what(row: Row, room: int) -> str:
    """A row as text: its event, or the first change of it."""
    if row.kind != "changed":
        return visible(row.text)
    first, *others = row.changes
    more = f" (and {len(others)} more)" if others else ""
    mark = "" if first.op == "replace" else f"{MARKS[first.op][0]} "
    path = f"{mark}{visible(first.path)} "
    return path + _values(first, max(room - len(path) - len(more), LEAST_ROOM)) + more


def _where(row: Row) -> str:
    tag = visible(row.tag)
    if row.kind == "changed":
        return f"{tag}, version {row.first} of run1 and {row.second} of run2"
    which = f"{row.first} of run1" if row.kind == "only_first" else f"{row.second} of run2"
    return f"{tag}, version {which} only"


# --- changes ------------------------------------------------------------------------


def _print_changes(out: Printer, changes: Iterable[Change], margin: str) -> None:
    for change in changes:
        mark, style = MARKS[change.op]
        head = f"{margin}{mark} {visible(change.path)}"
        lines = list(_text_lines(change))
        if not lines:
            head = f"{head} {_values(change, max(line_width() - len(head) - 1, LEAST_ROOM))}"
        out.styled((head, style))
        for line in lines:
            shown = shortened(visible(line), max(line_width() - len(margin) - 4, LEAST_ROOM))
            style = {"+": "green", "-": "red"}.get(line[:1], "dim")
            out.styled((f"{margin}    {shown}", style))


def _values(change: Change, room: int) -> str:
    """The values of a change, cut to `room`; of two long ones, from where they differ."""
    if change.op == "add":
        return shortened(json_text(change.value), room)
    was = json_text(change.was)
    if change.op == "remove":
        return shortened(was, room)
    value = json_text(change.value)
    if len(was) + len(value) + 3 > room:
        pairs = enumerate(zip(was, value, strict=False))
        start = next((n for n, (x, y) in pairs if x != y), min(len(was), len(value))) - LEAD
        if start > 0:
            was, value = f"…{was[start:]}", f"…{value[start:]}"
    return from_to(was, value, room)


def _text_lines(change: Change) -> Iterator[str]:
    """Line diff of two texts of several lines."""
    was, value = change.was, change.value
    if not isinstance(was, str) or not isinstance(value, str):
        return
    before, after = was.split("\n"), value.split("\n")
    if not 2 < len(before) + len(after) <= MOST_LINES:
        return
    lines = unified_diff(before, after, lineterm="", n=1)
    yield from islice(lines, 2, MOST_SHOWN)  # after the file names
    if next(lines, None) is not None:
        yield "…"
