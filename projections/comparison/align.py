"""Which items of two sequences belong together: an alignment whose price is near linear.

What both sequences begin and end with is put together first. What is left is split at items
that each side has once: in a run those are the texts, while calls and replies look alike. Small
blocks without such items get the longest common subsequence, large ones are split at the n-th
of each kind of item. Nothing is ever compared each with each unless it is small.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

# Up to so many comparisons the best alignment of a block is looked for: 256 items by 256.
CELLS = 65_536
# How often a block is split in blocks; each time costs a look at every item.
DEPTH = 12

Pair: TypeAlias = tuple[int, int]


class Block(NamedTuple):
    """Places of the first sequence from `low` up to `high`, and of the second."""

    low: int
    high: int
    other_low: int
    other_high: int


def whole(first: Sequence[object], second: Sequence[object]) -> Block:
    """All of two sequences."""
    return Block(0, len(first), 0, len(second))


def align(first: Sequence[bytes], second: Sequence[bytes]) -> list[Pair]:
    """Places with equal items, growing in both sequences; no place is there twice.

    Swapped arguments give swapped pairs: ties are broken by what the items are, never by
    which side they are on.
    """
    one, other = list(first), list(second)
    if other < one:
        return [(place, mate) for mate, place in _aligned(other, one)]
    return _aligned(one, other)


def gaps(pairs: Sequence[Pair], block: Block) -> Iterator[Block]:
    """The parts of a block between its pairs, where there is anything on one side at least."""
    low, end, other_low, other_end = block
    for high, other_high in (*pairs, (end, other_end)):
        if low < high or other_low < other_high:
            yield Block(low, high, other_low, other_high)
        low, other_low = high + 1, other_high + 1


def _aligned(a: list[bytes], b: list[bytes]) -> list[Pair]:
    pairs: list[Pair] = []
    work = [(whole(a, b), 0)]
    while work:
        block, depth = work.pop()
        block = _stripped(a, b, block, pairs)
        low, high, other_low, other_high = block
        if low == high or other_low == other_high:
            continue
        anchors = _rising(_once(a, low, high), _once(b, other_low, other_high))
        if not anchors:
            common = set(a[low:high]) & set(b[other_low:other_high])
            places = [place for place in range(low, high) if a[place] in common]
            mates = [mate for mate in range(other_low, other_high) if b[mate] in common]
            if len(places) * len(mates) <= CELLS:
                pairs.extend(_longest(a, b, places, mates))
                continue
            anchors = _rising(_numbered(a, low, high), _numbered(b, other_low, other_high))
        pairs.extend(anchors)
        if depth < DEPTH:
            work.extend((gap, depth + 1) for gap in gaps(anchors, block))
    pairs.sort()
    return pairs


def _stripped(a: list[bytes], b: list[bytes], block: Block, pairs: list[Pair]) -> Block:
    """The block without what both sides begin and end with, which becomes pairs."""
    low, high, other_low, other_high = block
    while low < high and other_low < other_high and a[low] == b[other_low]:
        pairs.append((low, other_low))
        low, other_low = low + 1, other_low + 1
    while low < high and other_low < other_high and a[high - 1] == b[other_high - 1]:
        high, other_high = high - 1, other_high - 1
        pairs.append((high, other_high))
    return Block(low, high, other_low, other_high)


def _once(items: list[bytes], low: int, high: int) -> dict[Hashable, int]:
    """The items that are there once, and where."""
    places: dict[Hashable, int] = {}
    again: set[Hashable] = set()
    for place in range(low, high):
        item = items[place]
        if item in places:
            again.add(item)
        places[item] = place
    for repeated in again:
        del places[repeated]
    return places


def _numbered(items: list[bytes], low: int, high: int) -> dict[Hashable, int]:
    """Where the first, second, ... of each kind of item is."""
    counts: dict[bytes, int] = {}
    places: dict[Hashable, int] = {}
    for place in range(low, high):
        item = items[place]
        counts[item] = number = counts.get(item, 0) + 1
        places[item, number] = place
    return places


def _rising(places: dict[Hashable, int], mates: dict[Hashable, int]) -> list[Pair]:
    """A longest choice of what both have, in the same order on both sides."""
    common = [(place, mates[item]) for item, place in places.items() if item in mates]
    common.sort()
    tails: list[int] = []  # the lowest mate that a choice of each length ends with
    ends: list[int] = []  # and where that choice's last pair is
    before: list[int] = []
    for number, (_, mate) in enumerate(common):
        length = bisect_left(tails, mate)
        before.append(ends[length - 1] if length else -1)
        if length == len(tails):
            tails.append(mate)
            ends.append(number)
        else:
            tails[length], ends[length] = mate, number
    chosen: list[Pair] = []
    number = ends[-1] if ends else -1
    while number >= 0:
        chosen.append(common[number])
        number = before[number]
    chosen.reverse()
    return chosen


def _longest(a: list[bytes], b: list[bytes], places: list[int], mates: list[int]) -> Iterator[Pair]:
    """The longest common subsequence of what is at these few places."""
    # lengths[i][j] is the longest that can follow from places[i] and mates[j] on.
    lengths = [[0] * (len(mates) + 1) for _ in range(len(places) + 1)]
    for i in range(len(places) - 1, -1, -1):
        item, row, below = a[places[i]], lengths[i], lengths[i + 1]
        for j in range(len(mates) - 1, -1, -1):
            if item == b[mates[j]]:
                row[j] = below[j + 1] + 1
            else:
                row[j] = max(below[j], row[j + 1])
    i = j = 0
    while i < len(places) and j < len(mates):
        if a[places[i]] == b[mates[j]]:
            yield places[i], mates[j]
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
