"""Printing: tables for people, JSON for programs, on stdout; messages on stderr.

Whatever comes from a ledger or a file goes through `visible` or JSON on its way out,
and is never taken for rich markup.
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

# Every command imports this module; rich, msgspec and the ledger are imported where they are used.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from turnledger.ledger import Redactor

# How wide a line may be where nobody's screen sets the width.
UNBOUNDED = 10_000
# How long a line may get where no screen sets the width.
LINE_WIDTH = 240
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


def console_on(stream: TextIO) -> Console:
    """A console that colours only a terminal, and no terminal where NO_COLOR is set."""
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
    """A message that quotes who knows what, as it may be shown."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or REDACTOR not in ctx.meta:
        from turnledger.ledger.redaction.redactor import STANDARD

        return STANDARD.text(message)
    redactor: Redactor | None = ctx.meta[REDACTOR]
    return message if redactor is None else redactor.text(message)


def say(message: str) -> None:
    """A message for a person, on stderr."""
    click.echo(visible_lines(without_secrets(message)), err=True)


def to_json(value: Any) -> bytes:
    return safe_json(_encoded(value))


def pretty_json(value: Any) -> bytes:
    import msgspec

    return safe_json(msgspec.json.format(_encoded(value), indent=2))


def _encoded(value: Any) -> bytes:
    import msgspec

    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A file's name that is no UTF-8, say. No reader of JSON takes halves of characters, as
        # escapes neither: they are written out.
        import json

        text = json.dumps(msgspec.to_builtins(value), separators=(",", ":"), ensure_ascii=False)
        return re.sub("[\ud800-\udfff]", lambda half: f"\\\\u{ord(half[0]):04x}", text).encode()


def pieces(outline: Any, indent: int, depth: int = 0) -> Iterator[bytes]:
    """The text of an outline's JSON, item by item; on one line if `indent` is 0.

    Together they are what `pretty_json` or `to_json` gives of the whole.
    """
    from turnledger.projections.persistent.lazy_json import LazyList

    is_list = isinstance(outline, LazyList)
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


# --- text --------------------------------------------------------------------------


def line_width() -> int:
    """How wide a line may be."""
    if not sys.stdout.isatty():
        return LINE_WIDTH
    import shutil

    return shutil.get_terminal_size().columns


def shortened(text: str, room: int) -> str:
    """Text that is safe already, cut to the room that there is."""
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


def json_text(value: Any) -> str:
    """A value as JSON on one line, safe to print."""
    return to_json(value).decode()


def from_to(old: str, new: str, room: int) -> str:
    """Both values in the room that there is; a short one leaves its room to the other."""
    half = max((room - 3) // 2, 1)
    first = shortened(old, max(half, room - 3 - len(new)))
    return f"{first} → {shortened(new, max(half, room - 3 - len(first)))}"


def seconds_text(seconds: float) -> str:
    """A time as long as people say it: 12ms, 1.25s, 2m05s, 3h07m."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.0005 or seconds <= 0 else "<1ms"
    if seconds < 59.995:
        return f"{seconds:.2f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    return f"{minutes // 60}h{minutes % 60:02}m"


# --- the printer -------------------------------------------------------------------


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

    @cached_property
    def console(self) -> Console:
        """The console on stdout; made once, and only for a command that prints for people."""
        return console_on(self._text)

    def line(self, text: str) -> None:
        """Text that is safe already, as a line."""
        self._text.write(text + "\n")

    def styled(self, *parts: tuple[str, str]) -> None:
        """A line of texts that are safe already with their styles, for terminals with colours."""
        plain = "".join(text for text, _ in parts)
        if self.console.color_system is None or not plain.strip():
            self.line(plain.rstrip())
            return
        from rich.text import Text

        with self.console.capture() as captured:
            self.console.print(Text.assemble(*parts), soft_wrap=True)
        self.line(captured.get().rstrip("\n"))

    def rows(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table. The columns of a long one are as wide as its first page needs."""
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        coming = iter(rows)
        page = [[*map(visible, row)] for row in islice(coming, TABLE_PAGE)]
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
            padded = zip(map(visible, row), widths, strict=True)
            # Longer text stays whole, and its line is longer.
            self.line("  ".join(c + " " * (width - cell_len(c)) for c, width in padded).rstrip())

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Names and values below each other."""
        from rich.table import Table
        from rich.text import Text

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
