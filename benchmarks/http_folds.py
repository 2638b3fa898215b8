"""A page of events over HTTP while the server folds a long run, against the same page without.

The server is a process. Its fold takes a core's time of one thread; the page needs that thread
to let go often enough.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from uuid import UUID

import httpx

from benchmarks.measuring import Result
from benchmarks.workload import run_of
from turnledger.ledger import ANY, Ledger, Tokens, new_run_id

EVENTS, BATCH, PAGES = 100_000, 1000, 200
SERVE = "from turnledger.adapters.cli import main; main()"


def measure(folder: Path) -> Iterator[Result]:
    path = folder / "http_folds.db"
    with Ledger.open(path) as ledger:
        run, coming = new_run_id(), run_of(EVENTS)
        while batch := list(islice(coming, BATCH)):
            ledger.append(run, batch, ANY)
        token = Tokens(ledger).new("reader").text
    command = [sys.executable, "-c", SERVE, "serve", "--db", str(path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            yield _pages(url, token, run)
        finally:
            server.terminate()


def _pages(url: str, token: str, run: UUID) -> Result:
    headers = {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, timeout=600) as http:
        page = f"/v1/runs/{run}/events?limit=100"
        for _ in range(PAGES // 10):  # warms up
            _seconds(http, page)
        alone = [_seconds(http, page) for _ in range(PAGES)]
        # The server has folded nothing yet: this one begins with the first event.
        fold = threading.Thread(
            target=httpx.get,
            args=(f"{url}/v1/runs/{run}/usage",),
            kwargs={"headers": headers, "timeout": 600},
        )
        began = time.perf_counter()
        fold.start()
        beside = []
        while fold.is_alive():
            beside.append(_seconds(http, page))
        took = time.perf_counter() - began
    without, with_fold = statistics.median(alone), statistics.median(beside)
    slowest = statistics.quantiles(beside, n=20)[-1]
    return Result(
        f"a page of events while {EVENTS:,} events are folded, against without",
        with_fold / without,
        3,
        at_least=False,
        detail=f"{without * 1e3:.1f} ms without, {with_fold * 1e3:.1f} ms with (p95 "
        f"{slowest * 1e3:.1f} ms, {len(beside)} pages, the fold took {took:.1f} s)",
    )


def _seconds(http: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    http.get(path).raise_for_status()
    return time.perf_counter() - began
