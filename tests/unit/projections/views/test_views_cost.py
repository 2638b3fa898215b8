"""History length never appears in the price of a step: counted in calls and bytes, not in time.

A step is one event folded into one view, its digest included. What it costs at the 50,000th
event is what it costs at the 50th. Calls show loops; bytes show copies, which are one
instruction however long they are.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import count, islice
from statistics import median
from typing import Any

import msgspec
import pytest

from tests import step_runs
from tests.unit.projections.given import (
    START,
    amends,
    answers,
    asks,
    calls_model,
    changes,
    completes,
    doubts,
    evaluation,
    ident,
    record,
    replies,
    said,
    starts,
    supersedes,
)
from turnledger.ledger import (
    CheckpointReached,
    Event,
    InnerMessage,
    PromptOverrideCleared,
    PromptOverrideSet,
    PromptTagMoved,
    Record,
    RunClaimed,
    RunResumed,
    RunStarted,
)
from turnledger.projections import (
    Declarations,
    Projection,
    append_all,
    inner_message_append,
    replace_latest,
)
from turnledger.projections.projection import tags_read
from turnledger.projections.run_state.state import built_in
from turnledger.projections.session.slices import SessionSlices
from turnledger.projections.views.checkpoints import CheckpointView
from turnledger.projections.views.conversation import Conversation
from turnledger.projections.views.prompt import PromptOverrides
from turnledger.projections.views.timeline import Timeline
from turnledger.projections.views.tools import PendingTools

EARLY, LATE, STEPS = 50, 50_000, 64
# As deep a tree as at 50,000, for a third less work.
ODD = 33_000
# A tree of 32 children a level is two levels deeper at 50,000 than at 50.
MORE_CALLS, MORE_BYTES = 1.2, 4096


class Latest(msgspec.Struct, frozen=True):
    n: int


class Note(msgspec.Struct, frozen=True):
    n: int


def declarations() -> Declarations:
    declared = Declarations()
    declared.register(InnerMessage, InnerMessage, inner_message_append)
    declared.register(Note, Note, append_all)
    return declared


# --- runs without an end -------------------------------------------------------------


def usual() -> Iterator[Event]:
    """Turns of a model call, a tool, a slice's change and a checkpoint, in one evaluation."""
    yield RunStarted()
    yield evaluation()
    turn = 0
    while True:
        turn += 1
        call = f"c{turn}"
        yield calls_model(turn)
        yield replies(turn, input_tokens=5)
        yield asks(3 * turn, call, turn=turn)
        yield starts(call)
        yield changes("Note", {"n": turn})
        yield completes(call, message=3 * turn + 1)
        yield answers(3 * turn + 1, call, turn=turn)
        yield CheckpointReached(
            phase="post_tool", tool_calls_completed=turn, state_digest="s", created_at=START
        )
        yield RunResumed(attempt=turn, from_version=turn)


def edited_prompt() -> Iterator[Event]:
    """A prompt with three texts, which are overridden, cleared and tagged again and again."""
    prompt = {"prompt_ns": "shop", "prompt_key": "reply"}
    for number in count(1):
        path = f"section-{number % 3}"
        yield PromptOverrideSet(**prompt, path=path, body=f"text {number}", replaces="")
        yield PromptTagMoved(**prompt, tag_name="stable", version=number)
        yield PromptOverrideCleared(**prompt, path=path)


def never_answered() -> Iterator[Event]:
    """One call after the other is started, and none ever ends."""
    yield RunStarted()
    turn = 0
    while True:
        turn += 1
        yield asks(turn, f"c{turn}", turn=turn)
        yield starts(f"c{turn}")


def many_at_once() -> Iterator[Event]:
    """Thousands of calls are under way; one ends, another begins."""
    yield RunStarted()
    turn = 0
    while True:
        turn += 1
        yield asks(2 * turn, f"c{turn}", turn=turn)
        yield starts(f"c{turn}")
        if turn > 5_000:
            yield completes(f"c{turn - 5_000}", message=2 * turn + 1)


def durable_steps() -> Iterator[Event]:
    """One step after the other, each with an inner one and a model call that is tried twice."""
    yield step_runs.block()
    number = 0
    while True:
        number += 1
        outer, chat = f"settle#{number}", f"{step_runs.CHAT}:{number}"
        yield step_runs.begins(outer, {"order": number})
        yield step_runs.asks_model(f"{outer}/{chat}", parent=outer)
        yield step_runs.refuses(f"{outer}/{chat}", final=False)
        yield step_runs.answers(f"{outer}/{chat}")
        yield step_runs.begins(f"{outer}/pay:{number}", parent=outer)
        if number % 10 == 0:
            yield step_runs.doubts(f"{outer}/pay:{number}")
            yield step_runs.begins(f"{outer}/pay:{number}", parent=outer, attempt=2)
        yield step_runs.ends(f"{outer}/pay:{number}", number)
        yield step_runs.ends(outer, number)


def one_worker_after_the_other() -> Iterator[Event]:
    """Each claims the run, begins a call and dies."""
    yield RunStarted()
    version = 1
    for epoch in count(1):
        yield RunClaimed(worker=f"w{epoch}", epoch=epoch)
        yield RunResumed(attempt=epoch, from_version=version + 1)
        if epoch > 1:
            yield doubts("c1")
        yield starts("c1", epoch)
        version += 4


def talk_after_one_tool() -> Iterator[Event]:
    """One tool at the beginning, then user and assistant only."""
    yield asks(0, "c1")
    yield answers(1, "c1")
    place = 1
    while True:
        place += 2
        yield said("user", "Hi", place)
        yield said("assistant", "Hello", place + 1)


def many_evaluations() -> Iterator[Event]:
    """Each has a message; every other one is superseded."""
    number = 0
    while True:
        number += 1
        name = f"e{number}"
        yield evaluation(name)
        yield said("user", "Hi", 0, evaluation_id=name, message_id=ident(number))
        if number % 2:
            yield supersedes(name)


def amended_each_time() -> Iterator[Event]:
    """The last tool message is amended, turn after turn."""
    turn = 0
    while True:
        turn += 1
        yield asks(3 * turn, f"c{turn}", turn=turn)
        yield answers(3 * turn + 1, f"c{turn}", turn=turn)
        yield amends(3 * turn + 1, "shorter")


def two_evaluations_in_turn() -> Iterator[Event]:
    """Their messages alternate."""
    place = 0
    while True:
        place += 1
        yield said("user", "Hi", place, evaluation_id=f"e{place % 2}")


def one_growing_slice() -> Iterator[Event]:
    """Appended to for ever."""
    while True:
        yield changes("Note", {"n": 1})


def latest_value() -> Iterator[Event]:
    """Replaced for ever."""
    while True:
        yield changes("Latest", {"n": 1})


def replacing() -> Projection[Any]:
    declared = Declarations()
    declared.register(Latest, Latest, replace_latest)
    return SessionSlices(declared)


def recording() -> Projection[Any]:
    return SessionSlices(declarations())


# --- counting ------------------------------------------------------------------------


def calls_of(step: Callable[[], object]) -> int:
    """How many functions a step calls, of Python and of C."""
    count = 0

    def seen(frame: Any, kind: str, argument: Any) -> None:
        nonlocal count
        count += kind in ("call", "c_call")

    sys.setprofile(seen)
    try:
        step()
    finally:
        sys.setprofile(None)
    return count


def bytes_of(step: Callable[[], object]) -> int:
    """How much memory a step has in use at once, beyond what was there."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    step()
    return tracemalloc.get_traced_memory()[1] - before


class Prices:
    """What steps cost, by the kind of event: the usual one of each kind."""

    def __init__(self, view: Projection[Any], state: Any, records: list[Record]) -> None:
        calls: dict[str, list[int]] = {}
        sizes: dict[str, list[int]] = {}
        gc.collect()
        tracemalloc.start()
        try:
            for one in records:
                assert one.event
                states: list[Any] = []

                def step(one: Record = one, before: Any = state, states: Any = states) -> None:
                    states.append(view.apply(before, one))
                    view.digest(states[-1])

                sizes.setdefault(one.tag, []).append(bytes_of(step))
                # Again, from the same state: its own digest is known, the step's is not.
                states.clear()
                calls.setdefault(one.tag, []).append(calls_of(step))
                state = states[-1]
        finally:
            tracemalloc.stop()
        self.calls = {tag: median(found) for tag, found in calls.items()}
        self.bytes = {tag: median(found) for tag, found in sizes.items()}


def prices(view: Projection[Any], events: Iterator[Event], at: int) -> Prices:
    """What a view's steps cost from an event of a run on."""
    tags = tags_read(view)
    state = view.initial()
    records: list[Record] = []
    for version, event in enumerate(islice(events, at + STEPS), 1):
        if event.tag not in tags:
            continue
        if version > at:
            records.append(record(event, version))
        else:
            state = view.apply(state, record(event, version))
    view.digest(state)
    return Prices(view, state, records)


def assert_equal_prices(
    make: Callable[[], Projection[Any]], run: Callable[[], Any], at: int = ODD
) -> None:
    early, late = prices(make(), run(), EARLY), prices(make(), run(), at)
    assert early.calls
    assert early.calls.keys() <= late.calls.keys()
    for tag in early.calls:
        assert late.calls[tag] <= early.calls[tag] * MORE_CALLS + 4, (tag, early.calls, late.calls)
        assert late.bytes[tag] <= early.bytes[tag] + MORE_BYTES, (tag, early.bytes, late.bytes)


# A run changes nothing in the view of a prompt's stream.
VIEWS = [view.name for view in built_in() if view.name != PromptOverrides.name]


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_a_step_of_a_long_run_costs_what_one_of_a_short_run_costs(name: str) -> None:
    """For each view, over the turns of a usual run."""

    def make() -> Projection[Any]:
        return next(view for view in built_in(declarations()) if view.name == name)

    assert_equal_prices(make, usual, LATE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "run"),
    [
        (PromptOverrides, edited_prompt),
        (PendingTools, never_answered),
        (PendingTools, durable_steps),
        pytest.param(Timeline, durable_steps, marks=pytest.mark.full),
        pytest.param(PendingTools, many_at_once, marks=pytest.mark.full),
        pytest.param(Timeline, never_answered, marks=pytest.mark.full),
        (Timeline, many_at_once),
        (Timeline, one_worker_after_the_other),
        (Conversation, talk_after_one_tool),
        (Conversation, many_evaluations),
        pytest.param(Conversation, amended_each_time, marks=pytest.mark.full),
        (PendingTools, amended_each_time),
        (recording, two_evaluations_in_turn),
        pytest.param(recording, one_growing_slice, marks=pytest.mark.full),
        (SessionSlices, one_growing_slice),
        (replacing, latest_value),
    ],
    ids=lambda value: value.__name__,
)
def test_an_odd_run_costs_no_more(make: Callable[[], Projection[Any]], run: Any) -> None:
    """Calls that never end, evaluations without number, one tool long ago."""
    assert_equal_prices(make, run)


def test_a_step_that_costs_its_history_is_noticed() -> None:
    """The counting can fail: a loop shows in calls, a copy in bytes."""

    class Copying(CheckpointView):
        def apply(self, state: Any, record: Record) -> Any:
            tuple(range(record.version if record.version > ODD else 0))
            return super().apply(state, record)

    class Looping(CheckpointView):
        def apply(self, state: Any, record: Record) -> Any:
            for number in range(record.version if record.version > ODD else 0):
                abs(number)
            return super().apply(state, record)

    for make in (Copying, Looping):
        with pytest.raises(AssertionError):
            assert_equal_prices(make, usual)
