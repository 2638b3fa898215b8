"""Scenario: the primary is SIGKILLed while writers append, and its standby is promoted.

The standby is a synchronous one, and the writers' URL names both. The killed server comes
back as the standby of the other, and next time it is the one that takes over.
"""

from __future__ import annotations

import warnings
from random import Random
from typing import Any

from tests.crash.processes import Crew
from tests.crash.writers import Writers, summary

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tests.postgres import FAST, PostgresServer, new_database


def both(url: str, primary: PostgresServer, standby: PostgresServer) -> str:
    """The URL that finds whichever of the two takes writes."""
    hosts = f"host={primary.folder},{standby.folder}&target_session_attrs=read-write"
    return url.replace(f"host={primary.folder}", hosts)


def run(crew: Crew, *, seed: int, failovers: int, between: int) -> dict[str, Any]:
    """The figures, and what was wrong in the end; `between` appends before each fail-over."""
    random = Random(seed)
    with PostgresServer(FAST) as primary, PostgresServer(standby_of=primary) as standby:
        primary.require(standby)
        url = both(new_database(primary.url()), primary, standby)
        writers = Writers(crew, url, seed)
        writers.begin()
        for number in range(failovers):
            if number:
                standby.follow(primary)
                primary.require(standby)
            writers.let_work(random.randint(between // 2, between))
            primary.kill()
            writers.count_caught()
            if number % 2 == 0:
                writers.let_despair()
            standby.promote()
            primary, standby = standby, primary
        writers.let_work(between)
        found = writers.end()
    return summary(writers, found, failovers=failovers)
