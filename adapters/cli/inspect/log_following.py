"""Waiting for what is yet to be recorded, until somebody has had enough.

Ends on Ctrl-C, on SIGTERM, and as soon as the reader at the other end of a pipe is
gone, even if nothing more is recorded.
"""

from __future__ import annotations

import select
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import fstat
from threading import Event as Flag
from threading import Thread
from types import FrameType
from uuid import UUID

from turnledger.adapters.cli.shared.command import silence_stdout
from turnledger.ledger import Ledger, Record

# How long to wait between looks at a run, at first and at most.
SHORTEST_NAP, LONGEST_NAP = 0.005, 0.1


@contextmanager
def until_stopped() -> Iterator[Flag]:
    """A flag that goes up when the command should end; a closed pipe is no error here."""
    stop = Flag()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set():  # asked twice: perhaps stuck in a write
            raise KeyboardInterrupt
        stop.set()

    before = {sig: signal.signal(sig, ask_to_stop) for sig in (signal.SIGINT, signal.SIGTERM)}
    _watch_reader(stop)
    try:
        yield stop
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)


def _watch_reader(stop: Flag) -> None:
    try:
        fd = sys.stdout.fileno()
        mode = fstat(fd).st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return
    poll = select.poll()
    poll.register(fd, 0)  # errors and hang-ups are always reported

    def watch() -> None:
        with suppress(OSError):
            poll.poll()
            stop.set()

    Thread(target=watch, name="reader-watch", daemon=True).start()


def follow_run(
    ledger: Ledger, run_id: UUID, after: int, until: int | None, stop: Flag
) -> Iterator[Record]:
    """A run's records as they are recorded, by whatever process; ends after `until`."""
    nap = SHORTEST_NAP
    while not stop.is_set() and (until is None or after < until):
        seen = after
        for record in ledger.read(run_id, after, until):
            after = record.version
            yield record
            if stop.is_set():
                return
        if after > seen:
            nap = SHORTEST_NAP
        else:
            stop.wait(nap)
            nap = min(nap * 2, LONGEST_NAP)
