"""Command `worker`: takes requested and interrupted runs from the ledger, and runs them."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from turnledger.adapters.cli.shared.command import command, open_ledger
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import app_option
from turnledger.adapters.cli.shared.user_code import load_app, load_loop
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import Ledger

if TYPE_CHECKING:  # slow to import
    from turnledger.runtime.agents.worker import Job
    from turnledger.runtime.journal.heartbeat import LeaseHeartbeat


@command(
    without=("output",),
    example="""\
turnledger worker --app myagent:agent --db runs.db
turnledger worker --app myagent:agent --app orders:pay --concurrency 8
turnledger worker --app myagent:agent --url https://ledger.example:8321""",
)
@app_option(
    multiple=True,
    required=True,
    help="Your Agent, a workflow, or a function of the ledger that returns a MainLoop with a "
    "name. May be repeated.",
)
@click.option("--url", metavar="URL", help="The ledger or its server, in place of --db.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="How many runs at once.",
)
@click.option(
    "--lease",
    type=click.FloatRange(0, 86_400, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a claim lasts without a heartbeat.",
)
def worker(app: tuple[str, ...], url: str | None, concurrency: int, lease: float) -> None:
    """Take requested and interrupted runs, and run them to their end.

    A run is requested by agent.enqueue(...) or POST /v1/requests, and interrupted if its worker
    is gone. The oldest is taken first. Start as many workers as you like, on any machine: a run
    has one at a time. Over HTTP the token is that of TURNLEDGER_TOKEN.

    SIGTERM and Ctrl-C drain: no further run is taken, those under way end, and the exit code is
    0. A second one stops at once: those runs are released, and stay resumable. A ledger that
    can't be reached is waited for. What was taken, and how it ended, goes to stderr. Runs that
    failed, wait for a person, or were parked are never taken.
    """
    with open_ledger(create=True, url=url) as ledger:
        asyncio.run(_work(ledger, [_job(ledger, one) for one in app], concurrency, lease))


@dataclass(frozen=True)
class _LoopJob:
    """The runs of a loop that a function makes: one loop for each run, as they run at once."""

    name: str
    app: str

    def take(self, held: LeaseHeartbeat, ledger: Ledger) -> object:
        return load_loop(self.app, ledger).take(held)


def _job(ledger: Ledger, app: str) -> Job:
    from turnledger.runtime.agents.agent import Agent
    from turnledger.runtime.steps import Workflow

    found = load_app(app)
    if isinstance(found, Agent | Workflow):
        return found
    name = load_loop(app, ledger).loop_host.name
    if not name:
        raise click.BadParameter(
            f"Invalid app {app!r}: its loop has no name, and runs are requested by name. Make it "
            "with MainLoop(name=...).",
            param_hint="--app",
        )
    return _LoopJob(name, app)


async def _work(ledger: Ledger, jobs: list[Job], concurrency: int, lease: float) -> None:
    from turnledger.runtime.agents.worker import Worker

    def tell(line: str) -> None:
        say(visible(line))

    worker = Worker(
        ledger, jobs, concurrency=concurrency, lease=timedelta(seconds=lease), tell=tell
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    say(f"Taking runs of {', '.join(sorted(job.name for job in jobs))}. SIGTERM drains.")
    await worker.work()
