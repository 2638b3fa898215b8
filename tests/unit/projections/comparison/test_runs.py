"""Two runs side by side: what is the same, what is not, and where they first part."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch
from uuid import UUID

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

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
    fails,
    ident,
    records,
    replies,
    said,
    starts,
    system,
)
from tests.unit.projections.random_runs import small_world
from turnledger.ledger import (
    ANY,
    NEW,
    CheckpointReached,
    CustomEvent,
    Event,
    Ledger,
    ModelCallFailed,
    RunClaimed,
    RunCompleted,
    RunNotFoundError,
    RunResumed,
    RunStarted,
    RunWaiting,
    ToolCallDecided,
    ToolCallRecord,
    new_run_id,
)
from turnledger.ledger.events.messages import InnerMessage
from turnledger.ledger.events.types import EVENT_TYPES
from turnledger.projections import Comparison, compare, state_at
from turnledger.projections.comparison.normalize import BOOKKEEPING_FIELDS, LEFT_OUT, Normalizer
from turnledger.projections.comparison.runs import Divergence, compare_states

CLAIM = RunClaimed(worker="w", epoch=1)
AMENDED = amends(2, "A and more")
SWAPPED = {
    "same": "same",
    "changed": "changed",
    "only_first": "only_second",
    "only_second": "only_first",
}


def recorded(ledger: Ledger, events: list[Event]) -> UUID:
    """A run of these events, each a commit of its own; claims are made as claims are."""
    run_id, epoch = new_run_id(), None
    for event in events:
        if isinstance(event, RunClaimed):
            claim = ledger.claim(run_id, worker=event.worker)
            epoch = claim.epoch
            ledger.release(claim)
        else:
            ledger.append(run_id, event, ANY, epoch)
    return run_id


def compared(ledger: Ledger, first: list[Event], second: list[Event]) -> Comparison:
    return compare(ledger, recorded(ledger, first), recorded(ledger, second))


def story(**differences: Any) -> list[Event]:
    """A run with one call, whose every id can be another."""
    call = differences.get("call", "c1")
    name = {"evaluation_id": differences.get("evaluation", "e1")}
    ids = [ident(n + differences.get("ids", 0)) for n in range(5)]
    arguments = differences.get("arguments", '{"q": 1, "n": 2}')
    asked = (ToolCallRecord(call, "search", arguments),)
    return [
        RunStarted(tags={"try": differences.get("tag", "1")}),
        msgspec.structs.replace(CLAIM, worker=differences.get("worker", "w1")),
        evaluation(name["evaluation_id"]),
        system(**name, message_id=ids[0]),
        said("user", "Hi", 1, **name, message_id=ids[1]),
        said("assistant", "", 2, **name, message_id=ids[2], tool_calls=asked, turn=1),
        starts(call, evaluation_id=name["evaluation_id"]),
        msgspec.structs.replace(completes(call), message_id=ids[3], value=7),
        answers(3, call, **name, message_id=ids[3]),
        said("assistant", differences.get("text", "Done."), 4, **name, message_id=ids[4], turn=2),
        RunCompleted(output="Done."),
    ]


def kinds(found: Comparison) -> str:
    signs = {"same": "=", "changed": "~", "only_first": "<", "only_second": ">"}
    return "".join(signs[row.kind] for row in found.rows)


# --- what counts ---------------------------------------------------------------------


def test_ids_times_and_workers_do_not_count(ledger: Ledger) -> None:
    """Two runs that did the same are the same, row by row."""
    other = story(call="x9", evaluation="another", ids=500, worker="w2")
    found = compared(ledger, story(), other)
    assert (kinds(found), found.same) == ("=" * 11, True)
    assert found.counts == {
        **dict.fromkeys(("changed", "only_first", "only_second", "bookkeeping"), 0),
        "same": 11,
    }


def test_arguments_count_by_their_value(ledger: Ledger) -> None:
    """Spaces and the order of names are spelling; a text that is no JSON is a text."""
    assert compared(ledger, story(), story(arguments='{"n":2,"q":1}')).same
    found = compared(ledger, story(), story(arguments='{"n":2,"q":5}'))
    (change,) = found.rows[5].changes
    assert (change.path, change.was, change.value) == ("/tool_calls/0/arguments/q", 1, 5)
    broken = compared(ledger, story(), story(arguments="{"))
    assert broken.rows[5].changes[0].value == "{"
    deep = "[" * 600 + "]" * 600
    assert compared(ledger, story(arguments=deep), story()).rows[5].changes[0].was == deep


def test_a_changed_message_is_the_first_divergence(ledger: Ledger) -> None:
    """Its row says what differs."""
    found = compared(ledger, story(), story(text="Not yet.", tag="2"))
    assert kinds(found) == "~" + "=" * 8 + "~="
    assert found.divergence == Divergence(10, 10, (9,))
    assert found.rows[0].bookkeeping  # only the tags are others
    (change,) = found.rows[9].changes
    assert (change.op, change.path, change.value) == ("replace", "/content", "Not yet.")


def test_a_turn_more_shifts_nothing(ledger: Ledger) -> None:
    """Only what is more is a row of its own; places and turns that follow are the same."""
    more = [asks(2, "c8", turn=1), starts("c8"), completes("c8", value=1), answers(3, "c8", "no")]
    later = [
        msgspec.structs.replace(
            event, message=msgspec.structs.replace(event.message, sequence=9, turn=8)
        )
        if hasattr(event, "message")
        else event
        for event in story()[5:]
    ]
    found = compared(ledger, story(), [*story()[:5], *more, *later])
    assert kinds(found) == "=====>>>>======"
    assert found.divergence == Divergence(None, 6, (5,))


def test_each_does_something_else(ledger: Ledger) -> None:
    """The divergence then names both events."""
    one: list[Event] = [RunStarted(), said("user", "Hi", 0), starts(), RunCompleted()]
    other: list[Event] = [RunStarted(), said("user", "Hi", 0), changes("Plan", 1), RunCompleted()]
    found = compared(ledger, one, other)
    assert kinds(found) == "==<>="
    assert found.divergence == Divergence(3, 3, (2, 3))


def test_what_each_does_is_found_across_bookkeeping(ledger: Ledger) -> None:
    """A claim that both have stands between two events that only one has."""
    found = compared(ledger, [RunStarted(), starts(), CLAIM], [RunStarted(), CLAIM, doubts()])
    assert kinds(found) == "=<=>"
    assert found.divergence == Divergence(2, 3, (1, 3))


def checkpoint(outcome: str, state: str = "s") -> CheckpointReached:
    return CheckpointReached(
        phase="post_tool",
        tool_calls_completed=1,
        state_digest=state,
        outcome_digest=outcome,
        created_at=START,
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([CLAIM], []),
        ([CLAIM], [CLAIM, CLAIM]),
        ([], [RunResumed(attempt=1, from_version=1)]),
        ([checkpoint("a")], [checkpoint("b")]),
        ([checkpoint("a")], []),
        ([replies(input_tokens=1)], [replies(input_tokens=2)]),
        ([asks(1, "c1"), answers(2, "c1", "A")], [asks(1, "c1"), answers(2, "c1", "A"), AMENDED]),
        (
            [asks(1, "c1"), answers(2, "c1", "A"), AMENDED],
            [asks(1, "c1"), answers(2, "c1", "A"), amends(2, "B")],
        ),
        ([msgspec.structs.replace(calls_model(), request_digest="x")], [calls_model()]),
        (
            [calls_model(), replies()],
            [
                calls_model(),
                ModelCallFailed(
                    evaluation_id="e1", turn=1, error_type="E", error_message="503", retryable=True
                ),
                calls_model(attempt=2),
                replies(),
            ],
        ),
    ],
)
def test_bookkeeping_makes_no_divergence(
    ledger: Ledger, one: list[Event], other: list[Event]
) -> None:
    """It is compared, and every row that differs is marked."""
    pair = ([RunStarted(), *events, RunCompleted()] for events in (one, other))
    found = compared(ledger, *pair)
    assert found.same
    assert found.counts["bookkeeping"] >= 1
    assert all(row.bookkeeping for row in found.rows if row.kind != "same")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (calls_model(model="small"), calls_model(model="large")),
        (starts(), doubts()),
        (completes(value=1), completes(value=1.0)),
        (completes(), fails()),
        (evaluation(), msgspec.structs.replace(evaluation(), tools_digest="x")),
        (RunStarted(request={"city": "Lisbon"}), RunStarted(request={"city": "Porto"})),
        (
            ModelCallFailed(evaluation_id="e", turn=1, error_type="E", error_message="no"),
            ModelCallFailed(evaluation_id="e", turn=1, error_type="E", error_message="never"),
        ),
        (CustomEvent(kind="a.b", data=1), CustomEvent(kind="a.c", data=1)),
    ],
)
def test_what_a_run_did_counts(ledger: Ledger, one: Event, other: Event) -> None:
    """The first divergence is at the events that differ."""
    found = compared(ledger, [one, RunCompleted()], [other, RunCompleted()])
    assert found.divergence is not None
    assert (found.divergence.first, found.divergence.second) == (1, 1)


def test_calls_are_known_by_their_place(ledger: Ledger) -> None:
    """Which of two calls something is about is told by the message that asked for them."""

    def about(call: str, *ids: str) -> list[Event]:
        return [
            asks(0, *ids),
            starts(call),
            answers(1, call),
            amends(1, "short"),
            RunWaiting(reason="r", call_ids=(call,)),
            ToolCallDecided(call_id=call, decision="retry"),
        ]

    assert compared(ledger, about("a", "a", "b"), about("y", "y", "z")).same
    assert kinds(compared(ledger, about("a", "a", "b"), about("z", "y", "z"))) == "=~~~~~"


def test_an_id_that_is_used_again_is_another_call(ledger: Ledger) -> None:
    """Providers that give no ids count anew in each turn."""
    one: list[Event] = [asks(0, "a", "b"), starts("b"), asks(1, "b"), starts("b")]
    other: list[Event] = [asks(0, "k", "l"), starts("l"), asks(1, "m"), starts("m")]
    assert compared(ledger, one, other).same


def test_every_name_that_is_treated_apart_is_a_field() -> None:
    """A field that is renamed can't drop out of the lists unnoticed."""
    kinds = (*EVENT_TYPES.values(), InnerMessage, ToolCallRecord)
    fields = {name for kind in kinds for name in kind.__struct_fields__}
    assert fields >= LEFT_OUT | BOOKKEEPING_FIELDS
    assert not LEFT_OUT & BOOKKEEPING_FIELDS


# --- runs that share a beginning, and two ledgers --------------------------------------


def test_what_a_fork_shares_is_heard_once(ledger: Ledger) -> None:
    """A record of the common beginning gives one key, and is the same in both."""
    run = recorded(ledger, story())
    child = ledger.fork(run, at=6)
    for event in story(text="Not yet.")[6:]:
        ledger.append(child, event, ANY)
    with patch.object(
        Normalizer, "_normalized", autospec=True, side_effect=Normalizer._normalized
    ) as heard:
        found = compare(ledger, run, child)
    assert heard.call_count == 6 + 5 + 6
    assert found.shared == 6
    assert kinds(found) == "======>===~="
    assert found.rows[6].bookkeeping
    assert found.divergence == Divergence(10, 11, (10,))
    grandchild = ledger.fork(child, at=4)
    assert compare(ledger, child, grandchild).shared == 4
    assert compare(ledger, grandchild, run).shared == 4
    assert compare(ledger, run, run).shared == 11


def test_calls_of_the_shared_beginning_are_known_after_it(ledger: Ledger) -> None:
    """A fork between a call's question and its start."""
    run = recorded(ledger, [RunStarted(), asks(0, "a", "b"), starts("b"), starts("a")])
    child = ledger.fork(run, at=2)
    ledger.append(child, [starts("b"), starts("b")], ANY)
    found = compare(ledger, run, child)
    assert found.divergence == Divergence(4, 5, (4,))
    (change,) = found.rows[4].changes
    assert (change.path, change.was, change.value) == ("/call", 1, 2)


def test_runs_may_be_in_two_ledgers(ledger: Ledger) -> None:
    """Each is looked for in its own."""
    with Ledger.open("memory://") as other:
        here, there = recorded(ledger, story()), recorded(other, story(text="No."))
        found = compare(ledger, here, there, other_ledger=other)
        assert found.divergence == Divergence(10, 10, (9,))
        assert compare(ledger, here, here, other_ledger=ledger).shared == 11
        for pair in ((there, here), (here, here), (there, there)):
            with pytest.raises(RunNotFoundError):
                compare(ledger, *pair, other_ledger=other)


def test_a_run_that_is_not_there_is_an_error(ledger: Ledger) -> None:
    """Whichever of the two it is."""
    run = recorded(ledger, story())
    for pair in ((run, new_run_id()), (new_run_id(), run)):
        with pytest.raises(RunNotFoundError):
            compare(ledger, *pair)


def test_states_are_compared_at_a_version_each(ledger: Ledger) -> None:
    """The operations lead from one state to the other; the outcome leaves out ids and times."""
    one, other = recorded(ledger, story()), recorded(ledger, story(text="No.", ids=50))
    found = compare_states(ledger, one, 11, other, 11)
    assert not found.same
    assert "/history/turns/3/blocks/0/text" in [change.path for change in found.changes]
    before = compare_states(ledger, one, 9, other, 9)
    assert before.same
    assert before.changes
    assert compare_states(ledger, one, 9, one, 9).changes == ()
    with Ledger.open("memory://") as elsewhere:
        there = recorded(elsewhere, story())
        assert compare_states(ledger, one, 11, there, 11, other_ledger=elsewhere).same
    assert state_at(ledger, one).version == 11


# --- properties ------------------------------------------------------------------------

random_runs = st.lists(small_world, max_size=20)


def by_listener(events: list[Event]) -> list[bytes]:
    """What of these events counts."""
    return [said.key for said in Normalizer().normalize(records(events)) if not said.bookkeeping]


def begun(ledger: Ledger, events: list[Event]) -> UUID:
    run_id = new_run_id()
    ledger.append(run_id, [RunStarted(), *events], NEW)
    return run_id


@given(random_runs)
def test_a_run_is_the_same_as_itself(events: list[Event]) -> None:
    """Compared by lineage, and as the same events of another run."""
    with Ledger.open("memory://") as ledger:
        one, other = begun(ledger, events), begun(ledger, events)
        for pair in ((one, one), (one, other)):
            found = compare(ledger, *pair)
            assert found.same
            assert {row.kind for row in found.rows} == {"same"}


@given(random_runs, random_runs)
def test_rows_cover_both_runs_in_order(first: list[Event], second: list[Event]) -> None:
    """Every event of both is in one row, whatever the runs are, with its own tag."""
    with Ledger.open("memory://") as ledger:
        one, other = begun(ledger, first), begun(ledger, second)
        rows = compare(ledger, one, other).rows
        tags = [record.event.tag for record in ledger.read(one)]
        mates = [record.event.tag for record in ledger.read(other)]
    assert [r.first for r in rows if r.first is not None] == list(range(1, len(tags) + 1))
    assert [r.second for r in rows if r.second is not None] == list(range(1, len(mates) + 1))
    for row in rows:
        assert row.first is None or tags[row.first - 1] == row.tag
        assert row.second is None or mates[row.second - 1] == row.tag
        assert (row.kind == "only_first") == (row.second is None)
        assert (row.kind == "only_second") == (row.first is None)
        assert (row.kind == "changed") == bool(row.changes)


@given(random_runs, random_runs)
def test_swapping_the_runs_swaps_the_result(first: list[Event], second: list[Event]) -> None:
    """The same rows and the same divergence, from the other side."""
    with Ledger.open("memory://") as ledger:
        one, other = begun(ledger, first), begun(ledger, second)
        there, back = compare(ledger, one, other), compare(ledger, other, one)
    turned = {(SWAPPED[r.kind], r.second, r.first, r.tag, r.bookkeeping) for r in there.rows}
    assert turned == {(r.kind, r.first, r.second, r.tag, r.bookkeeping) for r in back.rows}
    ends = there.divergence, back.divergence
    assert (ends[0] is None) == (ends[1] is None)
    if ends[0] is not None and ends[1] is not None:
        assert (ends[0].first, ends[0].second) == (ends[1].second, ends[1].first)


@given(random_runs, random_runs)
def test_runs_are_the_same_if_what_counts_is(first: list[Event], second: list[Event]) -> None:
    """And the first divergence is the first place where it is not."""
    with Ledger.open("memory://") as ledger:
        one, other = begun(ledger, first), begun(ledger, second)
        found = compare(ledger, one, other)
        heard = [Normalizer().normalize(ledger.read(run)) for run in (one, other)]
    real = [[said for said in run if not said.bookkeeping] for run in heard]
    keys = [[said.key for said in run] for run in real]
    assert found.same == (keys[0] == keys[1])
    if found.divergence is not None:
        shorter = min(map(len, keys))
        place = next((n for n in range(shorter) if keys[0][n] != keys[1][n]), shorter)
        at = [run[place].version if place < len(run) else None for run in real]
        named = [found.divergence.first, found.divergence.second]
        assert [n for n in named if n is not None]
        assert all(n in (None, version) for n, version in zip(named, at, strict=True))


@given(st.lists(small_world, min_size=1, max_size=20), small_world, st.data())
def test_a_fork_changed_at_one_event_parts_there(
    events: list[Event], other: Event, data: st.DataObject
) -> None:
    """Whatever the event is, and wherever before it the fork begins."""
    place = data.draw(st.integers(0, len(events) - 1))
    changed = [*events[:place], other, *events[place + 1 :]]
    (said,) = Normalizer().normalize(records([events[place]]))
    (instead,) = Normalizer().normalize(records([other]))
    assume(not said.bookkeeping and not instead.bookkeeping)
    assume(by_listener(events[: place + 1]) != by_listener(changed[: place + 1]))
    at = data.draw(st.integers(1, place + 1))
    with Ledger.open("memory://") as ledger:
        run = recorded(ledger, [RunStarted(), *events])
        child = ledger.fork(run, at=at)
        ledger.append(child, changed[at - 1 :], ANY)
        found = compare(ledger, run, child)
    assert found.shared == at
    assert found.divergence is not None
    # Version 1 is the run's start, and the fork has a start of its own.
    assert (found.divergence.first, found.divergence.second) == (place + 2, place + 3)


# --- cost ------------------------------------------------------------------------------


def long_run(turns: int, *, changed: int | None = None) -> list[Event]:
    events: list[Event] = [RunStarted(), evaluation()]
    for turn in range(turns):
        text = "Something else." if turn == changed else f"Note {turn % 7}."
        events += [
            calls_model(turn),
            replies(turn),
            said("assistant", text, 2 * turn, turn=turn),
            said("user", "Go on.", 2 * turn + 1),
            checkpoint("o"),
        ]
    return events


def test_long_runs_that_differ_in_one_message_cost_what_they_are_long() -> None:
    """Each of 2 x 10,000 events gives one key; keys are compared about once a piece."""

    class Key(bytes):
        """A key that counts how often it is compared."""

        count = 0
        __hash__ = bytes.__hash__

        def __eq__(self, other: object) -> bool:
            Key.count += 1
            return bytes.__eq__(self, other)

    hear = Normalizer._normalized

    def counted(normalizer: Normalizer, record: Any) -> Any:
        said = hear(normalizer, record)
        return said._replace(key=Key(said.key), kind=Key(said.kind))

    with Ledger.open("memory://") as ledger:
        runs = [new_run_id(), new_run_id()]
        for run, changed in zip(runs, (None, 1_200), strict=True):
            events = long_run(2_000, changed=changed)
            for start in range(0, len(events), 1_000):
                ledger.append(run, events[start : start + 1_000], ANY)
        with patch.object(Normalizer, "_normalized", autospec=True, side_effect=counted) as heard:
            found = compare(ledger, *runs)
    assert found.divergence is not None
    assert found.divergence.first == 2 + 5 * 1_200 + 3
    assert heard.call_count == len(found.rows) * 2 == 20_004
    assert Key.count < 6 * 20_004
