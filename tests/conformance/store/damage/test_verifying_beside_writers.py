"""Verifying and sealing while others append: what came meanwhile is no damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread
from typing import Any
from uuid import UUID

import pytest

from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import note, notes
from turnledger.ledger import ANY, NEW, Ledger, RunStarted, new_run_id
from turnledger.ledger.events.chain import link
from turnledger.ledger.integrity.seal import check_seal, make_seal

NOW = 1_700_000_000_000_000
# Each verification takes longer than the one before: there has to be an end.
APPENDS, ROUNDS = 500, 5


@contextmanager
def appended_to(ledger: Ledger, run: UUID) -> Iterator[None]:
    """Somebody who appends to a run, and begins others, at most until the end of the block."""
    done, failed = Flag(), list[BaseException]()

    def write() -> None:
        try:
            for number in range(APPENDS):
                if done.is_set():
                    return
                ledger.append(run, note(number), ANY)
                if number % 50 == 0:
                    new = new_run_id()
                    ledger.append(new, RunStarted(tags={"number": str(number)}), NEW)
                    ledger.fork(run, ledger.head(run))
        except BaseException as error:
            failed.append(error)

    writer = Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()
    assert failed == []


def test_a_ledger_that_is_written_to_is_verified_and_sealed(store: StoreUnderTest) -> None:
    """Whatever is looked at first, its index or its records, nothing is reported."""
    ledger, run = store.open(), new_run_id()
    ledger.append(run, notes(300), NEW)
    seals = [make_seal(ledger, NOW)]
    with appended_to(store.open(), run):
        for _ in range(ROUNDS):
            assert ledger.verify_all().problems == ()
            assert ledger.verify(run).problems == ()
            seals.append(make_seal(ledger, NOW))
            assert check_seal(ledger, seals[-1]).problems == ()
    assert len({seal.root for seal in seals}) > 1
    assert ledger.verify_all().ok


def just_before_rows(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, act: Any, *, times: int = 1
) -> None:
    """Let something happen after a run's row in the index was read, and before its records are."""
    store, left = ledger.store, [act] * times
    rows = store.raw_rows

    def raw_rows(run_id: Any, first: int | None = None) -> Any:
        if left:
            left.pop()()
        return rows(run_id, first)

    monkeypatch.setattr(store, "raw_rows", raw_rows)


def test_records_that_came_after_the_index_was_read_are_no_forgery(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One verification after another, each with an append at the worst moment."""
    ledger, writing, run = store.open(), store.open(), new_run_id()
    ledger.append(run, notes(3), NEW)
    seal = make_seal(ledger, NOW)
    for verify in (ledger.verify_all, lambda: ledger.verify(run), lambda: check_seal(ledger, seal)):
        with monkeypatch.context() as patch:
            just_before_rows(ledger, patch, lambda: writing.append(run, notes(2), ANY))
            report = verify()
        assert report.problems == ()
        assert report.records == ledger.head(run)


def test_an_append_meanwhile_hides_no_wrong_index(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the index said when it was read is compared with the records as they were then."""
    ledger, run = store.open(), new_run_id()
    ledger.append(run, notes(3), NEW)
    store.vandal.change_run(run, "prompt", b"other/prompt")
    writing = store.open()
    just_before_rows(ledger, monkeypatch, lambda: writing.append(run, note(), ANY))
    (problem,) = ledger.verify_all().problems
    assert "prompt 'other/prompt' instead of ''" in problem.what


def test_a_record_forged_meanwhile_is_found(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index does not move on with it, as it does with an append."""
    ledger, run = store.open(), new_run_id()
    ledger.append(run, notes(3), NEW)
    last = store.vandal.at(run, 3)
    event_id, data = str(new_run_id()).encode(), b'{"kind":"forged.note"}'
    digest = link(last.digest, last.run_id, 4, event_id, b"custom", last.recorded_at + 1, data)
    forged = (
        last.position + 1,
        last.run_id,
        4,
        b"custom",
        event_id,
        last.recorded_at + 1,
        digest,
        data,
    )
    just_before_rows(ledger, monkeypatch, lambda: store.vandal.insert(forged))
    (problem,) = ledger.verify_all().problems
    assert (problem.version, "version 3 instead of 4" in problem.what) == (4, True)
