"""A round of fuzzing in a process of its own, which may hang, die or ask for too much memory.

The process notes the number of the input that it is at where this one can read it: whatever
becomes of it, the input is known and can be tried again by itself.
"""

from __future__ import annotations

import mmap
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from base64 import b64encode
from importlib.util import find_spec
from pathlib import Path

import msgspec

from tests.fuzz.guided import COUNTED
from tests.fuzz.targets import Target

ROOT = Path(__file__).resolve().parent.parent.parent
# How much more memory than at its beginning a round may ask for, whatever it is fed.
MORE_MEMORY = 1 << 30
# An input takes milliseconds, some that fill limits a second. One that takes this long hangs.
STUCK_SECONDS = 120.0
# Of a process that goes by coverage, as a whole: it has some 150 MiB to begin with.
MOST_MIB = 1536
# From how many bytes such an input is drawn, at most: some hundred throws.
LONGEST = 1024
# A round ends early when it has found this many things: they are likely all the same.
ENOUGH = 5
# Noted before the first input: the process is still starting, which may take long.
NOT_BEGUN = (1 << 64) - 1


class RoundReport(msgspec.Struct):
    """What came of a round."""

    accepted: int = 0
    refused: int = 0
    peak_kib: int = 0
    problems: list[str] = []

    @property
    def inputs(self) -> int:
        return self.accepted + self.refused


def fuzz(
    target: Target, round_number: int, numbers: range, place: mmap.mmap | None = None
) -> RoundReport:
    """Try inputs in this process."""
    report = RoundReport()
    with target.prepared():
        for number in numbers:
            if place is not None:
                place[:8] = number.to_bytes(8, "big")
            try:
                if target.attempt(round_number, number):
                    report.accepted += 1
                else:
                    report.refused += 1
            except Exception as error:
                report.refused += 1
                report.problems.append(_told(target, round_number, number, error))
                if len(report.problems) >= ENOUGH:
                    break
    report.peak_kib = _peak_kib()
    return report


def _peak_kib() -> int:
    """The most memory that this program had; getrusage would count whoever started it, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def again(target: str, round_number: int, number: int) -> str:
    """How to try one input again."""
    return f"python -m tests.fuzz {target} {round_number} {number}"


def _told(target: Target, round_number: int, number: int, error: Exception) -> str:
    try:
        shown = target.shown(target.drawn(round_number, number))
    except Exception as trouble:
        shown = f"(can't be shown: {trouble!r})"
    told = "".join(traceback.format_exception(error))
    return f"{again(target.name, round_number, number)}\ninput: {shown:.20000}\n{told[-6000:]}"


def fuzz_apart(
    target: Target, round_number: int, inputs: int, *, stuck_after: float = STUCK_SECONDS
) -> RoundReport:
    """The same in a process with bounded memory, which is ended if it hangs."""
    with tempfile.TemporaryFile() as out, tempfile.NamedTemporaryFile() as noted:
        noted.write(NOT_BEGUN.to_bytes(8, "big"))
        noted.flush()
        command = [sys.executable, "-m", "tests.fuzz", target.name, str(round_number)]
        child = subprocess.Popen(
            [*command, "--inputs", str(inputs), "--noted", noted.name],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
        )
        stuck = _watch(child, Path(noted.name), stuck_after)
        number = _number(Path(noted.name))
        out.seek(0)
        said = out.read()
    if not stuck and child.returncode == 0:
        return msgspec.json.decode(said, type=RoundReport)
    what = "hangs" if stuck else f"ended the process with {child.returncode}"
    if number == NOT_BEGUN:
        return RoundReport(problems=[f"{' '.join(command)}\n{what} before its first input"])
    with target.prepared():
        shown = target.shown(target.drawn(round_number, number))
    problem = f"{again(target.name, round_number, number)}\n{what}; input: {shown:.20000}"
    # What became of the inputs before is not known: they do not count.
    return RoundReport(problems=[problem])


def _watch(child: subprocess.Popen[bytes], noted: Path, stuck_after: float) -> bool:
    """Wait for the end; True if it had to be brought about."""
    seen, since = -1, time.monotonic()
    while True:
        try:
            child.wait(timeout=1.0)
            return False
        except subprocess.TimeoutExpired:
            number = _number(noted)
            patience = STUCK_SECONDS if number == NOT_BEGUN else stuck_after
            if number != seen:
                seen, since = number, time.monotonic()
            elif time.monotonic() - since > patience:
                child.kill()
                child.wait()
                return True


def _number(noted: Path) -> int:
    return int.from_bytes(noted.read_bytes()[:8], "big")


def bound_memory() -> None:
    """From here on, this process gets no more than MORE_MEMORY."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def fuzz_guided(name: str, round_number: int, inputs: int, corpus: Path) -> RoundReport:
    """A round that goes by coverage, also apart; what it learns it keeps in `corpus`."""
    if find_spec("atheris") is None:
        raise RuntimeError("This needs atheris: `make soak` installs it, or pip's --group soak.")
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as told:
        counted = Path(folder, "counted")
        counted.write_bytes(bytes(COUNTED))
        command = [sys.executable, "-m", "tests.fuzz.guided", name, "--counted", str(counted)]
        command += [f"-runs={inputs}", f"-seed={round_number}", f"-max_len={LONGEST}"]
        command += [f"-rss_limit_mb={MOST_MIB}", f"-timeout={STUCK_SECONDS:.0f}"]
        command += [f"-artifact_prefix={folder}/", "-print_final_stats=1", str(corpus)]
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.STDOUT
        )
        told.seek(0)
        said = told.read().decode(errors="replace")
        found = [path.read_bytes() for path in Path(folder).iterdir() if path != counted]
        accepted, refused = _counts(counted.read_bytes())
    report = RoundReport(accepted, refused, peak_kib=_peak_mib(said) * 1024)
    if done.returncode != 0 or found:
        shown = ", ".join(b64encode(given).decode() for given in found) or "none was kept"
        report.problems.append(
            f"tests.fuzz.guided {name}, ended with {done.returncode}; input, in base64: {shown}\n"
            f"{said[-6000:]}"
        )
    return report


def _peak_mib(said: str) -> int:
    _, found, after = said.rpartition("stat::peak_rss_mb:")
    return int(after.split()[0]) if found else 0


def _counts(counted: bytes) -> tuple[int, int]:
    return int.from_bytes(counted[:8], "big"), int.from_bytes(counted[8:], "big")
