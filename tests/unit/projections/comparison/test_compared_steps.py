"""Two runs made of steps, side by side: aligned by the steps' paths, compared by value."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.step_runs import (
    CHAT,
    answers,
    asks_model,
    begins,
    block,
    doubts,
    ends,
    order,
    record_run,
    refuses,
)
from tests.unit.projections.given import asks, evaluation, ident, starts
from turnledger.ledger import Event, Ledger, ModelCallFailed
from turnledger.projections import Comparison, compare
from turnledger.projections.run_state.json_diff import Change


def compared(ledger: Ledger, first: list[Event], second: list[Event]) -> Comparison:
    one, other = (record_run(ledger, events, uuid4()) for events in (first, second))
    return compare(ledger, one, other)


def differences(found: Comparison) -> list[tuple[str, str, tuple[str, ...]]]:
    return [
        (row.kind, row.tag, tuple(change.path for change in row.changes))
        for row in found.rows
        if row.kind != "same" and not row.bookkeeping
    ]


def test_equal_runs_of_steps_are_equal(ledger: Ledger) -> None:
    """An attempt of a model call that was tried again, and its tokens, are bookkeeping."""
    without = [event for event in order() if event != refuses(f"{CHAT}:3f9a", final=False)]
    assert compared(ledger, order(), order()).same
    assert compared(ledger, order(), without).same


def test_other_arguments_and_values_are_differences(ledger: Ledger) -> None:
    """They are named as values, and each stands at its own step."""
    found = compared(ledger, order(), order(euros=90))
    assert differences(found) == [
        ("changed", "tool_call.completed", ("/value/open",)),
        ("changed", "tool_call.started", ("/arguments/euros", "/digest")),
        ("changed", "tool_call.completed", ("/value/paid",)),
        ("changed", "run.completed", ("/output/paid",)),
    ]
    assert found.rows[6].changes == (Change("replace", "/value/open", 120, 90),)


def test_a_step_more_is_not_taken_for_another_one(ledger: Ledger) -> None:
    """Steps belong together by their paths, though the one beside them looks alike."""
    first = [block(), begins("a#1", 1), ends("a#1", 1)]
    second = [block(), begins("b#1", 1), ends("b#1", 1), begins("a#1", 2), ends("a#1", 1)]
    assert differences(compared(ledger, first, second)) == [
        ("only_second", "tool_call.started", ()),
        ("only_second", "tool_call.completed", ()),
        ("changed", "tool_call.started", ("/arguments", "/digest")),
    ]


def test_long_arguments_are_compared_by_their_digest(ledger: Ledger) -> None:
    """They are not on record, so the digest is all there is."""
    runs = [[block(), begins("a#1", arguments="", digest=one), ends("a#1")] for one in "xy"]
    assert differences(compared(ledger, *runs)) == [
        ("changed", "tool_call.started", ("/arguments_digest", "/digest"))
    ]
    assert compared(ledger, runs[0], runs[0]).same


def test_model_calls_are_aligned_though_their_keys_are_of_their_requests(ledger: Ledger) -> None:
    """What differs is the request, and the answer."""
    runs = [
        [block(), asks_model(f"{CHAT}:{n}", {"q": n}), answers(f"{CHAT}:{n}", {"a": n})]
        for n in (1, 2)
    ]
    assert differences(compared(ledger, *runs)) == [
        ("changed", "model.called", ("/request/q", "/request_digest")),
        ("changed", "model.replied", ("/value/a",)),
    ]


def test_the_ids_in_an_answer_are_no_difference_if_a_message_has_its_text(ledger: Ledger) -> None:
    """A provider makes them anew for each reply."""
    runs = [
        [block(), asks_model("m#1"), answers("m#1", {"id": n}, message_id=ident(n))] for n in (1, 2)
    ]
    assert compared(ledger, *runs).same


def test_a_final_failure_is_an_outcome(ledger: Ledger) -> None:
    """The caller got it, whether it may be retried or not."""
    begun = [block(), asks_model("m#1")]
    runs = [[*begun, refuses("m#1", final=True, status=status)] for status in (429, 500)]
    assert all(isinstance(run[-1], ModelCallFailed) and run[-1].retryable for run in runs)
    assert differences(compared(ledger, *runs)) == [
        ("changed", "model.call_failed", ("/status", "/value/status"))
    ]


def test_steps_inside_of_tools_are_compared_without_the_ids_of_the_calls(ledger: Ledger) -> None:
    """A provider makes the ids: places stand for them, in paths, as keys and in arguments."""

    def run(call_id: str) -> list[Event]:
        inner, keyed = f"{call_id}/pay#1", f"search:{call_id}"
        return [
            block(),
            evaluation(),
            asks(1, call_id),
            starts(call_id),
            begins(inner, 5, parent=call_id),
            doubts(inner),
            begins(inner, 5, parent=call_id, attempt=2),
            ends(inner, 7),
            begins(keyed, {"call_id": call_id}),
            ends(keyed, 7),
            asks_model("m#1", {"messages": [{"role": "tool", "tool_call_id": call_id}]}),
        ]

    assert compared(ledger, run("c1"), run("x9")).same


@pytest.mark.parametrize("swap", [False, True])
def test_a_call_that_was_doubted_is_a_difference(ledger: Ledger, swap: bool) -> None:
    """A step that may have happened twice is not bookkeeping."""
    once = [block(), begins("a#1"), ends("a#1")]
    twice = [block(), begins("a#1"), doubts("a#1"), begins("a#1", attempt=2), ends("a#1")]
    first, second = (twice, once) if swap else (once, twice)
    assert not compared(ledger, first, second).same
