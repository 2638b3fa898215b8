"""Imports and backups under SIGKILL, and backups of a ledger that four processes write to."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from uuid import UUID

import pytest

from tests.crash.moving import exported, fill, torn
from tests.soaking import Search
from turnledger.ledger import Ledger, import_runs
from turnledger.ledger.transfer.backup import back_up

ROOT = Path(__file__).parents[2]


def start(role: str, url: str, what: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.moving", role, url, str(what)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def said_by(role: str, url: str, what: object) -> list[str]:
    """Let it come to its end; how far it said that it was, and the result."""
    process = start(role, url, what)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return said.splitlines()


def kill(role: str, url: str, what: object, lines: int, after: float) -> bool:
    """Kill it a moment after so many lines; True if it had come to its end before."""
    process = start(role, url, what)
    assert process.stdout is not None
    try:
        for _ in range(lines):
            process.stdout.readline()
        try:
            return process.wait(after) == 0
        except subprocess.TimeoutExpired:
            return False
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Writers:
    """Four processes that append, and what was acknowledged to them so far."""

    def __init__(self, url: str, seed: int) -> None:
        self.acknowledged: dict[UUID, int] = {}
        self._processes = [start("writer", url, seed * 10 + name) for name in range(4)]
        self._threads = [Thread(target=self._listen, args=[one]) for one in self._processes]
        for thread in self._threads:
            thread.start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):  # or it was killed in the middle of saying so
                run, version = line.split()
                self.acknowledged[UUID(run)] = int(version)

    def all_write(self) -> None:
        """Wait until each of them has done something more."""
        wanted = len(self.acknowledged) + 4
        deadline = time.monotonic() + 60
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, "nobody writes"
            assert all(process.poll() is None for process in self._processes)
            self._threads[0].join(0.01)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Meanwhile nothing is written: a ledger that outgrows its backups has no last one."""
        for process in self._processes:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in self._processes:
                process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.close()


def backups_under_writers(url: str, folder: Path, rounds: int, seed: int) -> list[str]:
    """What is wrong with backups that are made while four processes append."""
    with Ledger.open(url) as ledger:
        writers = Writers(url, seed)
        problems: list[str] = []
        try:
            for number in range(rounds):
                writers.all_write()
                known = dict(writers.acknowledged)
                file = folder / f"backup-{seed}-{number}.db"
                report = back_up(ledger, file)
                with writers.standing_still(), Ledger.open(file) as copy:
                    problems += torn(copy)
                    problems += [
                        f"backup {number}: run {run} at {copy.head(run)}, acknowledged {version}"
                        for run, version in known.items()
                        if copy.head(run) < version
                    ]
                    if not (report.verified and copy.verify_all().records == report.records):
                        problems.append(f"backup {number}: {report}")
                file.unlink()
        finally:
            writers.end()
        problems += [] if ledger.verify_all().ok else ["the ledger itself is damaged"]
    return problems


def test_backups_while_four_processes_write(ledger_url: str, tmp_path: Path) -> None:
    """Each holds all that was acknowledged before it began, in whole commits, and verifies."""
    assert backups_under_writers(ledger_url, tmp_path, rounds=2, seed=1) == []


def kill_backups(url: str, folder: Path, kills: int, seed: int) -> list[str]:
    """What is wrong after backups were killed; the file that was there is the old or the new."""
    problems: list[str] = []
    chance = random.Random(seed)
    file = folder / f"kept-{seed}.db"
    with Ledger.open(url) as ledger:
        fill(ledger, runs=6, commits=20, seed=seed)
        lines = len(said_by("backer", url, file)) - 1
        file.unlink()
        for _ in range(kills):
            at = chance.randint(1, lines)
            done = kill("backer", url, file, at, after=chance.random() * 0.05)
            if file.exists():
                with Ledger.open(file) as copy:
                    if exported(copy) != exported(ledger):
                        problems.append("half a backup under its name")
                file.unlink()
            elif done:
                problems.append("a backup that ended well is not there")
        back_up(ledger, file)
        with Ledger.open(file) as copy:
            if exported(copy) != exported(ledger):
                problems.append("the backup after the kills is another one")
        left = {path.name for path in folder.iterdir() if path.name.startswith(file.name)}
        if left - {file.name, f"{file.name}-locks"}:
            problems.append(f"left behind: {left}")
        file.unlink()
    return problems


def test_a_killed_backup_is_not_there(ledger_url: str, tmp_path: Path) -> None:
    """No FILE, or all of it; the next backup to the same name clears away what is left."""
    assert kill_backups(ledger_url, tmp_path, kills=3, seed=1) == []


def kill_imports(url: str, folder: Path, kills: int, seed: int) -> list[str]:
    """What is wrong after imports of one file were killed, two at a time, and done again."""
    chance = random.Random(seed)
    file = folder / f"export-{seed}.jsonl"
    with Ledger.open("memory://") as source:
        fill(source, runs=6, commits=30, seed=seed)
        file.write_bytes(exported(source))
    with Ledger.open("memory://") as other, file.open("rb") as content:
        told: list[int] = []
        import_runs(other, content, progress=told.append)
    problems: list[str] = []
    records = 0
    with Ledger.open(url) as ledger:
        for number in range(kills):
            rival = start("importer", url, file) if number % 2 else None
            # In the first half it checks, in the second it writes.
            lines = chance.randint(len(told) // 2, len(told))
            kill("importer", url, file, lines, after=chance.random() * 0.05)
            if rival is not None:
                rival.kill()
                rival.communicate()
            report = ledger.verify_all()
            problems += torn(ledger) + [str(problem) for problem in report.problems]
            if report.records < records:
                problems.append("records are gone")
            records = report.records
        said_by("importer", url, file)
        if exported(ledger) != file.read_bytes():
            problems.append("the ledger is not what the file says")
    return problems


def test_a_killed_import_leaves_whole_commits_and_is_done_again(
    ledger_url: str, tmp_path: Path
) -> None:
    """Nothing is torn, lost or doubled, also where two imports were at it."""
    assert kill_imports(ledger_url, tmp_path, kills=2, seed=1) == []


def test_two_imports_at_once_write_everything_once(ledger_url: str, tmp_path: Path) -> None:
    """Each record is counted as new by one of them, and the ledger is what the file says."""
    file = tmp_path / "export.jsonl"
    with Ledger.open("memory://") as source:
        fill(source, runs=6, commits=30, seed=7)
        file.write_bytes(exported(source))
    with Ledger.open(ledger_url) as ledger:
        pair = [start("importer", ledger_url, file) for _ in range(2)]
        said = [one.communicate(timeout=120)[0] for one in pair]
        assert [one.returncode for one in pair] == [0, 0]
        records = sum(1 for _ in ledger.tail())
        assert sum(int(text.split()[-1]) for text in said) == records
        assert exported(ledger) == file.read_bytes()


@pytest.mark.parametrize("role", ["importer", "backer"])
def test_a_full_disk_is_an_error_of_ours(role: str, tmp_path: Path) -> None:
    """A limit on the size of files stands for it: a typed error, and nothing half-written."""
    file, url = tmp_path / "export.jsonl", str(tmp_path / "target.db")
    with Ledger.open(tmp_path / "source.db") as source:
        fill(source, runs=3, commits=40, seed=3)
        file.write_bytes(exported(source))
    arguments = [role, url, str(file)]
    if role == "backer":
        arguments = [role, str(tmp_path / "source.db"), str(tmp_path / "backup.db")]
    program = (
        "import resource, runpy, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "from turnledger.ledger import StoreUnavailableError\n"
        "try:\n    runpy.run_module('tests.crash.moving', run_name='__main__')\n"
        "except StoreUnavailableError as error:\n    print('typed:', error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert "typed:" in done.stdout, done.stdout + done.stderr
    if role == "backer":
        assert not [path for path in tmp_path.iterdir() if path.name.startswith("backup")]
        return
    with Ledger.open(url) as ledger:
        assert torn(ledger) == []
        with file.open("rb") as content:
            import_runs(ledger, content)
        assert exported(ledger) == file.read_bytes()


@pytest.mark.soak
def test_moving_is_killed_a_thousand_times(
    new_ledger_url: Callable[[], str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Imports and backups at random moments, on new ledgers, with new numbers in each round."""
    kind = request.node.callspec.params["new_ledger_url"]
    search = Search(f"moving-{kind}", goal={"kills": 1000, "backups": 500})
    for number in search.rounds(share=0.03):
        search.blame(*kill_imports(new_ledger_url(), tmp_path, kills=10, seed=number))
        search.blame(*kill_backups(new_ledger_url(), tmp_path, kills=10, seed=number))
        # On ledgers of their own: one that is written to for long takes long to back up.
        for part in range(5):
            url, seed = new_ledger_url(), number * 10 + part
            search.blame(*backups_under_writers(url, tmp_path, rounds=2, seed=seed))
        search.count(kills=20, backups=10)
    assert search.problems == []
