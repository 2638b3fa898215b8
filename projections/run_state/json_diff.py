"""JSON diff: the operations that lead from one JSON value to another (RFC 6902, JSON Patch)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice, takewhile
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from turnledger.projections.digests import canonical
from turnledger.projections.persistent.lazy_json import LazyList, plain_json

# What is nested deeper is compared and replaced as a whole.
DEEPEST = 100


class Change(msgspec.Struct, frozen=True, gc=False):
    """An operation of a JSON Patch; `was` is an addition to the standard, which allows it.

    `value` is set unless the operation removes, `was` unless it adds.
    """

    op: Literal["add", "remove", "replace"]
    path: str
    was: Any = UNSET
    value: Any = UNSET

    def operation(self) -> dict[str, Any]:
        """The operation as the standard has it."""
        plain = {"op": self.op, "path": self.path}
        return plain if self.op == "remove" else {**plain, "value": self.value}


def same_text(one: Any, other: Any) -> bool:
    """Whether two JSON values have the same canonical text: 1, 1.0 and true are three values."""
    return canonical(one) == canonical(other)


def changes(
    before: Any, after: Any, same: Callable[[Any, Any], bool] = same_text
) -> Iterator[Change]:
    """The operations that lead from one JSON value to the other, in the order to apply them.

    Of lazy lists only the items that both do not share are made and compared.

    Args:
        before: A JSON value: dicts with text keys, lists, text, numbers, booleans, None; or lazy
            JSON (`LazyList`).
        after: Another one.
        same: When two values count as equal.
    """
    return _Comparison(same).values(before, after, "", 0)


class _Comparison:
    """A walk through two values side by side."""

    def __init__(self, same: Callable[[Any, Any], bool]) -> None:
        self._same = same

    def values(self, before: Any, after: Any, path: str, depth: int) -> Iterator[Change]:
        if depth < DEEPEST and isinstance(before, dict) and isinstance(after, dict):
            yield from self._objects(before, after, path, depth + 1)
        elif depth < DEEPEST and isinstance(before, _LISTS) and isinstance(after, _LISTS):
            yield from self._lists(_lazy(before), _lazy(after), path, depth + 1)
        elif not self._same(was := plain_json(before), value := plain_json(after)):
            yield Change("replace", path, was, value)

    def _objects(
        self, before: dict[str, Any], after: dict[str, Any], path: str, depth: int
    ) -> Iterator[Change]:
        for name in sorted(before.keys() | after.keys()):
            inner = f"{path}/{escaped(name)}"
            if name not in after:
                yield Change("remove", inner, was=plain_json(before[name]))
            elif name not in before:
                yield Change("add", inner, value=plain_json(after[name]))
            else:
                yield from self.values(before[name], after[name], inner, depth)

    def _lists(
        self, before: LazyList[Any], after: LazyList[Any], path: str, depth: int
    ) -> Iterator[Change]:
        """Items are compared by place, but for those that both lists begin or end with."""
        size, new_size = len(before), len(after)
        shorter = min(size, new_size)
        places = after.differences(before)
        end = 0
        if size != new_size:
            start = next((p for p in places if not self._same(before.at(p), after.at(p))), shorter)
            places = chain((start,), places)
            while end < shorter - start and self._same(
                before.at(size - 1 - end), after.at(new_size - 1 - end)
            ):
                end += 1
        both = shorter - end
        for place in takewhile(lambda place: place < both, places):
            yield from self.values(before.at(place), after.at(place), f"{path}/{place}", depth)
        # From the end on: a path means the list after the operations before it.
        gone = list(islice(before.after(both), size - end - both))
        for place in range(size - end - 1, both - 1, -1):
            yield Change("remove", f"{path}/{place}", was=gone[place - both])
        for place, value in enumerate(islice(after.after(both), new_size - end - both), both):
            yield Change("add", f"{path}/{place}", value=value)


_LISTS = (list, LazyList)


def _lazy(items: list[Any] | LazyList[Any]) -> LazyList[Any]:
    return items if isinstance(items, LazyList) else LazyList(lambda: items, _itself, items)


def _itself(value: Any) -> Any:
    return value


def escaped(name: str) -> str:
    """A name as a part of a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")
