"""The queue: which run a worker is given next, and which runs it is never given."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import message
from tests.conformance.surfaces import Surface
from tests.postgres import eventually
from turnledger.ledger import (
    ANY,
    NEW,
    AppendRefusedError,
    Event,
    InvalidInputError,
    RunAbandoned,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunParked,
    RunStarted,
    RunWaiting,
    ToolCallDecided,
    new_run_id,
)
from turnledger.ledger.runs.names import LIVE_TAG, SERVES_TAG

HOUR, NOW = timedelta(hours=1), timedelta(0)
A, B = "shop/a", "shop/b"
KEY = "a-secret-of-a-worker-0123456789"


def taken(ledger: LedgerLike, *agents: str, **more: Any) -> str | None:
    """The run that a worker gets next."""
    claim = ledger.claim_next(agents or (A,), **more)
    return claim.run_id if claim is not None else None


def test_an_empty_queue_gives_nothing(ledger: LedgerLike) -> None:
    """None, and not an error."""
    assert taken(ledger) is None


def test_a_request_is_its_first_event_alone(ledger: LedgerLike) -> None:
    """Nobody has claimed it, and the index has its agent and tags."""
    run = ledger.enqueue(A, {"order": 7}, tags={"customer": "acme"})
    info = ledger.run(run)
    assert (info.version, info.epoch, info.status) == (1, 0, "running")
    assert (info.agent, info.tags) == (A, {"customer": "acme"})
    event = ledger.record(run, 1).event
    assert isinstance(event, RunStarted)
    assert event.request == {"order": 7}
    assert event.request_id is not None
    assert ledger.worker_of(run) is None


def test_requests_are_taken_oldest_first(surface: Surface) -> None:
    """Each once, with the claim that `claim` would have given."""
    ledger, other = surface.open(), surface.open()
    runs = [str(ledger.enqueue(A, n)) for n in range(3)]
    claim = ledger.claim_next([A], worker="ann")
    assert claim is not None
    assert (claim.run_id, claim.worker, claim.epoch, claim.version) == (runs[0], "ann", 1, 2)
    assert ledger.record(runs[0], 2).event == RunClaimed(worker="ann", epoch=1)
    assert taken(other) == runs[1]
    assert taken(ledger, worker="ann") == runs[2]
    assert taken(ledger) is None
    assert ledger.worker_of(runs[0]) == "ann"


def test_only_the_agents_that_were_named(ledger: LedgerLike) -> None:
    """Also of names that are a part of another, and of several."""
    long = ledger.enqueue(f"{A}bc", 1)
    one, two = ledger.enqueue(B, 1), ledger.enqueue(A, 1)
    assert taken(ledger) == str(two)
    assert taken(ledger) is None
    assert taken(ledger, A, B) == str(one)
    assert taken(ledger, f"{A}bc") == str(long)


def test_a_tag_that_looks_like_an_agent_is_none(ledger: LedgerLike) -> None:
    """A worker of an agent does not get a run of another one by what its tags say."""
    ledger.enqueue(B, 1, tags={"note": f'"turnledger.agent":"{A}"', f"{A}": "turnledger.agent"})
    assert taken(ledger) is None


ENDED: dict[str, Event] = {
    "completed": RunCompleted(),
    "failed": RunFailed(error_type="E", error_message="m"),
    "waiting": RunWaiting(reason="r", call_ids=["c"]),
    "parked": RunParked(reason="r"),
    "abandoned": RunAbandoned(),
}


@pytest.mark.parametrize("status", ENDED)
def test_runs_that_are_not_running_are_left_alone(ledger: LedgerLike, status: str) -> None:
    """Whether anybody had begun them or not."""
    begun, never = ledger.enqueue(A, 1), ledger.enqueue(A, 2)
    with ledger.claim(begun) as claim:
        ledger.append(begun, ENDED[status], ANY, claim.epoch)
    ledger.append(never, ENDED[status], ANY)
    assert ledger.run(begun).status == ledger.run(never).status == status
    assert taken(ledger) is None


def test_a_run_goes_on_once_it_is_decided(ledger: LedgerLike) -> None:
    """A run that waited for a person is in the queue again, without anything else being done."""
    run = ledger.enqueue(A, 1)
    with ledger.claim(run) as claim:
        ledger.append(run, RunWaiting(reason="r", call_ids=["c"]), ANY, claim.epoch)
    assert taken(ledger) is None
    ledger.append(run, ToolCallDecided(call_id="c", decision="failed"), ANY)
    assert taken(ledger) == str(run)


def test_runs_without_a_request_are_left_alone(ledger: LedgerLike) -> None:
    """A program that appends to a run by hand does not find a worker in it."""
    ledger.append(new_run_id(), RunStarted(agent=A), NEW)
    ledger.append(new_run_id(), RunStarted(), NEW)
    ledger.append(new_run_id(), message(), NEW)
    requested = ledger.enqueue(A, 1)
    assert taken(ledger) == str(requested)
    assert taken(ledger) is None


def test_forks_that_were_never_run_are_left_alone(ledger: LedgerLike) -> None:
    """They were made to look at, or to be edited; once somebody ran one, it may be recovered."""
    run = ledger.enqueue(A, 1)
    with ledger.claim(run) as claim:
        ledger.append(run, RunCompleted(), ANY, claim.epoch)
    fork = ledger.fork(run, 2)
    assert taken(ledger) is None
    ledger.claim(fork).release()
    assert taken(ledger) == str(fork)


@pytest.mark.parametrize("tag", [LIVE_TAG, SERVES_TAG])
def test_live_replays_and_optimizations_are_left_alone(ledger: LedgerLike, tag: str) -> None:
    """The one would become live as a whole, the other is a part of another run's recovery."""
    run = ledger.enqueue(A, 1, tags={tag: "x"})
    assert taken(ledger) is None
    ledger.claim(run).release()
    assert taken(ledger) is None


def test_a_run_is_not_taken_while_its_lease_counts(surface: Surface) -> None:
    """It is once the lease is released, or its time is up."""
    ledger, other = surface.open(), surface.open()
    run = str(ledger.enqueue(A, 1))
    claim = ledger.claim_next([A], ttl=HOUR)
    assert claim is not None
    assert taken(other) is None
    claim.release()
    again = other.claim_next([A], ttl=NOW)
    assert again is not None
    assert (again.run_id, again.epoch) == (run, 2)
    third = ledger.claim_next([A])
    assert third is not None
    assert (third.run_id, third.epoch) == (run, 3)


def test_an_interrupted_run_is_older_than_a_request_after_it(surface: Surface) -> None:
    """The order is that of their start, whatever happened to them."""
    ledger = surface.open()
    first = str(ledger.enqueue(A, 1))
    ledger.claim_next([A], ttl=NOW)
    second = str(ledger.enqueue(A, 2))
    assert taken(ledger, ttl=HOUR) == first
    assert taken(ledger, ttl=HOUR) == second


def test_what_began_with_its_claim_is_never_free(surface: Surface) -> None:
    """`begin` leaves no moment between the request and the claim."""
    ledger, other = surface.open(), surface.open()
    run, started = new_run_id(), RunStarted(agent=A, request_id=new_run_id(), request=1)
    claim = ledger.begin(run, started, ttl=HOUR)
    assert taken(other) is None
    claim.release()
    assert taken(other) == str(run)


def test_excluded_runs_are_passed_over(ledger: LedgerLike) -> None:
    """A worker that could not go on with a run takes the next one."""
    first, second = ledger.enqueue(A, 1), ledger.enqueue(A, 2)
    assert taken(ledger, exclude=[first]) == str(second)
    assert taken(ledger, exclude=[first, second]) is None
    assert taken(ledger) == str(first)


def test_a_request_may_be_sent_again(ledger: LedgerLike) -> None:
    """Under one id it is recorded once; another request under that id is refused."""
    run = new_run_id()
    for _ in range(2):
        assert ledger.enqueue(A, {"n": 1}, run_id=run, tags={"t": "x"}) == run
    assert ledger.head(run) == 1
    assert taken(ledger) == str(run)
    assert ledger.enqueue(A, {"n": 1}, run_id=run, tags={"t": "x"}) == run
    assert ledger.head(run) == 2
    for agent, value, tags in (
        (A, {"n": 2}, {"t": "x"}),
        (B, {"n": 1}, {"t": "x"}),
        (A, {"n": 1}, {}),
    ):
        with pytest.raises(AppendRefusedError):
            ledger.enqueue(agent, value, run_id=run, tags=tags)


def test_a_worker_that_asks_again_gets_its_run_again(surface: Surface) -> None:
    """With its key: the answer may have been lost. Another key or name gets the next run."""
    ledger, other = surface.open(), surface.open()
    first, second, third = (str(ledger.enqueue(A, n)) for n in range(3))
    assert taken(ledger, worker="ann", key=KEY) == first
    assert taken(other, worker="ann", key=KEY) == first
    assert ledger.head(first) == 2
    assert taken(ledger, worker="bob", key=KEY) == second
    assert taken(ledger, worker="ann", key=f"{KEY}-another") == third


def test_the_queue_is_waited_for(surface: Surface) -> None:
    """A worker that waits gets a request that comes later, from another handle."""
    ledger, other = surface.open(), surface.open()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(taken, ledger, wait=60.0)
        run = other.enqueue(A, 1)
        assert waiting.result(timeout=60) == str(run)
    assert taken(ledger, wait=0.01) is None


@pytest.mark.parametrize(
    "wrong",
    [{"agents": []}, {"agents": A}, {"agents": [""]}, {"wait": -1.0}, {"wait": float("nan")}],
)
def test_what_makes_no_sense_is_refused(ledger: LedgerLike, wrong: dict[str, Any]) -> None:
    """Before anything is claimed."""
    ledger.enqueue(A, 1)
    with pytest.raises(InvalidInputError):
        ledger.claim_next(**{"agents": [A], **wrong})
    with pytest.raises(InvalidInputError):
        ledger.enqueue("", 1)
    assert taken(ledger) is not None


def test_many_workers_at_once_get_each_run_once(surface: Surface) -> None:
    """No run is given twice, and none is left."""
    ledger, others = surface.open(), [surface.open() for _ in range(3)]
    runs = {str(ledger.enqueue(A, n)) for n in range(24)}

    def all_of(handle: LedgerLike) -> list[str]:
        return [run for run in iter(lambda: taken(handle, wait=0.2), None) if run]

    with ThreadPoolExecutor(6) as pool:
        found = [run for runs in pool.map(all_of, others * 2) for run in runs]
    assert sorted(found) == sorted(runs)


KILLED = """
claim = ledger.claim_next(["shop/a"])
print(claim.run_id, flush=True)
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_run_of_a_killed_worker_is_taken(shared_surface: Surface) -> None:
    """At once where its death is known, and never while that can't be."""
    surface = shared_surface
    ledger = surface.open()
    run = str(ledger.enqueue(A, 1))
    code = surface.opening() + KILLED
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert ended.stdout.strip() == run
    if surface.lease_ends_with_process:
        eventually(lambda: taken(ledger) == run)
    else:
        assert taken(ledger) is None
