"""Runs mutants: each in a copy of the repository, with only the tests that must notice it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.mutants.table import ROOT, Mutant

# Seconds for the tests of one mutant; a mutant that makes them hang is not caught.
PATIENCE = 120
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis", "dist", "build")


class Trees:
    """Copies of the repository, one for each worker. The repository itself is never changed."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            tree = folder / str(number)
            shutil.copytree(ROOT, tree, symlinks=True, ignore=_LEFT_OUT)
            self._free.put(tree)

    @contextmanager
    def one(self) -> Iterator[Path]:
        tree = self._free.get()
        try:
            yield tree
        finally:
            self._free.put(tree)


@contextmanager
def trees(count: int) -> Iterator[Trees]:
    """Copies of the repository for a number of workers, removed at the end."""
    with TemporaryDirectory(prefix="mutants-") as folder:
        yield Trees(Path(folder), count)


def failing_unchanged(copies: Trees, workers: int, tests: Sequence[str]) -> list[str]:
    """The tests that fail without any change, or the output if they could not be run."""
    batches = [tests[number::workers] for number in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(lambda batch: _unchanged(copies, batch), batches)
        return [test for failing in found for test in failing]


def _unchanged(copies: Trees, tests: Sequence[str]) -> list[str]:
    if not tests:
        return []
    with copies.one() as tree:
        # Compiled files are written once, here, where nothing is changed yet.
        code, output, failed = _pytest(tree, tests, patience=10 * PATIENCE, compiled=True)
    return [] if code == 0 else sorted(failed) or [output]


def run(
    copies: Trees, workers: int, mutants: Iterable[Mutant], tell: Callable[[Mutant, str], None]
) -> dict[str, str]:
    """Run mutants; tells and returns what is wrong with each by its name, "" if it was caught."""
    found: dict[str, str] = {}
    with ThreadPoolExecutor(workers) as pool:
        waiting = {pool.submit(_wrong_with, copies, mutant): mutant for mutant in mutants}
        try:
            for done in as_completed(waiting):
                mutant = waiting[done]
                found[mutant.name] = done.result()
                tell(mutant, found[mutant.name])
        except BaseException:  # Ctrl-C, say: only those that run are waited for
            pool.shutdown(cancel_futures=True)
            raise
    return found


def _wrong_with(copies: Trees, mutant: Mutant) -> str:
    with copies.one() as tree, _changed(tree / mutant.file, mutant):
        try:
            code, output, failed = _pytest(tree, mutant.tests, patience=PATIENCE)
        except subprocess.TimeoutExpired:
            return f"its tests did not end within {PATIENCE} seconds"
    survived = [test for test in mutant.tests if test not in failed]
    if code not in (0, 1):  # nothing was collected, or could be imported
        return f"its tests could not be run:\n{output}"
    return f"not noticed by {', '.join(survived)}" if survived else ""


@contextmanager
def _changed(path: Path, mutant: Mutant) -> Iterator[None]:
    """The file with the mutant's change. Its time differs, so that no compiled file is taken."""
    source, times = path.read_text(), path.stat()
    path.write_text(mutant.applied(source))
    os.utime(path, (times.st_atime, times.st_mtime + 10))
    try:
        yield
    finally:
        path.write_text(source)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _pytest(
    tree: Path, tests: Sequence[str], *, patience: float, compiled: bool = False
) -> tuple[int, str, set[str]]:
    """Exit code, output, and the tests that failed."""
    options = ["-q", "--tb=no", "-rfE", "--color=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTEST_ADDOPTS": ""}
    if not compiled:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=patience)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)  # with the processes that its tests started
        process.communicate()
        raise
    found = (line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    names = [line.split(" ", 1)[1].split(" - ")[0] for line in found]
    # One parameter that notices is enough, if none is named.
    return process.returncode, output, {*names, *(name.split("[")[0] for name in names)}
