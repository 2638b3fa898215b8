"""What the commands about tables share: bars to watch, a table brought up to date, its name.

No command is here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from turnledger.adapters.cli.shared.output import console_on
from turnledger.ledger import Ledger
from turnledger.ledger.errors import error_text
from turnledger.projections import Rebuilt, Table, TableRows, catch_up, rebuild, table_rows
from turnledger.projections.tables.builtin import BUILT_IN_TABLES
from turnledger.projections.tables.storage import kept_tables

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:  # not generic in every click that we run with
    _ParamType = click.ParamType


class Rebuildable(NamedTuple):
    """Something that can be made anew: called with a ledger, workers, verify and progress."""

    name: str
    rebuild: Callable[..., Rebuilt]


# Everything that comes with the package and can be made anew.
REBUILDABLE: dict[str, Rebuildable] = {
    table.name: Rebuildable(table.name, partial(rebuild, table=table)) for table in BUILT_IN_TABLES
}


class RebuildableParam(_ParamType):
    """The name of something that can be made anew, or `module:Class` of one's own table."""

    name = "name"

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Rebuildable:
        if isinstance(value, Rebuildable):
            return value
        if value in REBUILDABLE:
            return REBUILDABLE[value]
        if ":" in value:
            table = self._own(str(value), param, ctx)
            return Rebuildable(table.name, partial(rebuild, table=table))
        near = get_close_matches(value, REBUILDABLE)
        hint = f" Did you mean {near[0]}?" if near else ""
        message = f"{value!r} is none of {', '.join(REBUILDABLE)}.{hint}"
        own = "A table of your own is named by its class: module:Class."
        raise click.BadParameter(f"{message} {own}", ctx, param)

    def _own(self, value: str, param: Any, ctx: click.Context | None) -> Table[Any]:
        module, _, name = value.partition(":")
        # A program in the current folder is found, as `python -m` finds it.
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.insert(0, here)
        try:
            found = getattr(import_module(module), name, None)
        except Exception as error:  # the module is the user's own
            message = f"{value!r} can't be imported: {error_text(error)}"
            raise click.BadParameter(message, ctx, param) from error
        table = found() if isinstance(found, type) and issubclass(found, Table) else found
        if not isinstance(table, Table):
            raise click.BadParameter(f"{value!r} is no Table.", ctx, param)
        return table

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in REBUILDABLE if name.startswith(incomplete)]


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr for a person to watch; nothing for a program."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console_on(sys.stderr), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def up_to_date(ledger: Ledger, table: Table[Any]) -> TableRows:
    """A table's rows, after it has caught up with the ledger."""
    with bar(table.name) as progress:
        if progress is None:
            catch_up(ledger, table)
        else:
            behind = [kept.behind for kept in kept_tables(ledger) if kept.name == table.name]
            total = behind[0] if behind else None
            catch_up(ledger, table, progress=lambda done: progress(done, max(done, total or done)))
    return table_rows(ledger, table)
