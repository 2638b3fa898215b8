"""Hostile values: each is made when it is used, since some can be used only once.

None of them raises an error of its own from its methods, but for the endless ones: they raise
BrokenPromiseError once more was taken of them than any bound of this project allows, so that
unbounded memory is noticed at once and on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

from tests.fuzz.targets import BrokenPromiseError

# More than a batch of events may have (4096), and a page.
MOST_TAKEN = 20_000
_DEEP = 100_000


class Endless:
    """An iterator without an end; it notices that it is taken for ever."""

    def __init__(self, item: Any) -> None:
        self._item = item
        self._taken = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._taken += 1
        if self._taken > MOST_TAKEN:
            raise BrokenPromiseError(f"more than {MOST_TAKEN} items were taken of an endless one")
        return self._item


class EndlessMapping(Mapping[Any, Any]):
    """A mapping whose keys have no end."""

    def __getitem__(self, key: Any) -> Any:
        return "value"

    def __iter__(self) -> Iterator[Any]:
        return Endless("key")

    def __len__(self) -> int:
        return 2**40


class LongSequence(Sequence[Any]):
    """A sequence of 2**40 texts."""

    def __init__(self) -> None:
        self._taken = Endless("item")

    def __getitem__(self, index: Any) -> Any:
        return next(self._taken)

    def __len__(self) -> int:
        return 2**40


class BadClock:
    """A clock with this time, and an id that is not one."""

    def __init__(self, now: Any, new_id: Any = "not an id") -> None:
        self._now = now
        self._id = new_id

    def micros(self) -> Any:
        return self._now

    def new_id(self) -> Any:
        return self._id


class AnyAttribute:
    """An object without any attribute that is asked for, nor a length, nor items."""


@cache
def deep_list() -> Any:
    value: Any = []
    for _ in range(_DEEP):
        value = [value]
    return value


@cache
def deep_dict() -> Any:
    value: Any = {}
    for _ in range(_DEEP):
        value = {"a": value}
    return value


def own_holder() -> Any:
    value: Any = {"a": 1}
    value["self"] = value
    return value


# The most ordinary mistakes first: a short run takes from all, a long one takes them all.
HOSTILE: Mapping[str, Callable[[], Any]] = {
    "None": lambda: None,
    "an object": AnyAttribute,
    "a class": lambda: AnyAttribute,
    "empty text": lambda: "",
    "a surrogate": lambda: "a\udcffb",
    "NUL": lambda: "a\x00b",
    "long text": lambda: "x" * 200_000,
    "text": lambda: "\x1b[31mno such thing\n",
    "text with braces": lambda: "${a} {b} %s $",
    "digits of another script": lambda: "\u0663",
    "bytes": lambda: b"\xff\x00",
    "-1": lambda: -1,
    "0": lambda: 0,
    "True": lambda: True,
    "2**63": lambda: 2**63,
    "-2**63-1": lambda: -(2**63) - 1,
    "2**64": lambda: 2**64,
    # Its decimal form has more digits than Python writes.
    "10**5000": lambda: 10**5000,
    "0.5": lambda: 0.5,
    "NaN": lambda: math.nan,
    "infinity": lambda: math.inf,
    "-infinity": lambda: -math.inf,
    "a complex number": lambda: 1j,
    "a decimal NaN": lambda: Decimal("sNaN"),
    "empty list": list,
    "empty dict": dict,
    "a list of None": lambda: [None],
    "a list of texts": lambda: ["a", "b"],
    "a pair": lambda: ("a", "b"),
    "a dict": lambda: {"a": 1},
    "a dict of a dict": lambda: {1: {None: object()}},
    "a set": lambda: {1, "a"},
    "deep list": deep_list,
    "deep dict": deep_dict,
    "a dict that holds itself": own_holder,
    "range": lambda: range(2**62),
    "endless": lambda: Endless("item"),
    "endless bytes": lambda: Endless(b"item"),
    "endless mapping": EndlessMapping,
    "long sequence": LongSequence,
    "timedelta.max": lambda: timedelta.max,
    "timedelta.min": lambda: timedelta.min,
    "datetime.max": lambda: datetime.max,
    "datetime.min": lambda: datetime.min,
    "datetime.max, far west": lambda: datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))),
    "datetime.min, far east": lambda: datetime.min.replace(tzinfo=timezone(timedelta(hours=23))),
    "another UUID": lambda: UUID(int=2**128 - 1),
    "a clock at NaN": lambda: BadClock(math.nan),
    "a clock at infinity": lambda: BadClock(math.inf),
    "a clock at None": lambda: BadClock(None, None),
    "a clock at 2**70": lambda: BadClock(2**70),
    "a clock at -2**70": lambda: BadClock(-(2**70)),
    "a function": lambda: lambda: None,
    "an error": lambda: ValueError("given"),
    "a generator": lambda: (item for item in ("a", "b")),
    "a type with parameters": lambda: list[int],
    "NotImplemented": lambda: NotImplemented,
}
