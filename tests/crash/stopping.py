"""Scenario: a writer stops in the middle of its append, and others want to write.

Times and ids come from a clock that can be handed in, and the ledger asks it for the
time while it holds the lock: a clock that stops its process does so in the very middle.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.crash.processes import Child, Crew, Voice
from turnledger.ledger import ANY, CustomEvent, Draft, Ledger, StoreBusyError, SystemClock

RUN = "00000000-0000-4000-8000-000000000001"
HOLDERS_FIRST, HOLDERS_SECOND = 100, 101
SHORT, LONG = 0.4, 60.0
# Whoever tries the gate in passing lets go of it sooner.
KEPT = 0.1
Told = tuple[list[Any], list[Any]]


class StoppingClock(SystemClock):
    """Stops its process when it is asked for the time."""

    armed = False

    def micros(self) -> int:
        if self.armed:
            self.armed = False
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().micros()


def run(crew: Crew, *, url: str, then: str) -> dict[str, Any]:
    """What the others were told while the holder stood still, and after `then`."""
    holder = _start(crew, "holder", _hold, url)
    scene = {
        "it goes on": _stop_holder,
        "it is killed": _stop_holder,
        "the next in line stops too": _stop_in_line,
        "the next in line is interrupted": _interrupt_in_line,
        "others write elsewhere": _write_elsewhere,
    }
    busy, done = scene[then](crew, url, holder, then)
    return {"busy": busy, "done": done}


def _stop_holder(crew: Crew, url: str, holder: Child, then: str) -> Told:
    others = [_start(crew, f"other {me}", _write, url, me, SHORT) for me in (1, 2, 3)]
    _stop_in_append(crew, holder)
    busy = _let(crew, others, "busy")
    if then == "it goes on":
        crew.resume(holder)
        crew.join(holder)
    else:
        crew.kill(holder)
    return busy, _let(crew, others, "done")


def _write_elsewhere(crew: Crew, url: str, holder: Child, then: str) -> Told:
    others = [_start(crew, f"other {me}", _write, url, me, SHORT, f"{me:032x}") for me in (1, 2, 3)]
    _stop_in_append(crew, holder)
    return [], _let(crew, others, "done")


def _stop_in_line(crew: Crew, url: str, holder: Child, then: str) -> Told:
    """The next in line has the gate, and stands still in it."""
    next_one = _start(crew, "next in line", _write, url, 1, LONG)
    other = _start(crew, "other", _write, url, 2, SHORT)
    _stop_in_append(crew, holder)
    _let_queue(url, next_one)
    crew.stop(next_one)
    crew.resume(holder)
    crew.join(holder)
    busy = _let(crew, [other], "busy")
    crew.resume(next_one)
    done = [crew.expect(next_one, "done")]
    return busy, done + _let(crew, [other], "done")


def _interrupt_in_line(crew: Crew, url: str, holder: Child, then: str) -> Told:
    """Ctrl-C while it waits: it lives on, but wants nothing for now."""
    next_one = _start(crew, "next in line", _write, url, 1, LONG)
    other = _start(crew, "other", _write, url, 2, 10.0)
    _stop_in_append(crew, holder)
    _let_queue(url, next_one)
    os.kill(next_one.pid, signal.SIGINT)
    crew.expect(next_one, "interrupted")
    crew.resume(holder)
    crew.join(holder)
    done = _let(crew, [other], "done")
    return [], done + _let(crew, [next_one], "done")


def _start(crew: Crew, name: str, work: Any, *args: Any) -> Child:
    child = crew.start(name, work, *args)
    crew.expect(child, "ready")
    return child


def _stop_in_append(crew: Crew, holder: Child) -> None:
    holder.order("g")
    crew.await_stop(holder)


def _let(crew: Crew, others: list[Child], word: str) -> list[Any]:
    for other in others:
        other.order("g")
    return [crew.expect(other, word) for other in others]


def _let_queue(url: str, child: Child) -> None:
    """Returns when the child stands in line: it keeps the gate, which is seen from outside."""
    deadline = time.monotonic() + 20
    gate = os.open(Path(f"{url}-locks") / "gate", os.O_RDWR)
    child.order("g")
    free_at = time.monotonic()
    try:
        while (now := time.monotonic()) - free_at < KEPT:
            assert now < deadline, "nobody stands in line"
            if _is_free(gate):
                free_at = time.monotonic()
    finally:
        os.close(gate)


def _is_free(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True


def _draft(me: int) -> Draft:
    return Draft(CustomEvent(kind="crash.fact", data=me), f"{me:032x}")


def _hold(voice: Voice, url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.append(RUN, _draft(HOLDERS_FIRST), ANY)
    # Opened again, it has to look where the run stands, and PostgreSQL locks what it looks at.
    clock = StoppingClock()
    with Ledger.open(url, clock=clock, wait=SHORT) as ledger:
        voice.say("ready")
        voice.hear()
        clock.armed = True
        ledger.append(RUN, _draft(HOLDERS_SECOND), ANY)


def _write(voice: Voice, url: str, me: int, wait: float, run_id: str = RUN) -> None:
    """Append the same draft at each order, until it is recorded."""
    with Ledger.open(url, wait=wait) as ledger:
        voice.say("ready")
        while voice.hear():
            began = time.monotonic()
            try:
                done = ledger.append(run_id, _draft(me), ANY)
            except StoreBusyError as error:
                # Reading waits for nobody.
                seen = [record.event_id.int for record in ledger.read(run_id)]
                retry = [draft.event_id.int for draft in error.drafts]
                voice.say("busy", time.monotonic() - began, str(error), retry, seen)
            except KeyboardInterrupt:
                voice.say("interrupted")
            else:
                voice.say("done", me, done.duplicate)
                return
