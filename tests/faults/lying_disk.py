"""A disk that fails at a chosen call, and remembers what a power cut would leave of it.

Each thing that SQLite does to a file is noted, in order, and so are the acknowledgements that
the ledger gave in between. `images.py` makes files of it, as they would be found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from threading import get_ident
from typing import Any

# SQLite's result codes.
FULL, CANT_OPEN = 13, 14
IO_READ, IO_WRITE, IO_SYNC, IO_TRUNCATE = 266, 778, 1034, 1546
IO_DELETE, IO_INDEX_SIZE = 2570, 4874

# Needs a disk that only one process writes to: what the others wrote it would not know.
DROPPING = "sync error, pages dropped"
# What can fail: the call, and how.
FAULTS: dict[str, tuple[str, int]] = {
    "full": ("write", FULL),
    "full, torn": ("write", FULL),
    "write error": ("write", IO_WRITE),
    "write error, torn": ("write", IO_WRITE),
    "write error, all written": ("write", IO_WRITE),
    "sync error": ("sync", IO_SYNC),
    DROPPING: ("sync", IO_SYNC),
    "truncate error": ("truncate", IO_TRUNCATE),
    "no index": ("index", IO_INDEX_SIZE),
    "can't open": ("open", CANT_OPEN),
    "delete error": ("delete", IO_DELETE),
    "read error": ("read", IO_READ),
}


SHARED = tuple(fault for fault in FAULTS if fault != DROPPING)
SYNCS = ("sync error", DROPPING)
FILES = ("db", "wal", "journal")
FOREVER = 1_000_000


@dataclass
class Plan:
    """The `at`-th call of the fault's kind fails and so many after it, or every `every`-th."""

    fault: str = ""
    at: int = 1
    times: int = 1
    every: int = 0
    files: tuple[str, ...] = FILES

    def hits(self, call: int) -> bool:
        if self.every:
            return call % self.every == 0
        return self.at <= call < self.at + self.times


@dataclass
class Storm:
    """One plan after the other: something that probably happens in the next few appends."""

    random: Random
    faults: Sequence[str] = tuple(FAULTS)

    def next(self) -> Plan:
        return _draw(self.random, self.random.choice(self.faults))


def _draw(random: Random, fault: str) -> Plan:
    calls = {"write": 40, "sync": 4, "read": 20}.get(FAULTS[fault][0], 2)
    return Plan(
        fault,
        at=random.randint(1, calls),
        times=random.choice((1, 1, 1, 2, 5, FOREVER)),
        files=random.choice((FILES, ("wal",), ("db",))),
    )


class LyingDisk:
    """Counts, fails by plan, and notes; see `vfs.Disk` for what the methods answer."""

    def __init__(self, plan: Plan, storm: Storm | None = None) -> None:
        self._first = plan
        # In a storm there is another plan for each step.
        self._storm = storm
        self.plan = plan
        self.calls = 0
        self.failed = 0
        # How many of these were in the way of one who reads.
        self.unreadable = 0
        # Who needs it to be well just now, and how a process ends in a sync that fails.
        self._needed_by: set[int] = set()
        self.die: Callable[[], None] | None = None
        self.log: list[list[Any]] = []
        self._drops_pages = storm is not None or plan.fault == DROPPING
        self._now: dict[str, bytearray] = {}
        self._synced: dict[str, bytes] = {}

    def heal(self) -> None:
        """From now on nothing fails."""
        self.plan = Plan()

    def keep_well(self) -> None:
        """The same until `let_be`, whatever other threads' steps would have to expect."""
        self._needed_by.add(get_ident())
        self.heal()

    def let_be(self) -> None:
        self._needed_by.discard(get_ident())

    def next_step(self) -> None:
        """What the steps to come have to expect."""
        if self._needed_by:
            return
        if self._storm is not None:
            self.plan, self.calls = self._storm.next(), 0
        elif self._first.every:
            self.plan = self._first

    def note(self, *what: Any) -> None:
        self.log.append(list(what))

    def _fails(self, call: str, kind: str) -> int:
        plan = self.plan
        if not plan.fault or kind not in plan.files:
            return 0
        wanted, code = FAULTS[plan.fault]
        if wanted != call:
            return 0
        self.calls += 1
        if not plan.hits(self.calls):
            return 0
        self.failed += 1
        self.unreadable += call in ("read", "open", "index")
        return code

    def open(self, kind: str) -> int:
        return self._fails("open", kind)

    def opened(self, path: str, kind: str, *, is_new: bool) -> None:
        self.note("opened", kind, is_new)
        if is_new or path not in self._now:
            self._now[path] = bytearray()
            self._synced[path] = b""

    def read(self, kind: str) -> int:
        return self._fails("read", kind)

    def write(self, path: str, kind: str, offset: int, data: bytes) -> tuple[int, int]:
        fault = self.plan.fault
        code = self._fails("write", kind)
        done = len(data)
        if code:
            done = done // 2 if "torn" in fault else done if "all written" in fault else 0
        if done:
            self.note("write", kind, offset, data[:done])
            write_into(self._now[path], offset, data[:done])
        return code, done

    def truncate(self, path: str, kind: str, size: int) -> int:
        code = self._fails("truncate", kind)
        if not code:
            self.note("truncate", kind, size)
            truncate_to(self._now[path], size)
        return code

    def sync(self, path: str, kind: str) -> int:
        code = self._fails("sync", kind)
        self.note("sync failed" if code else "sync", kind)
        if code and self.die is not None:
            self.die()
        if self._drops_pages and not code:
            self._synced[path] = bytes(self._now[path])
        return code

    def after_failed_sync(self, path: str) -> bytes | None:
        """Some systems throw the pages away that they could not write: the old bytes are back."""
        if self.plan.fault != DROPPING:
            return None
        self._now[path] = bytearray(self._synced[path])
        return self._synced[path]

    def index(self) -> int:
        return self._fails("index", "wal")

    def delete(self, path: str, kind: str) -> int:
        code = self._fails("delete", kind)
        if not code:
            self.note("delete", kind)
        return code


def write_into(content: bytearray, offset: int, data: bytes) -> None:
    """What is written behind the end makes a gap of zeros."""
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def truncate_to(content: bytearray, size: int) -> None:
    """A file that was shorter becomes longer."""
    del content[size:]
    content.extend(bytes(size - len(content)))
