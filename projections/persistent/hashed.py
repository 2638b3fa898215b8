"""Persistent lists and maps with incremental digests.

A digest is worked out when it is asked for, from the last one that is known: a fold that never
asks pays nothing, one that asks at every step pays for the step. What is known is kept where
containers share it, because the state whose digest is asked for is often thrown away (a loop
folds its events once to make a checkpoint and again when the store has given them times): the
next state, which goes on from an earlier one, must not begin at the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Self, TypeAlias, TypeVar

from turnledger.projections.digests import (
    combine,
    list_add,
    list_start,
    map_add,
    map_digest,
    map_remove,
)
from turnledger.projections.persistent.containers import (
    PersistentList,
    PersistentMap,
    Stack,
    in_order,
    pushed,
)

T = TypeVar("T")

# A map is rebuilt when its removed keys are this many more than those that it has.
_MANY = 16
# Up to so many open items are a plain dict.
FEW = 32


class HashedList(PersistentList[T]):
    """A list that only grows, with a running hash of its items.

    Items are what canonical JSON can hold, or `step` says how one is added to the hash.
    """

    __slots__ = ("_digest", "_domain", "_known", "_step")

    def __init__(
        self,
        domain: str,
        step: Callable[[bytes, Any], bytes] = list_add,
        items: Sequence[T] = (),
    ) -> None:
        super().__init__(items)
        self._domain = domain
        self._step = step
        self._digest: bytes | None = None
        # A digest that was known when this list was made, and how many items it is of.
        self._known = (0, list_start(domain))

    def _twin(self) -> Self:
        twin = object.__new__(type(self))
        twin._root, twin._levels = self._root, self._levels
        twin._tail, twin._size = self._tail, self._size
        twin._domain, twin._step = self._domain, self._step
        twin._digest = None
        known = self._digest
        twin._known = self._known if known is None else (self._size, known)
        return twin

    def replace(self, place: int, item: T) -> Self:
        raise TypeError("A HashedList only grows: its digest is of the items in their order.")

    @property
    def last(self) -> T | None:
        return self[-1] if self._size else None

    @property
    def digest(self) -> bytes:
        """The running hash of all items, begun with the domain."""
        if self._digest is not None:
            return self._digest
        # Back from the end to the first leaf whose end has a digest, or to the one that was
        # known before; then forwards from there. Two threads write the same memos.
        covered, digest = self._known
        start = self._size - len(self._tail)
        fresh = []
        while start > covered:
            leaf = self._leaf(start - 1)
            if leaf.memo is not None:
                covered, digest = start, leaf.memo
                break
            fresh.append(leaf)
            start -= len(leaf.items)
        skipped, step = covered - start, self._step
        for leaf in reversed(fresh):
            for item in leaf.items[skipped:]:
                digest = step(digest, item)
            leaf.memo = digest
            skipped = 0
        for item in self._tail[skipped:]:
            digest = step(digest, item)
        self._digest = digest
        return digest

    def to_tuple(self) -> tuple[T, ...]:
        return tuple(self)

    def __reduce__(self) -> tuple[object, ...]:
        return (HashedList, (self._domain, self._step, list(self)))


class OrderedMap(Generic[T]):
    """A persistent map from text to values that keeps the order in which its keys were put.

    None is not a value: a key that is removed stays in the tree with None, because taking it
    out would copy as much and the tree is rebuilt anyway when too many such keys are left. A key
    that is removed and put again comes last.
    """

    __slots__ = ("_keys", "_map", "_size")

    def __init__(
        self,
        _map: PersistentMap[T | None] | None = None,
        _keys: Stack[str] | None = None,
        _size: int = 0,
    ) -> None:
        self._map: PersistentMap[T | None] = _map if _map is not None else PersistentMap()
        # Removed keys stay here until the map is rebuilt, and those that were put again are here
        # twice: `items` goes back from the last one and takes the latest of each.
        self._keys = _keys
        self._size = _size

    @property
    def size(self) -> int:
        return self._size

    def get(self, key: str) -> T | None:
        return self._map.get(key)

    def put(self, key: str, value: T) -> OrderedMap[T]:
        if self._map.get(key) is not None:
            return OrderedMap(self._map.put(key, value), self._keys, self._size)
        return OrderedMap(self._map.put(key, value), pushed(self._keys, key), self._size + 1)

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
                left, keys = left.put(other, value), pushed(keys, other)
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

    def __reversed__(self) -> Iterator[str]:
        """The keys from the last one on. It costs those that are taken."""
        seen: set[str] = set()
        cell = self._keys
        while cell is not None and len(seen) < self._size:
            key = cell.item
            if key not in seen and self._map.get(key) is not None:
                seen.add(key)
                yield key
            cell = cell.below

    def values(self) -> Iterator[T]:
        return (value for _, value in self.items())

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.items())

    def __contains__(self, key: str) -> bool:
        return self._map.get(key) is not None

    def __len__(self) -> int:
        return self._size


# A map whose sum is known, that sum, and the keys that were changed since. One tuple, because
# `digest` replaces it on a map that several threads may read: none sees half of a change.
_Sum: TypeAlias = "tuple[PersistentMap[T | None], int, Stack[str] | None]"


class HashedMap(OrderedMap[T]):
    """An ordered map with a digest of its entries, in any order.

    The digest is a sum of hashes, so a changed entry is taken out and put in again at the price
    of that entry. Values are what canonical JSON can hold, or `plain` gives that of them.
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
            keys, size = pushed(keys, key), size + 1
        known, total, changed = self._sum
        now: _Sum[T] = (known, total, pushed(changed, key))
        return HashedMap(self._map.put(key, value), keys, size, now, self._plain)

    def remove(self, key: str) -> HashedMap[T]:
        if self._map.get(key) is None:
            return self
        known, total, changed = self._sum
        now: _Sum[T] = (known, total, pushed(changed, key))
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


# Items that are open, by key: nearly always a few, and any number at times. A few are a plain
# dict, which is quick to copy; many are a map that is not copied.
OpenItems: TypeAlias = dict[str, T] | HashedMap[T]


def own_copy(items: OpenItems[T]) -> OpenItems[T]:
    """Open items for `with_item` and `without_item` to change; the given ones stay as they are."""
    return items if isinstance(items, HashedMap) else dict(items)


def with_item(
    items: OpenItems[T], key: str, value: T, plain: Callable[[T], object]
) -> OpenItems[T]:
    """Add an item, or replace it, in items of one's own.

    Args:
        items: What `own_copy` gave; it may be changed in place.
        key: The item's key.
        value: The item.
        plain: What the digest is of, for a value.
    """
    if isinstance(items, HashedMap):
        return items.put(key, value)
    items[key] = value
    if len(items) <= FEW:
        return items
    many: HashedMap[T] = HashedMap(plain=plain)
    for name, one in items.items():
        many = many.put(name, one)
    return many


def without_item(items: OpenItems[T], key: str) -> OpenItems[T]:
    """Remove an item from items of one's own."""
    if isinstance(items, HashedMap):
        left = items.remove(key)
        # Not at once when there are as few as a dict may have: or a number of items that goes
        # up and down there would be copied back and forth.
        return left if len(left) > FEW // 2 else dict(left.items())
    items.pop(key, None)
    return items


def open_digest(items: OpenItems[T], plain: Callable[[T], object]) -> bytes:
    """The digest of open items, the same in either form."""
    if isinstance(items, HashedMap):
        return items.digest
    total = 0
    for key, value in items.items():
        total = map_add(total, key, plain(value))
    return combine("map", map_digest(total))
