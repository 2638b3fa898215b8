"""Lists and maps that are values and carry their digests along.

Adding gives a new one at the same price however much is in it, and leaves the old one as
it was. A digest is worked out when it is asked for, from the last one that was asked for:
a fold that never asks pays nothing, one that asks at every step pays for the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from projections.containers import PersistentMap, Stack, accumulated, in_order
from projections.running_hash import combine, list_add, list_start, map_add, map_digest, map_remove

T = TypeVar("T")

# Keys that are gone are cleared away when they are this many more than those that are there.
_MANY = 16
# Up to so many things under way, a plain dict is copied.
_FEW = 32


class HashedList(Generic[T]):
    """A list that only grows. Items are what canonical JSON can hold, or `step` says how."""

    __slots__ = ("_domain", "_step", "_tip")

    def __init__(
        self,
        domain: str,
        _tip: Stack[T] | None = None,
        step: Callable[[bytes, Any], bytes] = list_add,
    ) -> None:
        self._domain = domain
        self._tip = _tip
        self._step = step

    def append(self, item: T) -> HashedList[T]:
        return HashedList(self._domain, Stack(self._tip, item), self._step)

    @property
    def last(self) -> T | None:
        return None if self._tip is None else self._tip.item

    @property
    def digest(self) -> bytes:
        start = list_start(self._domain)
        return accumulated(self._tip, start, self._step)

    def to_tuple(self) -> tuple[T, ...]:
        return tuple(in_order(self._tip))

    def __iter__(self) -> Iterator[T]:
        return iter(in_order(self._tip))

    def __len__(self) -> int:
        return 0 if self._tip is None else self._tip.size


class OrderedMap(Generic[T]):
    """A map from text to values, in the order in which the keys came. None is no value.

    A key that is removed and put again comes last.
    """

    __slots__ = ("_keys", "_map", "_size")

    def __init__(
        self,
        _map: PersistentMap[T | None] | None = None,
        _keys: Stack[str] | None = None,
        _size: int = 0,
    ) -> None:
        self._map: PersistentMap[T | None] = _map if _map is not None else PersistentMap()
        # What was removed stays among the keys for a while, and has no value in the map.
        self._keys = _keys
        self._size = _size

    def get(self, key: str) -> T | None:
        return self._map.get(key)

    def put(self, key: str, value: T) -> OrderedMap[T]:
        if self._map.get(key) is not None:
            return OrderedMap(self._map.put(key, value), self._keys, self._size)
        return OrderedMap(self._map.put(key, value), Stack(self._keys, key), self._size + 1)

    def remove(self, key: str) -> OrderedMap[T]:
        return self if self._map.get(key) is None else OrderedMap(*self._without(key))

    def _without(self, key: str) -> tuple[PersistentMap[T | None], Stack[str] | None, int]:
        size = self._size - 1
        if self._keys is None or self._keys.size <= 2 * size + _MANY:
            return self._map.put(key, None), self._keys, size
        left: PersistentMap[T | None] = PersistentMap()
        keys: Stack[str] | None = None
        for other, value in self.items():
            if other != key:
                left, keys = left.put(other, value), Stack(keys, other)
        return left, keys, size

    def items(self) -> Iterator[tuple[str, T]]:
        found: dict[str, T] = {}
        cell = self._keys
        while cell is not None and len(found) < self._size:
            value = self._map.get(cell.item)
            if value is not None:
                found.setdefault(cell.item, value)
            cell = cell.below
        return reversed(found.items())

    def values(self) -> Iterator[T]:
        return (value for _, value in self.items())

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.items())

    def __contains__(self, key: str) -> bool:
        return self._map.get(key) is not None

    def __len__(self) -> int:
        return self._size


# What is under way: a few things at most times, any number at some.
UnderWay: TypeAlias = dict[str, T] | OrderedMap[T]


def begun(things: UnderWay[T], key: str, value: T) -> UnderWay[T]:
    """With one more thing; the old ones stay as they were."""
    if isinstance(things, OrderedMap):
        return things.put(key, value)
    if len(things) < _FEW:
        return {**things, key: value}
    many: OrderedMap[T] = OrderedMap()
    for other, one in things.items():
        many = many.put(other, one)
    return many.put(key, value)


def over(things: UnderWay[T], key: str) -> UnderWay[T]:
    """Without this thing."""
    if isinstance(things, OrderedMap):
        left = things.remove(key)
        return left if len(left) > _FEW // 2 else dict(left.items())
    if key not in things:
        return things
    return {other: one for other, one in things.items() if other != key}


# A map whose sum is known, that sum, and the keys that were changed since: one tuple,
# so that two threads never see half of a change.
_Sum: TypeAlias = "tuple[PersistentMap[T | None], int, Stack[str] | None]"


class HashedMap(OrderedMap[T]):
    """The same with a digest, of the keys and values but not of their order.

    Values are what canonical JSON can hold, or `plain` gives that of them.
    """

    __slots__ = ("_digest", "_plain", "_sum")

    def __init__(
        self,
        _map: PersistentMap[T | None] | None = None,
        _keys: Stack[str] | None = None,
        _size: int = 0,
        _sum: _Sum[T] | None = None,
        plain: Callable[[T], object] | None = None,
    ) -> None:
        self._map = _map if _map is not None else PersistentMap()
        self._keys = _keys
        self._size = _size
        self._sum: _Sum[T] = _sum or (PersistentMap(), 0, None)
        self._plain = plain
        self._digest: bytes | None = None

    def put(self, key: str, value: T) -> HashedMap[T]:
        keys, size = self._keys, self._size
        if self._map.get(key) is None:
            keys, size = Stack(keys, key), size + 1
        known, total, changed = self._sum
        now: _Sum[T] = (known, total, Stack(changed, key))
        return HashedMap(self._map.put(key, value), keys, size, now, self._plain)

    def remove(self, key: str) -> HashedMap[T]:
        if self._map.get(key) is None:
            return self
        known, total, changed = self._sum
        now: _Sum[T] = (known, total, Stack(changed, key))
        return HashedMap(*self._without(key), now, self._plain)

    @property
    def digest(self) -> bytes:
        if self._digest is not None:
            return self._digest
        known, total, changed = self._sum
        plain = self._plain
        for key in dict.fromkeys(in_order(changed)):
            old, new = known.get(key), self._map.get(key)
            if old is not None:
                total = map_remove(total, key, old if plain is None else plain(old))
            if new is not None:
                total = map_add(total, key, new if plain is None else plain(new))
        self._sum = (self._map, total, None)
        self._digest = combine("map", map_digest(total))
        return self._digest
