"""The eventsourcing library's own interface gives the same as read and tail."""

from __future__ import annotations

import pytest
from eventsourcing.persistence import ApplicationRecorder, Notification, StoredEvent

from tests.conformance.samples import message, note, notes
from turnledger.ledger import ANY, NEW, Ledger, new_run_id


def test_a_store_is_a_recorder_of_the_library(ledger: Ledger) -> None:
    """What takes the library's recorder takes ours."""
    assert isinstance(ledger.store, ApplicationRecorder)


def test_select_events_gives_what_read_gives(ledger: Ledger) -> None:
    """Run, version, tag and JSON bytes, in ranges, backwards and limited."""
    run = new_run_id()
    ledger.append(run, [note(1), message("ü 🦜"), *notes(4)], NEW)
    ledger.append(new_run_id(), note(), NEW)
    stored = [StoredEvent(r.run_id, r.version, r.tag, r.data.encode()) for r in ledger.read(run)]
    recorder = ledger.store
    assert list(recorder.select_events(run)) == stored
    assert list(recorder.select_events(str(run))) == stored
    assert list(recorder.select_events(run, gt=2)) == stored[2:]
    assert list(recorder.select_events(run, lte=3)) == stored[:3]
    assert list(recorder.select_events(run, gt=1, lte=4)) == stored[1:4]
    assert list(recorder.select_events(run, desc=True, limit=2)) == stored[::-1][:2]
    assert list(recorder.select_events(run, limit=2)) == stored[:2]
    assert list(recorder.select_events(new_run_id())) == []


def test_select_notifications_gives_what_tail_gives(ledger: Ledger) -> None:
    """By position, with the library's inclusive start, stop, limit and topics."""
    recorder = ledger.store
    assert recorder.max_notification_id() is None
    assert list(recorder.select_notifications(None, 10)) == []
    runs = [new_run_id(), new_run_id()]
    for turn in range(6):
        ledger.append(runs[turn % 2], [note(turn), message(str(turn))], ANY)
    told = [
        Notification(r.run_id, r.version, r.tag, r.data.encode(), r.position) for r in ledger.tail()
    ]
    ids = [one.id for one in told]
    assert recorder.max_notification_id() == ids[-1]
    assert list(recorder.select_notifications(None, 100)) == told
    assert list(recorder.select_notifications(1, 100)) == told
    assert list(recorder.select_notifications(ids[3], 100)) == told[3:]
    assert list(recorder.select_notifications(ids[3], 2)) == told[3:5]
    assert list(recorder.select_notifications(ids[3], 100, inclusive_of_start=False)) == told[4:]
    assert list(recorder.select_notifications(ids[3], 100, stop=ids[6])) == told[3:7]
    assert (
        list(recorder.select_notifications(None, 3, topics=["message.appended"]))
        == [one for one in told if one.topic == "message.appended"][:3]
    )
    assert list(recorder.select_notifications(ids[-1] + 1, 100)) == []


def test_what_would_bypass_the_chain_is_refused(ledger: Ledger) -> None:
    """Inserting without a digest and subscribing are not offered, and say what is."""
    with pytest.raises(TypeError, match=r"Ledger\.append"):
        ledger.store.insert_events([StoredEvent(new_run_id(), 1, "custom", b"{}")])
    with pytest.raises(TypeError, match=r"Ledger\.tail"):
        ledger.store.subscribe()
    assert list(ledger.tail()) == []
