"""JSON diff: the operations that lead from one JSON value to another (RFC 6902, JSON Patch)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from turnledger.projections.digests import canonical

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

    Args:
        before: A JSON value: dicts with text keys, lists, text, numbers, booleans, None.
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
        elif depth < DEEPEST and isinstance(before, list) and isinstance(after, list):
            yield from self._lists(before, after, path, depth + 1)
        elif not self._same(before, after):
            yield Change("replace", path, before, after)

    def _objects(
        self, before: dict[str, Any], after: dict[str, Any], path: str, depth: int
    ) -> Iterator[Change]:
        for name in sorted(before.keys() | after.keys()):
            inner = f"{path}/{_escaped(name)}"
            if name not in after:
                yield Change("remove", inner, was=before[name])
            elif name not in before:
                yield Change("add", inner, value=after[name])
            else:
                yield from self.values(before[name], after[name], inner, depth)

    def _lists(
        self, before: list[Any], after: list[Any], path: str, depth: int
    ) -> Iterator[Change]:
        """Items are compared by place, but for those that both lists begin or end with."""
        shorter = min(len(before), len(after))
        start = 0
        while start < shorter and self._same(before[start], after[start]):
            start += 1
        end = 0
        while end < shorter - start and self._same(before[-1 - end], after[-1 - end]):
            end += 1
        both = shorter - end
        for place in range(start, both):
            yield from self.values(before[place], after[place], f"{path}/{place}", depth)
        # From the end on: a path means the list after the operations before it.
        for place in range(len(before) - end - 1, both - 1, -1):
            yield Change("remove", f"{path}/{place}", was=before[place])
        for place in range(both, len(after) - end):
            yield Change("add", f"{path}/{place}", value=after[place])


def _escaped(name: str) -> str:
    """A name as a part of a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")
