"""Aligning two sequences: what is put together is equal, in order, and found at a fair price."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.projections.comparison import align as aligning
from turnledger.projections.comparison.align import align, gaps, whole

few = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=30)
many = st.lists(st.integers(0, 40).map(lambda n: b"%d" % n), max_size=60)
sequences = few | many


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of the module run for this."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != aligning.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@given(sequences, sequences)
def test_pairs_are_equal_items_in_order(first: list[bytes], second: list[bytes]) -> None:
    """Both places grow from pair to pair, so that none is there twice."""
    pairs = align(first, second)
    assert all(first[place] == second[mate] for place, mate in pairs)
    for (place, mate), (next_place, next_mate) in pairwise(pairs):
        assert place < next_place
        assert mate < next_mate


@given(sequences, sequences)
def test_swapped_sequences_give_swapped_pairs(first: list[bytes], second: list[bytes]) -> None:
    """However many alignments are equally good."""
    assert align(second, first) == [(mate, place) for place, mate in align(first, second)]


@given(sequences, sequences)
def test_nothing_equal_is_left_side_by_side(first: list[bytes], second: list[bytes]) -> None:
    """No gap begins or ends with a pair that was overlooked."""
    for low, high, other_low, other_high in gaps(align(first, second), whole(first, second)):
        if low < high and other_low < other_high:
            assert first[low] != second[other_low]
            assert first[high - 1] != second[other_high - 1]


@given(sequences, sequences)
def test_gaps_and_pairs_cover_everything(first: list[bytes], second: list[bytes]) -> None:
    """Every place is in a pair or in a gap, once."""
    pairs = align(first, second)
    between = list(gaps(pairs, whole(first, second)))
    places = [p for p, _ in pairs] + [p for gap in between for p in range(gap.low, gap.high)]
    mates = [m for _, m in pairs] + [m for g in between for m in range(g.other_low, g.other_high)]
    assert sorted(places) == list(range(len(first)))
    assert sorted(mates) == list(range(len(second)))


def test_a_small_block_gets_the_longest_alignment() -> None:
    """Where no item is there once, as many as can be are put together."""
    assert len(align([*b"abcabba"], [*b"cbabac"])) == 4


def test_a_text_counts_more_than_what_is_everywhere() -> None:
    """An item that is unique holds its place against several that are not."""
    first = [b"call", b"call", b"a unique text", b"x"]
    second = [b"a unique text", b"call", b"call", b"y"]
    assert align(first, second) == [(2, 0)]


@pytest.mark.parametrize("shape", ["one change", "nothing in common", "shuffled", "few kinds"])
def test_the_price_is_near_linear(shape: str) -> None:
    """Ten times the length costs nowhere near a hundred times the lines, whatever differs."""

    def cost(length: int) -> int:
        first = [b"%d" % (n * 7919 % length) for n in range(length)]
        second = {
            "one change": [*first[: length // 2], b"other", *first[length // 2 + 1 :]],
            "nothing in common": [b"-%d" % n for n in range(length)],
            "shuffled": [b"%d" % (n * 104729 % length) for n in range(length)],
            "few kinds": [b"%d" % (n % 3) for n in range(length)],
        }[shape]
        if shape == "few kinds":
            first = [b"%d" % (n * n % 7 % 3) for n in range(length)]
        return lines_of(lambda: align(first, second))

    assert cost(10_000) < 20 * cost(1_000)
