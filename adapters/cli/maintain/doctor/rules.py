"""Rule tables for `doctor`: each check's name, what it reports, and (predicate, verdict, advice).

The first case of a check whose predicate holds is its result; without one the check is ok.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import Enum
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from turnledger.adapters.cli.maintain.doctor.place import Place
from turnledger.ledger.events.types import CATALOGUE

SECOND = 1_000_000
# Outside of these a machine's clock is not set: 2024-01-01 and 2100-01-01, in microseconds.
EARLIEST, LATEST = 1_704_067_200 * SECOND, 4_102_444_800 * SECOND
# By how much clocks may differ, and a record may be ahead, without a warning.
SKEW, AHEAD = 5 * SECOND, 60 * SECOND
MIB = 1024 * 1024
LITTLE_SPACE, NO_SPACE, FEW_INODES = 1024 * MIB, 64 * MIB, 1000
# Mount options with which a confirmed flush may not be on the disk, or blocks are written in
# an order that leaves old content in a file after a power cut.
NO_FLUSH = frozenset({"nobarrier", "barrier=0", "volatile"})
LOOSE_ORDER = frozenset({"data=writeback", "nobh", "async_commit"})
# Libraries that turn fsync into nothing.
NO_FSYNC = ("eatmydata", "libnosync")


class Verdict(Enum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(msgspec.Struct, frozen=True):
    """One check: what was found, and what to do about it."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


class Subject(NamedTuple):
    """What is judged: what a store reports of itself, and what the machine reports of its disk.

    `place` is None for a server on another machine. `now` is this machine's clock, `written` the
    newest event catalogue that was written with.
    """

    facts: Mapping[str, str]
    place: Place | None = None
    now: int = 0
    written: int | None = None

    def get(self, name: str) -> str:
        """A reported fact; "unknown" if it is missing."""
        return self.facts.get(name, "unknown")

    def number(self, name: str) -> float | None:
        """A reported fact as a number; None if it is missing or not a number."""
        try:
            return float(self.facts[name])
        except (KeyError, ValueError):
            return None

    @property
    def disk(self) -> Place:
        """The machine's report; a place without any if there is none."""
        return self.place if self.place is not None else Place(Path())


Predicate = Callable[[Subject], object]
Found = str | Callable[[Subject], str]


class Case(NamedTuple):
    """A verdict where `when` holds; `found` is reported instead of what the check reports."""

    verdict: Verdict
    when: Predicate
    advice: str
    found: Found | None = None


fine, warn, fail = (partial(Case, verdict) for verdict in Verdict)


class Rule:
    """A check: its name, what it reports, and its cases; left out where it does not apply."""

    def __init__(
        self, name: str, found: Found, *cases: Case, applies: Predicate | None = None
    ) -> None:
        self.name, self.found, self.cases, self.applies = name, found, cases, applies or always

    def judge(self, subject: Subject) -> Check:
        """The first case that holds, or ok."""
        for verdict, when, advice, found in self.cases:
            if when(subject):
                return Check(self.name, verdict, _text(found or self.found, subject), advice)
        return Check(self.name, Verdict.OK, _text(self.found, subject))


def _text(found: Found, subject: Subject) -> str:
    return found if isinstance(found, str) else found(subject)


def judge(rules: Iterable[Rule], subject: Subject) -> list[Check]:
    """The result of each check that applies, in the table's order."""
    return [rule.judge(subject) for rule in rules if rule.applies(subject)]


def always(subject: Subject) -> bool:
    """The predicate of a check's last row."""
    return True


def equals(name: str, value: str) -> Predicate:
    """Whether a fact has this value."""
    return lambda subject: subject.facts.get(name) == value


def differs(name: str, value: str) -> Predicate:
    """Whether a fact has another value."""
    return lambda subject: subject.facts.get(name) != value


def above(name: str, limit: float) -> Predicate:
    """Whether a fact is a number above the limit."""
    return lambda subject: (subject.number(name) or 0) > limit


def fact(name: str) -> Callable[[Subject], str]:
    """A fact as it was reported."""
    return lambda subject: subject.get(name)


def span(length: timedelta) -> str:
    """A length of time, roughly: `3 hours`."""
    seconds = length.total_seconds()
    for size, word in ((86400 * 365, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} seconds"


# --- rules for every store ----------------------------------------------------------


def _clock_problems(subject: Subject) -> list[str]:
    now, found = subject.now, []

    def distance(other: float) -> str:
        return span(timedelta(microseconds=abs(other - now)))

    if not EARLIEST < now < LATEST:
        found.append("this machine's clock is not set")
    server = subject.number("server_clock")
    if server is not None and abs(server - now) > SKEW:
        word = "behind" if now < server else "ahead of"
        found.append(f"this machine is {distance(server)} {word} the server")
    newest = subject.number("newest_recorded_at")
    if newest is not None and newest - now > AHEAD:
        found.append(f"the newest records are {distance(newest)} in the future")
    return found


STORE_RULES: tuple[Rule, ...] = (
    Rule(
        "event catalogue",
        lambda s: f"written with {s.written}, this program knows {CATALOGUE}",
        warn(
            lambda s: s.written is not None and s.written > CATALOGUE,
            "A newer turnledger wrote to this ledger. Upgrade this one to read all events.",
        ),
    ),
    Rule(
        "clock",
        lambda s: "; ".join(_clock_problems(s)) or "agrees with the records",
        warn(
            _clock_problems,
            "Synchronise the clocks of all machines that use the ledger (NTP). Nothing is lost: "
            "version and position keep the order. But event times, and searches by time, are "
            "wrong.",
        ),
    ),
    Rule(
        "durability",
        "memory",
        warn(always, "All runs are lost when this process ends. Use a file or PostgreSQL."),
        applies=equals("store", "memory"),
    ),
)

# --- rules for the disk -------------------------------------------------------------


def _free(subject: Subject) -> str:
    return f"{(subject.disk.free or 0) // MIB} MiB free"


def _inodes(subject: Subject) -> str:
    return f"{_free(subject)}, {subject.disk.free_inodes} inodes free"


def _mounted_with(options: frozenset[str]) -> Predicate:
    return lambda s: s.disk.options & options


def _listed(options: frozenset[str]) -> Found:
    return lambda s: f"mounted with {', '.join(sorted(s.disk.options & options))}"


_MAKE_ROOM = "Make room: appends fail when the disk is full. Acknowledged events are not lost."

FREE_SPACE = Rule(
    "disk",
    _free,
    fine(
        lambda s: s.place is None,
        "Monitor it there: a server that can't extend its log stops.",
        "on the server's machine, not visible from here",
    ),
    warn(lambda s: s.disk.free is None, "Check it with: df.", "unknown"),
    fail(
        lambda s: s.disk.free_inodes is not None and s.disk.free_inodes < FEW_INODES,
        _MAKE_ROOM,
        _inodes,
    ),
    fail(lambda s: (s.disk.free or 0) < NO_SPACE, _MAKE_ROOM),
    warn(lambda s: (s.disk.free or 0) < LITTLE_SPACE, _MAKE_ROOM),
)

FLUSHING = Rule(
    "flushing",
    "nothing weakens fsync, as far as can be seen",
    fail(
        lambda s: any(library in s.disk.maps for library in NO_FSYNC),
        "A power cut can lose every acknowledged event. Run without LD_PRELOAD.",
        "a library that turns fsync off is loaded",
    ),
    fail(
        _mounted_with(NO_FLUSH),
        "A power cut can lose acknowledged events. Mount it without that option.",
        _listed(NO_FLUSH),
    ),
    warn(
        _mounted_with(LOOSE_ORDER),
        "After a power cut a file that grew may hold old blocks. Mount it without that option.",
        _listed(LOOSE_ORDER),
    ),
    applies=lambda s: s.place is not None,
)
