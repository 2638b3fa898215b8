"""Commands `search` and `shape`: find text in events, and a run as one character an event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import cleandoc
from typing import Any
from uuid import UUID

import click
import msgspec

from turnledger.adapters.cli.shared.command import command, finish, open_ledger, printer
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.output import Format, say, terminal_width
from turnledger.adapters.cli.shared.parameters import (
    number_from,
    optional_run_argument,
    run_argument,
    version_option,
)
from turnledger.ledger import Ledger
from turnledger.ledger.clock import moment_text, to_micros
from turnledger.projections import SHAPE_CHARACTERS, Found, Hit, search_all
from turnledger.projections import search as search_run
from turnledger.projections import shape as shape_of

TABLE_LIMIT = 50
# Events that are asked for at a time, if there is no limit.
PAGE = 500


# --- search -------------------------------------------------------------------------


class HitView(msgspec.Struct, frozen=True):
    """An event that has the text, as JSON."""

    run_id: str
    version: int
    position: int
    type: str
    recorded_at: str
    excerpt: str


def _view(hit: Hit) -> HitView:
    recorded_at = moment_text(to_micros(hit.recorded_at))
    return HitView(hit.run_id, hit.version, hit.position, hit.tag, recorded_at, hit.excerpt)


class _Search:
    """Searches page by page; `next` is where it stopped, None at the end."""

    def __init__(self, ledger: Ledger, text: str, run: UUID | None, before: int | None) -> None:
        self._ledger, self._text, self._run = ledger, text, run
        self.next = before
        self.skipped = SkippedRuns()

    def hits(self, limit: int | None) -> Iterator[Hit]:
        """The events that have the text, up to a number of them."""
        left = limit
        while left is None or left > 0:
            page = self._page(PAGE if left is None else min(PAGE, left))
            yield from page.hits
            for record in page.unreadable:
                what = f"version {record.version} can't be read and was not searched."
                self.skipped(record.run_id, what)
            self.next = page.next
            if page.next is None:
                return
            left = None if left is None else left - len(page.hits)

    def _page(self, limit: int) -> Found:
        if self._run is None:
            return search_all(self._ledger, self._text, before=self.next, limit=limit)
        return search_run(self._ledger, self._run, self._text, before=self.next, limit=limit)


@command(
    example="""\
turnledger search 'wrong invoice'
turnledger search 4711 099a8057""",
)
@click.argument("text")
@optional_run_argument
@version_option(
    "--before",
    metavar="N",
    help="Only events before version N of the run; without RUN, before position N.",
)
@click.option(
    "--limit",
    type=number_from(1),
    metavar="N",
    help=f"At most N events. Default: {TABLE_LIMIT} in a table, else all.",
)
def search(text: str, run: UUID | None, before: int | None, limit: int | None) -> None:
    """Find TEXT in the events of a run, or of all runs, newest first.

    Searched are the types and payloads of events, as text: a quote or a line break is found
    however the JSON escapes it. Upper and lower case are the same. Numbers and the keys of maps
    are searched too, names of events' fields and blobs are not. A fork has its parents' events.

    Records that can't be read are not searched: their runs are named, and the exit code is 5.
    """
    out = printer()
    shown = TABLE_LIMIT if limit is None and out.form is Format.TABLE else limit
    with open_ledger() as ledger:
        found = _Search(ledger, text, run, before)
        hits = map(_view, found.hits(shown))
        out.listing(
            hits,
            ("run", "version", "type", "recorded", "text"),
            lambda hit: (hit.run_id, hit.version, hit.type, hit.recorded_at, hit.excerpt),
            nothing="No event has this text.",
        )
    if found.next is not None and out.form is Format.TABLE:
        say(f"These are the newest {shown}. For those before them, add --before {found.next}.")
    finish(found.skipped.code)


# --- shape --------------------------------------------------------------------------


def _with_legend(function: Callable[..., None]) -> Callable[..., None]:
    """Add the characters of a shape and their meanings to a command's help."""
    legend = "\n".join(f"{entry.character}  {entry.meaning}" for entry in SHAPE_CHARACTERS)
    function.__doc__ = f"{cleandoc(function.__doc__ or '')}\n\n\b\n{legend}"
    return function


@command(example="turnledger shape 099a8057")
@run_argument
@_with_legend
def shape(run: UUID) -> None:
    """Print a run as one character an event.

    The first character is version 1, a fork's is its parent's. A capital letter is a failure.
    """
    out = printer()
    with open_ledger() as ledger:
        found = shape_of(ledger, run)
    shown: dict[str, Any] = {"run_id": found.run_id, "version": found.version, "text": found.text}

    def lines() -> None:
        width = terminal_width() if out.fits else found.version
        for start in range(0, found.version, width):
            out.line(found.text[start : start + width])

    out.one(shown, lines)
