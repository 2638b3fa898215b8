"""Moments: any version from the nearest known, within a budget, shared by threads."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.long_events import declarations as long_declarations
from benchmarks.long_events import long_run, write
from tests.unit.projections.forked_runs import Branch, branches, events, recorded
from tests.unit.projections.random_runs import declarations
from turnledger.ledger import (
    ANY,
    Event,
    InvalidInputError,
    Ledger,
    RecordNotFoundError,
    RunNotFoundError,
    new_run_id,
)
from turnledger.projections import (
    FoldCancelledError,
    Moments,
    RunState,
    blame,
    diff,
    state_at,
    step,
)
from turnledger.projections.digests import canonical
from turnledger.projections.run_state import moments as moments_module
from turnledger.projections.run_state.moments import EVERY, OUTLINE, RECENT

LONG = 8 * EVERY + 30


@pytest.fixture
def run(ledger: Ledger) -> UUID:
    run_id = new_run_id()
    write(ledger, run_id, LONG)
    return run_id


class Reads:
    """The versions that a ledger's store was asked for; `before` is called before each page."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.versions: list[int] = []
        self.before: Callable[[], object] = lambda: None
        self._rows = ledger.store.rows
        monkeypatch.setattr(ledger.store, "rows", self._counted)

    def _counted(self, *args: Any, **kwargs: Any) -> Any:
        self.before()
        found = self._rows(*args, **kwargs)
        self.versions += [row[2] for row in found]
        return found

    def taken(self) -> list[int]:
        found, self.versions = self.versions, []
        return found


@pytest.fixture
def reads(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(ledger, monkeypatch)


def same(one: RunState, other: RunState) -> bool:
    texts = [canonical(state.to_json()) for state in (one, other)]
    digests = [(s.version, s.state_digest, s.outcome_digest) for s in (one, other)]
    return texts[0] == texts[1] and digests[0] == digests[1]


# --- the same states ------------------------------------------------------------------


@settings(max_examples=60)
@given(
    events,
    branches,
    st.sampled_from([0, 1, OUTLINE, 3 * OUTLINE, 9 * OUTLINE, 2**30]),
    st.integers(1, 3),
    st.data(),
)
def test_a_moment_is_the_state_at_its_version(
    first: list[Event], others: list[Branch], budget: int, recent: int, data: st.DataObject
) -> None:
    """JSON and digests, in any order of versions and runs, of forks too, within any budget."""
    with (
        Ledger.open("memory://") as ledger,
        patch.object(moments_module, "EVERY", 4),
        patch.object(moments_module, "RECENT", recent),
    ):
        runs = recorded(ledger, first, others)
        moments = Moments(ledger, declarations=declarations(), budget=budget)
        for _ in range(12):
            run = data.draw(st.sampled_from(runs))
            version = data.draw(st.none() | st.integers(0, ledger.head(run)))
            found = moments.at(run, version)
            assert same(found, state_at(ledger, run, version, declarations=declarations()))
            assert 0 <= moments.estimated_bytes <= budget


@pytest.mark.parametrize("version", [LONG + 1, 10**12, -1])
def test_a_version_that_is_not_there_is_an_error(ledger: Ledger, run: UUID, version: int) -> None:
    """As of `state_at`, whatever is kept."""
    moments = Moments(ledger)
    for _ in range(2):
        with pytest.raises(RecordNotFoundError, match=f"1 to {LONG}"):
            moments.at(run, version)
        with pytest.raises(RunNotFoundError):
            moments.at(new_run_id(), 0)
        assert moments.at(run, 0).version == 0
        assert moments.at(str(run)).version == LONG


def test_a_run_that_grows_is_followed(ledger: Ledger, run: UUID) -> None:
    """Without a version it is the run's last, at each call."""
    moments = Moments(ledger, declarations=long_declarations())
    assert moments.at(run).version == LONG
    ledger.append(run, list(long_run(3))[1:], ANY)
    assert same(moments.at(run), state_at(ledger, run, declarations=long_declarations()))


def test_a_negative_budget_is_an_error(ledger: Ledger) -> None:
    """It says what is expected."""
    with pytest.raises(InvalidInputError, match="0 bytes or more"):
        Moments(ledger, budget=-1)


# --- short folds ------------------------------------------------------------------------


def test_a_fold_begins_at_the_nearest_moment(ledger: Ledger, run: UUID, reads: Reads) -> None:
    """Only what is between is read: less than an interval once all were passed."""
    moments = Moments(ledger)
    moments.at(run)
    assert reads.taken() == list(range(1, LONG + 1))
    moments.at(run)
    assert reads.taken() == []
    for version in (3 * EVERY + 70, 3 * EVERY + 71, EVERY - 1, 5 * EVERY):
        moments.at(run, version)
    assert reads.taken() == [
        *range(3 * EVERY + 1, 3 * EVERY + 72),
        *range(1, EVERY),
    ]


def test_a_fork_begins_at_its_parents_moments(ledger: Ledger, run: UUID, reads: Reads) -> None:
    """What both share is folded once, whichever is asked first."""
    child = ledger.fork(run, at=1_300)
    grandchild = ledger.fork(child, at=500)
    reads.taken()
    moments = Moments(ledger)
    moments.at(child)
    assert reads.taken() == list(range(1, 1_302))
    moments.at(run, 1_303)
    assert reads.taken() == list(range(5 * EVERY + 1, 1_304))
    moments.at(grandchild)
    assert reads.taken() == [501]
    assert moments.at(child, 4 * EVERY) is moments.at(run, 4 * EVERY)


def test_what_changed_is_read_from_moments(ledger: Ledger, run: UUID, reads: Reads) -> None:
    """`diff`, `step` and `blame` of a run's end read its end, and say what they say without."""
    moments = Moments(ledger, declarations=long_declarations())
    moments.at(run)
    far, near = 2 * EVERY + 10, LONG - 12
    known = [diff(ledger, run, a, LONG, declarations=long_declarations()) for a in (far, near)]
    whole = step(ledger, run, LONG, declarations=long_declarations())
    blamed = blame(ledger, run, "/usage/total/calls", declarations=long_declarations())
    reads.taken()
    assert [diff(ledger, run, a, LONG, moments=moments) for a in (far, near)] == known
    assert step(ledger, run, LONG, moments=moments) == whole
    assert blame(ledger, run, "/usage/total/calls", moments=moments) == blamed
    assert len(reads.taken()) < 3 * EVERY
    for ask in (
        lambda **more: diff(ledger, run, 1, LONG, **more),
        lambda **more: step(ledger, run, LONG, **more),
        lambda **more: blame(ledger, run, "/summary/status", **more),
    ):
        with pytest.raises(FoldCancelledError):
            ask(cancelled=lambda: True)
        with pytest.raises(FoldCancelledError):
            ask(cancelled=lambda: True, moments=moments)


# --- bytes ------------------------------------------------------------------------------


def held(make: Callable[[], Any]) -> tuple[int, Any]:
    """Bytes that are in use once something was made, and what it is."""
    gc.collect()
    tracemalloc.start()
    try:
        found = make()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], found
    finally:
        tracemalloc.stop()


def test_estimated_bytes_are_about_what_is_held(ledger: Ledger, run: UUID) -> None:
    """Measured, of all moments of a run and with several states asked for."""
    other = new_run_id()
    write(ledger, other, LONG // 2)

    def asked() -> Moments:
        moments = Moments(ledger, declarations=long_declarations())
        for one in (run, other):
            for version in (None, EVERY + 9, 3 * EVERY + 200, 3 * EVERY + 201):
                moments.at(one, version)
        return moments

    size, moments = held(asked)
    assert size * 0.8 < moments.estimated_bytes < size * 1.3


def test_a_reader_that_goes_on_leaves_few_moments_behind(
    ledger: Ledger, run: UUID, reads: Reads
) -> None:
    """Measured, with a step at a time: of the states on its way only the last are kept."""
    moments = Moments(ledger, declarations=long_declarations())
    moments.at(run, EVERY)
    first = moments.estimated_bytes

    def gone_on() -> None:
        for version in range(EVERY, 2 * EVERY):
            moments.at(run, version)

    size, _ = held(gone_on)
    # One event adds less than the outline that is counted for any state.
    assert size < 0.45 * (moments.estimated_bytes - first)
    assert moments.estimated_bytes - first < (RECENT + 10) * OUTLINE
    reads.taken()
    moments.at(run, 2 * EVERY - RECENT)
    assert reads.taken() == []
    moments.at(run, 2 * EVERY - RECENT - 1)
    assert len(reads.taken()) == EVERY - RECENT - 1


@pytest.mark.parametrize("budget", [0, 100_000, 700_000])
def test_moments_stay_within_their_budget(ledger: Ledger, run: UUID, budget: int) -> None:
    """Measured, for runs that are each larger: the state that is given out is the caller's."""
    runs = [run, ledger.fork(run, at=300), new_run_id()]
    write(ledger, runs[-1], LONG)

    def asked() -> Moments:
        moments = Moments(ledger, declarations=long_declarations(), budget=budget)
        for one in runs:
            for version in (None, 700, 250, 400, 1_300):
                moments.at(one, version and min(version, ledger.head(one)))
                assert moments.estimated_bytes <= budget
        return moments

    size, _ = held(asked)
    assert size < budget * 1.3 + 200_000


def test_what_was_asked_long_ago_is_dropped_first(ledger: Ledger, reads: Reads) -> None:
    """Of several runs the one that nothing was asked of, from its end."""
    runs = [new_run_id() for _ in range(4)]
    for run in runs:
        write(ledger, run, 2 * EVERY)
    moments = Moments(ledger)
    moments.at(runs[0])
    moments = Moments(ledger, budget=int(3.7 * moments.estimated_bytes))
    for run in (*runs[:3], runs[0], runs[3]):
        moments.at(run)
    reads.taken()
    for run in (runs[0], runs[2], runs[3]):
        moments.at(run)
    assert reads.taken() == []
    moments.at(runs[1])
    assert reads.taken() == list(range(EVERY + 1, 2 * EVERY + 1))


# --- threads ----------------------------------------------------------------------------


class Looked:
    """`cancelled` of a reader: knows when it was asked twice, so that the reader has waited."""

    def __init__(self) -> None:
        self._times = count(1)
        self.twice = threading.Event()
        self.answer = False

    def __call__(self) -> bool:
        if next(self._times) > 1:
            self.twice.set()
        return self.answer


def test_readers_of_one_moment_fold_it_once(ledger: Ledger, run: UUID, reads: Reads) -> None:
    """Also if it can't be kept: they wait for the first, and get its state."""
    moments = Moments(ledger, budget=0)
    looks = [Looked() for _ in range(4)]
    held_up = threading.Event()

    def once_all_wait() -> None:
        held_up.set()
        for look in looks:
            assert look.twice.wait(30)

    with ThreadPoolExecutor(5) as pool:
        reads.before = once_all_wait
        first = pool.submit(moments.at, run, 200)
        assert held_up.wait(30)
        others = [pool.submit(moments.at, run, 200, cancelled=look) for look in looks]
        states = [one.result(60) for one in (first, *others)]
    assert all(state is states[0] for state in states)
    assert sorted(reads.taken()) == list(range(1, 201))


def test_a_reader_of_an_earlier_moment_waits_for_a_fold_that_comes_by(
    ledger: Ledger, run: UUID, reads: Reads
) -> None:
    """It reads what is between the last moment before its own and that, and nothing else."""
    moments = Moments(ledger)
    look, held_up = Looked(), threading.Event()

    def once_it_waits() -> None:
        held_up.set()
        assert look.twice.wait(30)

    with ThreadPoolExecutor(2) as pool:
        reads.before = once_it_waits
        long = pool.submit(moments.at, run)
        assert held_up.wait(30)
        short = pool.submit(moments.at, run, 5 * EVERY + 3, cancelled=look)
        assert (short.result(60).version, long.result(60).version) == (5 * EVERY + 3, LONG)
    between = range(5 * EVERY + 1, 5 * EVERY + 4)
    assert sorted(reads.taken()) == sorted([*range(1, LONG + 1), *between])


def test_a_cancelled_fold_ends_within_a_page(ledger: Ledger, run: UUID, reads: Reads) -> None:
    """What it has folded is kept: the next one goes on from there."""
    moments = Moments(ledger)
    asked = count()
    with pytest.raises(FoldCancelledError, match="Ask again") as raised:
        moments.at(run, cancelled=lambda: next(asked) >= 4)
    reached = raised.value.reached
    assert (raised.value.run_id, raised.value.version) == (str(run), LONG)
    assert reads.taken() == list(range(1, reached + 1))
    assert reached == 3 * EVERY
    assert moments.at(run).version == LONG
    assert reads.taken() == list(range(reached + 1, LONG + 1))
    with pytest.raises(FoldCancelledError):
        moments.at(run, cancelled=lambda: True)


@pytest.mark.parametrize("ends_by", ["cancelled", "error"])
def test_a_reader_takes_over_from_a_fold_that_ends_early(
    ledger: Ledger, run: UUID, reads: Reads, ends_by: str
) -> None:
    """Nobody gets another reader's cancellation or error."""
    moments = Moments(ledger)
    look, held_up, gone = Looked(), threading.Event(), threading.Event()
    first_page = count()

    def fail_once_it_is_waited_for() -> None:
        if next(first_page) == 0:
            held_up.set()
            assert look.twice.wait(30)
            gone.set()
            if ends_by == "error":
                raise OSError("no disk")

    with ThreadPoolExecutor(2) as pool:
        reads.before = fail_once_it_is_waited_for
        first = pool.submit(moments.at, run, 600, cancelled=gone.is_set)
        assert held_up.wait(30)
        second = pool.submit(moments.at, run, 600, cancelled=look)
        assert same(second.result(60), state_at(ledger, run, 600))
        assert isinstance(first.exception(60), FoldCancelledError | OSError)


def test_a_reader_that_waits_can_be_cancelled(ledger: Ledger, run: UUID, reads: Reads) -> None:
    """The fold that it waited for goes on."""
    moments = Moments(ledger)
    look, held_up, waits_no_more = Looked(), threading.Event(), threading.Event()

    def until_the_other_is_gone() -> None:
        held_up.set()
        assert waits_no_more.wait(30)

    with ThreadPoolExecutor(2) as pool:
        reads.before = until_the_other_is_gone
        first = pool.submit(moments.at, run, 600)
        assert held_up.wait(30)
        second = pool.submit(moments.at, run, 600, cancelled=look)
        assert look.twice.wait(30)
        look.answer = True
        assert isinstance(second.exception(60), FoldCancelledError)
        waits_no_more.set()
        assert first.result(60).version == 600


def test_many_threads_get_the_states_that_they_asked_for(ledger: Ledger, run: UUID) -> None:
    """With a budget that makes them drop each other's moments."""
    runs = [run, ledger.fork(run, at=300), new_run_id()]
    write(ledger, runs[-1], 700)
    moments = Moments(ledger, budget=600_000)
    asked = [
        (one, version % (ledger.head(one) + 1)) for one in runs for version in range(0, LONG, 117)
    ]
    expected = {
        (one, version): state_at(ledger, one, version).state_digest for one, version in asked
    }
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pair: moments.at(*pair).state_digest, asked[::-1] + asked))
    assert found == [expected[pair] for pair in asked[::-1] + asked]
    assert moments.estimated_bytes <= 600_000
