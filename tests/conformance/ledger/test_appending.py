"""Appending: atomic, gapless, at the version that the caller expects."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import PICTURE, draft, message, note, notes, one_of_each, started
from tests.conformance.surfaces import Surface
from turnledger.ledger import (
    ANY,
    NEW,
    AppendRefusedError,
    ConcurrentAppendError,
    Draft,
    InvalidEventError,
    InvalidInputError,
    InvalidRunIdError,
    RunClaimed,
    RunStarted,
    SystemClock,
    new_run_id,
)
from turnledger.ledger.clock import LAST_MOMENT
from turnledger.ledger.events.types import EVENT_TYPES, PROMPT_TAGS


def test_versions_count_from_one_without_gaps(ledger: LedgerLike) -> None:
    """Batches of any size continue the run where the one before ended."""
    run = new_run_id()
    sizes = [1, 3, 1, 7, 2]
    versions = [r.version for n in sizes for r in ledger.append(run, notes(n), ANY).records]
    assert versions == list(range(1, sum(sizes) + 1))
    assert [r.version for r in ledger.read(run)] == versions


def test_append_says_what_was_recorded(ledger: LedgerLike) -> None:
    """The result holds the records as they can be read back, and the run's new version."""
    run = new_run_id()
    ledger.append(run, notes(2), NEW)
    appended = ledger.append(run, [note(2), message()], 2)
    assert appended.version == ledger.head(run) == 4
    assert list(appended.records) == list(ledger.read(run, after=2))
    assert appended.position == appended.records[-1].position
    assert appended.digest == appended.records[-1].digest == ledger.run(run).digest
    assert appended.duplicate is False


def test_every_kind_of_event_comes_back_equal(ledger: LedgerLike) -> None:
    """What was appended is what is read, for all kinds in the catalogue."""
    run = new_run_id()
    events = [started(), *one_of_each()]
    ledger.append(run, events, NEW, blobs=[PICTURE])
    with ledger.claim(run):
        pass
    records = list(ledger.read(run))
    assert [record.event for record in records[:-1]] == events
    assert isinstance(records[-1].event, RunClaimed)
    # Those of prompts have streams of their own: test_prompt_streams.py.
    assert {record.tag for record in records} == set(EVENT_TYPES) - PROMPT_TAGS


def test_a_bare_event_needs_no_list(ledger: LedgerLike) -> None:
    """One event, or one draft, can be handed over as it is."""
    run = new_run_id()
    mine = draft(note(2))
    ledger.append(run, note(1), NEW)
    ledger.append(run, mine, 1)
    assert [record.event for record in ledger.read(run)] == [note(1), note(2)]
    assert ledger.record(run, 2).event_id == mine.event_id


def test_drafts_and_bare_events_mix_and_ids_are_kept(ledger: LedgerLike) -> None:
    """An id of the caller's is kept; an event without one gets its own."""
    run = new_run_id()
    mine, text_id = draft(note(1)), str(uuid4())
    records = ledger.append(run, [note(0), mine, Draft(note(2), text_id)], NEW).records
    assert records[1].event_id == mine.event_id
    assert records[2].event_id == UUID(text_id)
    assert len({record.event_id for record in records}) == 3


def test_any_iterable_of_events_is_taken(ledger: LedgerLike) -> None:
    """A generator, a tuple and a list are the same to append."""
    run = new_run_id()
    ledger.append(run, (note(n) for n in range(3)), NEW)
    ledger.append(run, tuple(notes(2, 3)), 3)
    assert [r.event for r in ledger.read(run)] == notes(5)


def test_new_takes_only_a_run_that_does_not_exist(ledger: LedgerLike) -> None:
    """NEW, like the version 0, is for a run's first append."""
    first, second = new_run_id(), new_run_id()
    assert ledger.append(first, note(), NEW).version == 1
    assert ledger.append(second, note(), 0).version == 1
    for expected in (NEW, 0):
        with pytest.raises(ConcurrentAppendError) as caught:
            ledger.append(first, note(), expected)
        assert (caught.value.expected, caught.value.found) == (0, 1)


def test_any_takes_the_run_as_it_is(ledger: LedgerLike) -> None:
    """ANY begins a run and continues it."""
    run = new_run_id()
    assert ledger.append(run, note(), ANY).version == 1
    assert ledger.append(run, note(), ANY).version == 2


@pytest.mark.parametrize("expected", [1, 3, 4, 99, 2**63 - 1])
def test_a_wrong_version_is_a_conflict_that_names_both(ledger: LedgerLike, expected: int) -> None:
    """ConcurrentAppendError holds run, expected and found, and says them; nothing is written."""
    run = new_run_id()
    ledger.append(run, notes(2), NEW)
    with pytest.raises(ConcurrentAppendError) as caught:
        ledger.append(run, note(), expected)
    error = caught.value
    assert (error.run_id, error.expected, error.found) == (str(run), expected, 2)
    assert str(run) in str(error)
    assert f"at version {expected}" in str(error)
    assert "at version 2" in str(error)
    assert ledger.head(run) == 2


@pytest.mark.parametrize("expected", [2**63, 2**70])
def test_a_version_beyond_64_bits_is_refused(ledger: LedgerLike, expected: int) -> None:
    """No run can be there: it is a wrong argument, not a conflict; nothing is written."""
    run = new_run_id()
    ledger.append(run, notes(2), NEW)
    with pytest.raises(InvalidInputError, match="expected_version"):
        ledger.append(run, note(), expected)
    assert ledger.head(run) == 2


def test_a_version_of_a_run_that_does_not_exist_is_a_conflict(ledger: LedgerLike) -> None:
    """Expecting a version where there is no run finds 0."""
    run = new_run_id()
    with pytest.raises(ConcurrentAppendError, match="does not exist") as caught:
        ledger.append(run, note(), 3)
    assert (caught.value.expected, caught.value.found) == (3, 0)
    assert ledger.head(run) == 0


def test_a_batch_with_one_bad_event_leaves_nothing(ledger: LedgerLike) -> None:
    """An append is all or nothing, whichever event is refused."""
    run = new_run_id()
    ledger.append(run, note(), NEW)
    for place in range(3):
        batch: list[object] = [note(1), note(2)]
        batch.insert(place, object())
        with pytest.raises(InvalidEventError):
            ledger.append(run, batch, 1)  # type: ignore[arg-type]
    assert ledger.head(run) == 1
    assert len(list(ledger.tail())) == 1


def test_a_handle_that_knows_an_older_head_still_appends(surface: Surface) -> None:
    """What another handle appended in between does not confuse ANY, nor hide a conflict."""
    one, other = surface.open(), surface.open()
    run = new_run_id()
    one.append(run, note(1), NEW)
    other.append(run, note(2), 1)
    assert one.append(run, note(3), ANY).version == 3
    other.append(run, note(4), 3)
    with pytest.raises(ConcurrentAppendError) as caught:
        one.append(run, note(5), 3)
    assert caught.value.found == 4
    assert one.append(run, note(5), 4).version == 5


def test_two_writers_race_and_exactly_one_wins(surface: Surface) -> None:
    """Of two appends at the same version, the second is refused, whoever it is."""
    handles = [surface.open(), surface.open()]
    run = new_run_id()
    for version in range(40):
        first, second = handles[version % 2], handles[(version + 1) % 2]
        first.append(run, note(version), version)
        with pytest.raises(ConcurrentAppendError):
            second.append(run, note(-1), version)
    assert [r.event for r in handles[0].read(run)] == notes(40)


def test_run_started_is_only_ever_first(ledger: LedgerLike) -> None:
    """RunStarted in a run that exists, or later in a batch, is refused."""
    run = new_run_id()
    for batch in ([note(), RunStarted()], [RunStarted(), RunStarted()]):
        with pytest.raises(InvalidEventError, match="first event"):
            ledger.append(run, batch, NEW)
    ledger.append(run, RunStarted(), NEW)
    with pytest.raises(InvalidEventError, match="exists already"):
        ledger.append(run, RunStarted(), 1)
    assert ledger.head(run) == 1


def test_run_claimed_is_appended_by_claim_only(ledger: LedgerLike) -> None:
    """Nobody grants themselves an epoch."""
    run = new_run_id()
    with pytest.raises(InvalidEventError, match="claim"):
        ledger.append(run, RunClaimed(worker="me", epoch=99), NEW)
    assert ledger.head(run) == 0


def test_nothing_to_append_is_an_error(ledger: LedgerLike) -> None:
    """An empty batch is a mistake of the caller's."""
    with pytest.raises(InvalidEventError, match="at least one"):
        ledger.append(new_run_id(), [], NEW)


def test_the_same_id_twice_in_one_batch_is_refused(ledger: LedgerLike) -> None:
    """Event ids are unique, within a batch too."""
    run, one = new_run_id(), draft()
    with pytest.raises(InvalidEventError, match=str(one.event_id)):
        ledger.append(run, [one, Draft(note(2), str(one.event_id))], NEW)
    assert ledger.head(run) == 0


def test_run_ids_may_be_text_in_any_spelling(ledger: LedgerLike) -> None:
    """A run id's text means the same run as the UUID, in upper case or braces too."""
    run = new_run_id()
    ledger.append(str(run), note(1), NEW)
    ledger.append(str(run).upper(), note(2), 1)
    ledger.append(f"{{{run}}}", note(3), 2)
    assert ledger.head(run) == ledger.head(run.hex) == 3
    assert {record.run_id for record in ledger.read(str(run))} == {run}


def test_any_uuid_is_a_run_id(ledger: LedgerLike) -> None:
    """Not only UUIDv7: also random ones, and the two extremes."""
    runs = [uuid4(), UUID(int=0), UUID(int=2**128 - 1)]
    for run in runs:
        ledger.append(run, note(), NEW)
    assert {info.run_id for info in ledger.runs()} == set(runs)


@pytest.mark.parametrize("bad", ["", "run-1", "0195f5a0", 7, None, b"x" * 16, 1.5])
def test_what_is_no_uuid_is_no_run_id(ledger: LedgerLike, bad: object) -> None:
    """A wrong run id is a typed error in every method that takes one."""
    calls = (
        lambda: ledger.append(bad, note(), ANY),  # type: ignore[arg-type]
        lambda: next(ledger.read(bad)),  # type: ignore[arg-type]
        lambda: ledger.head(bad),  # type: ignore[arg-type]
        lambda: ledger.run(bad),  # type: ignore[arg-type]
        lambda: ledger.record(bad, 1),  # type: ignore[arg-type]
        lambda: ledger.claim(bad),  # type: ignore[arg-type]
        lambda: ledger.fork(bad, 1),  # type: ignore[arg-type]
        lambda: ledger.verify(bad),  # type: ignore[arg-type]
    )
    for call in calls:
        with pytest.raises(InvalidRunIdError):
            call()


@pytest.mark.parametrize("bad", [-1, True, "3", 1.0, None, object()])
def test_what_is_no_expectation_is_refused(ledger: LedgerLike, bad: object) -> None:
    """expected_version is a whole number, NEW or ANY."""
    with pytest.raises(InvalidInputError, match="expected_version"):
        ledger.append(new_run_id(), note(), bad)  # type: ignore[arg-type]


def test_all_events_of_a_commit_share_their_time_and_no_others(ledger: LedgerLike) -> None:
    """recorded_at tells commits apart, even when the clock stands still."""
    run = new_run_id()
    for _ in range(20):
        ledger.append(run, notes(3), ANY)
    times = [record.recorded_at for record in ledger.read(run)]
    assert times == sorted(times)
    assert len(set(times)) == 20
    assert all(len(set(times[at : at + 3])) == 1 for at in range(0, 60, 3))


class StandingClock:
    """A clock that always shows the same time, or goes backwards."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def micros(self) -> int:
        self.now -= 5
        return self.now

    def new_id(self) -> str:
        return str(uuid4())


def test_a_clock_that_goes_backwards_does_not(surface: Surface) -> None:
    """A run's times only grow, whatever the writer's clock does."""
    ledger = surface.open(clock=StandingClock())
    run = new_run_id()
    for _ in range(5):
        ledger.append(run, notes(2), ANY)
    times = [record.recorded_at for record in ledger.read(run)]
    assert times == sorted(times)
    assert len(set(times)) == 5
    assert surface.verify_all().ok


def test_positions_grow_in_the_order_of_commits(ledger: LedgerLike) -> None:
    """Position orders the whole ledger, across runs."""
    runs = [new_run_id() for _ in range(3)]
    positions = [
        record.position
        for turn in range(9)
        for record in ledger.append(runs[turn % 3], notes(2), ANY).records
    ]
    assert positions == sorted(set(positions))


class Late(SystemClock):
    """A clock that has come to the end of time."""

    def micros(self) -> int:
        return LAST_MOMENT


def test_nothing_is_recorded_after_the_last_moment(surface: Surface) -> None:
    """At it, once; what would have to come later is refused, and changes nothing."""
    ledger, run = surface.open(clock=Late()), new_run_id()
    ledger.append(run, notes(2), NEW)
    with pytest.raises(AppendRefusedError, match="year 9000"):
        ledger.append(run, note(), ANY)
    with pytest.raises(AppendRefusedError, match="year 9000"):
        surface.open().append(run, note(), ANY)
    assert [record.recorded_at.year for record in ledger.read(run)] == [9000, 9000]
    assert surface.verify_all().ok
