"""Command `usage`: tokens by model and turn of a run, or by model or day of all runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any
from uuid import UUID

import click

from turnledger.adapters.cli.shared.command import command, finish, open_ledger, printer
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.output import Format, Printer
from turnledger.adapters.cli.shared.parameters import flag, optional_run_argument
from turnledger.adapters.cli.shared.tables import up_to_date
from turnledger.adapters.cli.shared.views import records_until
from turnledger.ledger import Ledger, ModelCallFailed, ModelReplied, RunStarted
from turnledger.ledger.errors import DAMAGE
from turnledger.projections import Usage, UsageByDay, fold
from turnledger.projections.views.usage import Tokens, UsageState

# Column headings, and the fields of a sum.
COUNTS = {
    "input": "input_tokens",
    "cached": "cached_tokens",
    "output": "output_tokens",
    "reasoning": "reasoning_tokens",
    "total": "total_tokens",
}


@command(
    example="""\
turnledger usage 099a8057
turnledger usage --by-day
turnledger usage -o json""",
)
@optional_run_argument
@flag("--by-day", help="All runs, by day (UTC) and model, from the table usage-by-day.")
@flag("--lineage", help="Of a chat turn or a fork: with the runs that it goes on from.")
def usage(run: UUID | None, by_day: bool, lineage: bool) -> None:
    """Add up the tokens used by a run, or by all runs.

    For one run by model and by turn or step, for all runs by model. What a fork or a chat turn
    shares with the runs before it counts for those. Cached tokens are part of the input,
    reasoning tokens of the output. Where a provider sent no usage and the tokens were counted on
    this side, the column "estimated" has the number of such calls. For all runs, records that
    can't be read are not counted: their runs are named, and the exit code is 5.
    """
    if by_day:
        if run is not None:
            raise click.UsageError("--by-day can't be combined with RUN.")
        _print_days(printer())
        return
    if lineage and run is None:
        raise click.UsageError("--lineage needs RUN.")
    view, skipped = Usage(), SkippedRuns()
    with open_ledger() as ledger:
        if run is not None:
            records = records_until(ledger, run, None)
            own = (one for one in records if not lineage or one.tag != RunStarted.tag)
            state = fold(own, view)
        else:
            state = _sum_of_all(ledger, skipped)
    value = view.lazy_json(state)
    if run is None:
        del value["turns"]
    out = printer()
    if out.form is Format.TABLE:
        _print(out, value)
    else:
        out.pretty(value)
    finish(skipped.code)


def _print_days(out: Printer) -> None:
    """Print the table usage-by-day, caught up."""
    skipped = SkippedRuns()
    with open_ledger() as ledger:
        found = up_to_date(ledger, UsageByDay(), skipped)
    days = [_day(key, sums) for key, sums in found.rows.items()]
    counts = _columns(days)
    out.listing(
        days,
        ("day", "model", "calls", "failed", *counts),
        lambda day: (
            *(day[name] for name in ("day", "model", "calls", "failed_calls")),
            *_counts(day, counts),
        ),
        nothing="No model was called.",
    )
    finish(skipped.code)


def _day(key: str, sums: dict[str, int]) -> dict[str, Any]:
    day, _, model = key.partition(" ")
    total = sums["input_tokens"] + sums["output_tokens"]
    return {"day": day, "model": model, **sums, "total_tokens": total}


def _sum_of_all(ledger: Ledger, skipped: SkippedRuns) -> UsageState:
    """The sums over all runs, in one pass; only the models are kept in memory."""
    models: dict[str, Tokens] = {}
    total, failed = Tokens(), 0
    for record in ledger.tail():
        if record.tag == ModelCallFailed.tag:
            failed += 1
        elif record.tag == ModelReplied.tag:
            try:
                event = record.event
            except DAMAGE:
                skipped.records([f"{record.run_key} {record.version}"])
                continue
            assert isinstance(event, ModelReplied)
            total = total.plus(event.usage)
            models[event.model] = models.get(event.model, Tokens()).plus(event.usage)
    largest_first = sorted(models, key=lambda name: (-models[name].total_tokens, name))
    by_model = {model: models[model] for model in largest_first}
    return UsageState(total, by_model, failed_calls=failed)


def _print(out: Printer, value: dict[str, Any]) -> None:
    sums = [*value["by_model"].items(), ("all", value["total"])]
    counts = _columns([value["total"]])
    rows = ((name, one["calls"], *_counts(one, counts)) for name, one in sums)
    out.rows(("model", "calls", *counts), rows)
    if value["failed_calls"]:
        out.line("")
        out.pairs([("failed calls", value["failed_calls"])])
    turns = iter(value.get("turns", ()))
    first = next(turns, None)
    if first is not None:
        out.line("")
        # A run whose first reply is a step's is made of steps, though one of them may be an agent.
        is_step = "call_id" in first
        out.rows(
            (*(("step",) if is_step else ("evaluation", "turn")), "model", *counts),
            (
                (*_whose(turn, is_step), turn["model"], *_counts(turn, counts))
                for turn in chain([first], turns)
            ),
        )


def _whose(turn: dict[str, Any], is_step: bool) -> tuple[Any, ...]:
    """What a reply was to: a step, or a turn of an evaluation."""
    if is_step:
        return (turn.get("call_id") or turn["evaluation_id"],)
    return (turn.get("call_id") or turn["evaluation_id"], turn["turn"] or None)


def _columns(sums: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Column headings and fields: how many calls are estimated only where one is."""
    estimated = any(one["estimated_calls"] for one in sums)
    return COUNTS | {"estimated": "estimated_calls"} if estimated else COUNTS


def _counts(sums: dict[str, Any], columns: dict[str, str]) -> tuple[int, ...]:
    return tuple(sums[name] for name in columns.values())
