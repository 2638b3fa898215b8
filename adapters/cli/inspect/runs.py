"""Command `runs`, and the summary of a run that `show` prints."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any, get_args
from uuid import UUID

import click
import msgspec

from turnledger.adapters.cli.shared.command import command, finish, open_ledger, printer
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.output import Format, Printer, print_traceback, say
from turnledger.adapters.cli.shared.parameters import as_moment, number_from, tag_option
from turnledger.ledger import Ledger, RunFailed, RunInfo
from turnledger.ledger.clock import moment_text, to_micros
from turnledger.ledger.runs.index import RunStatus

TABLE_LIMIT = 50
# Minutes without an event after which a running run is shown as quiet.
QUIET = 10


class RunView(msgspec.Struct, frozen=True):
    """A run as JSON."""

    run_id: UUID
    status: str
    version: int
    kind: str
    parent: UUID | None
    parent_version: int
    prompt: str
    tags: dict[str, str]
    epoch: int
    started_at: str
    updated_at: str
    digest: str


class LeaseView(msgspec.Struct, frozen=True):
    """The last lease of a run: its worker, and when it expires by the store's clock."""

    worker: str
    epoch: int
    expires_at: str


def run_view(run: RunInfo) -> RunView:
    """A run as commands print it."""
    fields = {name: getattr(run, name) for name in RunView.__struct_fields__}
    for name in ("started_at", "updated_at"):
        fields[name] = moment_text(to_micros(fields[name]))
    return RunView(**fields)


def _tags(tags: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in tags.items())


@command(
    example="turnledger runs --status waiting --tag customer=acme --since 2025-01-31",
)
@click.option(
    "--status", type=click.Choice(get_args(RunStatus)), help="Only runs with this status."
)
@tag_option(
    needs_value=False,
    help="Only runs with this tag (and value). May be repeated.",
)
@click.option("--prompt", metavar="NS/KEY", help="Only runs that evaluate this prompt.")
@click.option(
    "--since", type=as_moment, metavar="TIME", help="Only runs started at this time or later."
)
@click.option("--until", type=as_moment, metavar="TIME", help="Only runs started before this time.")
@click.option(
    "--limit",
    type=number_from(1),
    metavar="N",
    help=f"At most N runs. Default: {TABLE_LIMIT} in a table, else all.",
)
def runs(
    status: RunStatus | None,
    tags: tuple[tuple[str, str | None], ...],
    prompt: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int | None,
) -> None:
    """List runs, newest first.

    A run that is "running, quiet 25 min" has had no event for that long: a tool may be at work
    (see `turnledger pending`), or its worker is gone. A run whose row in the index is damaged is
    skipped and named, and the exit code is 5.
    """
    out, skipped = printer(), SkippedRuns()
    with open_ledger() as ledger:
        found = ledger.runs(
            status=status,
            tags=dict(tags),
            prompt=prompt,
            since=since,
            until=until,
            limit=limit,
            on_damage=skipped,
        )
        if out.form is Format.TABLE:
            _print_table(out, found, limit or TABLE_LIMIT, ledger.clock.micros())
        else:
            out.many(map(run_view, found))
    finish(skipped.code)


def _print_table(out: Printer, found: Iterator[RunInfo], limit: int, now: int) -> None:
    shown = ((run, run_view(run)) for run in islice(found, min(limit, sys.maxsize)))
    out.rows(
        ("run", "status", "version", "started", "prompt", "tags"),
        (
            (v.run_id, _status(run, now), v.version, v.started_at, v.prompt, _tags(v.tags))
            for run, v in shown
        ),
    )
    if next(found, None) is not None:
        say(f"There are more than {limit} runs: see --limit.")


def _status(run: RunInfo, now: int) -> str:
    quiet = (now - to_micros(run.updated_at)) // 60_000_000
    return (
        f"running, quiet {quiet} min" if run.status == "running" and quiet >= QUIET else run.status
    )


def show_run(ledger: Ledger, run_id: UUID, out: Printer) -> None:
    """Print a run's row of the index, and its last lease."""
    view = run_view(ledger.run(run_id))
    lease = ledger.store.lease(str(run_id))
    claim = lease and LeaseView(lease.worker, lease.epoch, moment_text(lease.expires_at))
    fields: dict[str, Any] = {**msgspec.structs.asdict(view), "lease": claim}
    failed = _failure(ledger, run_id) if view.status == "failed" else None
    if failed is not None:
        fields["error"] = f"{failed.error_type}: {failed.error_message}"
        fields["traceback"] = failed.traceback

    def table() -> None:
        out.pairs((name, _text(value)) for name, value in fields.items() if name != "traceback")
        print_traceback(out, "", fields.get("traceback", ""))

    out.one(fields, table)


def _failure(ledger: Ledger, run_id: UUID) -> RunFailed | None:
    """The failure that a failed run ended with; None if the index is wrong about it."""
    records = ledger.read(run_id, backwards=True)
    events = (record.event for record in records if record.tag == RunFailed.tag)
    return next((event for event in events if isinstance(event, RunFailed)), None)


def _text(value: Any) -> Any:
    if isinstance(value, dict):
        return _tags(value)
    if isinstance(value, LeaseView):
        return f"{value.worker} (epoch {value.epoch}) until {value.expires_at}"
    return value
