"""The eventsourcing library's own interfaces over a ledger, on every store."""

from __future__ import annotations

from threading import Thread
from uuid import UUID, uuid5

import pytest
from eventsourcing.persistence import IntegrityError, StoredEvent, Tracking
from eventsourcing.popo import POPOTrackingRecorder
from eventsourcing.projection import BaseProjectionRunner, Projection

from tests.conformance.samples import message, note, notes
from turnledger.ledger import (
    ANY,
    NEW,
    Codec,
    Event,
    EventDecodeError,
    InvalidEventError,
    Ledger,
    Record,
    RunStarted,
    UnknownEventTypeError,
    new_run_id,
)
from turnledger.ledger.application import (
    LedgerApplication,
    LedgerRecorder,
    RecordedEvent,
    RecordNotification,
)


def test_select_events_gives_what_read_gives(ledger: Ledger) -> None:
    """Run, version, tag and JSON bytes, in ranges, backwards and limited."""
    run = new_run_id()
    ledger.append(run, [note(1), message("ü 🦜"), *notes(4)], NEW)
    ledger.append(new_run_id(), note(), NEW)
    stored = [RecordedEvent.of(record) for record in ledger.read(run)]
    assert stored[1].topic == "message.appended"
    assert "🦜" in stored[1].state.decode()
    recorder = LedgerRecorder(ledger)
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
    recorder = LedgerRecorder(ledger)
    assert recorder.max_notification_id() is None
    assert list(recorder.select_notifications(None, 10)) == []
    runs = [new_run_id(), new_run_id()]
    for turn in range(6):
        ledger.append(runs[turn % 2], [note(turn), message(str(turn))], ANY)
    told = [RecordNotification.of(record) for record in ledger.tail()]
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


def stored(run: UUID, version: int, event: Event) -> StoredEvent:
    tag, data = Codec().encode(event)
    return StoredEvent(run, version, tag, data)


def test_inserted_events_are_appended(ledger: Ledger) -> None:
    """With digests, ids that follow from run and version, and positions in the order given."""
    recorder, first, second = LedgerRecorder(ledger), new_run_id(), new_run_id()
    given = [
        stored(first, 1, note(1)),
        stored(second, 1, RunStarted()),
        stored(first, 2, message("hello")),
    ]
    positions = recorder.insert_events(given)
    records = {record.position: record for record in ledger.tail()}
    assert [(records[p].run_id, records[p].version) for p in positions] == [
        (first, 1),
        (second, 1),
        (first, 2),
    ]
    assert [record.event_id for record in ledger.read(first)] == [
        uuid5(first, "1"),
        uuid5(first, "2"),
    ]
    assert ledger.verify_all().ok


@pytest.mark.parametrize("version", [1, 2, 4])
def test_a_version_that_does_not_follow_is_a_conflict_of_the_library(
    ledger: Ledger, version: int
) -> None:
    """Also if the very same event is there already; nothing of the call is recorded."""
    recorder, run, other = LedgerRecorder(ledger), new_run_id(), new_run_id()
    recorder.insert_events([stored(run, 1, note(1)), stored(run, 2, note(2))])
    with pytest.raises(IntegrityError):
        recorder.insert_events([stored(other, 1, note(3)), stored(run, version, note(version))])
    assert (ledger.head(run), ledger.head(other)) == (2, 0)


def test_versions_with_a_gap_are_a_conflict_of_the_library(ledger: Ledger) -> None:
    """Within one call as well."""
    run = new_run_id()
    with pytest.raises(IntegrityError, match=r"\[1, 3\] of run .* not consecutive"):
        LedgerRecorder(ledger).insert_events([stored(run, 1, note(1)), stored(run, 3, note(3))])
    assert ledger.head(run) == 0


def test_inserted_events_go_through_the_checks_of_an_append(ledger: Ledger) -> None:
    """An unknown topic, a state that is not its event, a second RunStarted, foreign arguments."""
    recorder, run = LedgerRecorder(ledger), new_run_id()
    with pytest.raises(UnknownEventTypeError):
        recorder.insert_events([StoredEvent(run, 1, "no.such", b"{}")])
    with pytest.raises(EventDecodeError):
        recorder.insert_events([StoredEvent(run, 1, "message.appended", b"{}")])
    with pytest.raises(InvalidEventError):
        recorder.insert_events([stored(run, 1, RunStarted()), stored(run, 2, RunStarted())])
    with pytest.raises(TypeError, match="tracking"):
        recorder.insert_events([stored(run, 1, note())], tracking=None)
    assert list(ledger.tail()) == []


def test_a_subscription_gives_past_and_future_events(ledger: Ledger) -> None:
    """In order, after a position, by topic; stopping it ends the iteration of a waiting thread."""
    run = new_run_id()
    ledger.append(run, [note(1), message("one"), note(2)], NEW)
    first = next(iter(ledger.tail())).position
    told: list[int] = []
    with LedgerRecorder(ledger).subscribe(gt=first, topics=["custom"]) as subscription:
        reader = Thread(target=lambda: told.extend(one.originator_version for one in subscription))
        reader.start()
        ledger.append(run, [message("two"), note(3)], ANY)
        while len(told) < 2 and reader.is_alive():
            reader.join(0.01)
        subscription.stop()
        reader.join(20)
    assert not reader.is_alive()
    assert told == [3, 5]


class SeenEvents(POPOTrackingRecorder):
    """A view in memory: every event that was processed, with its tracking."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[UUID, int, str]] = []

    def see(self, record: Record, tracking: Tracking) -> None:
        with self._database_lock:
            self._assert_tracking_uniqueness(tracking)
            self._insert_tracking(tracking)
            self.seen.append((record.run_id, record.version, record.tag))


class Seeing(Projection[SeenEvents]):
    topics = ("custom", "run.started")

    def process_event(self, record: Record, tracking: Tracking) -> None:  # type: ignore[override]
        self.view.see(record, tracking)


def test_the_librarys_projection_runner_runs_over_a_ledger(ledger: Ledger) -> None:
    """Past and live events, each once, though it is stopped and begun again with its view."""
    run = new_run_id()
    ledger.append(run, [RunStarted(), message("left out"), *notes(3)], NEW)
    view = SeenEvents()
    for number in range(3):
        with BaseProjectionRunner(
            projection=Seeing(view),
            application_class=LedgerApplication.over(ledger),
            tracking_recorder=view,
            topics=Seeing.topics,
        ) as runner:
            latest = ledger.append(run, note(number), ANY)
            runner.wait(latest.position, timeout=20)
    expected = [(r.run_id, r.version, r.tag) for r in ledger.tail() if r.tag != "message.appended"]
    assert view.seen == expected
    assert ledger.head(run) == 8


def test_the_mapper_gives_records(ledger: Ledger) -> None:
    """From what the recorder selects, and from a plain stored event."""
    run = new_run_id()
    ledger.append(run, message("hello"), NEW)
    (record,) = ledger.read(run)
    application = LedgerApplication.over(ledger)()
    (found,) = application.recorder.select_events(run)
    plain = StoredEvent(run, 1, found.topic, found.state)
    assert application.mapper.to_domain_event(found) == record
    assert application.mapper.to_domain_event(plain) == record
    assert application.mapper.to_stored_event(record) == found
    (section,) = [application.notification_log[f"{record.position},{record.position}"]]
    assert [one.originator_id for one in section.items] == [run]
    application.close()
    assert ledger.head(run) == 1
