"""Tables of all runs: the parameter type for their names, and rows after catching up."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.parameters import ParamType
from turnledger.adapters.cli.shared.progress import counting
from turnledger.adapters.cli.shared.user_code import load
from turnledger.ledger import Ledger
from turnledger.projections import Table, TableRows, catch_up, table_rows
from turnledger.projections.tables.builtin import BUILT_IN_TABLES
from turnledger.projections.tables.storage import kept_tables, skipped_records

TABLES = {table.name: table for table in BUILT_IN_TABLES}


class TableParam(ParamType):
    """The name of a built-in table, or `module:Class` of the user's own."""

    name = "name"

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Table[Any]:
        if value in TABLES:
            return TABLES[value]
        if ":" in value:
            found = load(value)
            table = found() if isinstance(found, type) and issubclass(found, Table) else found
            if not isinstance(table, Table):
                raise click.BadParameter(f"{value!r} is not a Table.")
            return table
        near = get_close_matches(value, TABLES)
        hint = f" Did you mean {near[0]}?" if near else ""
        message = f"Unknown table {value!r}. Expected one of: {', '.join(TABLES)}.{hint}"
        own = "Name a table of your own by its class: module:Class."
        raise click.BadParameter(f"{message} {own}")

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in TABLES if name.startswith(incomplete)]


def up_to_date(ledger: Ledger, table: Table[Any], skipped: SkippedRuns) -> TableRows:
    """Catch a table up with the ledger; its rows. Records that it does not count are named."""

    def behind() -> int:
        return sum(k.behind or 0 for k in kept_tables(ledger) if k.name == table.name)

    with counting(table.name, behind) as progress:
        catch_up(ledger, table, progress=progress)
    skipped.records(skipped_records(ledger, table))
    return table_rows(ledger, table)
