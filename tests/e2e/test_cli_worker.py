"""`turnledger worker` and `turnledger queue`, as a person sees them."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.crash.queue_agent import BANK, NAME, agent
from tests.e2e.driving import PROGRAM, InProcess, Processes
from tests.postgres import eventually
from turnledger.ledger import ANY, RunWaiting

APP = "tests.crash.queue_agent:agent"


def test_the_queue_shows_where_each_run_is(cli: InProcess) -> None:
    """Requested, running, interrupted and waiting; runs without an agent are not in it."""
    with cli.ledger() as ledger:
        requested, running, left, waiting = (
            str(agent.enqueue(f"order-{n}", ledger=ledger)) for n in range(4)
        )
        with ledger.claim(waiting) as claim:
            ledger.append(waiting, RunWaiting(reason="r", call_ids=("c",)), ANY, claim.epoch)
        ledger.claim(left).release()
        ledger.fork(waiting, 3)
        with ledger.claim(running, worker="ann"):
            found = {run["run_id"]: run for run in cli("queue", "-o", "json").json}
            table = cli("queue").out
    assert {run: one["place"] for run, one in found.items()} == {
        requested: "requested",
        running: "running",
        left: "interrupted",
        waiting: "waiting",
    }
    assert (found[running]["worker"], found[requested]["worker"]) == ("ann", None)
    assert all(word in table for word in ("requested", "ann", NAME))
    assert cli("queue", "--agent", "nobody").err.strip() == "The queue is empty."


def test_a_worker_takes_runs_and_drains_on_sigterm(processes: Processes, tmp_path: Path) -> None:
    """What it took and how it ended is on stderr, and the exit code is 0."""
    with InProcess(processes.db).ledger() as ledger:
        run = agent.enqueue("order-1", ledger=ledger)
        worker = subprocess.Popen(
            [PROGRAM, "worker", "--app", APP],
            env=processes.environment(**{BANK: str(tmp_path / "bank")}),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            eventually(lambda: ledger.run(run).status == "completed")
            worker.send_signal(signal.SIGTERM)
            _, said = worker.communicate(timeout=60)
        finally:
            worker.kill()
            worker.wait()
    assert worker.returncode == 0
    assert f"Run {run} of {NAME} taken, epoch 1." in said
    assert f"Run {run} completed." in said
    assert (tmp_path / "bank").read_text() == "order-1\n"


def test_what_can_not_be_worked_on_is_named(cli: InProcess) -> None:
    """A loop without a name has no queue."""
    ended = cli("worker", "--app", "tests.e2e.agent_for_cli:loop")
    assert ended.code == 2
    assert "has no name" in ended.err
