"""What a step costs, counted and not timed: the same at 40,000 messages as at 10.

Three counts: lines of our code that run, hashes that are made, bytes that are allocated at once.
A copy of something that grows would show in the third even if it is one call into C.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from turnledger.projections import digests as running_hash
from turnledger.projections.history.blocks import ChatTurn, TextBlock, ToolResultBlock, ToolUseBlock
from turnledger.projections.history.message_history import MessageHistory, listed_turns

Step = Callable[[MessageHistory, int], MessageHistory]


def conversing(history: MessageHistory, n: int) -> MessageHistory:
    """A turn with two tools, answered one by one, the second first."""
    match n % 5:
        case 0:
            return history.add_user_text(f"question {n}")
        case 1:
            calls = (ToolUseBlock("a", "tool", "{}"), ToolUseBlock("b", "tool", "{}"))
            return history.add_assistant(TextBlock("let me see"), *calls)
        case 2:
            return history.add_user(ToolResultBlock("b", f"result {n}"))
        case 3:
            return history.add_user(ToolResultBlock("a", f"result {n}"))
        case _:
            return history.add_assistant(TextBlock(f"answer {n}"))


def one_long_user_turn(history: MessageHistory, n: int) -> MessageHistory:
    return history.add_user_text(f"and {n}")


def one_long_assistant_turn(history: MessageHistory, n: int) -> MessageHistory:
    return history.add_assistant(TextBlock(f"and {n}"), ToolUseBlock(f"c{n}", "tool", "{}"))


def one_long_row_of_results(history: MessageHistory, n: int) -> MessageHistory:
    return history.add_user(ToolResultBlock(f"c{(n * 7919) % LONG}", f"result {n}"))


def nonsense(history: MessageHistory, n: int) -> MessageHistory:
    return history.add(ChatTurn("tool", ()) if n % 2 else None)


LONG = 40_000
OPENED = MessageHistory.new("system").add_user_text("go")


def asked_much() -> MessageHistory:
    return OPENED.add_assistant(*[ToolUseBlock(f"c{n}", "tool", "{}") for n in range(LONG)])


SHAPES: dict[str, tuple[Callable[[], MessageHistory], Step, int]] = {
    "conversation": (lambda: OPENED, conversing, 5),
    "user turn": (lambda: OPENED, one_long_user_turn, 1),
    "assistant turn": (lambda: OPENED, one_long_assistant_turn, 1),
    "results": (asked_much, one_long_row_of_results, 1),
    "nonsense": (lambda: OPENED, nonsense, 2),
}


def lines_run(step: Callable[[], object]) -> int:
    """How many lines of our own code run; each turn of a loop counts."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        if "projections" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(before)
    return count


def bytes_at_once(step: Callable[[], object]) -> int:
    """The most that is allocated at one moment within the step, beyond what was there."""
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        kept = step()
        peak = tracemalloc.get_traced_memory()[1] - start
        del kept
    finally:
        tracemalloc.stop()
    return peak


class Counted:
    """`sha256` and how often it was used."""

    def __init__(self) -> None:
        self.count = 0
        self._real = running_hash.sha256

    def __call__(self, data: bytes) -> Any:
        self.count += 1
        assert len(data) < 500, "a hash over something that grows"
        return self._real(data)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_costs_the_same_at_the_end_as_at_the_start(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its digest: lines, hashes and bytes stay under one bound from 10 to 40,000."""
    begin, step, period = SHAPES[shape]
    hashes = Counted()
    monkeypatch.setattr(running_hash, "sha256", hashes)
    history = begin()
    history.digest  # noqa: B018
    costs: dict[int, tuple[int, int, int]] = {}
    for n in range(LONG - period):
        if n in (10, 1_000, LONG - period - 10):
            costs[n] = measured(history, step, n, period, hashes)
        history = step(history, n)
        if n % 100 == 0:
            history.digest  # noqa: B018
    assert len(costs) == 3
    for lines, made, size in costs.values():
        # Now and then a leaf of a map is split into 32: that is the dearest step there is.
        assert lines <= 400 * period
        assert made <= 8 * period
        assert size <= 20_000 * period


def measured(
    history: MessageHistory, step: Step, n: int, period: int, hashes: Counted
) -> tuple[int, int, int]:
    """One period of steps, a digest after each, on a history that goes on without them."""
    history.digest  # noqa: B018

    def steps() -> MessageHistory:
        ahead = history
        for k in range(n, n + period):
            ahead = step(ahead, k)
            ahead.digest  # noqa: B018
        return ahead

    before = hashes.count
    steps()
    made = hashes.count - before
    return lines_run(steps), made, bytes_at_once(steps)


def test_the_counts_can_fail() -> None:
    """Something that reads or copies all of a history is far above the bounds."""
    history = OPENED
    for n in range(LONG):
        history = conversing(history, n)
    assert lines_run(history.to_list) > 400 * 5
    assert bytes_at_once(history.to_list) > 20_000 * 5


@pytest.mark.parametrize("shape", ["results", "assistant turn"])
def test_forks_of_a_long_turn_do_not_copy_it(shape: str) -> None:
    """The assistant speaks after each of many values: no stub is made before it is read."""
    begin, step, _ = SHAPES[shape]
    history = begin()
    for n in range(2_000):
        history = step(history, n)

    def fork() -> MessageHistory:
        return history.add_user_text("stop").add_assistant(TextBlock("well"))

    assert lines_run(fork) <= 400
    assert bytes_at_once(fork) <= 20_000
    assert len(fork().repairs) >= 2_000


@pytest.mark.parametrize("step", [conversing, one_long_user_turn], ids=lambda step: step.__name__)
def test_the_list_of_turns_costs_what_was_added(step: Step) -> None:
    """Whether a turn goes on or another begins: no other turn is looked at."""
    history = OPENED
    for n in range(2_001):  # up to a user's question
        history = conversing(history, n)
    for n in range(2_001, 2_020):
        listed_turns(history)
        history = step(history, n)
        assert lines_run(lambda history=history: listed_turns(history)) <= 200  # type: ignore[misc]
    assert len(listed_turns(history)) == len(history)
