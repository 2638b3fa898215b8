"""Scenario: ledgers on disks that fail at a chosen call, one ledger a case.

A case says who works there (processes, threads), by which seed, and what fails when. Workers
end without closing, or close; then another process checks what they were promised.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.processes import ChildFailedError, Crew, Voice
from tests.faults.checking import check
from tests.faults.client import Client
from tests.faults.lying_disk import FAULTS, FILES, SHARED, LyingDisk, Plan, Storm
from tests.faults.vfs import put_under_sqlite
from turnledger.ledger import Ledger
from turnledger.ledger.stores.sqlite import store as sqlite

STEPS = 12
# What a case is if it does not say otherwise. Without a fault it is a storm of them.
CASE: dict[str, Any] = {
    "seed": 1,
    "fault": "",
    "at": 1,
    "times": 1,
    "every": 0,
    "files": FILES,
    "processes": 1,
    "threads": 1,
    "closes": False,
    # After how many pages the WAL is moved: often enough to be met.
    "pages": 40,
}


def run(
    crew: Crew, *, folder: str, cases: list[dict[str, Any]], at_most: float = 3600
) -> dict[str, Any]:
    """Figures, and what was wrong with which case; ends early if the time is up."""
    ends = time.monotonic() + at_most
    figures: Counter[str] = Counter()
    wrong: list[str] = []
    for number, case in enumerate(cases):
        if time.monotonic() > ends:
            break
        url = str(Path(folder) / f"{number}.db")
        try:
            found, told = play(crew, url, CASE | case)
        except ChildFailedError as error:
            found, told = [str(error)], Counter()
        figures.update(told)
        figures["cases"] += 1
        wrong += [f"{case}: {problem}" for problem in found]
    return {"wrong": wrong[:20], **figures}


def play(crew: Crew, url: str, case: dict[str, Any]) -> tuple[list[str], Counter[str]]:
    """Let a case happen: what was wrong, and figures."""
    workers = [crew.start(f"worker {n}", _work, url, case, n) for n in range(case["processes"])]
    accounts: list[dict[str, Any]] = []
    figures: Counter[str] = Counter()
    for worker in workers:
        told, failed = crew.expect(worker, "worked")
        accounts += told
        figures["faults"] += failed
    for worker in workers:
        worker.order("e")
    crew.join(*workers)
    found: list[str] = []
    for account in accounts:
        found += account.pop("wrong")
        figures.update(account.pop("figures"))
    wrong, figures["found stored"] = check(crew, url, accounts)
    return found + wrong, figures


def _work(voice: Voice, url: str, case: dict[str, Any], me: int) -> None:
    assert hasattr(sqlite, "CHECKPOINT_PAGES")
    sqlite.CHECKPOINT_PAGES = case["pages"]
    random = Random(f"{case['seed']}/{me}")
    plan = Plan(case["fault"], case["at"], case["times"], case["every"], tuple(case["files"]))
    faults = tuple(FAULTS) if case["processes"] == 1 else SHARED
    disk = LyingDisk(plan, None if plan.fault else Storm(Random(random.random()), faults))
    put_under_sqlite(disk)
    first = Client(lambda: Ledger.open(url), disk, random)
    clients = [first]
    if case["threads"] == 1:
        for _ in range(2):
            first.work(STEPS // 2)
            first.reopen()
    else:
        clients += [
            Client(lambda: first.ledger, disk, Random(random.random()))
            for _ in range(case["threads"] - 1)
        ]
        with ThreadPoolExecutor(len(clients)) as pool:
            list(pool.map(lambda client: client.work(STEPS // 2), clients))

    def end() -> None:
        voice.say("worked", [client.account.told() for client in clients], disk.failed)
        voice.hear()
        os._exit(0)

    if case["closes"]:
        first.ledger.close()
    elif case["processes"] == 1:
        # Every other one is dead before it could do anything about the failure.
        first.fail_last(end if random.random() < 0.5 else None)
    end()
