"""`make bench-peers`: what each peer and Turnledger take for a message, in one table.

Conversations of two lengths are written first. Then each peer in turn gets a process of its own,
round after round: it resumes, loads, appends, and is killed. Times of a process are its own
processor time and that of the PostgreSQL server. Flushes are counted in a pass of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.postgres import PostgresServer, eventually, new_database

# Messages of the conversations, and how often each is gone on with.
ROUNDS = {1_000: 5, 5_000: 3}
# Of each round: not measured, then measured. Even, since a turn is two messages.
WARM, EACH = 10, 40
# A peer that has not written a conversation after so many seconds is not measured with it.
PATIENCE = 60
REPOSITORY = Path(__file__).resolve().parents[2]
SYNCS = "fsync,fdatasync,msync,sync_file_range,sync,syncfs"
WAL_SYNCS = "SELECT coalesce(sum(fsyncs), 0)::int FROM pg_stat_io WHERE object = 'wal'"
CLIENTS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
PACKAGES = [
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "dbos",
    "pydantic-ai-slim",
    "openai-agents",
    "google-adk",
    "eventsourcing",
]


@dataclass(frozen=True)
class Row:
    """A peer on a database. Those of one kind are compared: they do about the same work."""

    title: str
    peer: str
    kind: str
    postgres: bool = False

    @property
    def ours(self) -> bool:
        return self.peer.startswith("ours")

    @property
    def group(self) -> str:
        return f"{self.kind}, {'PostgreSQL' if self.postgres else 'SQLite'}"


STORE, STEPS, AGENT = "messages", "steps", "agent"
ROWS = (
    Row("Turnledger, ledger", "ours", STORE),
    Row("OpenAI Agents SQLiteSession", "openai-agents", STORE),
    Row("Google ADK DatabaseSessionService", "adk", STORE),
    Row("eventsourcing Application", "eventsourcing", STORE),
    Row("Turnledger, steps", "ours-steps", STEPS),
    Row("DBOS, SQLite", "dbos", STEPS),
    Row("Turnledger, agent", "ours-agent", AGENT),
    Row("LangGraph SqliteSaver", "langgraph", AGENT),
    Row("pydantic-ai with DBOS, SQLite", "pydantic-ai-dbos", AGENT),
    Row("Turnledger, ledger, PostgreSQL", "ours", STORE, True),
    Row("Turnledger, steps, PostgreSQL", "ours-steps", STEPS, True),
    Row("DBOS, PostgreSQL", "dbos", STEPS, True),
    Row("Turnledger, agent, PostgreSQL", "ours-agent", AGENT, True),
    Row("LangGraph PostgresSaver", "langgraph", AGENT, True),
)
# Neither has tools of its own.
WITHOUT_TOOLS = ("ours", "eventsourcing")
# A column: its heading, the measurement, and what a unit of the table is in units of it.
COLUMNS = (
    ("append, CPU ms", "append cpu", 1e-3),
    ("append, wall ms", "append wall", 1e-3),
    ("flushes", "flushes", 1),
    ("bytes", "bytes", 1),
    ("load, CPU ms", "load cpu", 1e-3),
    ("resume, CPU s", "resume cpu", 1),
    ("resume, wall s", "resume wall", 1),
)


@dataclass(frozen=True)
class Figure:
    """A median and how far the samples lie from it: half of their range."""

    median: float
    spread: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Figure:
        return cls(statistics.median(samples), (max(samples) - min(samples)) / 2)

    def is_near(self, other: Figure) -> bool:
        """Whether the two can't be told apart: their spreads meet."""
        return abs(self.median - other.median) <= self.spread + other.spread

    def shown(self, unit: float) -> str:
        """In a unit, with as many decimals as a reader can use."""
        median, spread = self.median / unit, self.spread / unit
        decimals = 2 if median < 10 else 1 if median < 100 else 0
        return f"{median:,.{decimals}f}" + (f" ± {spread:,.{decimals}f}" if spread else "")


@dataclass
class Results:
    """All samples, by row, number of messages and measurement."""

    samples: dict[tuple[Row, int, str], list[float]]
    payments: dict[Row, str]

    def figure(self, row: Row, size: int, measured: str) -> Figure | None:
        found = self.samples.get((row, size, measured))
        return Figure.of(found) if found else None

    def table(self) -> str:
        """The table, in Markdown."""
        headings = ("", "messages", *(name for name, _, _ in COLUMNS), "payment entered")
        lines = [headings, ("---",) * len(headings)]
        for row in ROWS:
            for place, size in enumerate(ROUNDS):
                figures = [self._cell(row, size, *column[1:]) for column in COLUMNS]
                paid = self.payments.get(row, "no tools") if place == 0 else ""
                lines.append((row.title if place == 0 else "", f"{size:,}", *figures, paid))
        return "".join("| " + " | ".join(line) + " |\n" for line in lines)

    def _cell(self, row: Row, size: int, measured: str, unit: float) -> str:
        figure = self.figure(row, size, measured)
        if figure is not None:
            return figure.shown(unit)
        return "" if measured == "flushes" else "not reached"

    def not_first(self) -> Iterator[str]:
        """Where a peer is ahead of ours, in a sentence each."""
        for name, measured, unit in COLUMNS:
            for size in ROUNDS:
                for ours in filter(lambda row: row.ours, ROWS):
                    mine = self.figure(ours, size, measured)
                    ahead = [
                        (theirs.median, f"{row.title} {theirs.shown(unit)}")
                        for row in ROWS
                        if row.group == ours.group
                        and (theirs := self.figure(row, size, measured))
                        and mine
                        and theirs.median < mine.median
                        and not theirs.is_near(mine)
                    ]
                    if mine and ahead:
                        others = ", ".join(told for _, told in sorted(ahead))
                        yield f"{name}, {size:,}: {ours.title} {mine.shown(unit)}; ahead: {others}"


class Process:
    """A worker of a peer, and what it reports at its marks."""

    def __init__(self, python: str, *arguments: str, before: Sequence[str] = ()) -> None:
        self.began = time.perf_counter()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        command = [*before, python, "-m", "benchmarks.peers.worker", *arguments]
        self._process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def until(self, mark: str) -> dict[str, Any]:
        """What it reports at a mark; it waits there until `go`."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.killed()
            raise RuntimeError(f"{self._process.args} died before the mark {mark!r}.")
        report: dict[str, Any] = json.loads(line)
        assert report["mark"] == mark, report
        return report

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def killed(self, patience: float | None = None) -> None:
        """Wait until it has killed itself. TimeoutExpired if that takes too long."""
        try:
            code = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
        with self._errors as errors:
            errors.seek(0)
            told = errors.read().decode(errors="replace")[-3000:]
        # A shell's way to say it, and strace's: 128 + 9.
        if code not in (-9, 137):
            raise RuntimeError(f"{self._process.args} ended with {code}:\n{told}")


class Bench:
    """Runs the peers in a folder and on a server, and collects what they take."""

    def __init__(
        self, python: str, folder: Path, memory: Path, server: PostgresServer | None = None
    ) -> None:
        self._python = python
        self._folder, self._memory, self._given = folder, memory, server
        self._where: dict[tuple[Row, int], str] = {}
        self._written: dict[tuple[Row, int], int] = {}
        self.results = Results(defaultdict(list), {})

    @property
    def _server(self) -> PostgresServer:
        assert self._given is not None, "A row on PostgreSQL needs a server."
        return self._given

    def run(self) -> Results:
        conversations = list(product(ROWS, ROUNDS))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self.begin, *zip(*conversations, strict=True)))
        for number in range(max(ROUNDS.values())):
            for row, size in conversations:
                if number < ROUNDS[size] and (row, size) in self._where:
                    _say(f"round {number + 1}: {row.title}, {size:,}")
                    self.measure(row, size)
        for row in ROWS:
            _say(f"flushes and payment: {row.title}")
            self.count_flushes(row)
            if row.peer not in WITHOUT_TOOLS:
                self.pay(row)
        return self.results

    def begin(self, row: Row, size: int) -> None:
        """Write a conversation, so long that the middle one of the rounds begins at `size`.

        Nothing of it is measured, so it need not be on a disk: in memory, or without flushes.
        """
        _say(f"write {size:,} messages: {row.title}")
        count = size - ROUNDS[size] // 2 * (WARM + EACH)
        where = self._new(row, str(size), self._memory)
        if row.postgres:
            self._set(where, "SET synchronous_commit = off")
        process = self._start(row, "begin", where, str(count))
        try:
            process.killed(PATIENCE)
        except subprocess.TimeoutExpired:
            _say(f"not after {PATIENCE} seconds, left out: {row.title}, {size:,}")
            return
        if row.postgres:
            self._set(where, "RESET synchronous_commit")
        else:
            moved = self._folder / Path(where).parent.name
            shutil.move(Path(where).parent, moved)
            where = str(moved / Path(where).name)
        self._where[row, size] = where
        self._written[row, size] = count

    def _set(self, where: str, setting: str) -> None:
        with psycopg.connect(where, autocommit=True) as db:
            named = db.execute("SELECT current_database()").fetchone()
            assert named is not None
            db.execute(f"ALTER DATABASE {named[0]} {setting}")

    def _new(self, row: Row, purpose: str, folder: Path) -> str:
        if row.postgres:
            return new_database(self._server.url())
        own = folder / f"{row.peer}-{purpose}"
        own.mkdir()
        return str(own / "conversation.db")

    def _start(self, row: Row, *arguments: str, before: Sequence[str] = ()) -> Process:
        python = sys.executable if row.ours else self._python
        return Process(python, row.peer, *arguments, before=before)

    def _go_on(self, row: Row, size: int, each: int = EACH, before: Sequence[str] = ()) -> Process:
        count = self._written[row, size]
        self._written[row, size] += WARM + each
        numbers = map(str, (count, WARM, each))
        return self._start(row, "go-on", self._where[row, size], *numbers, before=before)

    def measure(self, row: Row, size: int) -> None:
        def sample(measured: str, value: float) -> None:
            self.results.samples[row, size, measured].append(value)

        server = self._server_cpu(row)
        process = self._go_on(row, size)
        ready = process.until("ready")
        sample("resume wall", time.perf_counter() - process.began)
        sample("resume cpu", ready["cpu"] + server())
        server = self._server_cpu(row)
        process.go()
        loaded = process.until("loaded")
        assert min(loaded["messages"]) >= self._written[row, size] - WARM - EACH, loaded
        sample("load cpu", statistics.median(loaded["cpu"]) + server() / len(loaded["cpu"]))
        process.go()
        process.until("warm")
        server, before = self._server_cpu(row), self._size(row, size)
        process.go()
        done = process.until("done")
        sample("append cpu", (done["cpu"] + server()) / EACH)
        sample("append wall", done["wall"] / EACH)
        sample("bytes", (self._size(row, size) - before) / EACH)
        process.go()
        process.killed()

    def _server_cpu(self, row: Row) -> Callable[[], float]:
        """The processor time that the server takes from now on, if there is one in it."""
        before = _processor_times(self._server) if row.postgres else {}

        def taken() -> float:
            after = _processor_times(self._server) if row.postgres else {}
            return sum(value - before.get(pid, 0.0) for pid, value in after.items())

        return taken

    def _size(self, row: Row, size: int) -> int:
        """Bytes of the database with its latest commit, wherever SQLite has that just now."""
        where = self._where[row, size]
        if row.postgres:
            with psycopg.connect(where, autocommit=True) as db:
                found = db.execute("SELECT pg_database_size(current_database())").fetchone()
                assert found is not None
                return int(found[0])
        with closing(sqlite3.connect(f"file:{where}?mode=ro", uri=True)) as file:
            (pages,) = file.execute("PRAGMA page_count").fetchone()
            (each,) = file.execute("PRAGMA page_size").fetchone()
            return int(pages * each)

    def count_flushes(self, row: Row) -> None:
        """Of a process with and one without the messages that count; the difference is theirs."""
        size = min(ROUNDS)
        if (row, size) not in self._where:
            return
        count = self._flushes_of_server if row.postgres else self._flushes_of_process
        without, whole = count(row, size, 0), count(row, size, EACH)
        self.results.samples[row, size, "flushes"].append((whole - without) / EACH)

    def _flushes_of_process(self, row: Row, size: int, each: int) -> int:
        log = self._folder / "flushes"
        # With a filter in the kernel: other calls are not slowed down.
        trace = f"strace --seccomp-bpf -f -qq -e trace={SYNCS} -e signal=none -o {log}"
        self._through(self._go_on(row, size, each, trace.split()))
        # A call that others came between has a second line, without its arguments.
        return sum("sync(" in line or "sync_file" in line for line in log.open())

    def _flushes_of_server(self, row: Row, size: int, each: int) -> int:
        before = self._wal_syncs()
        self._through(self._go_on(row, size, each))
        return self._wal_syncs() - before

    def _wal_syncs(self) -> int:
        """What all clients made the server flush: they tell it at the latest when they end."""
        with psycopg.connect(self._server.url(), autocommit=True) as db:
            eventually(lambda: db.execute(CLIENTS).fetchone() == (1,))
            found = db.execute(WAL_SYNCS).fetchone()
            assert found is not None
            return int(found[0])

    def _through(self, process: Process) -> None:
        for mark in ("ready", "loaded", "warm", "done"):
            process.until(mark)
            process.go()
        process.killed()

    def pay(self, row: Row) -> None:
        where, book = self._new(row, "payment", self._folder), self._folder / "book"
        self._start(row, "pay", where, str(book)).killed()
        process = self._start(row, "recover", where, str(book))
        outcome = process.until("recovered")["outcome"]
        process.go()
        process.killed()
        entered = len(book.read_text().splitlines())
        book.unlink()
        self.results.payments[row] = f"{entered}, {'answers' if outcome == 'Paid.' else outcome}"


def _processor_times(server: PostgresServer) -> dict[int, float]:
    """Seconds on a processor of each of the server's processes, to the nanosecond."""
    family = [server.pid, *(child.pid for child in psutil.Process(server.pid).children())]
    times = {}
    for pid in family:
        try:
            times[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        except (FileNotFoundError, ProcessLookupError):
            continue
    return times


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def _versions(python: str) -> str:
    script = "import sys, importlib.metadata as m; print(*map(m.version, sys.argv[1:]))"
    found = subprocess.run(
        [python, "-c", script, *PACKAGES], check=True, capture_output=True, text=True
    )
    theirs = zip(PACKAGES, found.stdout.split(), strict=True)
    listed = ", ".join(f"{name} {number}" for name, number in theirs)
    return (
        f"Turnledger {version('turnledger')}, {listed}; Python {sys.version.split()[0]}, "
        f"SQLite {sqlite3.sqlite_version}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__)
    parser.add_argument("--python", required=True, help="of the peers' environment")
    python = str(Path(parser.parse_args().python).absolute())
    if shutil.which("strace") is None:
        sys.exit("bench-peers counts flushes by strace, which is missing: install it.")
    began = time.monotonic()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory(dir=memory) as fast,
        PostgresServer() as server,
    ):
        results = Bench(python, Path(folder), Path(fast), server).run()
    print(results.table())
    print("\n".join(f"- {line}" for line in results.not_first()))
    print(f"\n{_versions(python)}. {(time.monotonic() - began) / 60:.0f} minutes.")


if __name__ == "__main__":
    main()
