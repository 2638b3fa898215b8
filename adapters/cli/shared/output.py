"""Output: tables or JSON on stdout, messages on stderr.

Text from a ledger or a file is sanitized (`visible`, or JSON escapes) before it is printed, and is
never interpreted as rich markup.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

import click

from turnledger.adapters.terminal_text import safe_json, visible, visible_lines

# `--version` imports this module, so rich, msgspec and the ledger are imported in functions.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from turnledger.ledger import Redactor

# Width of tables where there is no terminal.
UNBOUNDED = 10_000
# Length of other lines where there is no terminal.
LINE_WIDTH = 240
# Rows of a table that are laid out together; further rows are printed as they come.
TABLE_PAGE = 500
# Columns that people copy from: a narrow terminal wraps the others first.
WHOLE = frozenset({"run", "version", "position", "verdict"})

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


def without_secrets(message: str) -> str:
    """Mask the secrets that a message may quote."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or REDACTOR not in ctx.meta:
        from turnledger.ledger.redaction.redactor import STANDARD

        return STANDARD.text(message)
    redactor: Redactor | None = ctx.meta[REDACTOR]
    return message if redactor is None else redactor.text(message)


def say(message: str) -> None:
    """Print a message on stderr."""
    click.echo(printable(message), err=True)


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


def line_width() -> int:
    """How long a line may be: the terminal's width, or LINE_WIDTH."""
    if not sys.stdout.isatty():
        return LINE_WIDTH
    import shutil

    return shutil.get_terminal_size().columns


def shortened(text: str, room: int) -> str:
    """Sanitized text, cut to `room` characters."""
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


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


# --- the printer --------------------------------------------------------------------


class Printer:
    """Prints a command's data in the format of `-o`."""

    def __init__(self, form: Format) -> None:
        self.form = form
        self._bytes = sys.stdout.buffer
        self._text = sys.stdout

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
        self, values: Iterable[Any], line: Callable[[Any], str] = str, *, flush: bool = False
    ) -> None:
        """Print values as they come: a JSON array, JSON lines, or lines of sanitized text.

        `flush` flushes after each, for a reader that follows.
        """
        if self.form is Format.JSON:
            self._array(values)
            return
        for value in values:
            if self.form is Format.JSONL:
                self._write(to_json(value))
            else:
                self.line(line(value))
            if flush:
                self.flush()

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
        if self.console.color_system is None or not plain.strip():
            self.line(plain.rstrip())
            return
        from rich.text import Text

        with self.console.capture() as captured:
            self.console.print(Text.assemble(*parts), soft_wrap=True)
        self.line(captured.get().rstrip("\n"))

    def listing(
        self, values: Iterable[Any], headings: Sequence[str], row: Callable[[Any], Sequence[Any]]
    ) -> None:
        """Print values as JSON, or as a table with a row for each."""
        if self.form is Format.TABLE:
            self.rows(headings, map(row, values))
        else:
            self.many(values)

    def rows(self, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print a table; None is an empty cell. The first page sets the widths of a long one."""
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        coming = iter(rows)
        page = [[*map(_cell, row)] for row in islice(coming, TABLE_PAGE)]
        table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
        for heading in headings:
            table.add_column(Text(heading), overflow="fold", no_wrap=heading in WHOLE)
        for cells in page:
            table.add_row(*map(Text, cells))
        self._print(table)
        if len(page) < TABLE_PAGE:
            return
        widths = [max(map(cell_len, column)) for column in zip(headings, *page, strict=True)]
        for row in coming:
            padded = zip(map(_cell, row), widths, strict=True)
            # A longer cell is not cut: its line gets longer.
            self.line("  ".join(c + " " * (width - cell_len(c)) for c, width in padded).rstrip())

    def pairs(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Print names and values, one pair a line."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in pairs:
            table.add_row(Text(visible(name)), Text(_cell(value)))
        self._print(table)

    def flush(self) -> None:
        self._text.flush()
        self._bytes.flush()

    def _print(self, table: Table) -> None:
        with self.console.capture() as captured:
            self.console.print(table)
        for line in captured.get().splitlines():
            self.line(line.rstrip())

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
