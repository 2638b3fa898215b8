"""A lease lives as long as the work under it, and its troubles are not the work's."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from turnledger.ledger import (
    CustomEvent,
    Ledger,
    StaleEpochError,
    StoreUnavailableError,
    new_run_id,
)
from turnledger.ledger.events.types import RunStarted
from turnledger.runtime.journal import heartbeat
from turnledger.runtime.journal.heartbeat import LeaseHeartbeat

LONG = 30.0  # for what comes at once, or never


class Lease:
    """A claim of 30 ms that tells when it is prolonged."""

    run_id = "r"
    ttl = 30_000

    def __init__(self, *troubles: Exception, on_release: Exception | None = None) -> None:
        self.troubles = list(troubles)
        self.on_release = on_release
        self.beats = 0
        self.prolonged = Event()
        self.met_trouble = Event()
        self.released = 0

    def heartbeat(self) -> None:
        self.beats += 1
        if self.troubles:
            self.met_trouble.set()
            raise self.troubles.pop(0)
        self.prolonged.set()

    def release(self) -> None:
        self.released += 1
        if self.on_release is not None:
            raise self.on_release


def kept(lease: Lease) -> LeaseHeartbeat:
    claim: Any = lease
    return LeaseHeartbeat(claim)


def test_a_lease_is_prolonged_while_the_work_goes_on() -> None:
    """Again and again until the block ends; then it is given back, and no beat follows."""
    lease = Lease()
    with kept(lease) as alive:
        for _ in range(3):
            assert lease.prolonged.wait(LONG)
            lease.prolonged.clear()
    beats = lease.beats
    assert (beats >= 3, lease.released, alive.lost) == (True, 1, False)
    assert not lease.prolonged.wait(0.05)
    assert lease.beats == beats


def test_a_lease_is_given_back_when_the_work_fails() -> None:
    """Whatever is raised, Ctrl-C too."""
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        lease = Lease()
        with pytest.raises(error), kept(lease):
            raise error
        assert lease.released == 1


def test_a_store_that_is_away_for_a_while_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """A beat that fails is logged, and the next one is tried."""
    lease = Lease(StoreUnavailableError("away"), StoreUnavailableError("away"))
    with caplog.at_level(logging.WARNING), kept(lease) as alive:
        assert lease.prolonged.wait(LONG)
        assert not alive.lost
    assert caplog.text.count("away") == 2


def test_a_lease_that_another_has_is_lost() -> None:
    """It is known to be lost, and not asked for again."""
    lease = Lease(StaleEpochError("r", epoch=1, found=2))
    with kept(lease) as alive:
        assert lease.met_trouble.wait(LONG)
        with alive._beating:
            assert (alive.lost, lease.beats) == (True, 1)
        assert alive not in heartbeat._TIMER._due


def test_a_lease_that_can_not_be_given_back_does_not_undo_the_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was done is on disk; that the lease runs out by itself is logged."""
    done = False
    with kept(Lease(on_release=StoreUnavailableError("gone"))):
        done = True
    assert done
    assert "gone" in caplog.text


def test_a_real_claim_is_kept_and_given_back() -> None:
    """While the block runs the run has its worker, and none after it."""
    with Ledger.open("memory://") as ledger:
        run_id = new_run_id()
        ledger.append(run_id, [RunStarted(), CustomEvent(kind="a.b")], 0)
        with LeaseHeartbeat(ledger.claim(run_id, worker="me", ttl=timedelta(seconds=5))):
            assert ledger.worker_of(run_id) == "me"
        assert ledger.worker_of(run_id) is None


def test_a_store_that_does_not_answer_delays_no_other_claim() -> None:
    """Each heartbeat has a thread of its own; the claim that hangs is waited for at its end."""
    go_on = Event()

    class Hanging(Lease):
        def heartbeat(self) -> None:
            super().heartbeat()
            assert go_on.wait(LONG)

    hanging, other = Hanging(), Lease()
    with kept(hanging):
        assert hanging.prolonged.wait(LONG)
        with kept(other):
            for _ in range(3):
                assert other.prolonged.wait(LONG)
                other.prolonged.clear()
        assert (hanging.beats, other.released) == (1, 1)
        go_on.set()
    assert hanging.released == 1


def test_claims_that_last_long_and_short_are_each_prolonged_in_time() -> None:
    """A claim that is due sooner than all others wakes the timer; none is left in it."""
    long, short = Lease(), Lease()
    long.ttl = 3600 * 1_000_000
    with kept(long) as first, kept(short) as second:
        assert short.prolonged.wait(LONG)
    assert (long.beats, long.released) == (0, 1)
    assert not {first, second} & set(heartbeat._TIMER._due)


def test_a_forked_process_has_a_timer_of_its_own() -> None:
    """The thread stays behind in the parent, and with it whatever it held."""
    with kept(Lease()):
        child = os.fork()
        if not child:  # pragma: no cover - another process
            lease = Lease()
            with kept(lease):
                os._exit(0 if lease.prolonged.wait(LONG) else 1)
    assert os.waitpid(child, 0)[1] == 0
