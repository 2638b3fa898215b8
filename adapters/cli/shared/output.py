"""Output: tables or JSON on stdout, messages on stderr.

Text from a ledger or a file is sanitized (`visible`, or JSON escapes) before it is printed, and is
never interpreted as rich markup.

On a terminal, tables fit its width: ids and times are short, cells are cut, text is wrapped between
words. In a pipe and in a file tables are the same, but nothing is short, cut or wrapped.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import cached_property
from itertools import chain, islice, repeat, zip_longest
from typing import TYPE_CHECKING, Any, TextIO

import click

from turnledger.adapters.cli.shared.table_layout import (
    GAP,
    cell_width,
    column_widths,
    cut,
    padded,
    wrapped,
)
from turnledger.adapters.terminal_text import safe_json, visible, visible_lines

# `--version` imports this module, so rich, msgspec and the ledger are imported in functions.
if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

    from turnledger.ledger import Clock, Redactor

# Width of tables where there is no terminal.
UNBOUNDED = 10_000
# Length of other lines where there is no terminal.
LINE_WIDTH = 240
# Rows of a table that are laid out together; further rows are printed as they come.
TABLE_PAGE = 500
# Least width of a value beside its name.
SHORTEST_VALUE = 20
# Columns that people copy from: on a narrow terminal the others give way first.
WHOLE = frozenset({"run", "fork", "version", "position", "verdict", "check", "call", "state", "id"})
# Columns of ids and of times; on a terminal an id is its end, and a time how long ago it was.
IDS = frozenset({"run", "evaluation", "event id", "digest"})
TIMES = frozenset({"started", "changed", "evaluated", "since", "recorded", "created"})
# Columns of sentences, which are wrapped on a terminal and not cut.
SENTENCES = frozenset({"found", "what to do", "reads", "overrides"})
_HEXADECIMAL = re.compile(r"[0-9a-f-]{32,}")  # a UUID or a digest, not a name that was given
# Characters of a run's id for people: its end, as ids that are made together begin the same.
SHORT_ID = 8

# Key of the command's redactor in click's context.
REDACTOR = "turnledger.redactor"
# Key of the names with a line break that the command was given.
GIVEN = "turnledger.given"


class Format(Enum):
    """Output format of data."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def console_on(stream: TextIO) -> Console:
    """A rich console: colours on terminals only, and not if NO_COLOR is set."""
    from rich.console import Console

    terminal = stream.isatty()
    plain = not terminal or bool(os.environ.get("NO_COLOR"))
    return Console(
        file=stream,
        color_system=None if plain else "auto",
        force_terminal=terminal,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if terminal else UNBOUNDED,
    )


def _redactor() -> Redactor | None:
    """The redactor of the command; the standard one before the options were read."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or REDACTOR not in ctx.meta:
        from turnledger.ledger.redaction import STANDARD

        return STANDARD
    redactor: Redactor | None = ctx.meta[REDACTOR]
    return redactor


def without_secrets(message: str) -> str:
    """Mask the secrets that a message may quote."""
    redactor = _redactor()
    return message if redactor is None else redactor.text(message)


def say(message: str) -> None:
    """Print a message on stderr; on a terminal it is wrapped between words."""
    lines = printable(message).split("\n")
    if sys.stderr.isatty():
        width = terminal_width()
        lines = [piece for line in lines for piece in wrapped(line, width)]
    click.echo("\n".join(lines), err=True)


def say_json(value: Any) -> None:
    """Print a value on stderr, as JSON on one line without secrets."""
    import msgspec

    plain = msgspec.to_builtins(value, enc_hook=str, str_keys=True)
    redactor = _redactor()
    shown = plain if redactor is None else redactor.value(plain)
    click.echo(to_json(shown).decode(), err=True)


def printable(message: str) -> str:
    """A message for the terminal: no secrets, no escape codes, and names on one line.

    A message may have several lines of its own. A file name that was given to the command, with
    a line break in it, must not add one: the rest of the name would look like a message.
    """
    ctx = click.get_current_context(silent=True)
    for name in () if ctx is None else ctx.meta.get(GIVEN, ()):
        message = message.replace(name, visible(name))
    return visible_lines(without_secrets(message))


def broken_names(words: Iterable[str]) -> tuple[str, ...]:
    """The names with a line break among words of a command line: `--db=NAME`, a path's parts.

    They end at bytes that are not UTF-8 too, since click shows those as U+FFFD.
    """
    ends = "[=/\ud800-\udfff]"
    parts = (part for word in words if "\n" in word for part in re.split(ends, word))
    return tuple(sorted({part for part in parts if "\n" in part}, key=len, reverse=True))


def to_json(value: Any) -> bytes:
    """A value as JSON on one line, safe to print."""
    return safe_json(_encoded(value))


def pretty_json(value: Any) -> bytes:
    """A value as indented JSON, safe to print."""
    import msgspec

    return safe_json(msgspec.json.format(_encoded(value), indent=2))


def _encoded(value: Any) -> bytes:
    import msgspec

    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # E.g. a file name that is not UTF-8. JSON readers refuse lone surrogates, escaped too:
        # they are written out.
        import json

        text = json.dumps(msgspec.to_builtins(value), separators=(",", ":"), ensure_ascii=False)
        return re.sub("[\ud800-\udfff]", lambda half: f"\\\\u{ord(half[0]):04x}", text).encode()


def pieces(value: Any, indent: int, depth: int = 0) -> Iterator[bytes]:
    """Stream a value or lazy JSON as JSON, item by item; on one line if `indent` is 0.

    Joined, the pieces equal `pretty_json` or `to_json` of the whole.
    """
    from turnledger.projections.persistent.lazy_json import LazyList

    is_list = isinstance(value, LazyList)
    if not is_list and not isinstance(value, dict):
        yield _value(value, indent, depth)
        return
    opening, closing = (b"[", b"]") if is_list else (b"{", b"}")
    margin = b"\n" + b" " * (indent * (depth + 1)) if indent else b""
    between = opening + margin
    if isinstance(value, dict):
        for name, item in value.items():
            yield between + to_json(name) + (b": " if indent else b":")
            yield from pieces(item, indent, depth + 1)
            between = b"," + margin
    else:
        for item in value:
            yield between + _value(item, indent, depth + 1)
            between = b"," + margin
    if between.startswith(opening):
        yield opening + closing
    else:
        yield (b"\n" + b" " * (indent * depth) if indent else b"") + closing


def _value(value: Any, indent: int, depth: int) -> bytes:
    if not indent:
        return to_json(value)
    # Line breaks within strings are escaped: all others are layout.
    return pretty_json(value).replace(b"\n", b"\n" + b" " * (indent * depth))


# --- text ---------------------------------------------------------------------------


def terminal_width() -> int:
    """How many columns the terminal has."""
    import shutil

    return shutil.get_terminal_size().columns


def line_width() -> int:
    """How long a line may be: the terminal's width, or LINE_WIDTH."""
    return terminal_width() if sys.stdout.isatty() else LINE_WIDTH


def shortened(text: str, room: int) -> str:
    """Sanitized text, cut to `room` characters."""
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


def short_id(run_id: object) -> str:
    """An id for people: its end."""
    return str(run_id)[-SHORT_ID:]


def run_name(run_id: object) -> str:
    """A run in a command that a message on stderr suggests: short on a terminal."""
    return short_id(run_id) if sys.stderr.isatty() else str(run_id)


def age_text(now: int, moment: datetime) -> str:
    """How long ago it was: 5s ago, 12m ago, 3h ago, 8d ago, 2y ago.

    Args:
        now: The time now, in microseconds.
        moment: The time before.
    """
    seconds = max(now // 1_000_000 - int(moment.timestamp()), 0)
    for size, unit, most in ((1, "s", 60), (60, "m", 60), (3600, "h", 48), (86400, "d", 730)):
        if seconds < size * most:
            return f"{seconds // size}{unit} ago"
    return f"{seconds // (365 * 86400)}y ago"


def json_text(value: Any) -> str:
    """Like `to_json`, as text."""
    return to_json(value).decode()


def from_to(old: str, new: str, room: int) -> str:
    """`old → new`, cut to `room` characters; a short value leaves its room to the other."""
    half = max((room - 3) // 2, 1)
    first = shortened(old, max(half, room - 3 - len(new)))
    return f"{first} → {shortened(new, max(half, room - 3 - len(first)))}"


def seconds_text(seconds: float) -> str:
    """A duration: 12ms, 1.25s, 2m05s, 3h07m."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.0005 or seconds <= 0 else "<1ms"
    if seconds < 59.995:
        return f"{seconds:.2f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    return f"{minutes // 60}h{minutes % 60:02}m"


def _cell(value: Any) -> str:
    return "" if value is None else visible(str(value))


def _short_cell(heading: str, text: str, now: int) -> str:
    """A cell for people: the end of an id, and how long ago a time was."""
    if heading in IDS and _HEXADECIMAL.fullmatch(text):
        return short_id(text)
    if heading not in TIMES or not text.endswith("Z"):
        return text
    from datetime import datetime

    return age_text(now, datetime.fromisoformat(text))


# --- the printer --------------------------------------------------------------------


class Printer:
    """Prints a command's data in the format of `-o`."""

    def __init__(self, form: Format, clock: Clock | None = None) -> None:
        self.form = form
        self._clock = clock
        self._bytes = sys.stdout.buffer
        self._text = sys.stdout
        # On a terminal, ids and times are short and lines fit its width.
        self.fits = sys.stdout.isatty()

    def one(self, value: Any, table: Callable[[], None]) -> None:
        """Print one value as JSON, or call `table` to print it."""
        if self.form is Format.TABLE:
            table()
        elif self.form is Format.JSON:
            self._write(pretty_json(value))
        else:
            self._write(to_json(value))

    def pretty(self, value: Any) -> None:
        """Print one value as JSON in every format, indented except for jsonl; lazy JSON streams."""
        for piece in pieces(value, 0 if self.form is Format.JSONL else 2):
            self._bytes.write(piece)
        self._bytes.write(b"\n")

    def many(
        self,
        values: Iterable[Any],
        show: Callable[[Any], None] = lambda value: None,
        *,
        nothing: str = "",
        flush: bool = False,
    ) -> None:
        """Print values as they come: a JSON array, JSON lines, or as `show` prints each.

        Args:
            values: The values.
            show: Prints a value for people.
            nothing: What is said on stderr if there is none and no JSON is asked for.
            flush: Flush after each, for a reader that follows.
        """
        if self.form is Format.JSON:
            self._array(values)
            return
        empty = True
        for value in values:
            empty = False
            if self.form is Format.JSONL:
                self._write(to_json(value))
            else:
                show(value)
            if flush:
                self.flush()
        if empty and nothing and self.form is Format.TABLE:
            say(nothing)

    @cached_property
    def console(self) -> Console:
        """The rich console on stdout."""
        return console_on(self._text)

    def line(self, text: str) -> None:
        """Print sanitized text as a line."""
        self._text.write(text + "\n")

    def styled(self, *parts: tuple[str, str]) -> None:
        """Print a line of (sanitized text, style) parts; styles apply to terminals with colours."""
        plain = "".join(text for text, _ in parts)
        if not self.fits or not plain.strip() or self.console.color_system is None:
            self.line(plain.rstrip())
            return
        from rich.text import Text

        with self.console.capture() as captured:
            self.console.print(Text.assemble(*parts), soft_wrap=True)
        self.line(captured.get().rstrip("\n"))

    def listing(
        self,
        values: Iterable[Any],
        headings: Sequence[str],
        row: Callable[[Any], Sequence[Any]],
        *,
        nothing: str,
    ) -> None:
        """Print values as JSON, or as a table with a row for each.

        Args:
            values: The values.
            headings: The table's headings.
            row: A value's cells.
            nothing: What is said on stderr for a table without a row.
        """
        if self.form is Format.TABLE:
            self.rows(headings, map(row, values), nothing=nothing)
        else:
            self.many(values)

    def rows(
        self, headings: Sequence[str], rows: Iterable[Sequence[Any]], *, nothing: str = ""
    ) -> None:
        """Print a table; None is an empty cell. The first page sets the widths of a long one.

        Args:
            headings: One for each column.
            rows: The cells of each row.
            nothing: What is said on stderr if there is no row; the headings are not printed then.
        """
        coming = iter(rows)
        page = list(islice(coming, TABLE_PAGE))
        if not page and nothing:
            say(nothing)
            return
        right = [
            bool(page) and all(isinstance(row[n], int | None) for row in page)
            for n in range(len(headings))
        ]
        shown = [self._cells(headings, row) for row in page]
        lengths = [[*map(cell_width, cells)] for cells in (headings, *shown)]
        widths = [*map(max, *lengths)] if shown else lengths[0]
        if self.fits:
            kept = [heading in WHOLE for heading in headings]
            widths = column_widths(widths, headings, terminal_width(), kept)
        layout = list(zip(headings, widths, right, strict=True))
        self.styled((self._lines(layout, headings)[0], "bold"))
        for cells in chain(shown, (self._cells(headings, row) for row in coming)):
            for line in self._lines(layout, cells):
                self.line(line)

    def _cells(self, headings: Sequence[str], row: Sequence[Any]) -> list[str]:
        cells = map(_cell, row)
        return [*map(_short_cell, headings, cells, repeat(self._now))] if self.fits else [*cells]

    @cached_property
    def _now(self) -> int:
        from turnledger.ledger import SystemClock

        return (self._clock or SystemClock()).micros()

    def _lines(self, layout: Sequence[tuple[str, int, bool]], cells: Sequence[str]) -> list[str]:
        """A row as lines: one, unless a sentence is wrapped."""
        columns = [
            ([cell] if not self.fits else wrapped(cell, width) or [""])
            if heading in SENTENCES
            else [cut(cell, width) if self.fits else cell]
            for (heading, width, _), cell in zip(layout, cells, strict=True)
        ]
        return [
            GAP.join(
                padded(cell, width, right=right)
                for cell, (_, width, right) in zip(line, layout, strict=True)
            ).rstrip()
            for line in zip_longest(*columns, fillvalue="")
        ]

    def pairs(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Print names and values, one pair a line; on a terminal values are wrapped."""
        found = [(visible(name), _cell(value)) for name, value in pairs]
        widest = max((cell_width(name) for name, _ in found), default=0)
        room = max(terminal_width() - widest - len(GAP), SHORTEST_VALUE)
        for name, value in found:
            lines = wrapped(value, room) if self.fits else [value]
            for place, line in enumerate(lines or [""]):
                head = padded("" if place else name, widest, right=False)
                self.styled((head, "bold"), (f"{GAP}{line}", ""))

    def flush(self) -> None:
        self._text.flush()
        self._bytes.flush()

    def _array(self, values: Iterable[Any]) -> None:
        before = b"[\n"
        for value in values:
            self._bytes.write(before + to_json(value))
            before = b",\n"
        self._bytes.write(b"[]\n" if before == b"[\n" else b"\n]\n")

    def _write(self, encoded: bytes) -> None:
        self._bytes.write(encoded + b"\n")


def print_traceback(out: Printer, heading: str, text: str) -> None:
    """Print a traceback below a table; nothing if there is none."""
    if text:
        out.line("")
        if heading:
            out.line(visible(heading))
        for line in text.rstrip("\n").split("\n"):
            out.line(visible(line))
