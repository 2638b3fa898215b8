"""The table of what all runs' tools did, as `tools --all` prints it."""

from __future__ import annotations

from typing import Any

from turnledger.adapters.cli.shared.command import open_ledger
from turnledger.adapters.cli.shared.output import Format, Printer
from turnledger.adapters.cli.shared.tables import up_to_date
from turnledger.adapters.cli.shared.views import seconds_text
from turnledger.projections import ToolStatistics

COUNTS = ("started", "completed", "failed", "in_doubt")


def print_statistics(out: Printer) -> None:
    """The table, brought up to date."""
    with open_ledger() as ledger:
        rows = up_to_date(ledger, ToolStatistics()).rows
    if out.form is not Format.TABLE:
        out.many(({"name": name, **row} for name, row in rows.items()), str, flush=False)
        return
    out.rows(("name", *COUNTS, "mean", "longest"), (_cells(*row) for row in rows.items()))


def _cells(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    counts = (str(row[count]) for count in COUNTS)
    if not row["timed"]:
        return (name, *counts, "", "")
    mean, longest = row["total_micros"] / row["timed"], row["longest_micros"]
    return (name, *counts, *(seconds_text(micros / 1e6) for micros in (mean, longest)))
