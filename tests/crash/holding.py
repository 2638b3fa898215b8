"""Scenario: the worker that holds a run's claim is killed or stands still, and another wants it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from tests.crash.processes import Crew, Voice
from tests.crash.stopping import StoppingClock
from turnledger.ledger import ANY, CustomEvent, Ledger, RunClaimedError, RunResumed, StaleEpochError

RUN = "00000000-0000-4000-8000-000000000002"
LONG, EXPIRED = timedelta(hours=1), timedelta(0)
WORK = RunResumed(attempt=1, from_version=1)
NOTE = CustomEvent(kind="crash.note")


def run(crew: Crew, *, url: str, holder: str) -> dict[str, Any]:
    """What became of the holder's work and of the other's."""
    scene = {
        "is killed": _kill,
        "stands still past its lease": _outlast,
        "stands still in an append": _overtake,
    }
    return scene[holder](crew, url)


def _kill(crew: Crew, url: str) -> dict[str, Any]:
    holder = crew.start("holder", _work, url, LONG)
    [epoch] = crew.expect(holder, "claimed")
    other = crew.start("other", _take, url)
    refused = crew.expect(other, "refused")
    crew.kill(holder)
    other.order("g")
    return {"epoch": epoch, "refused": refused, "taken": crew.expect(other, "taken")}


def _outlast(crew: Crew, url: str) -> dict[str, Any]:
    holder = crew.start("holder", _work, url, EXPIRED)
    [epoch] = crew.expect(holder, "claimed")
    crew.stop(holder)
    other = crew.start("other", _take, url)
    taken = crew.expect(other, "taken")
    holder.order("g")
    crew.resume(holder)
    return {"epoch": epoch, "taken": taken, "tried": crew.expect(holder, "tried")}


def _overtake(crew: Crew, url: str) -> dict[str, Any]:
    """Only where writers of one run work side by side: the fence is passed, then moved."""
    holder = crew.start("holder", _work_in_the_way, url)
    [epoch] = crew.expect(holder, "claimed")
    crew.await_stop(holder)
    other = crew.start("other", _take, url)
    taken = crew.expect(other, "taken")
    crew.resume(holder)
    return {"epoch": epoch, "taken": taken, "tried": crew.expect(holder, "tried")}


def _work(voice: Voice, url: str, ttl: timedelta) -> None:
    with Ledger.open(url) as ledger:
        ledger.append(RUN, NOTE, ANY)
        claim = ledger.claim(RUN, worker="holder", ttl=ttl)
        ledger.append(RUN, WORK, claim.version, claim.epoch)
        voice.say("claimed", claim.epoch)
        voice.hear()
        tries = (
            lambda: ledger.append(RUN, WORK, ANY, claim.epoch),
            lambda: ledger.append(RUN, NOTE, ANY, claim.epoch),
            lambda: ledger.append(RUN, [NOTE, WORK], claim.version + 1, claim.epoch),
            claim.heartbeat,
        )
        voice.say("tried", *(_outcome(attempt) for attempt in tries))


def _outcome(attempt: Any) -> list[Any]:
    try:
        attempt()
    except StaleEpochError as error:
        return ["stale", error.epoch, error.found]
    return ["accepted"]


def _work_in_the_way(voice: Voice, url: str) -> None:
    clock = StoppingClock()
    with Ledger.open(url, clock=clock) as ledger:
        ledger.append(RUN, NOTE, ANY)
        claim = ledger.claim(RUN, worker="holder", ttl=EXPIRED)
        voice.say("claimed", claim.epoch)
        clock.armed = True
        outcome = _outcome(lambda: ledger.append(RUN, WORK, ANY, claim.epoch))
        voice.say("tried", outcome)


def _take(voice: Voice, url: str) -> None:
    """Claim and work; if a living worker has the run, say so and wait for an order."""
    with Ledger.open(url) as ledger:
        try:
            claim = ledger.claim(RUN, worker="other", ttl=LONG)
        except RunClaimedError as error:
            voice.say("refused", error.worker, error.epoch)
            voice.hear()
            claim = _claim_when_noticed(ledger)
        done = ledger.append(RUN, WORK, claim.version, claim.epoch)
        voice.say("taken", claim.epoch, done.version)
        voice.hear()


def _claim_when_noticed(ledger: Ledger) -> Any:
    """At once for a file; PostgreSQL needs a moment to see that its client is gone."""
    began = time.monotonic()
    while True:
        try:
            return ledger.claim(RUN, worker="other", ttl=LONG)
        except RunClaimedError:
            if ledger.store.diagnostics()["store"] == "sqlite" or time.monotonic() - began > 10:
                raise
