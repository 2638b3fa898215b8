"""Closing, reopening, and processes that fork."""

from __future__ import annotations

import os
import warnings

import pytest

from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import note, notes
from turnledger.ledger import ANY, NEW, InvalidUrlError, Ledger, LedgerClosedError, new_run_id


def test_a_closed_ledger_says_so(store: StoreUnderTest) -> None:
    """Every method raises LedgerClosedError, and none hangs or writes."""
    ledger = store.open()
    run = new_run_id()
    ledger.append(run, notes(2), NEW)
    claim = ledger.claim(run)
    ledger.close()
    calls = (
        lambda: ledger.append(run, note(), ANY),
        lambda: list(ledger.read(run)),
        lambda: ledger.record(run, 1),
        lambda: ledger.head(run),
        lambda: ledger.run(run),
        lambda: list(ledger.runs()),
        lambda: list(ledger.tail()),
        lambda: next(ledger.tail(follow=True)),
        lambda: ledger.blob("sha256:x"),
        lambda: ledger.fork(run, 2),
        lambda: ledger.continuation(run),
        lambda: ledger.claim(run),
        lambda: ledger.heartbeat(claim),
        claim.heartbeat,
        claim.release,
        lambda: ledger.verify(run),
        ledger.verify_all,
        ledger.rebuild_index,
    )
    for call in calls:
        with pytest.raises(LedgerClosedError):
            call()
    assert store.open().head(run) == 3


def test_closing_twice_is_harmless(store: StoreUnderTest) -> None:
    """And so is closing a ledger that a `with` has closed."""
    with store.open() as ledger:
        ledger.append(new_run_id(), note(), NEW)
    ledger.close()
    ledger.close()


def test_closing_one_handle_leaves_the_others(store: StoreUnderTest) -> None:
    """Handles are independent."""
    one, other = store.open(), store.open()
    run = new_run_id()
    one.append(run, note(), NEW)
    one.close()
    assert other.append(run, note(), 1).version == 2


def test_what_was_written_is_there_after_reopening(store: StoreUnderTest) -> None:
    """Records, index, blobs and digests."""
    run = new_run_id()
    with store.open() as ledger:
        written = ledger.append(run, notes(3), NEW).records
        info = ledger.run(run)
    with store.open() as ledger:
        assert tuple(ledger.read(run)) == written
        assert ledger.run(run) == info
        assert ledger.append(run, note(), 3).version == 4
        assert ledger.verify_all().ok


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
