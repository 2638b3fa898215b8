"""Scenarios on a small disk of their own: `python -m tests.faults.small_disk NAME FOLDER`.

Runs in a mount namespace of its own (see `mounting.py`), mounts a small tmpfs on the folder,
and prints as JSON what happened there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Draft,
    Ledger,
    StoreUnavailableError,
    new_run_id,
)
from turnledger.ledger.transfer.backup import back_up

RUN = new_run_id()


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True)


def fill(folder: Path) -> Path:
    """Take all the room that there is, to the last page."""
    ballast = folder / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast


def fact(size: int = 100) -> Draft:
    return Draft(CustomEvent(kind="fault.fact", data="x" * size), new_run_id())


def error_of(do: Callable[..., Any], *arguments: Any) -> StoreUnavailableError:
    try:
        do(*arguments)
    except StoreUnavailableError as error:
        return error
    raise AssertionError("there was no error")


def append_until_full(ledger: Ledger, stored: list[str]) -> StoreUnavailableError:
    """Append until the store has no more room; whatever was acknowledged is in `stored`."""
    for _ in range(10_000):
        draft = fact(700)
        try:
            ledger.append(RUN, draft, ANY)
        except StoreUnavailableError as error:
            return error
        stored.append(str(draft.event_id))
    raise AssertionError("the disk did not become full")


def ids(ledger: Ledger) -> list[str]:
    return [str(record.event_id) for record in ledger.tail()]


def look(folder: Path) -> dict[str, Any]:
    """What another process finds."""
    command = [sys.executable, "-m", "tests.faults.small_disk", "found", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def found(folder: Path) -> dict[str, Any]:
    with Ledger.open(folder / "runs.db", create=False) as ledger:
        return {"ids": ids(ledger), "ok": ledger.verify_all().ok}


def full(folder: Path) -> dict[str, Any]:
    """A disk becomes full under an open ledger, and has room again."""
    mount("-t", "tmpfs", "-o", "size=3m", "none", folder)
    stored: list[str] = []
    with Ledger.open(folder / "runs.db") as ledger:
        first = fact()
        ledger.append(RUN, first, NEW)
        stored.append(str(first.event_id))
        ballast = fill(folder)
        os.truncate(ballast, ballast.stat().st_size - 300_000)  # for some appends
        error = append_until_full(ledger, stored)
        others = {
            "blob": error_of(ledger.append, RUN, fact(10**6), ANY),
            "derived data": error_of(ledger.derived_data("s").put, {"k": "v" * 10**6}),
        }
        read, elsewhere = ids(ledger), look(folder)
        ballast.unlink()
        again = ledger.append(RUN, error.drafts, ANY)
        ledger.append(RUN, others["blob"].drafts, ANY)
        after = ids(ledger)
    left_open = opened_below(folder)
    retried = [str(draft.event_id) for draft in (*error.drafts, *others["blob"].drafts)]
    return {
        "error": str(error),
        "others": {name: str(other) for name, other in others.items()},
        "stored": stored,
        "retried": retried,
        "read": read,
        "elsewhere": elsewhere,
        "duplicate": again.duplicate,
        "after": after,
        "reopened": look(folder),
        "left open": left_open,
    }


def closing(folder: Path) -> dict[str, Any]:
    """Ledgers are closed while the disk is full: alone, and beside another open one."""
    mount("-t", "tmpfs", "-o", "size=3m", "none", folder)
    left: dict[str, list[str]] = {}
    ballast = None
    for name in ("alone", "another process", "another ledger"):
        with Ledger.open(folder / f"{name}.db") as ledger:
            ledger.append(RUN, fact(), NEW)
            others = [Ledger.open(folder / f"{name}.db")] if name == "another ledger" else []
            child = _hold_open(folder / f"{name}.db") if name == "another process" else None
            ballast = fill(folder)
            append_until_full(ledger, [])
        for other in others:
            assert other.head(RUN) >= 1
            error_of(other.append, RUN, fact(10**6), ANY)
            other.close()
        left[name] = opened_below(folder)
        ballast.unlink()
        if child is not None:
            child.kill()
            child.wait()
    return {"left open": left}


def _hold_open(path: Path) -> subprocess.Popen[bytes]:
    """Another process that has read the ledger, and has it open."""
    code = (
        "import sys; from turnledger.ledger import Ledger; ledger = Ledger.open(sys.argv[1]); "
        "list(ledger.tail()); print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"open\n"
    return child


def opened_below(folder: Path) -> list[str]:
    """The files of a folder that this process has open, deleted ones too."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(path for path in found if path.startswith(f"{folder}/"))


def opening(folder: Path) -> dict[str, Any]:
    """A ledger is to be opened, and another one made, on a disk that is full already."""
    mount("-t", "tmpfs", "-o", "size=1m", "none", folder)
    with Ledger.open(folder / "runs.db") as ledger:
        ledger.append(RUN, fact(), NEW)
    ballast = fill(folder)
    errors = [str(error_of(Ledger.open, folder / name)) for name in ("runs.db", "new")]
    ballast.unlink()
    with Ledger.open(folder / "new") as ledger:
        ledger.append(RUN, fact(), NEW)
    return {"errors": errors, "found": look(folder)}


def no_files(folder: Path) -> dict[str, Any]:
    """There is room, but no more file can be made: a claim needs one."""
    mount("-t", "tmpfs", "-o", "size=3m,nr_inodes=12", "none", folder)
    with Ledger.open(folder / "runs.db") as ledger:
        ledger.append(RUN, fact(), NEW)
        made: list[Path] = []
        with suppress(OSError):
            while True:
                made.append(folder / f"file-{len(made)}")
                made[-1].touch()
        error = error_of(ledger.claim, RUN)
        appended = ledger.append(RUN, fact(), ANY).version
        made[0].unlink()
        epoch = ledger.claim(RUN).epoch
    return {"error": str(error), "appended": appended, "epoch": epoch}


def read_only(folder: Path) -> dict[str, Any]:
    """A ledger that was closed, one whose process was killed, and one without its index."""
    mount("-t", "tmpfs", "-o", "size=4m", "none", folder)
    for name in ("runs.db", "killed.db", "no-index.db"):
        _write_in_a_child(folder / name, closes=name == "runs.db")
    (folder / "no-index.db-shm").unlink()
    mount("-o", "remount,ro", folder)
    told: dict[str, Any] = {}
    for name in ("runs.db", "killed.db"):
        with Ledger.open(folder / name) as ledger:
            error = error_of(ledger.append, RUN, fact(), ANY)
            told[name] = {
                "events": len(ids(ledger)),
                "ok": ledger.verify_all().ok,
                "error": str(error),
                "drafts": len(error.drafts),
                "claim": str(error_of(ledger.claim, RUN)),
                "copied": back_up(ledger, folder.parent / f"copy of {name}").records,
            }
    told["no index"] = str(error_of(Ledger.open, folder / "no-index.db"))
    told["new"] = str(error_of(Ledger.open, folder / "new.db"))
    turnledger = [sys.executable, "-c", "from turnledger.adapters.cli import main; main()"]
    for command in (["runs"], ["log", str(RUN)], ["verify", "--all"]):
        db = {**os.environ, "TURNLEDGER_DB": str(folder / "runs.db")}
        shown = subprocess.run([*turnledger, *command], env=db, capture_output=True, text=True)
        told[command[0]] = [shown.returncode, shown.stdout + shown.stderr]
    mount("-o", "remount,rw", folder)
    told["writable again"] = look(folder)
    return told


def both_ways(folder: Path) -> dict[str, Any]:
    """The same folder, read-only in one place and written to in another, as containers do."""
    disk, view = folder / "disk", folder / "view"
    mount("-t", "tmpfs", "-o", "size=8m", "none", folder)
    disk.mkdir()
    view.mkdir()
    mount("--bind", disk, view)
    mount("-o", "remount,bind,ro", view)
    with Ledger.open(disk / "runs.db") as writer:
        writer.append(RUN, fact(), NEW)
    seen, wrong = [], []
    with Ledger.open(view / "runs.db", create=False) as reader:
        expected = 1
        for _ in range(15):
            seen.append(len(ids(reader)) == expected)
            with Ledger.open(disk / "runs.db") as writer:
                for _ in range(20):
                    writer.append(RUN, fact(3000), ANY)
                    expected += 1
                    seen.append(reader.head(RUN) == expected)
                if not reader.verify_all().ok:
                    wrong.append("in the middle")
            if not reader.verify_all().ok:
                wrong.append("after it was closed")
    return {"seen": all(seen), "looks": len(seen), "wrong": wrong}


def _write_in_a_child(path: Path, *, closes: bool) -> None:
    """Five events by a process that closes its ledger, or ends as if it were killed."""
    child = os.fork()
    if child == 0:
        ledger = Ledger.open(path)
        ledger.append(RUN, fact(), NEW)
        for _ in range(4):
            ledger.append(RUN, fact(), ANY)
        if closes:
            ledger.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0


SCENARIOS = (full, closing, opening, no_files, read_only, both_ways, found)


if __name__ == "__main__":
    (scenario,) = [s for s in SCENARIOS if s.__name__ == sys.argv[1]]
    sys.stdout.buffer.write(msgspec.json.encode(scenario(Path(sys.argv[2]))))
