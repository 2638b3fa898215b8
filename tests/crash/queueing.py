"""Workers as processes that are killed at random, over one queue, until all of it is done."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple
from uuid import UUID

from tests.crash.queue_agent import BANK, NAME, PAUSE, agent
from turnledger.ledger import Ledger, RunClaimed, RunCompleted, StoreUnavailableError
from turnledger.ledger.errors import AppendRefusedError
from turnledger.runtime.recovery.doubts import decide

_COMMAND = "from turnledger.adapters.cli import main; main()"


class Told(NamedTuple):
    """What became of a queue: counts, and seconds from the requests to the first claims."""

    completed: int
    payments: list[int]
    kills: int
    asked: int
    claims: int
    seconds: float
    median_wait: float
    longest_wait: float


class Crew:
    """Worker processes, one killed and replaced now and then.

    Args:
        url: The ledger or its server, which is all that the workers share.
        folder: Where the effects are counted.
        processes: How many workers.
        concurrency: How many runs each has at once.
        lease: Seconds of a claim.
        token: The access token of a server.
        pause: Seconds that a payment takes.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        processes: int,
        concurrency: int = 2,
        lease: float = 60.0,
        token: str = "",
        pause: float = 0.005,
    ) -> None:
        self.bank = folder / "bank"
        self._environment = {
            **os.environ,
            BANK: str(self.bank),
            PAUSE: str(pause),
            "TURNLEDGER_TOKEN": token,
        }
        options = ["--concurrency", str(concurrency), "--lease", str(lease)]
        self._command = ["worker", "--app", "tests.crash.queue_agent:agent", "--url", url, *options]
        self._log = folder / "workers.log"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.kills = 0
        for _ in range(processes):
            self._start()

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self.workers.append(
                subprocess.Popen(
                    [sys.executable, "-c", _COMMAND, *self._command],
                    env=self._environment,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                )
            )

    def kill_one(self, random: Random) -> None:
        """SIGKILL one, and start another."""
        victim = self.workers.pop(random.randrange(len(self.workers)))
        assert victim.poll() is None, self.log()
        victim.kill()
        victim.wait()
        self.kills += 1
        self._start()

    def drain(self) -> list[int]:
        """SIGTERM to all; their exit codes."""
        for worker in self.workers:
            worker.terminate()
        return [worker.wait(60) for worker in self.workers]

    def paid(self) -> Counter[str]:
        """How often each order was paid."""
        return Counter(self.bank.read_text().split()) if self.bank.exists() else Counter()

    def log(self) -> str:
        """What the workers said last."""
        return self._log.read_text()[-4000:]

    def close(self) -> None:
        """Kill all."""
        for worker in self.workers:
            worker.kill()
            worker.wait()


def request(ledger: Ledger, count: int) -> list[UUID]:
    """Request runs, one for each order."""
    return [agent.enqueue(f"order-{n}", ledger=ledger) for n in range(count)]


def until_done(
    crew: Crew,
    ledger: Ledger,
    runs: Sequence[UUID],
    *,
    seconds: float,
    kills: int,
    seed: int,
    between: Callable[[int], None] = lambda completed: None,
) -> Told:
    """Kill workers and decide about calls in doubt until all runs are completed.

    Args:
        crew: The workers.
        ledger: The ledger, for the person who decides.
        runs: What was requested.
        seconds: How long it may take.
        kills: How many workers to kill: spread over the progress, so that none is after the end.
        seed: Of the choice of victims.
        between: Called with the number of completed runs, again and again.
    """
    random, asked, began = Random(seed), 0, time.monotonic()
    completed = 0
    while completed < len(runs):
        assert time.monotonic() < began + seconds, (completed, crew.kills, crew.log())
        asked += _decide(ledger, crew)
        completed = sum(1 for _ in ledger.runs(status="completed", agent=NAME))
        between(completed)
        if crew.kills < kills * (completed + 1) / len(runs) and completed < len(runs):
            crew.kill_one(random)
        time.sleep(0.05)
    took, paid = time.monotonic() - began, crew.paid()
    ended, waits, claims = Counter[str](), [], 0
    for run in runs:
        records = [*ledger.read(run)]
        ended[str(run)] = sum(record.tag == RunCompleted.tag for record in records)
        claimed = [record for record in records if record.tag == RunClaimed.tag]
        claims += len(claimed)
        waits.append((claimed[0].recorded_at - records[0].recorded_at).total_seconds())
    assert set(ended.values()) == {1}
    return Told(
        len(ended),
        [paid[f"order-{n}"] for n in range(len(runs))],
        crew.kills,
        asked,
        claims,
        took,
        median(waits),
        max(waits),
    )


def _decide(ledger: Ledger, crew: Crew) -> int:
    """Decide as a person does who looks at the bank; how many runs had asked."""
    count = 0
    for info in ledger.runs(status="waiting", agent=NAME):
        started = ledger.record(info.run_id, 1).event
        order = getattr(started, "request", "")
        try:
            if crew.paid()[order]:
                decide(ledger, info.run_id, "pay", "completed", text="paid", value="paid")
            else:
                decide(ledger, info.run_id, "pay", "retry")
        except (AppendRefusedError, StoreUnavailableError):
            continue  # another time
        count += 1
    return count
