"""What the commands that show meaning share: a version to look at, pointers, styled lines.

No command is here. Whatever is printed through `print_styled` was made `visible` before.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from uuid import UUID

import click
from rich.console import Console
from rich.text import Text

from turnledger.adapters.cli.shared.output import Printer, to_json
from turnledger.ledger import Ledger, Record, RecordNotFoundError
from turnledger.projections import Projection, fold
from turnledger.projections.persistent.lazy_json import NOTHING_THERE, pointed
from turnledger.projections.run_state.state import built_in

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:  # not generic in every click that we run with
    _ParamType = click.ParamType

S = TypeVar("S")

# How long a line may get where no screen sets the width.
LINE_WIDTH = 240
MISSING: Final = NOTHING_THERE
VIEWS: Final = {view.name: view for view in built_in()}

at_option = click.option(
    "--at",
    type=click.IntRange(min=0),
    metavar="N",
    help="As it was after version N; 0 is before the first. Default: as it is.",
)


def records_until(ledger: Ledger, run: UUID, at: int | None) -> Iterator[Record]:
    """A run's records up to a version, which it must have; by default all."""
    head = ledger.head(run)
    if at is not None and head and at > head:
        raise RecordNotFoundError(str(run), at, head)
    return ledger.read(run, until=at)


def view_at(ledger: Ledger, run: UUID, at: int | None, view: Projection[S]) -> S:
    """What one view knows of a run after a version: nothing else is folded."""
    return fold(records_until(ledger, run, at), view)


# --- JSON Pointers -----------------------------------------------------------------


class Pointer(NamedTuple):
    """A JSON Pointer (RFC 6901), as it was written and in its parts."""

    text: str
    parts: tuple[str, ...]

    def resolve(self, value: Any) -> Any:
        """What it names in a value or an outline; MISSING if that is nothing."""
        return pointed(value, self.parts, _index)


def _index(part: str) -> int | None:
    digits = part.isascii() and part.isdigit() and len(part) < 16
    return int(part) if digits and (part == "0" or part[0] != "0") else None


def pointer(text: str) -> Pointer:
    """A pointer from its text; ValueError says what is wrong with it."""
    if text and not text.startswith("/"):
        raise ValueError(f"{text!r} is no JSON Pointer: it begins with '/', like /usage/total.")
    if "~" in text.replace("~0", "").replace("~1", ""):
        raise ValueError(f"{text!r} is no JSON Pointer: '~' is written ~0, and '/' in a name ~1.")
    parts = (part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:])
    return Pointer(text, tuple(parts))


class PointerParam(_ParamType):
    """A JSON Pointer into a state."""

    name = "pointer"

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Pointer:
        if isinstance(value, Pointer):
            return value
        try:
            return pointer(str(value))
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None


POINTER = PointerParam()


# --- text --------------------------------------------------------------------------


def line_width() -> int:
    """How wide a line may be."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else LINE_WIDTH


def shortened(text: str, room: int) -> str:
    """Text that is safe already, cut to the room that there is."""
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


def json_text(value: Any) -> str:
    """A value as JSON on one line, safe to print."""
    return to_json(value).decode()


def print_styled(out: Printer, console: Console, line: Text) -> None:
    """A line that is safe already, styled on a terminal that wants colours."""
    if console.color_system is None or not line.plain.strip():
        out.line(line.plain.rstrip())
        return
    with console.capture() as captured:
        console.print(line, soft_wrap=True)
    out.line(captured.get().rstrip("\n"))


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
