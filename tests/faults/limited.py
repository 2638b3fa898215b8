"""Scenario: a process may write no file larger than so much, and appends until it is there.

Python ignores the signal that comes with it, so that writing fails with EFBIG.
"""

from __future__ import annotations

from resource import RLIM_INFINITY, RLIMIT_FSIZE, setrlimit
from typing import Any

from tests.crash.processes import Crew, Voice
from tests.faults.checking import check
from tests.faults.small_disk import RUN, error_of, fact, ids
from turnledger.ledger import ANY, NEW, Ledger, StoreUnavailableError


def run(crew: Crew, *, url: str, limits: list[int]) -> dict[str, Any]:
    """What came of each limit."""
    worker = crew.start("worker", _work, url, limits)
    (rounds,) = crew.expect(worker, "worked")
    crew.join(worker)
    acknowledged = [[i] for one in rounds for i in one["acknowledged"]]
    wrong, _ = check(crew, url, [{"acknowledged": acknowledged}])
    return {"rounds": rounds, "wrong": wrong}


def _work(voice: Voice, url: str, limits: list[int]) -> None:
    rounds = []
    with Ledger.open(url) as ledger:
        ledger.append(RUN, fact(), NEW)
        for limit in limits:
            setrlimit(RLIMIT_FSIZE, (limit, RLIM_INFINITY))
            rounds.append(_append_up_to_it(ledger, limit))
    voice.say("worked", rounds)


def _append_up_to_it(ledger: Ledger, limit: int) -> dict[str, Any]:
    acknowledged = []
    while True:
        draft = fact(1000)
        try:
            ledger.append(RUN, draft, ANY)
        except StoreUnavailableError as trouble:
            error = trouble
            break
        acknowledged.append(str(draft.event_id))
    # The WAL was moved into the database since, and there is room in it again.
    ledger.append(RUN, error.drafts, ANY)
    acknowledged += [str(draft.event_id) for draft in error.drafts]
    hopeless = error_of(ledger.append, RUN, fact(limit), ANY)
    lost = set(acknowledged) - set(ids(ledger))
    setrlimit(RLIMIT_FSIZE, (RLIM_INFINITY, RLIM_INFINITY))
    ledger.append(RUN, hopeless.drafts, ANY)
    acknowledged += [str(draft.event_id) for draft in hopeless.drafts]
    return {
        "acknowledged": acknowledged,
        "errors": [str(error), str(hopeless)],
        "lost at once": len(lost),
    }
