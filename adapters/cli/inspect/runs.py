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
from turnledger.adapters.cli.shared.output import (
    Format,
    Printer,
    age_text,
    print_traceback,
    say,
    seconds_text,
    terminal_width,
)
from turnledger.adapters.cli.shared.parameters import as_moment, name_of, number_from, tag_option
from turnledger.ledger import Ledger, ModelReplied, RunFailed, RunInfo
from turnledger.ledger.clock import moment_text, to_micros
from turnledger.ledger.errors import DAMAGE
from turnledger.ledger.runs.index import RunStatus

TABLE_LIMIT = 50
# Minutes without an event after which a running run is shown as quiet.
QUIET = 10
ENDED = ("completed", "failed", "abandoned", "parked")
# Events that are read at most to add up tokens: of one run, and of all.
MOST_READ_OF_ONE, MOST_READ = 2_000, 20_000
# Width of a terminal from which tags are listed.
WITH_TAGS = 100
# A longer name of a run is not listed in place of its id.
LONGEST_NAME = 24


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
    agent: str = ""


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

    On a terminal a run that has a name is listed under it; in a pipe and in JSON ids are whole,
    and the name is the tag `name`. PROMPT of a workflow is the workflow's name.

    A run that was killed is "running" as well: nothing was recorded since. One that is "quiet
    25m" has had no event for that long: a tool may be at work (see `turnledger pending`), or its
    worker is gone. EVENTS are the run's own, without those before a fork or in earlier turns of a
    chat. TOKENS are those of the run's own model calls, where it has few events; `turnledger
    usage RUN` tells them of any run. TOOK is the time from the first to the last event of a run
    that has ended. -o json has more fields, and neither of these two. A run whose row in the
    index is damaged is skipped and named, and the exit code is 5.
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
            _print_table(out, ledger, found, limit or TABLE_LIMIT)
        else:
            out.many(map(run_view, found))
    finish(skipped.code)


def _print_table(out: Printer, ledger: Ledger, found: Iterator[RunInfo], limit: int) -> None:
    now, tokens = ledger.clock.micros(), _Tokens(ledger)
    headings = ("run", "status", "prompt", "started", "events", "tokens", "took", "tags")
    rows = (
        (
            _named(run) if out.fits else run.run_id,
            _status(run, now),
            run.prompt or run.agent,
            moment_text(to_micros(run.started_at)),
            run.version - run.parent_version,
            tokens.of(run),
            _took(run),
            _tags(run.tags),
        )
        for run in islice(found, min(limit, sys.maxsize))
    )
    # Tags are what a narrow terminal has no room for.
    count = len(headings) - (out.fits and terminal_width() < WITH_TAGS)
    out.rows(headings[:count], (row[:count] for row in rows), nothing="No runs found.")
    if next(found, None) is not None:
        say(f"There are more than {limit} runs: see --limit.")


def _named(run: RunInfo) -> str:
    """A run for people: its name, or its id if it has none or a long one."""
    name = name_of(run)
    return name if 0 < len(name) <= LONGEST_NAME else str(run.run_id)


class _Tokens:
    """Token sums of runs, read from their own events: nothing is stored for them.

    A run with many events is left out, and so is every run once a number of events was read, so
    that the list costs the same in every ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._left = MOST_READ

    def of(self, run: RunInfo) -> int | None:
        """The sum, without calls that a run shares with its parent; None if it is not known."""
        events = run.version - run.parent_version
        if events > min(self._left, MOST_READ_OF_ONE):
            return None
        self._left -= events
        total = 0
        try:
            for record in self._ledger.read(run.run_id, run.parent_version, run.version):
                if record.tag == ModelReplied.tag:
                    event = record.event
                    assert isinstance(event, ModelReplied)
                    total += event.usage.input_tokens + event.usage.output_tokens
        except DAMAGE:
            return None  # the list is of the index; `verify` is for the events
        return total


def _status(run: RunInfo, now: int) -> str:
    quiet = (now - to_micros(run.updated_at)) // 60_000_000
    if run.status != "running" or quiet < QUIET:
        return run.status
    return f"quiet {age_text(now, run.updated_at).removesuffix(' ago')}"


def _took(run: RunInfo) -> str | None:
    if run.status not in ENDED:
        return None
    return seconds_text((run.updated_at - run.started_at).total_seconds())


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
