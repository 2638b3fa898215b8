"""Scenario: the power fails at any moment of a ledger's work, on a disk that keeps its word.

The work is done once, and everything that reached the disk is noted. Then the files are made
as a power cut after each single call would leave them, and opened by another process.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tests.crash.processes import Crew, Voice
from tests.faults.checking import check
from tests.faults.client import Client
from tests.faults.images import LEFTOVERS, Platter
from tests.faults.lying_disk import SYNCS, LyingDisk, Plan, Storm
from tests.faults.vfs import put_under_sqlite
from turnledger.ledger import Ledger
from turnledger.ledger.stores.sqlite import store as sqlite
from turnledger.ledger.stores.sqlite.connection import ConnectionPool


def run(
    crew: Crew,
    *,
    folder: str,
    seed: int,
    steps: int,
    every: int,
    faults: bool = False,
    synchronous: str = "",
) -> dict[str, Any]:
    """Cuts after every `every`-th call: what was found wrong after which, and figures.

    With another `synchronous` the ledger waits less for the disk than it should.
    """
    random = Random(seed)
    url = Path(folder) / "work.db"
    worker = crew.start("worker", _work, str(url), seed, steps, faults, synchronous)
    crew.expect(worker, "worked")
    crew.join(worker)
    log = msgspec.msgpack.decode(Path(f"{url}.log").read_bytes())
    platter = Platter(random)
    found: list[str] = []
    figures: Counter[str] = Counter()
    for number, entry in enumerate(log):
        platter.follow(entry)
        figures[f"{entry[0]} noted"] += 1
        if (number + seed) % every and entry[0] != "acknowledged":
            continue
        leftover = LEFTOVERS[(figures["cuts"]) % len(LEFTOVERS)]
        image = Path(folder) / "cut.db"
        platter.cut(image, leftover)
        wrong, _ = check(crew, str(image), [{"acknowledged": [platter.acknowledged]}])
        found += [
            f"seed {seed}, power cut after call {number} ({entry[:2]}), {leftover}: {problem}"
            for problem in wrong
        ]
        figures["cuts"] += 1
    figures["syncs failed"] = platter.syncs_failed
    return {"wrong": found[:20], **figures}


def _work(voice: Voice, url: str, seed: int, steps: int, faults: bool, synchronous: str) -> None:
    if synchronous:
        _be_careless(synchronous)
    assert hasattr(sqlite, "CHECKPOINT_PAGES")
    sqlite.CHECKPOINT_PAGES = 30  # often enough to be met
    random = Random(seed)
    disk = LyingDisk(Plan(), Storm(Random(seed), SYNCS) if faults else None)
    put_under_sqlite(disk)
    client = Client(lambda: Ledger.open(url), disk, random, largest=30_000)
    client.work(steps // 2)
    client.reopen()
    client.work(steps - steps // 2)
    client.ledger.close()
    Path(f"{url}.log").write_bytes(msgspec.msgpack.encode(disk.log))
    assert not client.account.wrong, client.account.wrong
    voice.say("worked")
    os._exit(0)


def _be_careless(synchronous: str) -> None:
    connect = ConnectionPool.connect

    def connect_carelessly(pool: ConnectionPool) -> sqlite3.Connection:
        db = connect(pool)
        db.execute(f"PRAGMA synchronous={synchronous}")
        return db

    ConnectionPool.connect = connect_carelessly  # type: ignore[method-assign]
