"""Scenario: a process that keeps a table is SIGKILLed at every single step of its work.

A fuse is laid to everything that it asks of the store: reads, the steps of a transaction,
the commit and what comes after it; or, where it has workers, to what it asks of them. The
victim is killed at the first of these, the next one at the second, and so on until one gets
through. After each death another process looks at what is there, goes on, and compares with
a plain fold of all events.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

from tests.crash.processes import Child, Crew, Voice
from tests.tables import clean_fold, fill
from turnledger.ledger import Ledger
from turnledger.projections import ToolStatistics, catch_up, rebuild, table_rows
from turnledger.projections.tables import parallel as over_runs
from turnledger.projections.tables import rebuild as rebuilding

TABLE = ToolStatistics()
READS = ("rows_after", "rows_as_found", "list_runs", "last_position")
WRITES = ("watermark", "set_watermark", "put", "clear")
BATCH = 9
MOST = 500


def run(crew: Crew, *, url: str, work: str, workers: int = 1) -> dict[str, Any]:
    """Kill at the first step, then at the second, until the work is done; the figures."""
    crew.join(crew.start("writer", _write, url, work))
    died: Counter[str] = Counter()
    for step in range(1, MOST):
        victim = crew.start(f"killed at step {step}", _be_killed, url, work, workers, step)
        words = _last_words(crew, victim)
        [(_, [_, problems])] = crew.join(crew.start("checker", _check, url, work))
        if problems:
            return {"problems": [f"step {step} {words}: {problem}" for problem in problems]}
        if words[-1] == ["done"]:
            return {"problems": [], "kills": died.total(), "died": died}
        died[words[-1][1]] += 1
    return {"problems": [f"not done after {MOST} steps"]}


def _last_words(crew: Crew, victim: Child) -> list[Any]:
    words = []
    while not victim.ended:
        words += [message for child, message in crew.listen() if child is victim]
    return words + crew.kill(victim)


# --- the processes -------------------------------------------------------------------


def _make_small() -> None:
    """A few events are many portions, pages and commits."""
    over_runs.SMALLEST_PORTION = over_runs.LARGEST_PORTION = 12
    rebuilding.EVENTS_AT_ONCE = 5


def _write(voice: Voice, url: str, work: str) -> None:
    with Ledger.open(url) as ledger:
        fill(ledger, 2)
        _prepare(ledger, work)


def _prepare(ledger: Ledger, work: str) -> None:
    """A table that is to catch up is not there yet; one that is to be rebuilt is behind."""
    ledger.derived_data(f"table:{TABLE.name}").drop()
    if work != "rebuild":
        return
    rows_after, half = ledger.store.rows_after, 15
    left = iter([rows_after(0, half)])
    ledger.store.rows_after = lambda after, limit: next(left, [])  # type: ignore[method-assign]
    caught_up = catch_up(ledger, TABLE)
    assert caught_up == half
    del ledger.store.rows_after


def _be_killed(voice: Voice, url: str, work: str, workers: int, step: int) -> None:
    _make_small()
    with Ledger.open(url) as ledger:
        _lay_fuse(voice, ledger, step, with_workers=workers > 1)
        _work(ledger, work, workers)
    voice.say("done")


def _work(ledger: Ledger, work: str, workers: int = 1) -> None:
    if work == "rebuild":
        rebuild(ledger, TABLE, workers=workers)
    else:
        catch_up(ledger, TABLE, batch=BATCH)


def _lay_fuse(voice: Voice, ledger: Ledger, length: int, *, with_workers: bool) -> None:
    left = length

    def burn(moment: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            voice.say("dies", moment)
            os.kill(os.getpid(), signal.SIGKILL)

    if with_workers:
        _wrap(ProcessPoolExecutor, "submit", burn)
        _wrap(Future, "result", burn)
        return
    ledger.store.write(lambda tx: None)  # so that there is a connection to write with
    transaction = ledger.store._transaction(careful=False)
    for name in READS:
        _wrap(type(ledger.store), name, burn)
    for name in ("watermark", "get", "page"):
        _wrap(type(ledger.store.derived), name, burn, f"read {name}")
    for name in WRITES:
        _wrap(type(transaction.derived), name, burn)
    _wrap(type(transaction), "commit", burn)


def _wrap(owner: Any, name: str, burn: Callable[[str], None], moment: str = "") -> None:
    whole = getattr(owner, name)

    def fused(*args: Any, **kwargs: Any) -> Any:
        burn(moment or name)
        answer = whole(*args, **kwargs)
        if name == "commit":
            burn("committed")
        return answer

    setattr(owner, name, fused)


def _check(voice: Voice, url: str, work: str) -> None:
    problems = []
    with Ledger.open(url) as ledger:
        if ledger.derived_data(f"table:{TABLE.name}").watermark():
            position, rows = table_rows(ledger, TABLE)
            if rows != clean_fold(ledger, TABLE, position):
                problems.append(f"what is shown is not of the events up to {position}")
        elif work == "rebuild":
            problems.append("the old table is gone")
        _work(ledger, work)
        catch_up(ledger, TABLE)
        if table_rows(ledger, TABLE).rows != clean_fold(ledger, TABLE):
            problems.append("the table is not what all events come to")
        if not rebuild(ledger, TABLE, verify=True).ok:
            problems.append("what is remembered, or the watermark, is not what the events say")
        _prepare(ledger, work)
    voice.say("found", problems)
