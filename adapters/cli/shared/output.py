"""Printing: tables for people, JSON for programs, on stdout; messages on stderr.

Whatever comes from a ledger or a file goes through `visible` or JSON on its way out,
and is never taken for rich markup.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Any, TextIO

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnledger.adapters.terminal_text import safe_json, visible, visible_lines
from turnledger.ledger import Record, Redactor
from turnledger.ledger.clock import moment_text
from turnledger.ledger.redaction.redactor import STANDARD
from turnledger.projections.persistent.lazy_json import Items

# How wide a line may be where nobody's screen sets the width.
UNBOUNDED = 10_000
_HALVES = re.compile("[\ud800-\udfff]")
# Rows of a table that are laid out together: what follows them is printed as it comes.
TABLE_PAGE = 500
# Columns that are copied from, so that a narrow screen folds others first.
WHOLE = frozenset({"run", "version", "position", "verdict"})

# Where the redactor that was asked for is kept, for the time of a command.
REDACTOR = "turnledger.redactor"


class Format(Enum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class RecordView(msgspec.Struct, frozen=True):
    """A record on the outside."""

    run_id: str
    version: int
    position: int
    type: str
    event_id: str
    recorded_at: str
    digest: str
    data: msgspec.Raw


def view_of(record: Record) -> RecordView:
    position, run_id, version, tag, event_id, recorded_at, digest, data = record.row
    return RecordView(
        run_id,
        version,
        position,
        tag,
        event_id,
        moment_text(recorded_at),
        digest.hex(),
        msgspec.Raw(data.encode()),
    )


def console_on(stream: TextIO) -> Console:
    """A console that colours only a terminal, and no terminal where NO_COLOR is set."""
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
    """A message that quotes who knows what, as it may be shown."""
    ctx = click.get_current_context(silent=True)
    redactor: Redactor | None = STANDARD if ctx is None else ctx.meta.get(REDACTOR, STANDARD)
    return message if redactor is None else redactor.text(message)


def say(message: str) -> None:
    """A message for a person, on stderr."""
    click.echo(visible_lines(without_secrets(message)), err=True)


def to_json(value: Any) -> bytes:
    return safe_json(_encoded(value))


def pretty_json(value: Any) -> bytes:
    return safe_json(msgspec.json.format(_encoded(value), indent=2))


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A file's name that is no UTF-8, say. No reader of JSON takes halves of characters, as
        # escapes neither: they are written out.
        text = json.dumps(msgspec.to_builtins(value), separators=(",", ":"), ensure_ascii=False)
        return _HALVES.sub(lambda half: f"\\\\u{ord(half[0]):04x}", text).encode()


def pieces(outline: Any, indent: int, depth: int = 0) -> Iterator[bytes]:
    """The text of an outline's JSON, item by item; on one line if `indent` is 0.

    Together they are what `pretty_json` or `to_json` gives of the whole.
    """
    is_list = isinstance(outline, Items)
    if not is_list and not isinstance(outline, dict):
        yield _value(outline, indent, depth)
        return
    opening, closing = (b"[", b"]") if is_list else (b"{", b"}")
    margin = b"\n" + b" " * (indent * (depth + 1)) if indent else b""
    between = opening + margin
    if isinstance(outline, dict):
        for name, value in outline.items():
            yield between + to_json(name) + (b": " if indent else b":")
            yield from pieces(value, indent, depth + 1)
            between = b"," + margin
    else:
        for item in outline:
            yield between + _value(item, indent, depth + 1)
            between = b"," + margin
    if between.startswith(opening):
        yield opening + closing
    else:
        yield (b"\n" + b" " * (indent * depth) if indent else b"") + closing


def _value(value: Any, indent: int, depth: int) -> bytes:
    if not indent:
        return to_json(value)
    # Line breaks within text are escaped: those that are here are layout.
    return pretty_json(value).replace(b"\n", b"\n" + b" " * (indent * depth))


def _table(headings: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for heading in headings:
        table.add_column(Text(heading), overflow="fold", no_wrap=heading in WHOLE)
    return table


def _columns(headings: Sequence[str], page: list[Sequence[str]]) -> Iterator[list[str]]:
    for place, heading in enumerate(headings):
        yield [heading, *(visible(row[place]) for row in page)]


def _filled(text: str, width: int) -> str:
    """Text filled up to a width; longer text stays whole, and its line is longer."""
    return text + " " * (width - cell_len(text))


class Printer:
    """Prints a command's data in the format that was asked for."""

    def __init__(self, form: Format) -> None:
        self.form = form
        self._bytes = sys.stdout.buffer
        self._text = sys.stdout

    def one(self, value: Any, table: Callable[[], None]) -> None:
        """A single thing: an object, or what `table` prints."""
        if self.form is Format.TABLE:
            table()
        elif self.form is Format.JSON:
            self._write(pretty_json(value))
        else:
            self._write(to_json(value))

    def pretty(self, value: Any) -> None:
        """A single thing that people too read as JSON; an outline is made as it is printed."""
        for piece in pieces(value, 0 if self.form is Format.JSONL else 2):
            self._bytes.write(piece)
        self._bytes.write(b"\n")

    def many(self, values: Iterable[Any], line: Callable[[Any], str], *, flush: bool) -> None:
        """Things one after the other as they come, each on its line."""
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

    def line(self, text: str) -> None:
        """Text that is safe already, as a line."""
        self._text.write(text + "\n")

    def rows(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table. The columns of a long one are as wide as its first page needs."""
        coming = iter(rows)
        page = list(islice(coming, TABLE_PAGE))
        table = _table(headings)
        for row in page:
            table.add_row(*(Text(visible(cell)) for cell in row))
        self._print(table)
        if len(page) < TABLE_PAGE:
            return
        widths = [max(map(cell_len, column)) for column in _columns(headings, page)]
        for row in coming:
            cells = (_filled(visible(cell), w) for cell, w in zip(row, widths, strict=True))
            self.line("  ".join(cells).rstrip())

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Names and values below each other."""
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in pairs:
            table.add_row(Text(visible(name)), Text(visible(value)))
        self._print(table)

    def flush(self) -> None:
        self._text.flush()
        self._bytes.flush()

    def _print(self, table: Table) -> None:
        console = console_on(self._text)
        with console.capture() as captured:
            console.print(table)
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
