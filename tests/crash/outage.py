"""Scenario: PostgreSQL itself is SIGKILLed while workers append, and started again.

A worker whose connection broke finds out what became of its append, or appends it again.
"""

from __future__ import annotations

import warnings
from random import Random
from typing import Any

from tests.crash.book import Book, Slot, problems
from tests.crash.processes import Child, Crew, Voice
from tests.crash.quiet import wait_until_alone
from tests.crash.worker import Worker, new_id

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tests.postgres import PostgresServer, new_database

WORKERS = 8


def run(crew: Crew, *, seed: int, outages: int) -> dict[str, Any]:
    """The figures, and what was wrong in the end."""
    random = Random(seed)
    book = Book()
    # Unlike the other tests' server this one syncs: it has to survive its own death.
    with PostgresServer() as server:
        url = new_database(server.url())
        runs = [[new_id(random) for _ in range(WORKERS)], [new_id(random) for _ in range(3)], []]
        slots = [Slot(number) for number in range(WORKERS)]
        crew.join(crew.start("opener", _check, url, book))
        at_work = {crew.start(slot.worker, _work, url, seed, runs, slot): slot for slot in slots}
        _hear_all(crew, at_work, book)
        for _ in range(outages):
            _listen(crew, at_work, book, random.randint(50, 150))
            server.kill()
            server.start()
        _listen(crew, at_work, book, 100)
        for worker in at_work:
            worker.order("f")
        for worker, message in crew.join(*at_work):
            book.note(at_work[worker], message)
        [(_, [_, found])] = crew.join(crew.start("checker", _check, url, book))
    return {"problems": found, "outages": outages, **book.figures}


def _hear_all(crew: Crew, at_work: dict[Child, Slot], book: Book) -> None:
    """Until each worker has said something: opening a ledger while its server is down fails."""
    silent = set(at_work)
    while silent:
        for worker, message in crew.listen():
            book.note(at_work[worker], message)
            silent.discard(worker)


def _listen(crew: Crew, at_work: dict[Child, Slot], book: Book, appends: int) -> None:
    wanted = book.figures["appends"] + appends
    while book.figures["appends"] < wanted:
        for worker, message in crew.listen():
            book.note(at_work[worker], message)


def _work(voice: Voice, url: str, seed: int, runs: list[list[str]], slot: Slot) -> None:
    Worker(voice, url, Random(f"{seed}/{slot.number}"), runs, slot, set()).work()


def _check(voice: Voice, url: str, book: Book) -> None:
    wait_until_alone(url)
    voice.say("found", problems(url, book)[:20])
