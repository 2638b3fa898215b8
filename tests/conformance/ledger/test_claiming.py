"""Claims: one worker at a time, a fence against the one before, and leases that end."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import draft, message, note
from tests.conformance.surfaces import Surface
from tests.postgres import eventually
from turnledger.ledger import (
    ANY,
    NEW,
    AppendRefusedError,
    ApprovalDecided,
    ConcurrentAppendError,
    InvalidEventError,
    InvalidInputError,
    RunClaimed,
    RunClaimedError,
    RunStarted,
    StaleEpochError,
    ToolCallDecided,
    new_run_id,
)

HOUR = timedelta(hours=1)
NOW = timedelta(0)
DECIDED = ToolCallDecided(call_id="c", decision="failed")
APPROVED = ApprovalDecided(call_id="c", decision="approved")


def a_run(ledger: LedgerLike) -> str:
    run = str(new_run_id())
    ledger.append(run, RunStarted(), NEW)
    return run


def test_a_claim_is_an_event_with_a_growing_epoch(ledger: LedgerLike) -> None:
    """The claim says run, worker, epoch and the version with it."""
    run = a_run(ledger)
    claim = ledger.claim(run, worker="ann")
    assert (claim.run_id, claim.worker, claim.epoch, claim.version) == (run, "ann", 1, 2)
    assert ledger.record(run, 2).event == RunClaimed(worker="ann", epoch=1)
    claim.release()
    assert ledger.claim(run, worker="bob").epoch == 2
    assert ledger.record(run, 3).event == RunClaimed(worker="bob", epoch=2)
    assert "bob" in repr(ledger.claim(run, worker="bob"))


def test_a_claim_is_reentrant_for_its_worker(ledger: LedgerLike) -> None:
    """Claiming again through the same ledger and worker prolongs it and adds no event."""
    run = a_run(ledger)
    first = ledger.claim(run)
    second = ledger.claim(run)
    assert (second.epoch, second.version) == (first.epoch, first.version)
    assert ledger.head(run) == 2
    ledger.append(run, message(), 2, epoch=first.epoch)
    assert ledger.claim(run).version == 3


def test_a_claimed_run_is_refused_to_others(surface: Surface) -> None:
    """RunClaimedError names the worker and the epoch; another name is another worker."""
    ledger, other = surface.open(), surface.open()
    run = a_run(ledger)
    ledger.claim(run, worker="ann")
    for handle, worker in ((other, "bob"), (other, "ann"), (ledger, "bob")):
        with pytest.raises(RunClaimedError, match="'ann'") as caught:
            handle.claim(run, worker=worker)
        assert (caught.value.run_id, caught.value.worker, caught.value.epoch) == (run, "ann", 1)
    assert ledger.head(run) == 2


def test_handles_are_different_workers_by_default(surface: Surface) -> None:
    """Two handles of one process do not take each other's runs by accident."""
    one, other = surface.open(), surface.open()
    run = a_run(one)
    one.claim(run)
    with pytest.raises(RunClaimedError):
        other.claim(run)


def test_a_lease_that_is_up_may_be_taken(surface: Surface) -> None:
    """With no time to live it ends at once, by the store's own clock."""
    ledger, other = surface.open(), surface.open()
    run = a_run(ledger)
    stale = ledger.claim(run, ttl=NOW)
    fresh = other.claim(run)
    assert fresh.epoch == stale.epoch + 1
    with pytest.raises(StaleEpochError):
        ledger.append(run, message(), ANY, epoch=stale.epoch)


def test_a_lease_that_is_up_protects_no_more(surface: Surface) -> None:
    """Anyone may append to a run whose worker's time is up."""
    ledger, other = surface.open(), surface.open()
    run = a_run(ledger)
    ledger.claim(run, ttl=NOW)
    assert other.append(run, message(), ANY).version == 3


def test_its_own_worker_claims_again_after_its_time_with_a_new_epoch(ledger: LedgerLike) -> None:
    """A lease that ended is not prolonged: somebody may have been there."""
    run = a_run(ledger)
    assert ledger.claim(run, ttl=NOW).epoch == 1
    assert ledger.claim(run).epoch == 2


def test_a_heartbeat_prolongs_the_lease_and_adds_no_event(surface: Surface) -> None:
    """As long as nobody else took the run, its worker may go on, even late."""
    ledger, other = surface.open(), surface.open()
    run = a_run(ledger)
    claim = ledger.claim(run, ttl=HOUR)
    claim.heartbeat()
    ledger.heartbeat(claim)
    assert ledger.head(run) == 2
    assert other.worker_of(run) == claim.worker
    late = ledger.claim(run, ttl=NOW)
    late.ttl = 3_600_000_000
    late.heartbeat()
    with pytest.raises(RunClaimedError):
        other.claim(run)


def test_a_heartbeat_of_a_lost_claim_is_stale(surface: Surface) -> None:
    """The worker learns that another has its run."""
    ledger, other = surface.open(), surface.open()
    run = a_run(ledger)
    claim = ledger.claim(run, ttl=NOW)
    taken = other.claim(run)
    with pytest.raises(StaleEpochError) as caught:
        claim.heartbeat()
    assert (caught.value.epoch, caught.value.found) == (claim.epoch, taken.epoch)
    taken.heartbeat()
    assert ledger.worker_of(run) == taken.worker


def test_a_heartbeat_after_release_is_refused(ledger: LedgerLike) -> None:
    """What was given back is not prolonged."""
    run = a_run(ledger)
    claim = ledger.claim(run)
    claim.release()
    with pytest.raises(StaleEpochError):
        claim.heartbeat()


def test_release_is_harmless_when_repeated_or_late(surface: Surface) -> None:
    """It drops its own lease, once, and never another's."""
    ledger, other = surface.open(), surface.open()
    run = a_run(ledger)
    claim = ledger.claim(run)
    for _ in range(3):
        claim.release()
        ledger.release(claim)
    taken = other.claim(run)
    claim.release()
    with pytest.raises(RunClaimedError):
        ledger.claim(run)
    taken.heartbeat()
    taken.release()
    assert ledger.claim(run).epoch == 3


def test_a_claim_is_given_back_on_an_exception(surface: Surface) -> None:
    """As a context manager it ends with its block, however that ends."""
    ledger, other = surface.open(), surface.open()
    run = a_run(ledger)
    with pytest.raises(ZeroDivisionError), ledger.claim(run):
        raise ZeroDivisionError
    with other.claim(run) as claim:
        assert claim.epoch == 2
    with ledger.claim(run) as claim:
        assert claim.epoch == 3


def test_a_dead_holders_lease_is_void_at_once(surface: Surface) -> None:
    """A closed handle is known to be gone: nobody waits for its hour to pass.

    Where no process stands behind a lease, only expiry and release end it.
    """
    ledger, other = surface.open(), surface.open()
    run, second, over = a_run(ledger), a_run(ledger), a_run(ledger)
    claim = ledger.claim(run, ttl=HOUR)
    ledger.claim(second, ttl=HOUR)
    ledger.claim(over, ttl=NOW)
    with pytest.raises(RunClaimedError):
        other.claim(run)
    ledger.close()
    assert other.claim(over).epoch == 2
    if not surface.lease_ends_with_process:
        with pytest.raises(RunClaimedError):
            other.append(second, message(), ANY)
        with pytest.raises(RunClaimedError):
            other.claim(run)
        return
    assert other.append(second, message(), ANY).version == 3
    taken = other.claim(run)
    assert taken.epoch == claim.epoch + 1


def test_others_may_append_only_custom_events_and_decisions(surface: Surface) -> None:
    """A living worker's run takes nothing else without its epoch."""
    ledger, other = surface.open(), surface.open()
    run = a_run(ledger)
    claim = ledger.claim(run, worker="ann")
    other.append(run, note(), 2)
    other.append(run, [DECIDED, note()], ANY)
    # Denied on record before its start, a call would run: the worker acts by what it has read.
    for batch in ([message()], [note(), message()], [message(), DECIDED], [APPROVED]):
        for handle in (ledger, other):
            with pytest.raises(RunClaimedError, match="'ann'"):
                handle.append(run, batch, ANY)
    assert ledger.head(run) == 5
    with pytest.raises(ConcurrentAppendError) as caught:
        ledger.append(run, message(), 2, epoch=claim.epoch)
    assert caught.value.found == 5
    assert ledger.append(run, message(), 5, epoch=claim.epoch).version == 6


def test_after_release_anyone_may_append(surface: Surface) -> None:
    """A run without a worker is open."""
    ledger, other = surface.open(), surface.open()
    run = a_run(ledger)
    claim = ledger.claim(run)
    claim.release()
    assert other.append(run, message(), 2).version == 3
    assert ledger.append(run, message(), 3, epoch=claim.epoch).version == 4


def test_an_older_epoch_is_fenced_off(surface: Surface) -> None:
    """StaleEpochError names both epochs, for any event, and before the version is looked at."""
    old, new = surface.open(), surface.open()
    run = a_run(old)
    first = old.claim(run)
    old.append(run, message(), 2, epoch=first.epoch)
    first.release()
    second = new.claim(run)
    for event in (message(), note(), DECIDED):
        for expected in (ANY, 4, 99):
            with pytest.raises(StaleEpochError, match="epoch 2") as caught:
                old.append(run, draft(event), expected, epoch=first.epoch)
            assert (caught.value.epoch, caught.value.found) == (1, 2)
    assert new.append(run, message(), 4, epoch=second.epoch).version == 5


@pytest.mark.parametrize("epoch", [1, 2, -1, 2**63 - 1])
def test_an_epoch_that_was_never_granted_is_stale(ledger: LedgerLike, epoch: int) -> None:
    """Also on a run that nobody has claimed, and on one that does not exist."""
    run = a_run(ledger)
    with pytest.raises(StaleEpochError) as caught:
        ledger.append(run, note(), ANY, epoch=epoch)
    assert caught.value.found == 0
    with pytest.raises(StaleEpochError):
        ledger.append(new_run_id(), note(), NEW, epoch=epoch)
    assert ledger.append(run, note(), ANY, epoch=0).version == 2


@pytest.mark.parametrize("epoch", ["1", 1.0, True, object(), 2**63, 2**70])
def test_what_is_no_epoch_is_refused(ledger: LedgerLike, epoch: object) -> None:
    """An epoch is the number that claim() granted."""
    with pytest.raises(InvalidInputError, match="epoch"):
        ledger.append(a_run(ledger), note(), ANY, epoch=epoch)  # type: ignore[arg-type]


@pytest.mark.parametrize("worker", ["a\x00b", "x" * 513, "\ud800"])
def test_a_workers_name_is_text_that_every_store_can_hold(ledger: LedgerLike, worker: str) -> None:
    """A name that is not is refused, and the run stays free."""
    run = a_run(ledger)
    with pytest.raises(InvalidEventError, match="RunClaimed"):
        ledger.claim(run, worker=worker)
    assert ledger.head(run) == 1
    assert ledger.claim(run, worker="ann 🦜").epoch == 1


HOLDER = """
import sys
from datetime import timedelta
ledger.claim(sys.argv[2], worker="the dead", ttl=timedelta(0))
claim = ledger.claim(sys.argv[1], worker="the dead", ttl=timedelta(hours=1))
print(claim.epoch, flush=True)
sys.stdin.readline()
"""


def test_a_killed_workers_run_can_be_taken_at_once(shared_surface: Surface) -> None:
    """SIGKILL in one process, claim in another, with an hour left on the lease.

    On PostgreSQL that takes the moment in which the server notices the death. Where no process
    stands behind a lease, the run stays claimed, and one whose time is up can be taken.
    """
    ledger = shared_surface.open()
    run, over = a_run(ledger), a_run(ledger)
    process = subprocess.Popen(
        [sys.executable, "-c", shared_surface.opening() + HOLDER, run, over],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        with pytest.raises(RunClaimedError, match="the dead"):
            ledger.claim(run)
    finally:
        process.kill()
        process.communicate()
    assert ledger.claim(over).epoch == 2
    if shared_surface.lease_ends_with_process:
        eventually(lambda: can_claim(ledger, run))
        assert ledger.run(run).epoch == 2
    else:
        assert not can_claim(ledger, run)
        assert ledger.worker_of(run) == "the dead"


def can_claim(ledger: LedgerLike, run: str) -> bool:
    try:
        ledger.claim(run)
    except RunClaimedError:
        return False
    return True


def test_a_run_can_be_begun_and_claimed_at_once(surface: Surface) -> None:
    """In one commit: nobody finds it without a worker. A second beginning changes nothing."""
    ledger, other = surface.open(), surface.open()
    run = new_run_id()
    claim = ledger.begin(run, RunStarted(tags={"a": "b"}), worker="one")
    assert [record.tag for record in ledger.read(run)] == ["run.started", "run.claimed"]
    assert (claim.epoch, claim.version, ledger.worker_of(run)) == (1, 2, "one")
    with pytest.raises(RunClaimedError):
        other.claim(run, worker="two")
    with pytest.raises(RunClaimedError):
        other.begin(run, RunStarted(), worker="two")
    assert other.worker_of(run) == "one"
    ledger.append(run, note(), 2, claim.epoch)
    claim.release()
    assert other.worker_of(run) is None
    with pytest.raises(AppendRefusedError):
        other.begin(run, RunStarted(), worker="two")
    assert other.worker_of(run) is None
    assert (ledger.head(run), ledger.verify(run).ok) == (3, True)
    child = new_run_id()
    goes_on = RunStarted(parent=run, at=ledger.head(run), kind="continuation")
    assert other.begin(child, goes_on).version == ledger.head(run) + 2
    assert other.verify(child).ok
