"""Those who are killed while they carry a ledger, and those who write to it meanwhile.

Run as a program: `writer URL NAME`, `importer URL FILE`, `backer URL FILE`. The last two say
how far they are, line by line. Every commit says how many events it has, so that half of one
can be told.
"""

from __future__ import annotations

import io
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from turnledger.ledger import (
    ANY,
    CustomEvent,
    Event,
    Ledger,
    Limits,
    export_runs,
    import_runs,
    new_run_id,
)
from turnledger.ledger.transfer.backup import back_up


def commit(number: int, size: int, bulk: int = 0) -> list[Event]:
    """The events of one append."""
    data = {"commit": number, "of": size, "bulk": "x" * bulk}
    return [CustomEvent(kind="test.part", data={**data, "place": place}) for place in range(size)]


def torn(ledger: Ledger) -> list[str]:
    """Commits of which only a part is there."""
    found: list[str] = []
    for info in ledger.runs():
        parts: Counter[tuple[int, int]] = Counter()
        for record in ledger.read(info.run_id, after=info.parent_version):
            if isinstance(record.event, CustomEvent):
                parts[record.event.data["commit"], record.event.data["of"]] += 1
        found += [
            f"run {info.run_id}: {count} of {of} events of commit {number}"
            for (number, of), count in parts.items()
            if count != of
        ]
    return found


def fill(ledger: Ledger, runs: int, commits: int, seed: int) -> None:
    """Some runs, every third a fork of the one before."""
    chance = random.Random(seed)
    before: UUID | None = None
    for place in range(runs):
        run = ledger.fork(before, 1) if before is not None and place % 3 == 2 else new_run_id()
        for number in range(commits):
            ledger.append(
                run, commit(number, 1 if number == 0 else chance.randint(1, 40), 200), ANY
            )
        before = run


def exported(ledger: Ledger) -> bytes:
    out = io.BytesIO()
    export_runs(ledger, out)
    return out.getvalue()


def _steps(seed: int) -> Iterator[tuple[int, int, bool]]:
    chance = random.Random(seed)
    number = 0
    while True:
        number += 1
        yield number, chance.randint(1, 9), chance.random() < 0.1


def write(url: str, name: str) -> None:
    """Append until killed; say which version of which run was acknowledged."""
    with Ledger.open(url) as ledger:
        run = new_run_id()
        for number, size, another in _steps(int(name)):
            if another:
                head = ledger.head(run)
                run = ledger.fork(run, head) if head and number % 2 else new_run_id()
            done = ledger.append(run, commit(number, size, 300), ANY)
            print(run, done.version, flush=True)


def tell(*progress: object) -> None:
    print("at", *progress, flush=True)


def main() -> None:
    role, url, what = sys.argv[1:]
    if role == "writer":
        write(url, what)
    elif role == "importer":
        # Small transactions, so that there are many moments between two of them.
        with Ledger.open(url, limits=Limits(max_batch_events=50)) as ledger:
            tell()
            with Path(what).open("rb") as file:
                print(import_runs(ledger, file, progress=tell).imported, flush=True)
    else:
        with Ledger.open(url) as ledger:
            tell()
            print(back_up(ledger, what, overwrite=True, progress=tell).records, flush=True)


if __name__ == "__main__":
    main()
