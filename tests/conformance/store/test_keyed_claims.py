"""Claims with a key: the lease is the key's, ends by time or release, and outlives its writer."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest

from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import draft, message, note
from tests.postgres import eventually
from turnledger.ledger import (
    ANY,
    NEW,
    Claim,
    ConcurrentAppendError,
    InvalidClaimKeyError,
    InvalidInputError,
    Ledger,
    RunClaimedError,
    RunNotFoundError,
    RunStarted,
    StaleEpochError,
    new_run_id,
)

HOUR, NOW = timedelta(hours=1), timedelta(0)
KEY, OTHER_KEY = "a secret of ann's, 0123456789", "a secret of bob's, 0123456789"


def a_run(ledger: Ledger) -> str:
    run = str(new_run_id())
    ledger.append(run, RunStarted(), NEW)
    return run


def test_claiming_again_with_worker_and_key_prolongs(store: StoreUnderTest) -> None:
    """Through any ledger: no event is added, and the epoch stays."""
    run = a_run(store.open())
    first = store.open().claim(run, worker="ann", key=KEY, ttl=timedelta(minutes=5))
    before = store.open().store.lease(run)
    again = store.open().claim(run, worker="ann", key=KEY, ttl=HOUR)
    after = store.open().store.lease(run)
    assert (first.epoch, first.version) == (again.epoch, again.version) == (1, 2)
    assert before is not None
    assert after is not None
    assert after.expires_at > before.expires_at
    assert store.open().head(run) == 2


def test_another_key_or_worker_is_refused(store: StoreUnderTest) -> None:
    """Not the name alone and not the key alone makes a claim; nor does a claim without a key."""
    ledger, other = store.open(), store.open()
    run = a_run(ledger)
    ledger.claim(run, worker="ann", key=KEY)
    for handle in (ledger, other):
        for worker, key in (("ann", OTHER_KEY), ("bob", KEY), ("ann", None), ("bob", OTHER_KEY)):
            with pytest.raises(RunClaimedError, match="'ann'") as caught:
                handle.claim(run, worker=worker, key=key)
            assert KEY not in str(caught.value)
    assert ledger.worker_of(run) == "ann"


def test_a_claim_without_a_key_is_not_taken_with_one(store: StoreUnderTest) -> None:
    """Also where the key is the text of the other's holder."""
    ledger, other = store.open(), store.open()
    run = a_run(ledger)
    claim = ledger.claim(run, worker="ann")
    for key in (KEY, claim.holder):
        for handle in (ledger, other):
            with pytest.raises(RunClaimedError):
                handle.claim(run, worker="ann", key=key)
            with pytest.raises(RunClaimedError):
                handle.resume_claim(run, worker="ann", epoch=1, key=key).heartbeat()
            handle.resume_claim(run, worker="ann", epoch=1, key=key).release()
    assert ledger.worker_of(run) == "ann"


def test_it_outlives_the_ledger_that_took_it(store: StoreUnderTest) -> None:
    """Closing that ledger frees nothing: neither for other workers nor for appends."""
    ledger, other = store.open(), store.open()
    run = a_run(ledger)
    claim = ledger.claim(run, worker="ann", key=KEY, ttl=HOUR)
    ledger.close()
    assert other.worker_of(run) == "ann"
    with pytest.raises(RunClaimedError):
        other.claim(run, worker="bob")
    with pytest.raises(RunClaimedError):
        other.append(run, message(), ANY)
    assert other.append(run, message(), ANY, epoch=claim.epoch).version == 3


def test_its_time_ends_it(store: StoreUnderTest) -> None:
    """Then anyone may claim the run, and what was resumed is stale."""
    ledger, other = store.open(), store.open()
    run = a_run(ledger)
    ledger.claim(run, worker="ann", key=KEY, ttl=NOW)
    assert other.worker_of(run) is None
    assert other.claim(run, worker="bob").epoch == 2
    with pytest.raises(StaleEpochError) as caught:
        other.resume_claim(run, worker="ann", epoch=1, key=KEY).heartbeat()
    assert (caught.value.epoch, caught.value.found) == (1, 2)


def test_the_same_key_claims_again_after_its_time_with_a_new_epoch(store: StoreUnderTest) -> None:
    """A lease that ended is not prolonged by a claim, and the first epoch is stale."""
    ledger = store.open()
    run = a_run(ledger)
    assert ledger.claim(run, worker="ann", key=KEY, ttl=NOW).epoch == 1
    assert ledger.claim(run, worker="ann", key=KEY, ttl=HOUR).epoch == 2
    with pytest.raises(StaleEpochError):
        ledger.resume_claim(run, worker="ann", epoch=1, key=KEY).heartbeat()
    ledger.resume_claim(run, worker="ann", epoch=1, key=KEY).release()
    assert ledger.worker_of(run) == "ann"


def resumed(store: StoreUnderTest, run: str, key: str = KEY, worker: str = "ann") -> Claim:
    return store.open().resume_claim(run, worker=worker, epoch=1, key=key, ttl=HOUR)


def test_any_ledger_prolongs_and_releases_it(store: StoreUnderTest) -> None:
    """Given run, worker, epoch and key: a server needs to remember nothing."""
    ledger = store.open()
    run = a_run(ledger)
    ledger.claim(run, worker="ann", key=KEY, ttl=NOW)
    ledger.close()
    claim = resumed(store, run)
    assert (claim.run_id, claim.worker, claim.epoch, claim.version) == (run, "ann", 1, 2)
    claim.heartbeat()  # its time was up, and no other had claimed the run
    assert store.open().worker_of(run) == "ann"
    for _ in range(2):
        resumed(store, run).release()
        assert store.open().worker_of(run) is None
    with pytest.raises(StaleEpochError, match="given back"):
        resumed(store, run).heartbeat()
    with store.open().claim(run, worker="bob") as taken:
        assert taken.epoch == 2


@pytest.mark.parametrize(("worker", "key"), [("ann", OTHER_KEY), ("bob", KEY)])
def test_a_wrong_key_or_worker_prolongs_and_releases_nothing(
    store: StoreUnderTest, worker: str, key: str
) -> None:
    """The heartbeat is refused, and the lease stays as it is."""
    ledger = store.open()
    run = a_run(ledger)
    ledger.claim(run, worker="ann", key=KEY, ttl=HOUR)
    before = ledger.store.lease(run)
    with pytest.raises(RunClaimedError):
        resumed(store, run, key, worker).heartbeat()
    resumed(store, run, key, worker).release()
    assert ledger.store.lease(run) == before
    assert ledger.worker_of(run) == "ann"


def test_a_claim_of_a_run_that_is_not_there_is_not_resumed(ledger: Ledger) -> None:
    """RunNotFoundError, as for a claim."""
    with pytest.raises(RunNotFoundError):
        ledger.resume_claim(new_run_id(), worker="ann", epoch=1, key=KEY)


def test_a_run_is_begun_with_a_key_and_begun_again_by_a_retry(store: StoreUnderTest) -> None:
    """After a lost answer, the same event and key give the same claim; another key does not."""
    run, first = new_run_id(), draft(RunStarted())
    claim = store.open().begin(run, first, worker="ann", key=KEY)
    again = store.open().begin(run, first, worker="ann", key=KEY)
    assert (claim.epoch, claim.version) == (again.epoch, again.version) == (1, 2)
    with pytest.raises(RunClaimedError):
        store.open().begin(run, first, worker="ann", key=OTHER_KEY)
    with pytest.raises((ConcurrentAppendError, RunClaimedError)):
        store.open().begin(run, RunStarted(), worker="ann", key=KEY)


def test_the_key_is_not_stored(store: StoreUnderTest) -> None:
    """The holder is a hash, and another one for each run and worker."""
    ledger = store.open()
    holders = set()
    for worker in ("ann", "bob"):
        for run in (a_run(ledger), a_run(ledger)):
            claim = ledger.claim(run, worker=worker, key=KEY)
            lease = ledger.store.lease(run)
            assert lease is not None
            assert KEY not in f"{lease} {claim!r} {[r.data for r in ledger.read(run)]}"
            holders.add(lease.holder)
    assert len(holders) == 4


@pytest.mark.parametrize("key", ["", "x" * 15, "x" * 201, "x" * 16 + "\0", "\ud800" * 16])
def test_an_invalid_key_is_refused_and_not_named(ledger: Ledger, key: str) -> None:
    """A typed error for 15 and for 201 characters, and for what is not text; nothing is written."""
    run = a_run(ledger)
    for attempt in (
        lambda: ledger.claim(run, worker="ann", key=key),
        lambda: ledger.begin(new_run_id(), RunStarted(), worker="ann", key=key),
        lambda: ledger.resume_claim(run, worker="ann", epoch=1, key=key),
    ):
        with pytest.raises(InvalidClaimKeyError, match="Invalid claim key") as caught:
            attempt()
        assert not key or key not in str(caught.value)
    assert ledger.head(run) == 1


@pytest.mark.parametrize("key", ["x" * 16, "x" * 200, "🦜" * 200])
def test_the_shortest_and_the_longest_key_are_accepted(ledger: Ledger, key: str) -> None:
    """Characters are counted, not bytes."""
    run = a_run(ledger)
    ledger.claim(run, worker="ann", key=key)
    ledger.resume_claim(run, worker="ann", epoch=1, key=key).heartbeat()


def test_a_lease_that_no_store_can_count_is_refused(ledger: Ledger) -> None:
    """With a key and without one, before anything is written; a century is fine."""
    run = a_run(ledger)
    for key in (KEY, None):
        with pytest.raises(InvalidInputError, match="ttl"):
            ledger.claim(run, worker="ann", key=key, ttl=timedelta.max)
    with pytest.raises(InvalidInputError, match="ttl"):
        ledger.resume_claim(run, worker="ann", epoch=1, key=KEY, ttl=timedelta.max)
    assert ledger.head(run) == 1
    assert ledger.claim(run, worker="ann", key=KEY, ttl=timedelta(days=36_525)).epoch == 1


HOLDER = """
import sys
from datetime import timedelta
from turnledger.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
claim = ledger.claim(sys.argv[2], worker="ann", ttl=timedelta(hours=1), key=sys.argv[3])
in_process = ledger.claim(sys.argv[4], worker="ann", ttl=timedelta(hours=1))
print(claim.epoch, flush=True)
sys.stdin.readline()
"""


def test_a_killed_process_leaves_it_claimed(shared_store: StoreUnderTest) -> None:
    """SIGKILL of the process that wrote the lease: it lasts until its time is up.

    The process also had a claim without a key. Once that one is seen to be void, the store knows
    of the death, and the other still stands.
    """
    ledger = shared_store.open()
    run, plain = a_run(ledger), a_run(ledger)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, shared_store.url, run, KEY, plain],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
    finally:
        process.kill()
        process.communicate()
    eventually(lambda: ledger.worker_of(plain) is None)
    assert ledger.worker_of(run) == "ann"
    for worker, key in (("bob", None), ("bob", OTHER_KEY), ("ann", OTHER_KEY)):
        with pytest.raises(RunClaimedError):
            ledger.claim(run, worker=worker, key=key)
    with pytest.raises(RunClaimedError):
        ledger.append(run, message(), ANY)
    ledger.append(run, note(), 2, epoch=1)  # the worker goes on through another server
    ledger.resume_claim(run, worker="ann", epoch=1, key=KEY, ttl=NOW).heartbeat()
    assert ledger.claim(run, worker="bob").epoch == 2
