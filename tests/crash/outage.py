"""Scenario: PostgreSQL itself dies while writers append, and is started again at once.

A writer whose connection broke finds out what became of its append, or appends it again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.crash.processes import Crew
from tests.crash.writers import Writers, summary

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tests.postgres import FAST, PostgresServer, new_database


WAYS: dict[str, Callable[[PostgresServer], None]] = {
    # All of its processes at once: it starts again from its log.
    "kill": lambda server: server.kill(),
    # The same, and it stays away until some have given up waiting for it.
    "absence": lambda server: server.kill(),
    # Only those that serve connections: the server notices, ends all, and recovers itself.
    "kill clients": lambda server: server.kill_clients(),
    # It ends its processes without a word and without writing anything more.
    "immediate": lambda server: server.stop("immediate"),
    # It ends every session in the middle, and itself in good order.
    "fast": lambda server: server.stop("fast"),
}


def run(crew: Crew, *, seed: int, ways: Sequence[str], between: int) -> dict[str, Any]:
    """The figures, and what was wrong in the end; `between` appends before each outage."""
    random = Random(seed)
    # Unlike the other tests' server this one syncs: it has to survive its own death.
    with PostgresServer(FAST) as server:
        writers = Writers(crew, new_database(server.url()), seed)
        writers.begin()
        for way in ways:
            writers.let_work(random.randint(between // 2, between))
            WAYS[way](server)
            writers.count_caught()
            if way == "absence":
                writers.let_despair()
            if way != "kill clients":
                server.start()
        writers.let_work(between)
        found = writers.end()
    return summary(writers, found, outages=len(ways))
