"""Scenario: several processes append to one file as fast as they can, so many times in all."""

from __future__ import annotations

import time
from typing import Any

from tests.crash.processes import Crew, Voice
from tests.crash.shared_memory import Numbers, StartLine
from turnledger.ledger import ANY, CustomEvent, Ledger, new_run_id


def run(crew: Crew, *, url: str, writers: int, appends: int) -> dict[str, Any]:
    """How many appends each writer made, and how long the longest took."""
    line, made = StartLine(writers), Numbers(writers)
    children = [
        crew.start(f"writer {me}", _write, url, line, made, me, appends) for me in range(writers)
    ]
    longest = [seconds for _, [_, seconds] in crew.join(*children)]
    return {"appends": made.all(), "longest": longest}


def _write(voice: Voice, url: str, line: StartLine, made: Numbers, me: int, appends: int) -> None:
    run_id, longest = new_run_id(), 0.0
    with Ledger.open(url) as ledger:
        # Not counted: a process's first append imports what the others need no more.
        ledger.append(run_id, CustomEvent(kind="crash.fact", data=me), ANY)
        line.wait(me)
        while sum(made.all()) < appends:
            began = time.monotonic()
            ledger.append(run_id, CustomEvent(kind="crash.fact", data=me), ANY)
            longest = max(longest, time.monotonic() - began)
            made[me] += 1
    voice.say("longest", longest)
