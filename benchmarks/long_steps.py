"""What is done with a long run, each thing in a process of its own.

A process prints what its one step took beyond what importing and opening had taken already: the
peak of its memory, and processor time. Nothing that one step leaves behind is another's.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from benchmarks.long_events import declarations
from turnledger.adapters.cli import turnledger
from turnledger.ledger import ANY, CustomEvent, Ledger, export_runs, import_runs
from turnledger.projections import blame, diff, fold, state_at
from turnledger.projections.comparison.runs import compare
from turnledger.projections.run_state.state import built_in
from turnledger.projections.views.one_conversation import one_conversation
from turnledger.runtime import replay

# How often what takes a moment is done.
TIMES = 200
# How much of the end of a run is looked at where not all of it is.
NEAR = 100


class Long(NamedTuple):
    """The run that is worked on."""

    ledger: Ledger
    run: UUID
    events: int
    path: str

    @property
    def middle(self) -> int:
        """A version about half way that ends a commit."""
        return self.events // 200 * 100


Step = Callable[[Long], object]


def append(long: Long) -> None:
    for number in range(TIMES):
        event = CustomEvent(kind="acme.appended", data={"number": number})
        long.ledger.append(long.run, event, ANY)


def read_end(long: Long) -> None:
    for _ in range(TIMES):
        assert len(list(long.ledger.read(long.run, after=long.events - NEAR))) >= NEAR


def _exhaust(things: Iterator[object]) -> None:
    for _ in things:
        pass


def verify(long: Long) -> None:
    assert long.ledger.verify(long.run).ok


def verify_all(long: Long) -> None:
    assert long.ledger.verify_all().ok


def export(long: Long) -> None:
    with open(os.devnull, "wb") as out:
        export_runs(long.ledger, out, [long.run])


def import_(long: Long) -> None:
    file, other = Path(long.path).with_suffix(".jsonl"), f"{long.path}.imported"
    with file.open("rb") as source, Ledger.open(other) as ledger:
        assert import_runs(ledger, source).imported >= long.events


def state_end(long: Long) -> object:
    return state_at(long.ledger, long.run, declarations=declarations())


def state_middle(long: Long) -> object:
    return state_at(long.ledger, long.run, long.middle, declarations=declarations())


def state_digest(long: Long) -> object:
    state = state_at(long.ledger, long.run, declarations=declarations())
    return state, state.state_digest


def send(long: Long) -> object:
    """What a provider would be sent next."""
    return one_conversation(long.ledger, long.run).history.for_send()


def changes(long: Long) -> object:
    return diff(long.ledger, long.run, long.events - NEAR, long.events)


def forked(long: Long) -> object:
    child = long.ledger.fork(long.run, long.middle)
    _exhaust(long.ledger.read(child))
    assert long.ledger.verify(child).ok
    return None


def compared(long: Long) -> object:
    return compare(long.ledger, long.run, long.ledger.fork(long.run, long.middle))


def view_end(name: str) -> Step:
    def step(long: Long) -> object:
        (view,) = (view for view in built_in(declarations()) if view.name == name)
        return fold(long.ledger.read(long.run), view)

    return step


def view_middle(name: str) -> Step:
    def step(long: Long) -> object:
        (view,) = (view for view in built_in(declarations()) if view.name == name)
        return fold(long.ledger.read(long.run, until=long.middle), view)

    return step


def blamed(pointer: str) -> Step:
    return lambda long: blame(long.ledger, long.run, pointer, declarations=declarations())


def command(*words: str) -> Step:
    """A command of the command line; RUN, END and MIDDLE are what they are here."""

    def step(long: Long) -> object:
        known = {
            "RUN": str(long.run),
            "MIDDLE": str(long.middle),
            "NEAR": str(long.events - NEAR),
            "END": str(long.events),
        }
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        given = [known.get(word, word) for word in words]
        try:
            done = turnledger([*given, "--db", long.path], standalone_mode=False)
        except SystemExit as end:
            done = end.code
        assert not done, f"{words} ended with {done}"
        sys.stdout.flush()
        return done

    return step


VIEWS = [view.name for view in built_in()]
STEPS: dict[str, Step] = {
    "append": append,
    "read end": read_end,
    "read": lambda long: _exhaust(long.ledger.read(long.run)),
    "tail": lambda long: _exhaust(long.ledger.tail()),
    "verify": verify,
    "verify all": verify_all,
    "export": export,
    "import": import_,
    "state end": state_end,
    "state middle": state_middle,
    "state digest": state_digest,
    **{f"{name} end": view_end(name) for name in VIEWS},
    **{f"{name} middle": view_middle(name) for name in VIEWS},
    "send": send,
    "fork": forked,
    "compare": compared,
    "replay": lambda long: replay(long.ledger, long.run),
    "diff": changes,
    "blame usage": blamed("/usage/total/calls"),
    "blame status": blamed("/summary/prompt"),
    "blame slice": blamed("/slices/Note/0"),
    "blame tool": blamed("/tools/0/status"),
    "blame turn": blamed("/history/turns/0"),
    "log": command("log", "RUN"),
    "log jsonl": command("log", "RUN", "-o", "jsonl"),
    "log end": command("log", "RUN", "--after", "NEAR"),
    "cli state": command("state", "RUN"),
    "cli state middle": command("state", "RUN", "--at", "MIDDLE"),
    "cli state path": command("state", "RUN", "--path", "/usage/total"),
    "messages": command("messages", "RUN"),
    "timeline": command("timeline", "RUN"),
    "timeline jsonl": command("timeline", "RUN", "-o", "jsonl"),
    "tools": command("tools", "RUN"),
    "tools jsonl": command("tools", "RUN", "-o", "jsonl"),
    "tools pending": command("tools", "RUN", "--pending"),
    "usage": command("usage", "RUN"),
    "cli diff": command("diff", "RUN", "NEAR", "END"),
    "cli blame": command("blame", "RUN", "/usage/total/calls"),
    "rebuild": command("rebuild"),
    "rebuild index": command("rebuild-index"),
}


class Taken(NamedTuple):
    """What a step took."""

    mib: float
    seconds: float


def peak_mib() -> float:
    """The most memory that this process has had. Not getrusage: that counts the parent's too."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


def take(name: str, path: str, run: UUID, events: int) -> Taken:
    """Do one step here."""
    with Ledger.open(path, create=False) as ledger:
        long = Long(ledger, run, events, path)
        ledger.record(run, 1)
        before, began = peak_mib(), time.process_time()
        result: Any = STEPS[name](long)
        taken = Taken(peak_mib() - before, time.process_time() - began)
        del result
    return taken


if __name__ == "__main__":
    step, ledger_path, run_id, how_many, answer = sys.argv[1:]
    found = take(step, ledger_path, UUID(run_id), int(how_many))
    Path(answer).write_text(json.dumps(found))
