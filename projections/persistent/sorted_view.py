"""The items of a long list in another order than that of the list, a few in memory at a time."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from turnledger.projections.persistent.hashed import HashedList
from turnledger.projections.persistent.spill import held

T = TypeVar("T")


def _itself(item: T) -> T:
    return item


class InOrder(Generic[T]):
    """The items of a list and some others, by a number that each has, or by several.

    Only places are held. What the list keeps in a file is fetched piece by piece, which is
    quick as long as items stand near to where they stand in the list. `shown` is what becomes
    of each.
    """

    __slots__ = ("_order", "_pieces", "_shown", "_starts")

    def __init__(
        self,
        items: HashedList[T],
        others: Iterable[T],
        *numbers: Callable[[T], int],
        shown: Callable[[T], T] = _itself,
    ) -> None:
        """By the first of the numbers; where it is the same, by the next."""
        self._pieces: list[Sequence[T]] = [*items.pieces(), tuple(others)]
        self._starts = [0, *accumulate(map(len, self._pieces))]
        self._order = array("q", range(self._starts[-1]))
        for number in reversed(numbers):
            known = array("q", (number(item) for piece in self._pieces for item in piece))
            self._order = array("q", sorted(self._order, key=known.__getitem__))
        self._shown = shown

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> T:
        return self._shown(self._item(self._order[place]))

    def __iter__(self) -> Iterator[T]:
        # Its piece is held, so that however many go through lists at once, none fetches anew.
        start = end = 0
        items: Sequence[T] = ()
        for place in self._order:
            if not start <= place < end:
                piece = bisect_right(self._starts, place) - 1
                start, end = self._starts[piece], self._starts[piece + 1]
                items = held(self._pieces[piece])
            yield self._shown(items[place - start])

    def _item(self, place: int) -> T:
        piece = bisect_right(self._starts, place) - 1
        return self._pieces[piece][place - self._starts[piece]]
