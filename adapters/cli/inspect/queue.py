"""Command `queue`: runs that workers take or have, and those that wait for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import click
import msgspec

from turnledger.adapters.cli.shared.command import command, finish, open_ledger, printer
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.output import Format
from turnledger.ledger import Ledger, RunInfo
from turnledger.ledger.clock import moment_text, to_micros
from turnledger.ledger.runs.names import UNQUEUED_TAGS

Place = Literal["requested", "running", "interrupted", "waiting"]


class QueuedRun(msgspec.Struct, frozen=True):
    """A run in the queue. `since` is its request, or when something of it was last recorded."""

    run_id: str
    agent: str
    place: Place
    since: str
    worker: str | None
    epoch: int


@command(
    example="""\
turnledger queue
turnledger queue --agent support/triage -o json""",
)
@click.option("--agent", metavar="NAME", help="Only runs of this agent or workflow.")
def queue(agent: str | None) -> None:
    """List requested, running, interrupted and waiting runs.

    Oldest first. A requested run was never begun; a running one has a worker; an interrupted one
    had one that is gone, and is taken next; a waiting one needs a person's decision: see
    turnledger pending. Runs that belong to no agent are not in the queue.
    """
    skipped, out = SkippedRuns(), printer()
    with open_ledger() as ledger:
        found = [
            _queued(ledger, info)
            for status in ("running", "waiting")
            for info in ledger.runs(status=status, agent=agent, on_damage=skipped)
            if _is_queued(info)
        ]
    found.sort(key=lambda run: run.since)
    headings = ("run", "agent", "place", "since", "worker")

    def rows() -> Iterator[tuple[str | None, ...]]:
        for run in found:
            yield run.run_id, run.agent, run.place, run.since, run.worker

    if out.form is Format.TABLE:
        out.rows(headings, rows(), nothing="The queue is empty.")
    else:
        out.many(iter(found))
    finish(skipped.code)


def _is_queued(info: RunInfo) -> bool:
    """Whether workers ever take it; a fork that was never run is for a person."""
    tags = any(tag in info.tags for tag in UNQUEUED_TAGS)
    return bool(info.agent) and not tags and not (info.kind == "fork" and not info.epoch)


def _queued(ledger: Ledger, info: RunInfo) -> QueuedRun:
    worker = ledger.worker_of(info.run_id) if info.epoch else None
    place: Place = "requested" if not info.epoch else "running" if worker else "interrupted"
    if info.status == "waiting":
        place = "waiting"
    since = info.updated_at if info.epoch else info.started_at
    run, moment = str(info.run_id), moment_text(to_micros(since))
    return QueuedRun(run, info.agent, place, moment, worker, info.epoch)
