"""Lists and maps that are values and carry their digests along.

Adding gives a new one at the same price however much is in it, and leaves the old one as
it was. A digest is worked out when it is asked for, from the last one that was asked for:
a fold that never asks pays nothing, one that asks at every step pays for the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any, Generic, TypeAlias, TypeVar

from turnledger.projections.digests import (
    combine,
    list_add,
    list_start,
    map_add,
    map_digest,
    map_remove,
)
from turnledger.projections.persistent.containers import (
    PersistentMap,
    Stack,
    in_order,
)
from turnledger.projections.persistent.pickling import packed, unpacked
from turnledger.projections.persistent.spill import AwayList, away

T = TypeVar("T")

# Keys that are gone are cleared away when they are this many more than those that are there.
_MANY = 16
# Up to so many things under way, a plain dict is copied.
_FEW = 32
# A list with so many items in memory puts the older ones away, in pieces, until few are left.
_MOST = 16384
_LEFT = 8192
_PIECE = 1024


class _Chunk(Generic[T]):
    """Items on top of those before them. Freed without recursion, however long the chain is."""

    __slots__ = ("content", "digest")

    def __init__(self, below: _Chunk[T] | None, items: Sequence[T]) -> None:
        # What lies below, and the items on top of that: in one, so that no thread sees half
        # of it change when items are put away.
        self.content = (below, items)
        # The list's digest up to here, once somebody asked: whoever goes on from here has it.
        self.digest: bytes | None = None


class HashedList(Generic[T]):
    """A list that only grows. Items are what canonical JSON can hold, or `step` says how.

    The older items of a long one lie in a file, from which equal ones are fetched; with
    `stays` they never do.
    """

    __slots__ = ("_domain", "_near", "_size", "_start", "_step", "_tip")

    def __init__(
        self,
        domain: str,
        step: Callable[[bytes, Any], bytes] = list_add,
        *,
        stays: bool = False,
    ) -> None:
        self._domain = domain
        self._step = step
        self._size = 0
        self._tip: _Chunk[T] | None = None
        self._start = list_start(domain)
        # How many of its last items may still be in memory; None: it is not counted.
        self._near: int | None = None if stays else 0

    def append(self, item: T) -> HashedList[T]:
        return self.extend((item,))

    def extend(self, items: Sequence[T]) -> HashedList[T]:
        """With these items too; the sequence is kept and must not change afterwards."""
        if not items:
            return self
        longer: HashedList[T] = HashedList.__new__(HashedList)
        longer._domain = self._domain
        longer._step = self._step
        longer._size = self._size + len(items)
        longer._tip = _Chunk(self._tip, items)
        longer._start = self._start
        near = longer._near = None if self._near is None else self._near + len(items)
        if near is not None and near >= _MOST:
            left = longer._put_away(near)
            # Whoever else goes on from here need not look again.
            longer._near, self._near = left, max(0, left - len(items))
        return longer

    def _put_away(self, near: int) -> int:
        """Leave the last items in memory; how many. Whoever shares the others has them in the
        file, too."""
        chunk, count = self._tip, 0
        while chunk is not None and count < _LEFT:
            last = chunk
            chunk, items = last.content
            count += len(items)
            if count >= _LEFT + _PIECE and not isinstance(items, AwayList):
                # Many came at once: only as many of them stay as would have, had they not.
                cut, count = count - _LEFT, _LEFT
                chunk = _Chunk(chunk, items[:cut])
                last.content = (chunk, items[cut:])
        left = count
        while chunk is not None and count < near:
            top, together, size = chunk, [], 0
            while chunk is not None and size < _PIECE and count + size < near:
                below, items = chunk.content
                if isinstance(items, AwayList):
                    break
                together.append(items)
                size += len(items)
                chunk = below
            if not together:
                break
            count += size
            every = [item for items in reversed(together) for item in items]
            *lower, upper = (away(every[at : at + _PIECE]) for at in range(0, size, _PIECE))
            below = chunk
            for piece in lower:
                below = _Chunk(below, piece)
            top.content = (below, upper)
        return left

    @property
    def last(self) -> T | None:
        return None if self._tip is None else self._tip.content[1][-1]

    @property
    def digest(self) -> bytes:
        fresh: list[tuple[_Chunk[T], Sequence[T]]] = []
        chunk = self._tip
        while chunk is not None and chunk.digest is None:
            below, items = chunk.content
            fresh.append((chunk, items))
            chunk = below
        digest = self._start if chunk is None or chunk.digest is None else chunk.digest
        step = self._step
        for chunk, items in reversed(fresh):
            for item in items:
                digest = step(digest, item)
            chunk.digest = digest
        return digest

    def backwards(self) -> Iterator[T]:
        """The items, the latest first."""
        chunk = self._tip
        while chunk is not None:
            chunk, items = chunk.content
            yield from reversed(items)

    def pieces(self) -> list[Sequence[T]]:
        """The items, in sequences as they are kept: those in a file are not fetched yet."""
        pieces: list[Sequence[T]] = []
        chunk = self._tip
        while chunk is not None:
            chunk, items = chunk.content
            pieces.append(items)
        pieces.reverse()
        return pieces

    def to_tuple(self) -> tuple[T, ...]:
        return tuple(self)

    def goes_on_from(self, earlier: HashedList[T]) -> bool:
        """Whether it is surely that list with more added, or none. Costs what was added."""
        if self._start != earlier._start:
            return False
        chunk, size = self._tip, self._size
        while chunk is not None and size > earlier._size:
            chunk, items = chunk.content
            size -= len(items)
        return chunk is earlier._tip and size == earlier._size

    def __getitem__(self, place: int) -> T:
        """One item; what was added last is found first."""
        chunk, before = self._tip, self._size
        while chunk is not None:
            chunk, items = chunk.content
            before -= len(items)
            if before <= place:
                return items[place - before]
        raise IndexError(place)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.pieces())

    def __len__(self) -> int:
        return self._size

    def _here(self) -> list[T]:
        return list(self)

    def __reduce__(self) -> tuple[object, ...]:
        """Copied with its items, packed so that they keep their JSON, and so the digest."""
        return (_listed, (*self._empty(), packed(self._here())))

    def __deepcopy__(self, memo: dict[int, Any]) -> HashedList[T]:
        return _again(*self._empty(), deepcopy(self._here(), memo))

    def _empty(self) -> tuple[str, Callable[[bytes, Any], bytes], bool]:
        return self._domain, self._step, self._near is None


def _again(
    domain: str, step: Callable[[bytes, Any], bytes], stays: bool, items: list[T]
) -> HashedList[T]:
    return HashedList[T](domain, step, stays=stays).extend(items)


def _listed(
    domain: str, step: Callable[[bytes, Any], bytes], stays: bool, items: bytes
) -> HashedList[Any]:
    return _again(domain, step, stays, unpacked(items))


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

    @property
    def size(self) -> int:
        return self._size

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


# What is under way: a few things at most times, any number at some.
UnderWay: TypeAlias = dict[str, T] | HashedMap[T]


def owned(things: UnderWay[T]) -> UnderWay[T]:
    """The same things to be changed with `begun` and `over`; the old ones stay as they are."""
    return things if isinstance(things, HashedMap) else dict(things)


def under_way(things: dict[str, T], plain: Callable[[T], object]) -> UnderWay[T]:
    """Things as they are kept while they are under way."""
    if len(things) <= _FEW:
        return things
    many: HashedMap[T] = HashedMap(plain=plain)
    for key, one in things.items():
        many = many.put(key, one)
    return many


def begun(things: UnderWay[T], key: str, value: T, plain: Callable[[T], object]) -> UnderWay[T]:
    """Owned things with one more."""
    if isinstance(things, HashedMap):
        return things.put(key, value)
    things[key] = value
    return things if len(things) <= _FEW else under_way(things, plain)


def over(things: UnderWay[T], key: str) -> UnderWay[T]:
    """Owned things without this one."""
    if isinstance(things, HashedMap):
        left = things.remove(key)
        return left if len(left) > _FEW // 2 else dict(left.items())
    things.pop(key, None)
    return things


def digest_of(things: UnderWay[T], plain: Callable[[T], object]) -> bytes:
    """The digest of things under way, the same however they are kept."""
    if isinstance(things, HashedMap):
        return things.digest
    total = 0
    for key, value in things.items():
        total = map_add(total, key, plain(value))
    return combine("map", map_digest(total))
