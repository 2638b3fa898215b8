"""Recovery on every store, of runs that were damaged behind the ledger's back.

A payment (`on_interrupt="ask"`) must never be repeated because the record of it is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec
import pytest

from tests.conformance.harness import StoreUnderTest, Vandal
from tests.conformance.samples import message, note
from tests.unit.runtime.loops import Goal, Planner, interrupted, tags
from turnledger.ledger import (
    ANY,
    CustomEvent,
    Event,
    EventDecodeError,
    IntegrityFailureError,
    InvalidInputError,
    Ledger,
    LostRecordsError,
    RunClaimedError,
    ToolCallDecided,
    UnknownEventTypeError,
    blob_name,
    new_run_id,
)
from turnledger.ledger.runs.append import Entry
from turnledger.runtime import RecoveryError
from turnledger.runtime.recovery.run_reader import RunReader


@pytest.fixture
def vandal(store: StoreUnderTest) -> Vandal:
    return store.vandal


def delete(vandal: Vandal, run: UUID, version: int) -> None:
    vandal.delete(vandal.at(run, version).position)


def refused(ledger: Ledger, run: UUID, match: str | None = None) -> None:
    """A recovery raises IntegrityFailureError, writes nothing and runs nothing."""
    before = ledger.store.last_position()
    loop = Planner(ledger=ledger, on_interrupt="ask")
    with pytest.raises(IntegrityFailureError, match=match):
        loop.recover(run)
    assert loop.ran == []
    assert ledger.store.last_position() == before


# --- checks of recovery ------------------------------------------------------------------


def test_a_missing_last_record_is_not_recovered_over(
    store: StoreUnderTest, ledger: Ledger, vandal: Vandal
) -> None:
    """Without the record that a payment was started, it would be made a second time."""
    run = interrupted(ledger, on_interrupt="ask")
    assert tags(ledger, run)[-1] == "tool_call.started"
    delete(vandal, run, ledger.head(run))
    for handle in (ledger, store.open()):  # one remembers the run's head, one does not
        refused(handle, run, f"{run}.*the index has version")
        with pytest.raises(IntegrityFailureError, match="--accept-loss"):
            handle.claim(run)


def _change_data(ledger: Ledger, vandal: Vandal, run: UUID) -> None:
    row = vandal.at(run, 3)
    vandal.change(row.position, "data", row.data + b" ")


def _delete_in_the_middle(ledger: Ledger, vandal: Vandal, run: UUID) -> None:
    delete(vandal, run, 4)


def _swap_runs(ledger: Ledger, vandal: Vandal, run: UUID) -> None:
    other = interrupted(ledger, at="c1")
    mine, others = vandal.at(run, 5), vandal.at(other, 5)
    for row in (mine, others):
        vandal.delete(row.position)
    vandal.insert(mine._replace(run_id=others.run_id))
    vandal.insert(others._replace(run_id=mine.run_id))


def _index_behind(ledger: Ledger, vandal: Vandal, run: UUID) -> None:
    vandal.change_run(run, "version", ledger.head(run) - 1)


def _index_ahead(ledger: Ledger, vandal: Vandal, run: UUID) -> None:
    vandal.change_run(run, "version", ledger.head(run) + 1)


def _raise_epoch(ledger: Ledger, vandal: Vandal, run: UUID) -> None:
    vandal.change_run(run, "epoch", 7)


def _change_status(ledger: Ledger, vandal: Vandal, run: UUID) -> None:
    vandal.change_run(run, "status", b"failed")


DAMAGES: tuple[Callable[[Ledger, Vandal, UUID], None], ...] = (
    _change_data,
    _delete_in_the_middle,
    _swap_runs,
    _index_behind,
    _index_ahead,
    _raise_epoch,
    _change_status,
)


def test_recovery_refuses_what_verify_would_report(ledger: Ledger, vandal: Vandal) -> None:
    """Digests, versions and the index row are checked in the pass that recovery makes anyway."""
    for damage in DAMAGES:
        run = interrupted(ledger, on_interrupt="ask")
        damage(ledger, vandal, run)
        assert not ledger.verify(run).ok, damage
        refused(ledger, run, str(run))


def test_damage_between_check_and_claim_is_found_in_the_tail(
    ledger: Ledger, vandal: Vandal
) -> None:
    """What came since the check is checked too, before anything is run."""
    run = interrupted(ledger)
    reader = RunReader(ledger, run)
    ledger.append(run, note(1), ANY)
    reader.read_on()
    ledger.append(run, [note(2), note(3)], ANY)
    row = vandal.at(run, ledger.head(run) - 1)
    vandal.change(row.position, "data", row.data.replace(b"2", b"4"))
    with pytest.raises(IntegrityFailureError, match="digest"):
        reader.read_on()


def test_others_may_append_while_a_recovery_checks(ledger: Ledger) -> None:
    """The index row is read first: records that came since are no damage."""
    run = interrupted(ledger)
    reader, head = ledger.checked(run), ledger.head(run)
    records = reader.read_on()
    next(records)
    ledger.append(run, [note(1), note(2)], ANY)
    assert len([*records]) >= head - 1
    ledger.append(run, note(3), ANY)
    [*_, last] = reader.read_on()
    assert last.version == ledger.head(run)
    assert [*reader.read_on()] == []


def test_a_fork_is_checked_up_to_where_it_starts_from(ledger: Ledger, vandal: Vandal) -> None:
    """An ancestor's later damage does not matter; earlier damage does. So says verify, too."""
    parent = interrupted(ledger)
    child = ledger.fork(parent, ledger.head(parent))
    grandchild = ledger.fork(child, ledger.head(parent))  # before the child's own records
    at = ledger.head(parent)
    ledger.append(parent, [note(1), note(2)], ANY)
    vandal.change(vandal.at(parent, at + 1).position, "data", b"{}")
    delete(vandal, parent, at + 2)
    vandal.change_run(parent, "status", b"failed")
    assert not ledger.verify(parent).ok
    for run in (child, grandchild):
        assert ledger.verify(run).ok
        assert len([*ledger.checked(run).read_on()]) == at + 1
    row = vandal.at(parent, 2)
    vandal.change(row.position, "data", row.data.replace(b"}", b" }"))
    for run in (child, grandchild):
        assert not ledger.verify(run).ok
        with pytest.raises(IntegrityFailureError, match=f"{parent}, version 2"):
            list(ledger.checked(run).read_on())


def test_a_run_whose_parent_is_missing_is_not_recovered(ledger: Ledger, vandal: Vandal) -> None:
    """Not a run that does not exist: it is damaged."""
    parent = interrupted(ledger)
    child = ledger.fork(parent, ledger.head(parent))
    vandal.delete_run(parent)
    refused(ledger, child, f"{child} descends from run {parent}, which is missing")


def test_a_blob_is_checked_when_it_is_used(ledger: Ledger, vandal: Vandal) -> None:
    """Its name is the hash of its bytes."""
    name = blob_name(b"a picture")
    ledger.append(new_run_id(), note(), ANY, blobs=[b"a picture"])
    assert ledger.blob(name) == b"a picture"
    vandal.change_blob(name, b"b picture")
    with pytest.raises(IntegrityFailureError, match=name):
        ledger.blob(name)


@pytest.mark.parametrize("gone", [2, 6])
def test_reading_to_the_end_misses_no_record_in_silence(
    ledger: Ledger, vandal: Vandal, gone: int
) -> None:
    """The index, read before the records, says how many there must be."""
    run = new_run_id()
    ledger.append(run, [note(number) for number in range(6)], ANY)
    delete(vandal, run, gone)
    for backwards in (False, True):
        with pytest.raises(IntegrityFailureError, match="1 of 6 records"):
            list(ledger.read(run, backwards=backwards, page_size=2))
    assert len([*ledger.read(run, until=1)]) == 1


# --- rebuild-index -----------------------------------------------------------------------


def test_rebuilding_the_index_does_not_repair_a_loss_in_silence(
    ledger: Ledger, vandal: Vandal
) -> None:
    """The row that shows the loss stays, so that nothing pays again; other rows are rebuilt."""
    run, other = interrupted(ledger, on_interrupt="ask"), interrupted(ledger)
    head = ledger.head(run)
    delete(vandal, run, head)
    vandal.change_run(other, "status", b"failed")
    with pytest.raises(LostRecordsError, match=f"{run}: version {head} missing") as caught:
        ledger.rebuild_index()
    assert caught.value.runs == (str(run),)
    assert ledger.head(run) == head
    assert not ledger.verify(run).ok
    assert ledger.verify(other).ok
    assert ledger.runs(tags={"loop": "planner"})
    refused(ledger, run)


def test_an_accepted_loss_parks_the_run(ledger: Ledger, vandal: Vandal) -> None:
    """Lowered and parked in one transaction; a person forks or abandons it."""
    run = interrupted(ledger, on_interrupt="ask")
    head = ledger.head(run)
    delete(vandal, run, head)
    delete(vandal, run, head - 1)
    ledger.rebuild_index(accept_loss=[run])
    assert ledger.verify(run).ok
    [*_, last] = ledger.read(run)
    assert (last.version, last.tag) == (head - 1, "run.parked")
    assert f"records {head - 1} to {head} are missing" in last.data
    loop = Planner(ledger=ledger)
    assert run not in [found.run_id for found in loop.list_recoverable()]
    with pytest.raises(RecoveryError, match="parked"):
        loop.recover(run)
    assert ledger.fork(run, 2)


def test_a_loss_is_not_accepted_while_a_worker_has_the_run(ledger: Ledger, vandal: Vandal) -> None:
    """It may still know, and write, what is missing."""
    run = new_run(ledger)
    with ledger.claim(run):
        delete(vandal, run, 2)
        with pytest.raises(RunClaimedError):
            ledger.rebuild_index(accept_loss=[run])
    assert ledger.head(run) == 2
    with pytest.raises(LostRecordsError, match=str(run)):
        ledger.rebuild_index()


def new_run(ledger: Ledger) -> UUID:
    run = new_run_id()
    ledger.append(run, note(), ANY)
    return run


def test_an_accepted_loss_of_a_claim_uses_its_epoch_up(ledger: Ledger, vandal: Vandal) -> None:
    """The worker whose claim is lost must not share an epoch with the next one."""
    run = new_run(ledger)
    with ledger.claim(run) as lost:
        pass
    delete(vandal, run, 2)
    ledger.rebuild_index(accept_loss=[run])
    assert ledger.verify(run).ok
    with ledger.claim(run) as claim:
        assert claim.epoch > lost.epoch


def test_a_run_without_any_record_is_a_loss_too(ledger: Ledger, vandal: Vandal) -> None:
    """All that is left of it is its row in the index."""
    run = new_run(ledger)
    delete(vandal, run, 1)
    with pytest.raises(LostRecordsError, match=str(run)):
        ledger.rebuild_index()
    assert ledger.head(run) == 1
    ledger.rebuild_index(accept_loss=[run])
    assert [record.tag for record in ledger.read(run)] == ["run.parked"]
    with pytest.raises(InvalidInputError, match="has lost no records"):
        ledger.rebuild_index(accept_loss=[run])


# --- unknown events ----------------------------------------------------------------------


def foreign(tag: str, data: bytes = b"{}", event: Event | None = None) -> Entry:
    """An event as another version of the program writes it; `event` is what the index sees."""
    return Entry(str(new_run_id()), tag, data, event or note())


DECIDED = b'{"call_id":"c","decision":"retry","a_new_field":1}'
RETRY = ToolCallDecided(call_id="c", decision="retry")
UNKNOWN = [
    pytest.param(foreign("tool_call.imagined"), id="a tag"),
    pytest.param(
        foreign("tool_call.decided", DECIDED, RETRY),
        id="a field",
    ),
]


@pytest.mark.parametrize("entry", UNKNOWN)
def test_a_run_with_an_unknown_event_is_not_claimed(ledger: Ledger, entry: Entry) -> None:
    """Nor is a fork of it; the error names tag, version and catalogue. One made before it is."""
    run = interrupted(ledger)
    before = ledger.fork(run, ledger.head(run))
    ledger.append(run, entry, ANY)
    version = ledger.head(run)
    after = ledger.fork(run, version)
    for refused_run in (run, after):
        loop, epoch = Planner(ledger=ledger), ledger.run(refused_run).epoch
        with pytest.raises(EventDecodeError) as caught:
            loop.recover(refused_run)
        assert loop.ran == []
        assert ledger.run(refused_run).epoch == epoch
        said = str(caught.value)
        assert all(word in said for word in (entry.tag, f"version {version}", "catalogue"))
        assert (caught.value.run_id, caught.value.version) == (str(run), version)
    assert RunReader(ledger, before).known.version > 0


@pytest.mark.parametrize("entry", UNKNOWN)
def test_a_worker_stops_at_an_unknown_event_in_its_own_run(ledger: Ledger, entry: Entry) -> None:
    """Before its next effect, and without a failure on the run: a newer program recovers it."""
    run = new_run_id()

    def newer_program(context: object) -> None:
        ledger.append(run, entry, ANY)

    loop = Planner(ledger=ledger, in_tool=newer_program)
    with pytest.raises(EventDecodeError, match=entry.tag):
        loop.execute(Goal(), run_id=run)
    assert loop.ran == ["c1"]
    assert tags(ledger, run)[-1] == entry.tag
    assert ledger.run(run).status == "running"


def test_custom_events_and_retired_tags_are_known(ledger: Ledger) -> None:
    """Of any kind, and whatever newer program opened the ledger."""
    run = interrupted(ledger)
    old = msgspec.json.encode(message("hi").message)
    ledger.append(run, [note(), CustomEvent(kind="acme.any", data={"x": 1})], ANY)
    ledger.codec.written = 99
    with_retired = ledger.fork(run, ledger.head(run))
    ledger.append(with_retired, foreign("message.recorded", old), ANY)
    assert RunReader(ledger, with_retired).known.version == ledger.head(with_retired)
    loop = Planner(ledger=ledger)
    loop.recover(run)
    assert loop.ran == ["c2", "c3"]


def test_the_error_of_a_newer_tag_says_that_the_program_is_too_old(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the newer program wrote after this one had opened the ledger."""
    run = interrupted(ledger)
    ledger.append(run, foreign("tool_call.imagined"), ANY)
    monkeypatch.setattr(ledger.store, "written_catalogue", lambda: 99)
    with pytest.raises(UnknownEventTypeError, match=r"catalogue 99.*too old") as caught:
        Planner(ledger=ledger).recover(run)
    assert caught.value.program_too_old
