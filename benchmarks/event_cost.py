"""Encodes and folds per event, and rows that `recover` reads: counted, not timed.

A small agent runs on SQLite; another is interrupted and recovered. `sys.setprofile` sees each
call of the codec and of the projections, so that none is missed wherever it is made.
`python -m benchmarks.event_cost` prints the counts, and exits with 1 if one is too high.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

from rich.console import Console
from rich.table import Table

from benchmarks.looping import Order, clerk
from benchmarks.measuring import Result
from turnledger.ledger import Ledger, Record, new_run_id
from turnledger.ledger.runs.codec import Codec
from turnledger.projections.projection import BulkProjection, Folding, Projection

CALLS = 8
# Below the public methods, so that an event that is encoded again without its secrets counts.
_ENCODE = Codec._encode_checked.__code__


@dataclass(frozen=True)
class Cost:
    """What one piece of work cost.

    Attributes:
        found: Events of the run before it.
        tail: Events that were recorded between its first look at the run and its claim, with
            the claim's own.
        written: Events of the run that it recorded.
        encodes: How often an event was encoded.
        folds: How often an event was folded; of several projections, by the busiest.
        read: Rows that came from the store.
    """

    found: int
    tail: int
    written: int
    encodes: int
    folds: int
    read: int

    @property
    def too_high(self) -> list[str]:
        """The counts that are higher than they may be."""
        allowed = {
            "encodes": self.written,
            "folds": 2 * (self.found + self.written),
            "read": self.found + self.tail,
        }
        return [name for name, most in allowed.items() if getattr(self, name) > most]


class Counting:
    """Counts encodes, folds and rows while the block runs, here and in threads it starts."""

    def __init__(self, ledger: Ledger) -> None:
        self.encodes = self.read = 0
        self._store = ledger.store
        self._folds: Counter[tuple[str, type]] = Counter()
        self._lock = threading.Lock()

    @property
    def folds(self) -> int:
        most: Counter[str] = Counter()
        for (event_id, _), count in self._folds.items():
            most[event_id] = max(most[event_id], count)
        return most.total()

    def __enter__(self) -> Self:
        rows = self._store.rows

        def counted(*given: Any, **more: Any) -> Any:
            found = rows(*given, **more)
            self.read += len(found)
            return found

        self._store.rows = counted  # type: ignore[method-assign]
        threading.setprofile(self._seen)
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        del self._store.rows

    def _seen(self, frame: FrameType, kind: str, argument: object) -> None:
        if kind != "call":
            return
        if frame.f_code is _ENCODE:
            with self._lock:
                self.encodes += 1
        elif frame.f_code.co_name in ("apply", "take"):
            given = frame.f_locals
            folding, record = given.get("self"), given.get("record")
            # A projection that folds in bulk is counted where it takes the record.
            single = isinstance(folding, Projection) and not isinstance(folding, BulkProjection)
            if isinstance(record, Record) and (single or isinstance(folding, Folding)):
                with self._lock:
                    self._folds[str(record.event_id), type(folding)] += 1


class _Killed(BaseException):
    """The process ends here, as far as the loop can tell."""


def run_cost(ledger: Ledger) -> Cost:
    """What a run costs from its request to its answer."""
    (loop, _), run = clerk(ledger, CALLS), new_run_id()
    with Counting(ledger) as counted:
        loop.execute(Order(), run_id=run)
    # Its first two events are recorded before the journal reads the run.
    return Cost(0, 2, ledger.head(run), counted.encodes, counted.folds, counted.read)


def recovery_cost(ledger: Ledger) -> Cost:
    """What the recovery of a run costs that was interrupted halfway."""
    (loop, adapter), run = clerk(ledger, CALLS), new_run_id()
    send = adapter.send

    def killed(payload: Any, sending: Any) -> Any:
        if payload > CALLS // 2:
            raise _Killed
        return send(payload, sending)

    adapter.send = killed  # type: ignore[method-assign]
    try:
        loop.execute(Order(), run_id=run)
    except _Killed:
        found = ledger.head(run)
    loop, _ = clerk(ledger, CALLS)
    with Counting(ledger) as counted:
        loop.recover(run)
    written = ledger.head(run) - found
    return Cost(found, 1, written, counted.encodes, counted.folds, counted.read)


def measure(folder: Path) -> Iterator[Result]:
    with Ledger.open(folder / "event_cost.db") as ledger:
        run, recovery = run_cost(ledger), recovery_cost(ledger)
    events = f"{run.written} events"
    yield Result("encodes per event", run.encodes / run.written, 1, at_least=False, detail=events)
    yield Result("folds per event", run.folds / run.written, 2, at_least=False, detail=events)
    yield Result(
        "rows that recover reads, per record that there was and claim",
        recovery.read / (recovery.found + recovery.tail),
        1,
        at_least=False,
        detail=f"{recovery.found} records",
    )


def main() -> int:
    table = Table("", "records found", "events", "encodes", "folds", "rows read", "too high")
    failed = False
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger.open(Path(folder) / "event_cost.db") as ledger,
    ):
        for name, cost in (("run", run_cost(ledger)), ("recover", recovery_cost(ledger))):
            failed = failed or bool(cost.too_high)
            counts = (cost.found, cost.written, cost.encodes, cost.folds, cost.read)
            table.add_row(name, *map(str, counts), ", ".join(cost.too_high))
    Console().print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
