"""What running an agent's code again costs, against folding its events; and its memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import looping
from benchmarks.measuring import Result, speed
from turnledger.ledger import Ledger, new_run_id
from turnledger.runtime import Replayed, replay

EVENTS = 10_000


def measure(folder: Path) -> Iterator[Result]:
    with Ledger.open(folder / "replay.db") as ledger:
        run = new_run_id()
        _clerk(ledger).execute(looping.Order(), run_id=run)
        events = ledger.head(run)

        def fold(verify: bool = True) -> Replayed:
            return replay(ledger, run, verify=verify).check()

        def execute(verify: bool = True) -> Replayed:
            with Ledger.open("memory://") as nowhere:
                return replay(ledger, run, loop=_clerk(nowhere), verify=verify).check()

        assert fold().version == execute().version == events
        bare = speed(partial(execute, False), partial(fold, False), rounds=7).inverse().median
        ratio = speed(execute, fold, rounds=7).inverse()
        detail = f"{events} events, verified first; {bare:.2f} without verifying"
        yield Result("re-execute a run, times folding it", ratio, 3, at_least=False, detail=detail)
        memory = _peak(execute) / _peak(fold)
        yield Result("memory of re-executing, times that of folding", memory, 2, at_least=False)


def _clerk(ledger: Ledger) -> Any:
    return looping.clerk(ledger, EVENTS // 8)[0]


def _peak(work: Any) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        kept = work()
        assert isinstance(kept, Replayed)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
