"""`Ledger.prepare`: an event that is encoded and checked before it is appended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Draft,
    InvalidEventError,
    Ledger,
    RunStarted,
    new_run_id,
)

SECRET = "sk-" + "a1B2c3D4e5F6g7H8" * 3


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open("memory://") as opened:
        yield opened


def test_a_prepared_event_is_stored_byte_for_byte(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `prepare` encoded, without secrets, is what is stored; nothing is encoded again."""
    run = new_run_id()
    entry = ledger.prepare(CustomEvent(kind="a.b", data={"key": SECRET}))
    monkeypatch.setattr(ledger._codec, "encode_checked", None)
    (record,) = ledger.append(run, entry, NEW).records
    assert (record.tag, record.data.encode()) == (entry.tag, entry.data)
    assert str(record.event_id) == entry.event_id
    assert record.event == entry.event
    assert SECRET not in record.data
    assert ledger.append(run, [entry], ANY).duplicate


def test_a_prepared_event_keeps_the_id_that_it_is_given(ledger: Ledger) -> None:
    """A Draft's id is the entry's, and standing twice in one append it is refused."""
    event_id = new_run_id()
    entry = ledger.prepare(Draft(CustomEvent(kind="a.b"), event_id))
    assert entry.event_id == str(event_id)
    with pytest.raises(InvalidEventError, match="twice"):
        ledger.append(new_run_id(), [entry, entry], NEW)


def test_a_run_begins_with_a_prepared_event(ledger: Ledger) -> None:
    """`begin` takes one too."""
    run = new_run_id()
    ledger.begin(run, ledger.prepare(RunStarted(request_type="Goal"))).release()
    assert [record.tag for record in ledger.read(run)] == ["run.started", "run.claimed"]


def test_what_can_not_be_recorded_can_not_be_prepared(ledger: Ledger) -> None:
    """The checks of `append` are made when the event is prepared."""
    with pytest.raises(InvalidEventError):
        ledger.prepare(CustomEvent(kind="a.b", data=float("nan")))
