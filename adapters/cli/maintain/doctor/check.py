"""What a check of `doctor` comes to, and how facts are read for it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from enum import Enum

import msgspec

from turnledger.ledger.clock import to_datetime
from turnledger.ledger.errors import IntegrityFailureError

# Facts that are moments, in microseconds since 1970.
MOMENTS = ("newest_recorded_at", "server_clock")


class Verdict(Enum):
    """What a check came to."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(msgspec.Struct, frozen=True):
    """One check: what was found, and what to do about it."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


def judge(name: str, found: str, trouble: Verdict | None, advice: str) -> Check:
    """A check that is ok without trouble; advice is for trouble only."""
    if trouble is None:
        return Check(name, Verdict.OK, found)
    return Check(name, trouble, found, advice)


def number_of(facts: Mapping[str, str], name: str) -> float | None:
    """A fact as a number; None if it is missing or none."""
    try:
        return float(facts[name])
    except (KeyError, ValueError):
        return None


def readable(facts: Mapping[str, str]) -> dict[str, str]:
    """Facts as a person reads them: moments as dates. One that is none of any year stays."""
    shown = dict(facts)
    for name in MOMENTS:
        micros = number_of(facts, name)
        if micros is not None:
            with suppress(OverflowError, IntegrityFailureError):
                moment = to_datetime(int(micros)).isoformat(timespec="milliseconds")
                shown[name] = moment if micros else "never"
    return shown


def span(length: timedelta) -> str:
    """A length of time, roughly."""
    seconds = length.total_seconds()
    for size, word in ((86400 * 365, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} seconds"
