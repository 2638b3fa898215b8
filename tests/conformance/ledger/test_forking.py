"""Forks and continuations: a child shares its parent's prefix and goes its own way."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import message, note, notes
from tests.conformance.surfaces import Surface
from turnledger.ledger import (
    ANY,
    NEW,
    ConcurrentAppendError,
    EvaluationStarted,
    EventIdConflictError,
    ForkPointError,
    InvalidEventError,
    InvalidInputError,
    RunCompleted,
    RunNotFoundError,
    RunStarted,
    StaleEpochError,
    new_run_id,
)


def line(ledger: LedgerLike, run: UUID) -> list[tuple[UUID, int]]:
    return [(record.run_id, record.version) for record in ledger.read(run)]


@pytest.fixture
def parent(ledger: LedgerLike) -> UUID:
    """A run of five commits of one event each."""
    run = new_run_id()
    for version in range(5):
        ledger.append(run, note(version), version)
    return run


def test_a_fork_reads_its_parents_prefix_and_then_its_own(ledger: LedgerLike, parent: UUID) -> None:
    """Its first own event is RunStarted at version at + 1."""
    child = ledger.fork(parent, 3, tags={"why": "what if"})
    ledger.append(child, notes(2), 4)
    assert line(ledger, child) == [
        (parent, 1),
        (parent, 2),
        (parent, 3),
        (child, 4),
        (child, 5),
        (child, 6),
    ]
    assert ledger.record(child, 4).event == RunStarted(
        parent=parent, at=3, kind="fork", tags={"why": "what if"}
    )
    info = ledger.run(child)
    assert (info.kind, info.parent, info.parent_version, info.version) == ("fork", parent, 3, 6)
    assert info.tags == {"why": "what if"}
    assert info.started_at == ledger.record(child, 4).recorded_at


def test_a_prefix_is_shared_and_never_copied(ledger: LedgerLike, parent: UUID) -> None:
    """A fork adds one record to the ledger, whatever the length of its prefix."""
    before = len(list(ledger.tail()))
    ledger.fork(parent, 5)
    assert len(list(ledger.tail())) == before + 1


def test_ranges_cross_the_fork_both_ways(ledger: LedgerLike, parent: UUID) -> None:
    """after, until, pages and backwards mean the same in a lineage as in a run."""
    child = ledger.fork(parent, 3)
    ledger.append(child, notes(3), ANY)
    whole = list(ledger.read(child))
    for after in range(8):
        for until in range(8):
            wanted = whole[after:until]
            for page in (1, 2, 500):
                assert list(ledger.read(child, after, until, page_size=page)) == wanted
                back = ledger.read(child, after, until, backwards=True, page_size=page)
                assert list(back) == wanted[::-1]
    assert [ledger.record(child, r.version) for r in whole] == whole


def test_a_parent_that_grows_does_not_change_its_child(ledger: LedgerLike, parent: UUID) -> None:
    """The child left at `at` and sees nothing that came after."""
    child = ledger.fork(parent, 5)
    before = list(ledger.read(child))
    ledger.append(parent, notes(4), ANY)
    assert list(ledger.read(child)) == before
    assert ledger.head(child) == 6
    assert ledger.head(parent) == 9
    other = ledger.fork(parent, 9)
    assert len(list(ledger.read(other))) == 10


def test_a_child_that_grows_does_not_change_its_parent(ledger: LedgerLike, parent: UUID) -> None:
    """Own versions of parent and child are separate."""
    child = ledger.fork(parent, 2)
    ledger.append(child, notes(9), 3)
    assert line(ledger, parent) == [(parent, version) for version in range(1, 6)]
    assert ledger.append(parent, note(), 5).version == 6


def test_a_child_expects_its_own_versions(ledger: LedgerLike, parent: UUID) -> None:
    """The child's version counts on from where it left its parent."""
    child = ledger.fork(parent, 2)
    assert ledger.head(child) == 3
    with pytest.raises(ConcurrentAppendError) as caught:
        ledger.append(child, note(), 5)
    assert caught.value.found == 3
    assert ledger.append(child, note(), 3).version == 4


def test_forks_of_forks_read_the_whole_lineage(
    surface: Surface, ledger: LedgerLike, parent: UUID
) -> None:
    """Three generations deep, with a fork at, before and after each boundary."""
    child = ledger.fork(parent, 3)
    ledger.append(child, note(), 4)
    ledger.append(child, note(), 5)
    grandchild = ledger.fork(child, 5)
    ledger.append(grandchild, note(), ANY)
    at_boundary = ledger.fork(child, 3)
    before_boundary = ledger.fork(child, 2)
    own_first = ledger.fork(child, 4)
    deep = ledger.fork(grandchild, 1)
    p, c, g = parent, child, grandchild
    assert line(ledger, grandchild) == [(p, 1), (p, 2), (p, 3), (c, 4), (c, 5), (g, 6), (g, 7)]
    assert line(ledger, at_boundary) == [(p, 1), (p, 2), (p, 3), (at_boundary, 4)]
    assert line(ledger, before_boundary) == [(p, 1), (p, 2), (before_boundary, 3)]
    assert line(ledger, own_first) == [(p, 1), (p, 2), (p, 3), (c, 4), (own_first, 5)]
    assert line(ledger, deep) == [(p, 1), (deep, 2)]
    for run in (grandchild, at_boundary, before_boundary, own_first, deep):
        backwards = [(r.run_id, r.version) for r in ledger.read(run, backwards=True)]
        assert backwards == line(ledger, run)[::-1]
        assert ledger.verify(run).ok
    assert surface.verify_all().ok


def test_the_chain_goes_on_from_the_parents_digest(ledger: LedgerLike, parent: UUID) -> None:
    """Two children at different versions have different digests for the same event."""
    from turnledger.ledger.events.chain import link

    child = ledger.fork(parent, 3)
    first = ledger.record(child, 4)
    assert first.row.digest == link(
        ledger.record(parent, 3).row.digest,
        str(child).encode(),
        4,
        str(first.event_id).encode(),
        first.tag.encode(),
        first.commit,
        first.data.encode(),
    )


def test_the_middle_of_a_commit_is_no_place_to_fork(surface: Surface, ledger: LedgerLike) -> None:
    """`at` must end a commit, in a child's own part too; the error names the nearest that do."""
    run = new_run_id()
    ledger.append(run, notes(3), NEW)
    ledger.append(run, notes(2), 3)
    for at, nearest in ((1, (3,)), (2, (3,)), (4, (3, 5))):
        with pytest.raises(ForkPointError, match="middle of a commit") as refused:
            ledger.fork(run, at)
        assert refused.value.nearest == nearest
    child = ledger.fork(run, 3)
    ledger.append(child, notes(2), ANY)
    for at, nearest in ((1, (3,)), (2, (3,)), (5, (4, 6))):
        with pytest.raises(ForkPointError, match="middle of a commit") as refused:
            ledger.fork(child, at)
        assert refused.value.nearest == nearest
    for at in (3, 4, 6):
        ledger.fork(child, at)
    assert surface.verify_all().ok


def test_a_version_that_is_not_there_is_no_place_to_fork(ledger: LedgerLike, parent: UUID) -> None:
    """Beyond the head there is nothing to go on from."""
    for at in (6, 7, 2**53):
        with pytest.raises(ForkPointError, match="version 5"):
            ledger.fork(parent, at)
    assert len(list(ledger.runs())) == 1


@pytest.mark.parametrize("at", [0, -1, 2**60, "2", 1.5, 2.0, True, None])
def test_what_is_no_version_is_no_place_to_fork(
    ledger: LedgerLike, parent: UUID, at: object
) -> None:
    """`at` is a whole number from 1 on."""
    # A number that can't be a version is refused with the event, anything else as an argument.
    refused = InvalidEventError if isinstance(at, int) else InvalidInputError
    with pytest.raises(refused):
        ledger.fork(parent, at)  # type: ignore[arg-type]
    assert len(list(ledger.runs())) == 1


def test_an_unknown_parent_is_an_error(ledger: LedgerLike) -> None:
    """By fork, by continuation, and by an appended RunStarted."""
    nobody = new_run_id()
    with pytest.raises(RunNotFoundError, match=str(nobody)):
        ledger.fork(nobody, 1)
    with pytest.raises(RunNotFoundError, match=str(nobody)):
        ledger.continuation(nobody)
    with pytest.raises(RunNotFoundError, match=str(nobody)):
        ledger.append(new_run_id(), RunStarted(parent=nobody, at=1, kind="fork"), NEW)
    assert list(ledger.tail()) == []


def test_nobody_is_their_own_parent(ledger: LedgerLike, parent: UUID) -> None:
    """Neither a new run nor one that exists."""
    run = new_run_id()
    with pytest.raises(RunNotFoundError):
        ledger.append(run, RunStarted(parent=run, at=1, kind="fork"), NEW)
    with pytest.raises(InvalidEventError):
        ledger.append(parent, RunStarted(parent=parent, at=1, kind="fork"), ANY)


def test_a_child_may_have_an_id_of_the_callers(ledger: LedgerLike, parent: UUID) -> None:
    """A child whose id is taken is a conflict."""
    child = new_run_id()
    assert ledger.fork(parent, 2, child=child) == child
    with pytest.raises(ConcurrentAppendError):
        ledger.fork(parent, 2, child=parent)


def test_a_continuation_goes_on_from_the_end(ledger: LedgerLike, parent: UUID) -> None:
    """Or from a version that is named; its kind says what it is."""
    child = ledger.continuation(parent, tags={"session": "s"})
    other = ledger.continuation(parent, at=2)
    assert ledger.record(child, 6).event == RunStarted(
        parent=parent, at=5, kind="continuation", tags={"session": "s"}
    )
    assert (ledger.run(child).kind, ledger.run(child).parent_version) == ("continuation", 5)
    assert line(ledger, other) == [(parent, 1), (parent, 2), (other, 3)]
    with pytest.raises(InvalidEventError):
        ledger.continuation(parent, at=0)


def test_a_child_begins_anew(surface: Surface) -> None:
    """Status, epoch, prompt and tags are the child's own; the parent's lease is not its."""
    ledger, other = surface.open(), surface.open()
    run = new_run_id()
    ledger.append(run, RunStarted(tags={"a": "b"}), NEW)
    claim = ledger.claim(run)
    ledger.append(
        run,
        EvaluationStarted(evaluation_id="e", prompt_ns="n", prompt_key="k", prompt_digest="d"),
        ANY,
        epoch=claim.epoch,
    )
    ledger.append(run, RunCompleted(), ANY, epoch=claim.epoch)
    for child in (ledger.fork(run, 4), ledger.continuation(run)):
        info = ledger.run(child)
        assert (info.status, info.epoch, info.prompt, info.tags) == ("running", 0, "", {})
        with pytest.raises(StaleEpochError):
            other.append(child, message(), ANY, epoch=claim.epoch)
        assert other.append(child, message(), 5).version == 6
        assert other.claim(child).epoch == 1


def test_a_fork_may_come_with_more_events(ledger: LedgerLike, parent: UUID) -> None:
    """RunStarted of a child is an event like others: a batch can begin with it."""
    child = new_run_id()
    begin = RunStarted(parent=parent, at=2, kind="fork")
    appended = ledger.append(child, [begin, *notes(2)], NEW)
    assert [record.version for record in appended.records] == [3, 4, 5]
    with pytest.raises(ForkPointError):
        ledger.fork(child, 3)


def test_a_child_is_read_through_handles_that_never_saw_it(surface: Surface) -> None:
    """The lineage is in the store."""
    one = surface.open()
    run = new_run_id()
    one.append(run, notes(2), NEW)
    child = one.fork(run, 2)
    two = surface.open()
    assert line(two, child) == [(run, 1), (run, 2), (child, 3)]
    grandchild = two.fork(child, 3)
    assert line(one, grandchild) == [(run, 1), (run, 2), (child, 3), (grandchild, 4)]


def test_forking_again_with_the_same_child_is_a_retry(surface: Surface) -> None:
    """A caller who doesn't know whether a fork was made may just make it again."""
    ledger = surface.open()
    run, child = new_run_id(), new_run_id()
    ledger.append(run, notes(3), NEW)
    assert ledger.fork(run, 3, child=child) == ledger.fork(run, 3, child=child) == child
    assert ledger.head(child) == 4
    with pytest.raises(EventIdConflictError):
        ledger.fork(run, 3, child=child, tags={"another": "fork"})
