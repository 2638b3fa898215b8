"""Printing: tables for people, JSON for programs, on stdout; messages on stderr.

Whatever comes from a ledger or a file goes through `visible` or JSON on its way out,
and is never taken for rich markup.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, TextIO

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adapters.cli.visible import safe_json, visible, visible_lines
from ledger import Record
from ledger.transfer import moment_text

# How wide a line may be where nobody's screen sets the width.
UNBOUNDED = 10_000
# Columns that are copied from, so that a narrow screen folds others first.
WHOLE = frozenset({"run", "version", "position", "verdict"})


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


def say(message: str) -> None:
    """A message for a person, on stderr."""
    click.echo(visible_lines(message), err=True)


def to_json(value: Any) -> bytes:
    return safe_json(msgspec.json.encode(value))


def pretty_json(value: Any) -> bytes:
    return safe_json(msgspec.json.format(msgspec.json.encode(value), indent=2))


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
        """A single thing that people too read as JSON."""
        self._write(to_json(value) if self.form is Format.JSONL else pretty_json(value))

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
        """A table."""
        table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
        for heading in headings:
            table.add_column(Text(heading), overflow="fold", no_wrap=heading in WHOLE)
        for row in rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        self._print(table)

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
