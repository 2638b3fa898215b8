"""Commands `tools` and `timeline`: tool calls, and when models and tools were called."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import merge
from itertools import chain
from typing import Any
from uuid import UUID

import click
import msgspec

from turnledger.adapters.cli.shared.command import command, finish, open_ledger, printer
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.output import (
    Format,
    Printer,
    json_text,
    line_width,
    print_traceback,
    say,
    seconds_text,
    shortened,
)
from turnledger.adapters.cli.shared.parameters import (
    at_option,
    flag,
    optional_run_argument,
    run_argument,
)
from turnledger.adapters.cli.shared.tables import up_to_date
from turnledger.adapters.cli.shared.views import (
    arguments_text,
    records_until,
    view_at,
    without_performed,
)
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import Event, Record, RunFailed, RunStarted, ToolCallFailed
from turnledger.ledger.clock import moment_text, to_micros
from turnledger.projections import PendingTools, Timeline, ToolCallView, ToolStatistics, fold
from turnledger.projections.views.timeline import Gap, Span, TimelineState, WorkerSpan

# Width of arguments and results in a table.
CELL = 60
COUNTS = ("started", "completed", "failed", "in_doubt")
# Width of a bar without a terminal, and the least; characters by outcome.
BAR, SHORTEST_BAR = 40, 8
# Steps inside of steps are indented up to this depth.
DEEPEST = 8
MARKS = {"running": "▒", "ok": "█", "failed": "▓", "in_doubt": "▒", "": "·", "dead": "x"}
# Of a worker's bar, whatever became of it.
WORKER = "─"


@command(
    example="""\
turnledger tools 099a8057 --pending
turnledger tools --all""",
)
@optional_run_argument
@at_option
@flag("--pending", help="Only calls that have not ended.")
@flag(
    "--all",
    "everything",
    help="Statistics by tool over all runs, from the table tool-statistics.",
)
def tools(run: UUID | None, at: int | None, pending: bool, everything: bool) -> None:
    """List a run's tool calls and their status.

    A call is pending, started, completed, failed or in_doubt. A durable step is listed after the
    step that it is in, and named by its path. Left out are the model's call that a step with the
    same id performed, and model calls as steps that have ended; -o json has all of them.

    With --all, records that can't be read are not counted: their runs are named, and the exit
    code is 5.
    """
    if everything:
        if run is not None or at is not None or pending:
            raise click.UsageError("--all can't be combined with RUN, --at or --pending.")
        _print_statistics(printer())
        return
    if run is None:
        raise click.UsageError("Missing argument 'RUN'. Use --all for all runs.")
    with open_ledger() as ledger:
        known = view_at(ledger, run, at, PendingTools())
    calls = known.pending() if pending else known.calls
    out = printer()
    if out.form is Format.TABLE:
        headings = ("call", "name", "status", "attempts", "took", "arguments", "result")
        amended, shown = len(known.amended) > 0, list(_nested(without_performed(calls, known)))
        out.rows(
            (*headings, "amended") if amended else headings,
            map(_amended_row if amended else _call_row, shown),
            nothing="No tool call is open." if pending else "The run has called no tool.",
        )
        for call in shown:
            print_traceback(out, f"Call {call.call_id} ({call.name}):", call.traceback)
    else:
        # Every field, also those with their default value.
        out.many(map(msgspec.structs.asdict, calls))


def _nested(calls: Iterable[ToolCallView]) -> Iterator[ToolCallView]:
    """Calls in their order, each followed by the steps inside of it; no model call that ended."""
    shown = [call for call in calls if call.kind == "tool" or not call.is_over]
    # A step's call began before it: an id that is used again means the latest one.
    known, inside = dict[str, int](), dict[int, list[ToolCallView]]()
    for call in shown:
        inside.setdefault(known.get(call.parent, 0) if call.parent else 0, []).append(call)
        known[call.call_id] = call.number
    left = inside.pop(0, [])[::-1]
    while left:
        call = left.pop()
        yield call
        left.extend(inside.pop(call.number, ())[::-1])


def _call_row(call: ToolCallView) -> tuple[Any, ...]:
    decided = f" (decided: {call.decision})" if call.decision else ""
    begun = call.started_at or call.asked_at
    took = (call.ended_at - begun).total_seconds() if call.ended_at and begun else None
    return (
        call.call_id,
        call.name,
        call.status + decided,
        call.attempts,
        seconds_text(took) if took is not None else None,
        shortened(visible(arguments_text(call)), CELL),
        shortened(visible(_result_text(call)), CELL),
    )


def _result_text(call: ToolCallView) -> str:
    """What came of a call: what the model was told, an error, or a step's value."""
    if call.unrecordable:
        return f"not recorded: {call.unrecordable}"
    if call.result is not None or call.error_message is not None:
        return call.result if call.result is not None else call.error_message or ""
    return json_text(call.value) if call.is_step and call.is_over else ""


def _amended_row(call: ToolCallView) -> tuple[Any, ...]:
    """A row that ends with what the tool's message was changed to."""
    return (*_call_row(call), shortened(visible(call.amended or ""), CELL))


def _print_statistics(out: Printer) -> None:
    """Print the table tool-statistics, caught up."""
    skipped = SkippedRuns()
    with open_ledger() as ledger:
        rows = up_to_date(ledger, ToolStatistics(), skipped).rows
    values = ({"name": name, **row} for name, row in rows.items())
    headings = ("name", *COUNTS, "mean", "longest")
    out.listing(values, headings, _statistics_row, nothing="No tool was called.")
    finish(skipped.code)


def _statistics_row(row: dict[str, Any]) -> tuple[Any, ...]:
    counts = (row[count] for count in COUNTS)
    if not row["timed"]:
        return (row["name"], *counts, None, None)
    mean, longest = row["total_micros"] / row["timed"], row["longest_micros"]
    return (row["name"], *counts, *(seconds_text(micros / 1e6) for micros in (mean, longest)))


# --- the timeline -------------------------------------------------------------------


class TimelineRow(msgspec.Struct, frozen=True):
    """A span, a worker's or a gap as JSON; `offset` is from the start of the run, in seconds."""

    kind: str
    name: str
    outcome: str
    attempt: int
    step_num: int | None
    offset: float
    seconds: float | None
    from_version: int | None
    to_version: int | None
    started_at: str
    ended_at: str | None
    # Of a durable step: its call, the one that it is in, and how often a request failed before.
    call_id: str = ""
    parent: str = ""
    failed_attempts: int = 0


class _Timed:
    """Passes records on, and keeps the times of the first and of the last."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = records
        self.first: datetime | None = None
        self.last: datetime | None = None
        # With a heading each, in the order of the events.
        self.tracebacks: list[tuple[str, str]] = []

    def __iter__(self) -> Iterator[Record]:
        for record in self._records:
            self.last = record.recorded_at
            if self.first is None or _starts_timeline(record):
                self.first = self.last
            if record.tag in (ToolCallFailed.tag, RunFailed.tag):
                self._note(record.version, record.event)
            yield record

    def _note(self, version: int, event: Event) -> None:
        if isinstance(event, ToolCallFailed):
            heading = f"Version {version}, call {event.call_id} ({event.name}):"
            self.tracebacks.append((heading, event.traceback))
        elif isinstance(event, RunFailed):
            self.tracebacks.append((f"Version {version}, the run failed:", event.traceback))


def _starts_timeline(record: Record) -> bool:
    """Whether the timeline begins again here: a continuation or a chat turn starts."""
    if record.tag != RunStarted.tag:
        return False
    event = record.event
    return isinstance(event, RunStarted) and event.kind != "fork"


@command(
    example="turnledger timeline 099a8057",
)
@run_argument
@at_option
@flag("-v", "--verbose", help="Also the tracebacks of tools that raised, and of a failed run.")
def timeline(run: UUID, at: int | None, verbose: bool) -> None:
    """Show when a run called models and tools, and for how long.

    Times count from the run's first event, of a fork from its parent's. A gap is a time
    without any model or tool call. A call that has not ended has no duration. If messages have
    step numbers, calls are grouped by the step of the message before them. A durable step is
    indented under the call that it is in.

    A worker's row goes from its claim to its last record. It died if it left a call open or the
    run was resumed after it; then the time up to the next claim is a dead gap, even inside a call.
    """
    with open_ledger() as ledger:
        records = _Timed(records_until(ledger, run, at))
        known = fold(records, Timeline())
    out = printer()
    if out.form is not Format.TABLE:
        out.many(_rows(known, records.first))
    elif len(known.spans) and records.first is not None and records.last is not None:
        _draw(out, known, records.first, (records.last - records.first).total_seconds())
    else:
        say("The run has called no model and no tool.")
    if verbose and out.form is Format.TABLE:
        for heading, text in records.tracebacks:
            print_traceback(out, heading, text)


def _rows(known: TimelineState, start: datetime | None) -> Iterator[TimelineRow]:
    """Workers, spans and gaps, by start time."""
    workers: Iterable[Span | Gap | WorkerSpan] = known.workers
    for item in merge(workers, known.spans, known.gaps(), key=lambda item: item.started_at):
        begun, ended = item.started_at, item.ended_at
        span = item if isinstance(item, Span) else None
        kind, name, outcome = _described(item)
        yield TimelineRow(
            kind=kind,
            name=name,
            outcome=outcome,
            attempt=span.attempt if span else 0,
            step_num=span.step_num if span else None,
            offset=(begun - (start or begun)).total_seconds(),
            seconds=(ended - begun).total_seconds() if ended is not None else None,
            from_version=None if isinstance(item, Gap) else item.from_version,
            to_version=None if isinstance(item, Gap) else item.to_version,
            started_at=moment_text(to_micros(begun)),
            ended_at=moment_text(to_micros(ended)) if ended is not None else None,
            call_id=span.call_id if span else "",
            parent=span.parent if span else "",
            failed_attempts=span.failed_attempts if span else 0,
        )


def _described(item: Span | Gap | WorkerSpan) -> tuple[str, str, str]:
    """Kind, name and outcome of a row."""
    if isinstance(item, Gap):
        return "gap", item.worker, "dead" if item.dead else ""
    if isinstance(item, WorkerSpan):
        return "worker", item.worker, item.outcome
    return item.kind, item.name, item.outcome


def _draw(out: Printer, known: TimelineState, start: datetime, total: float) -> None:
    has_steps = any(span.step_num is not None for span in known.spans)
    headings = (*(("step",) if has_steps else ()), "at", "took", "kind", "name", "outcome")

    def lines() -> Iterator[tuple[TimelineRow, tuple[str, ...]]]:
        step: int | None = None
        depths: dict[str, int] = {}
        for row in _rows(known, start):
            depth = depths.get(row.parent, 0) + 1 if row.parent else 0
            depths[row.call_id] = depth
            begins = row.kind not in ("gap", "worker") and row.step_num != step
            step = row.step_num if begins else step
            mark = (str(step or "") if begins else "",) if has_steps else ()
            yield row, (*mark, *_cells(row, depth))

    width = _bar_width(chain([headings], (cells for _, cells in lines())))
    if width:
        drawn = ((*cells, _bar(row, total, width)) for row, cells in lines())
        out.rows((*headings, ""), drawn)
    else:
        out.rows(headings, (cells for _, cells in lines()))


def _cells(row: TimelineRow, depth: int) -> tuple[str, ...]:
    again = f" (attempt {row.attempt})" if row.attempt > 1 else ""
    failed = f", {row.failed_attempts} failed before" if row.failed_attempts else ""
    return (
        f"+{seconds_text(row.offset)}",
        seconds_text(row.seconds) if row.seconds is not None else "",
        row.kind,
        "  " * min(depth, DEEPEST) + shortened(visible(row.name), CELL),
        row.outcome + again + failed,
    )


def _bar_width(lines: Iterable[tuple[str, ...]]) -> int:
    """The width that the other columns leave; 0 if it is too little for a bar."""
    if not sys.stdout.isatty():
        return BAR
    from rich.cells import cell_len

    widest: tuple[int, ...] = ()
    for line in lines:
        widest = tuple(map(max, widest or (0,) * len(line), map(cell_len, line)))
    room = line_width() - sum(widest) - 2 * len(widest)
    return room if room >= SHORTEST_BAR else 0


def _bar(row: TimelineRow, total: float, width: int) -> str:
    """The row's part of the whole run, at least one character."""
    scale = width / total if total > 0 else 0.0
    begin = min(int(row.offset * scale), width - 1)
    end = min(round((row.offset + (row.seconds or 0.0)) * scale), width)
    length = max(end - begin, 1)
    mark = WORKER if row.kind == "worker" else MARKS[row.outcome]
    return " " * begin + mark * length + " " * (width - begin - length)
