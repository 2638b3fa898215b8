"""What differs between two JSON values, as the operations of a JSON Patch that also say what was.

Plain on purpose: operations add, remove and replace, none moves. So the way back has the
same operations the other way round, and people can read them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from turnledger.projections.digests import canonical

# What is nested deeper is replaced as a whole.
DEEPEST = 100


class Change(msgspec.Struct, frozen=True, gc=False):
    """An operation of a JSON Patch (RFC 6902); `was` is more than that standard asks for.

    `value` is there unless it removes, `was` unless it adds.
    """

    op: Literal["add", "remove", "replace"]
    path: str
    was: Any = UNSET
    value: Any = UNSET


def changes(before: Any, after: Any, path: str = "", depth: int = 0) -> Iterator[Change]:
    """The operations that lead from one JSON value to the other, in the order to apply them."""
    if isinstance(before, dict) and isinstance(after, dict) and depth < DEEPEST:
        for name in sorted(before.keys() | after.keys()):
            inner = f"{path}/{escaped(name)}"
            if name not in after:
                yield Change("remove", inner, was=before[name])
            elif name not in before:
                yield Change("add", inner, value=after[name])
            else:
                yield from changes(before[name], after[name], inner, depth + 1)
    elif isinstance(before, list) and isinstance(after, list) and depth < DEEPEST:
        yield from _in_list(before, after, path, depth)
    elif not _same(before, after):
        yield Change("replace", path, before, after)


def _in_list(before: list[Any], after: list[Any], path: str, depth: int) -> Iterator[Change]:
    """Items are compared by place, but for those that both lists begin or end with."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and _same(before[start], after[start]):
        start += 1
    end = 0
    while end < shorter - start and _same(before[-1 - end], after[-1 - end]):
        end += 1
    both = shorter - end
    for place in range(start, both):
        yield from changes(before[place], after[place], f"{path}/{place}", depth + 1)
    for place in range(len(before) - end - 1, both - 1, -1):
        yield Change("remove", f"{path}/{place}", was=before[place])
    for place in range(both, len(after) - end):
        yield Change("add", f"{path}/{place}", value=after[place])


def _same(one: Any, other: Any) -> bool:
    """By their texts: 1, 1.0 and true are three values."""
    return canonical(one) == canonical(other)


def escaped(name: str) -> str:
    """A name as a part of a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")
