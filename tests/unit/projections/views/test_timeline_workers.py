"""Given claims, when they are folded, then spans of workers, where one died, and dead time."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.projections.given import (
    calls_model,
    completes,
    continues,
    doubts,
    folded,
    forks,
    moment,
    records,
    replies,
    starts,
)
from tests.unit.projections.random_runs import beginnings, small_world
from turnledger.ledger import (
    CustomEvent,
    Event,
    RunAbandoned,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    RunWaiting,
    ToolCallStarted,
)
from turnledger.projections import Timeline, fold
from turnledger.projections.views.timeline import Gap, Span, TimelineState, WorkerSpan

# Of the run in the test of it, as the view had it before it read claims.
DIGEST = "67c048674077a2a17158b5b919b40c4c44e1eb0990bdf62dbf9a09048bdc94c7"


def claims(worker: str = "w1", epoch: int = 1) -> RunClaimed:
    return RunClaimed(worker=worker, epoch=epoch)


def resumes(from_version: int) -> RunResumed:
    return RunResumed(attempt=1, from_version=from_version)


def note() -> CustomEvent:
    return CustomEvent(kind="test.note")


def timeline(*events: Event) -> TimelineState:
    return folded(*events).timeline


def test_a_worker_has_the_run_from_its_claim_to_the_end_of_the_run() -> None:
    """While it works, nothing says until when; the event that ends the run is still its own."""
    begin = (RunStarted(), claims(), starts())
    (working,) = timeline(*begin).workers
    assert working == WorkerSpan("w1", 1, 2, moment(2))
    (ended,) = timeline(*begin, completes(), RunCompleted(), note()).workers
    assert ended == WorkerSpan("w1", 1, 2, moment(2), 5, moment(5), "ended")


@pytest.mark.parametrize(
    "end",
    [
        RunCompleted(),
        RunWaiting(reason="in doubt"),
        RunFailed(error_type="E", error_message=""),
        RunParked(reason=""),
        RunAbandoned(),
    ],
    ids=lambda end: end.tag,
)
def test_a_worker_whose_run_ended_or_waits_has_not_died(end: Event) -> None:
    """Also if the run is claimed and resumed after that."""
    found = timeline(RunStarted(), claims(), end, claims("w2", 2), resumes(4))
    assert [worker.outcome for worker in found.workers] == ["ended", "working"]
    assert found.gaps() == ()


def test_a_call_that_was_open_at_the_next_claim_shows_that_the_worker_died() -> None:
    """Dead time is from its last record to that claim: a gap, though the call was open."""
    found = timeline(
        RunStarted(), claims(), starts(), note(), note(), claims("w2", 2), resumes(6), doubts()
    )
    died, working = found.workers
    assert died == WorkerSpan("w1", 1, 2, moment(2), 5, moment(3), "died")
    assert working.outcome == "working"
    assert found.gaps() == (Gap(moment(3), moment(6), dead=True, worker="w1"),)
    (span,) = found.spans
    assert (span.started_at, span.ended_at) == (moment(3), moment(8))


def test_a_run_that_is_resumed_by_a_new_claim_shows_that_the_worker_died() -> None:
    """Between two calls: dead up to the claim, and an ordinary gap up to the next call."""
    found = timeline(
        RunStarted(), claims(), starts(), completes(), note(), claims("w2", 2), resumes(6), starts()
    )
    assert [worker.outcome for worker in found.workers] == ["died", "working"]
    assert found.gaps() == (
        Gap(moment(4), moment(6), dead=True, worker="w1"),
        Gap(moment(6), moment(8)),
    )


def test_a_worker_that_left_nothing_open_released_the_run() -> None:
    """The next claim alone is no sign of death, nor is a resume of the next worker's own."""
    events = [RunStarted(), claims(), starts(), completes(), claims("w2", 2), starts("c2")]
    found = timeline(*events, resumes(6))
    assert [worker.outcome for worker in found.workers] == ["released", "working"]
    assert found.gaps() == (Gap(moment(4), moment(6)),)


def test_a_call_of_the_worker_before_is_no_sign_of_death() -> None:
    """Only its own call could a worker have left open."""
    found = timeline(RunStarted(), claims(), starts(), claims("w2", 2), claims("w3", 3))
    assert [worker.outcome for worker in found.workers] == ["died", "released", "working"]
    many = [starts(f"c{n}") for n in range(40)]
    found = timeline(RunStarted(), claims(), *many, claims("w2", 2))
    assert [worker.outcome for worker in found.workers] == ["died", "working"]


def test_time_in_which_an_inner_step_could_begin_is_dead_too() -> None:
    """There is no gap before an inner step, since its call was open; dead time there is one."""
    inner = ToolCallStarted(evaluation_id="", call_id="s#1/t", name="t", parent="s#1")
    outer = ToolCallStarted(evaluation_id="", call_id="s#1", name="s")
    found = timeline(RunStarted(), claims(), outer, note(), claims("w2", 2), note(), inner)
    assert found.gaps() == (Gap(moment(3), moment(5), dead=True, worker="w1"),)


def test_a_fork_ends_the_parents_worker_and_a_continuation_forgets_it() -> None:
    """It goes on in the parent; a resume in the fork does not mean that it died."""
    begin = (RunStarted(), claims(), starts())
    found = timeline(*begin, forks(3), claims("w2", 1), resumes(5))
    assert [(w.outcome, w.to_version) for w in found.workers] == [("ended", 3), ("working", None)]
    assert found.gaps() == ()
    again = timeline(*begin, continues(3))
    assert (len(again.workers), len(again.spans), again.gaps()) == (0, 0, ())


def test_the_json_has_workers_and_marks_dead_time() -> None:
    """An ordinary gap is what it was before."""
    shown = folded(
        RunStarted(), claims(), starts(), claims("w2", 2), doubts(), note(), starts("c2")
    ).to_json()["timeline"]
    assert [worker["outcome"] for worker in shown["workers"]] == ["died", "working"]
    dead, gap = shown["gaps"]
    assert (dead["dead"], dead["worker"], dead["seconds"]) == (True, "w1", 1.0)
    assert set(gap) == {"started_at", "ended_at", "seconds"}


def test_the_digest_knows_nothing_of_workers() -> None:
    """A run has the digest that it had before claims were read."""
    begin = (RunStarted(), claims(), starts(), claims("w2", 2), doubts(), RunCompleted())
    others = [note() if isinstance(e, RunClaimed | RunCompleted) else e for e in begin]
    view = Timeline()
    assert view.digest(timeline(*begin)) == view.digest(timeline(*others))
    assert view.digest(timeline(*begin)).hex() == DIGEST


# --- gaps of a range -----------------------------------------------------------------


workers: st.SearchStrategy[Event] = st.one_of(
    st.builds(RunClaimed, worker=st.sampled_from(["", "w1", "w2"]), epoch=st.integers(0, 3)),
    st.builds(RunResumed, attempt=st.just(1), from_version=st.integers(0, 40)),
)
calls: st.SearchStrategy[Event] = st.one_of(
    st.builds(starts, st.sampled_from(["c1", "c2", "c3"])),
    st.builds(completes, st.sampled_from(["c1", "c2", "c3"])),
    st.builds(calls_model, st.integers(1, 2)),
    st.builds(replies, st.integers(1, 2)),
    st.just(note()),
)
histories = st.one_of(
    st.lists(calls, max_size=25),
    st.lists(st.one_of(calls, calls, workers), max_size=30),
    st.lists(st.one_of(calls, calls, workers, small_world, beginnings), max_size=40),
)


def plain_gaps(spans: list[Span]) -> list[tuple[datetime, datetime]]:
    """Where no span was, by the definition: between the ends of all before and the next start."""
    found = []
    for place, span in enumerate(spans):
        ends = [one.ended_at or one.started_at for one in spans[:place]]
        if ends and max(ends) < span.started_at and not span.parent:
            found.append((max(ends), span.started_at))
    return found


@settings(max_examples=200)
@given(events=histories, cuts=st.lists(st.integers(0, 9), max_size=3))
def test_gaps_of_ranges_are_the_gaps_of_the_whole(events: list[Event], cuts: list[int]) -> None:
    """Cut anywhere; and without workers they are where no span was."""
    found = fold(records(events), Timeline())
    places = sorted({cut for cut in cuts if cut < len(found.spans)} | {0})
    parts: list[Gap] = []
    for first, end in zip(places, [*places[1:], len(found.spans)], strict=True):
        parts += found.gaps(first, end)
    assert tuple(parts) == found.gaps()
    assert all(one.ended_at <= other.started_at for one, other in pairwise(parts))
    alone = [e for e in events if not isinstance(e, RunClaimed)]
    without = fold(records(alone), Timeline())
    expected = plain_gaps(list(without.spans))
    assert [(gap.started_at, gap.ended_at) for gap in without.gaps()] == expected


def test_gaps_of_a_range_cost_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the spans before it, but for those that a call which is still open reaches back to."""
    many = [event for n in range(3000) for event in (starts(f"c{n}"), completes(f"c{n}"))]
    found = timeline(*many)
    taken: list[Any] = []
    whole = type(found.spans).__getitem__

    def counted(self: Any, place: Any) -> Any:
        got = whole(self, place)
        taken.extend(got if isinstance(place, slice) else [got])
        return got

    monkeypatch.setattr(type(found.spans), "__getitem__", counted)
    assert len(found.gaps(2000, 2010)) == 10
    assert len(taken) < 20


@pytest.mark.parametrize("open_calls", [1, 40])
def test_a_call_that_began_before_a_range_covers_it(open_calls: int) -> None:
    """Where a call from long ago is still open there is no gap, however many others are."""
    begun = [starts(f"open{n}") for n in range(open_calls)]
    short = [event for n in range(9) for event in (starts(f"c{n}"), completes(f"c{n}"), note())]
    found = timeline(*begun, *short, completes("open0"))
    assert found.gaps() == ()
    assert [found.gaps(place, place + 1) for place in range(open_calls + 9)] == [()] * (
        open_calls + 9
    )


def test_a_range_without_spans_has_no_gaps() -> None:
    """Places beyond the spans are those at the end."""
    found = timeline(starts(), completes(), note(), starts("c2"))
    assert found.gaps(1, 1) == found.gaps(5, 9) == found.gaps(2) == found.gaps(0, 0) == ()
    assert found.gaps(0, 9) == found.gaps(-3) == found.gaps() == (Gap(moment(2), moment(4)),)
