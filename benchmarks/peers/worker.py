"""A process of a peer: begins a conversation, goes on with it, pays, or recovers.

    python -m benchmarks.peers.worker PEER begin WHERE COUNT
    python -m benchmarks.peers.worker PEER go-on WHERE COUNT WARM EACH
    python -m benchmarks.peers.worker PEER pay|recover WHERE BOOK

It ends by SIGKILL, except `recover`. `go-on` reports a JSON line at each mark and waits for a line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.peer import Peer, texts

# The class of a peer: which module, and which of its classes.
PEERS = {
    "ours": "ours:OurLedger",
    "ours-steps": "ours:OurSteps",
    "ours-agent": "ours_agent:OurAgent",
    "langgraph": "langgraph_saver:LangGraph",
    "dbos": "dbos_steps:Dbos",
    "pydantic-ai-dbos": "pydantic_ai_dbos:PydanticAIDbos",
    "openai-agents": "openai_agents_session:OpenAIAgents",
    "adk": "adk_session:Adk",
    "eventsourcing": "eventsourcing_aggregate:EventSourcing",
}
LOADS = 3


def make(name: str, where: str) -> Peer:
    """The peer of a name, on a store."""
    module, kind = PEERS[name].split(":")
    made: Peer = getattr(import_module(f"benchmarks.peers.{module}"), kind)(where)
    return made


def die() -> str:
    """End as a machine ends that lost its power supply: nothing is closed or flushed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


class Marks:
    """The source of the texts of a measured process: reports and waits at each mark."""

    def __init__(self, peer: Peer, many: list[str], warm: int, loads: int, report: Any) -> None:
        self._peer, self._many, self._warm, self._loads = peer, many, warm, loads
        self._report = report
        self._asked = 0
        self._began = (0.0, 0.0)

    def __call__(self) -> str:
        number = self._asked
        self._asked += 1
        if number == 0:
            self._report({"mark": "ready", "cpu": time.process_time()})
            self._load()
        if number == self._warm:
            self._report({"mark": "warm"})
            self._began = time.process_time(), time.perf_counter()
        if number == len(self._many):
            cpu, wall = time.process_time() - self._began[0], time.perf_counter() - self._began[1]
            self._report({"mark": "done", "cpu": cpu, "wall": wall})
            die()
        return self._many[number]

    def _load(self) -> None:
        """In a thread of its own, so that no context of a workflow or a loop is about."""
        taken: list[float] = []
        found: list[int] = []

        def load() -> None:
            for _ in range(self._loads):
                before = time.process_time()
                found.append(len(self._peer.load()))
                taken.append(time.process_time() - before)

        thread = threading.Thread(target=load)
        thread.start()
        thread.join()
        self._report({"mark": "loaded", "cpu": taken, "messages": found})


def _reporter() -> Callable[[dict[str, Any]], None]:
    """Reports on stdout, which peers that print are kept from."""
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def report(what: dict[str, Any]) -> None:
        print(json.dumps(what), file=reports, flush=True)
        sys.stdin.readline()

    return report


def main(name: str, action: str, where: str, *more: str) -> None:
    report = _reporter()
    peer = make(name, where)
    if action == "begin":
        peer.begin(texts(0, int(more[0])))
        die()
    if action == "go-on":
        count, warm, each = map(int, more)
        many = texts(count, warm + each)
        peer.go_on(Marks(peer, many, warm, LOADS, report))
    book = Path(more[0])

    def entered(*, killed: bool) -> str:
        with book.open("a") as lines:
            lines.write("entered\n")
        return die() if killed else "Paid."

    if action == "pay":
        peer.pay(lambda: entered(killed=True))
        raise AssertionError("The tool was not entered.")
    report({"mark": "recovered", "outcome": peer.recover(lambda: entered(killed=False))})
    die()


if __name__ == "__main__":
    main(*sys.argv[1:])
