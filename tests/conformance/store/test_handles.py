"""Handles of one process on a store: closed ones, forked processes, URLs, ledgers in memory."""

from __future__ import annotations

import os
import warnings
from datetime import timedelta

import pytest

from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import note
from turnledger.ledger import (
    ANY,
    NEW,
    InvalidRunIdError,
    InvalidUrlError,
    Ledger,
    LedgerClosedError,
    RunNotFoundError,
    RunStarted,
    new_run_id,
)
from turnledger.ledger.stores import memory


def fork_and_ask(question: object) -> bytes:
    """What `question` writes into a pipe in a forked child."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        # Forking with threads about is what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            os.write(write_end, question())  # type: ignore[operator]
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


def test_a_forked_process_must_open_its_own(store: StoreUnderTest) -> None:
    """A handle from before the fork is closed in the child, and unharmed in the parent."""
    ledger, other = store.open(), store.open()
    run = new_run_id()
    ledger.append(run, note(), NEW)
    claim = ledger.claim(run)

    def ask() -> bytes:
        answers = []
        for call in (
            lambda: ledger.append(run, note(), ANY),
            lambda: list(ledger.read(run)),
            lambda: list(ledger.tail()),
            lambda: ledger.head(run),
            lambda: list(ledger.runs()),
            lambda: ledger.claim(run),
            claim.heartbeat,
            ledger.verify_all,
        ):
            try:
                call()
                answers.append("no error")
            except Exception as error:
                answers.append(type(error).__name__)
        ledger.close()
        return ",".join(answers).encode()

    assert fork_and_ask(ask) == b",".join([b"LedgerClosedError"] * 8)
    assert ledger.append(run, note(), 2, epoch=claim.epoch).version == 3
    claim.heartbeat()
    with pytest.raises(Exception, match="claimed by worker"):
        other.claim(run)
    assert ledger.verify_all().ok


@pytest.mark.parametrize("url", ["", "sqlite://", "sqlite:///", "mysql://host/db", "redis://x"])
def test_a_url_that_names_no_store_is_an_error(url: str) -> None:
    """The message says what there is."""
    with pytest.raises(InvalidUrlError):
        Ledger.open(url)


def test_a_named_memory_ledger_is_gone_with_its_last_handle() -> None:
    """memory://name is shared while anyone has it open, and memory:// by nobody."""
    run = new_run_id()
    with Ledger.open("memory://shared-by-two") as one, Ledger.open("memory://shared-by-two") as two:
        one.append(run, note(), NEW)
        assert two.head(run) == 1
    with Ledger.open("memory://shared-by-two") as later:
        assert later.head(run) == 0
    with Ledger.open("memory://") as one, Ledger.open("memory://") as two:
        one.append(run, note(), NEW)
        assert two.head(run) == 0
    assert isinstance(later.store, memory.MemoryStore)


def test_reading_checks_the_run_before_the_first_record(ledger: Ledger) -> None:
    """A run that is not there and an id that is not one are errors of the call itself."""
    with pytest.raises(RunNotFoundError):
        ledger.read(new_run_id())
    with pytest.raises(InvalidRunIdError):
        ledger.read("run-1")


def test_what_keeps_a_closed_ledger_says_so(store: StoreUnderTest) -> None:
    """Verifying and rebuilding raise LedgerClosedError."""
    ledger = store.open()
    ledger.append(new_run_id(), note(), NEW)
    ledger.close()
    for call in (ledger.verify_all, ledger.rebuild_index):
        with pytest.raises(LedgerClosedError):
            call()


def test_a_heartbeat_moves_only_the_end_of_the_lease(ledger: Ledger) -> None:
    """Worker, epoch and holder of the stored lease stay as they are."""
    run = str(new_run_id())
    ledger.append(run, RunStarted(), NEW)
    claim = ledger.claim(run, ttl=timedelta(hours=1))
    before = ledger.store.lease(run)
    claim.heartbeat()
    ledger.heartbeat(claim)
    after = ledger.store.lease(run)
    assert before is not None
    assert after is not None
    assert after.expires_at >= before.expires_at
    assert after._replace(expires_at=0) == before._replace(expires_at=0)
