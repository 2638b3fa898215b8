"""Persistent containers: a stack, a list and a map that never change.

Adding gives a new container that shares almost everything with the old one, which stays as it
was. So every state of a run can be kept, at the price of what changed, and two may go on from
the same one. None of them is ever read in the order of hashes, which differs between processes.

Pick by what is done to it:

- `Stack`: small or write-mostly; one object an item, read as a whole.
- `PersistentList`: long; indexed, sliced, an item replaced.
- `PersistentMap`: by text; `SmallMap` where there are nearly always few entries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Self, TypeAlias, TypeVar, overload

import msgspec

T = TypeVar("T")
A = TypeVar("A")

# --- stacks ------------------------------------------------------------------------------


class _Freeing(threading.local):
    """Rests of chains that this thread is about to free; None while it frees none."""

    rests: list[object] | None = None


# In a chain of linked objects, each of which holds the one before it, freeing the last one
# frees all of them, one inside the other. Python up to 3.12 stops nesting after 50; 3.13
# nests up to 10,000 times, which overflows the stack of a thread that has a small one. So
# one link in so many is a breaker: it hands on its rest instead of freeing it in place.
BREAKER_EVERY = 64
_freeing = _Freeing()


def break_chain(holder: Any, name: str, freeing: _Freeing = _freeing) -> None:
    """From a breaker's `__del__`: free what its attribute holds, without nesting.

    The outermost breaker of this thread frees the rests that those inside it hand on, one
    after the other. The attribute is read here, so that no caller's variable keeps it alive.
    (`freeing` is bound now: at the interpreter's end a module's names may be gone.)
    """
    rest: list[object] = [getattr(holder, name)]
    setattr(holder, name, None)
    if freeing.rests is not None:
        freeing.rests += rest
        return
    freeing.rests = rest
    try:
        while rest:
            rest.pop()
    finally:
        freeing.rests = None


class Stack(msgspec.Struct, Generic[T], eq=False, gc=False):
    """An item on top of the items before it; the empty stack is None. Made by `pushed`.

    `memo` is what `accumulated` has worked out up to here: it is kept in the cell, so that
    every stack that goes on from here has it too.
    """

    # A Struct, because a long conversation has one for every block and it is made in C. It links
    # to older cells only, so the garbage collector need not look for cycles.
    below: Stack[T] | None
    item: T
    size: int
    memo: Any = None

    def __reduce__(self) -> tuple[object, ...]:
        """Copied as a list of its cells: a long chain would recurse."""
        cells: list[tuple[T, Any]] = []
        cell: Stack[T] | None = self
        while cell is not None:
            cells.append((cell.item, cell.memo))
            cell = cell.below
        return (_stacked, (cells[::-1],))


class _BreakerCell(Stack[T], eq=False, gc=False):
    """A cell at which freeing a long stack stops nesting."""

    def __del__(self) -> None:
        break_chain(self, "below")


def pushed(below: Stack[T] | None, item: T) -> Stack[T]:
    """The stack with one more item."""
    if below is None:
        return Stack(None, item, 1)
    kind = Stack if below.size % BREAKER_EVERY else _BreakerCell
    return kind(below, item, below.size + 1)


def _stacked(cells: list[tuple[T, Any]]) -> Stack[T] | None:
    stack: Stack[T] | None = None
    for item, memo in cells:
        stack = pushed(stack, item)
        stack.memo = memo
    return stack


def in_order(stack: Stack[T] | None) -> list[T]:
    """The items, the oldest first."""
    items: list[T] = []
    while stack is not None:
        items.append(stack.item)
        stack = stack.below
    items.reverse()
    return items


def as_tuple(stack: Stack[T]) -> tuple[T, ...]:
    """The items, the oldest first; quicker for one or two, as most stacks have."""
    below = stack.below
    if below is None:
        return (stack.item,)
    if below.below is None:
        return (below.item, stack.item)
    return tuple(in_order(stack))


def accumulated(stack: Stack[T] | None, start: A, step: Callable[[A, T], A]) -> A:
    """`step` over the items from the oldest on, beginning at the highest cell with a memo.

    A stack is only ever accumulated by one `step`. Two threads that do it at once
    write the same values.
    """
    fresh: list[Stack[T]] = []
    while stack is not None and stack.memo is None:
        fresh.append(stack)
        stack = stack.below
    value: A = start if stack is None else stack.memo
    for cell in reversed(fresh):
        value = cell.memo = step(value, cell.item)
    return value


# --- lists -------------------------------------------------------------------------------

_BITS = 5
_WIDTH = 1 << _BITS

# A branch: branches of the level below or, on the lowest level, leaves.
_Branch: TypeAlias = "tuple[Any, ...]"


class Leaf(Generic[T]):
    """Exactly `_WIDTH` items of a list, and a place for what was worked out up to their end.

    Leaves are shared by all lists that go on from the same one, and so is the memo.
    """

    __slots__ = ("items", "memo")

    def __init__(self, items: tuple[T, ...]) -> None:
        self.items = items
        self.memo: Any = None


class PersistentList(Sequence[T]):
    """A list as a tree: branches of 32, leaves of 32 items, and a tail of less than that.

    Appending copies the tail and, one time in 32, the branches on the way to a new leaf;
    replacing an item copies its leaf and the branches above it. A million items are four
    levels, so nothing here nests deeply when it is freed or copied.
    """

    __slots__ = ("_levels", "_root", "_size", "_tail")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._root: _Branch = ()
        self._levels = 1  # of branches; the leaves are below them
        self._tail: tuple[T, ...] = ()
        self._size = 0
        self._grow(tuple(items))

    def _twin(self) -> Self:
        """Another list with the same items, which is changed before it is handed out."""
        twin = object.__new__(type(self))
        twin._root, twin._levels = self._root, self._levels
        twin._tail, twin._size = self._tail, self._size
        return twin

    def _grow(self, items: Sequence[T]) -> None:
        """Add items to a list that nothing else knows yet."""
        leaves = (self._size - len(self._tail)) // _WIDTH
        self._size += len(items)
        if len(self._tail) + len(items) < _WIDTH:
            self._tail = (*self._tail, *items)
            return
        every = (*self._tail, *items)
        full = len(every) - len(every) % _WIDTH
        for start in range(0, full, _WIDTH):
            if leaves == _WIDTH**self._levels:  # full: the tree grows at the top
                self._root, self._levels = (self._root,), self._levels + 1
            leaf = Leaf(every[start : start + _WIDTH])
            self._root = _with_leaf(self._root, self._levels, leaves, leaf)
            leaves += 1
        self._tail = every[full:]

    def append(self, item: T) -> Self:
        return self.extend((item,))

    def extend(self, items: Sequence[T]) -> Self:
        """The list with these items too."""
        if not items:
            return self
        longer = self._twin()
        longer._grow(items)
        return longer

    def replace(self, place: int, item: T) -> Self:
        """The list with another item at a place that it has."""
        changed = self._twin()
        start = self._size - len(self._tail)
        if place >= start:
            tail = list(self._tail)
            tail[place - start] = item
            changed._tail = tuple(tail)
        else:
            changed._root = _replaced(self._root, self._levels, place, item)
        return changed

    def _leaf(self, place: int) -> Leaf[T]:
        """The leaf that has the item of this place, which is not in the tail."""
        node: Any = self._root
        for level in range(self._levels, 0, -1):
            node = node[(place >> (_BITS * level)) % _WIDTH]
        leaf: Leaf[T] = node
        return leaf

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            start, stop, step = place.indices(self._size)
            if step != 1:
                return list(self)[place]
            return list(islice(self.after(start), max(0, stop - start)))
        if place < 0:
            place += self._size
        if not 0 <= place < self._size:
            raise IndexError(place)
        start = self._size - len(self._tail)
        if place >= start:
            return self._tail[place - start]
        return self._leaf(place).items[place % _WIDTH]

    def after(self, place: int) -> Iterator[T]:
        """The items from a place on. It costs those that are taken, not those before."""
        start = self._size - len(self._tail)
        while place < start:
            yield from self._leaf(place).items[place % _WIDTH :]
            place += _WIDTH - place % _WIDTH
        yield from self._tail[place - start :]

    def __iter__(self) -> Iterator[T]:
        return self.after(0)

    def __reversed__(self) -> Iterator[T]:
        yield from reversed(self._tail)
        for place in range(self._size - len(self._tail) - 1, 0, -_WIDTH):
            yield from reversed(self._leaf(place).items)

    def __len__(self) -> int:
        return self._size

    def differences(self, earlier: PersistentList[T]) -> Iterator[int]:
        """The places that both lists have, and where they hold different objects.

        It costs about what differs: branches that both lists hold are passed over.
        """
        ours, theirs = self._root, earlier._root
        levels = min(self._levels, earlier._levels)
        # A tree that grew at the top has what it was before as its first branch.
        for _ in range(self._levels - levels):
            ours = ours[0]
        for _ in range(earlier._levels - levels):
            theirs = theirs[0]
        yield from _different_places(ours, theirs, levels, 0)
        # Of the shorter one only the tail is left: at most so many items as it has.
        start = min(self._size - len(self._tail), earlier._size - len(earlier._tail))
        pairs = zip(self.after(start), earlier.after(start), strict=False)
        for place, (one, other) in enumerate(pairs, start):
            if one is not other:
                yield place

    def __reduce__(self) -> tuple[object, ...]:
        return (PersistentList, (list(self),))


def _with_leaf(branch: _Branch, levels: int, place: int, leaf: Leaf[Any]) -> _Branch:
    """The branch with one more leaf, which is its last: the one at `place` among all leaves."""
    if levels == 1:
        return (*branch, leaf)
    below = place >> (_BITS * (levels - 1))
    child = branch[below] if below < len(branch) else ()
    rest = place - (below << (_BITS * (levels - 1)))
    return (*branch[:below], _with_leaf(child, levels - 1, rest, leaf))


def _replaced(branch: _Branch, levels: int, place: int, item: Any) -> _Branch:
    at = (place >> (_BITS * levels)) % _WIDTH
    child: Any
    if levels == 1:
        items = list(branch[at].items)
        items[place % _WIDTH] = item
        child = Leaf(tuple(items))
    else:
        child = _replaced(branch[at], levels - 1, place, item)
    return (*branch[:at], child, *branch[at + 1 :])


def _different_places(ours: _Branch, theirs: _Branch, levels: int, start: int) -> Iterator[int]:
    """Where the leaves of two branches, the first items of which stand at `start`, differ."""
    width = _WIDTH**levels
    for one, other in zip(ours, theirs, strict=False):
        if one is not other and levels > 1:
            yield from _different_places(one, other, levels - 1, start)
        elif one is not other:
            items = zip(one.items, other.items, strict=True)
            yield from (place for place, (a, b) in enumerate(items, start) if a is not b)
        start += width


class ListBuilder(Generic[T]):
    """Changes to a list, gathered while many records are folded and made at once."""

    __slots__ = ("_added", "_before", "_changed", "_start")

    def __init__(self, before: PersistentList[T]) -> None:
        self._before = before
        self._start = len(before)
        self._added: list[T] = []
        self._changed: dict[int, T] = {}

    def append(self, item: T) -> int:
        """Add an item; the place where it stands."""
        place = self._start + len(self._added)
        self._added.append(item)
        return place

    def replace(self, place: int, item: T) -> None:
        if place < self._start:
            self._changed[place] = item
        else:
            self._added[place - self._start] = item

    def __len__(self) -> int:
        return self._start + len(self._added)

    def __reversed__(self) -> Iterator[T]:
        yield from reversed(self._added)
        places = range(self._start - 1, -1, -1)
        for place, item in zip(places, reversed(self._before), strict=True):
            yield self._changed.get(place, item)

    def done(self) -> PersistentList[T]:
        found = self._before
        for place, item in self._changed.items():
            found = found.replace(place, item)
        return found.extend(self._added)


# --- maps --------------------------------------------------------------------------------

# Up to so many entries a dict is copied whole: below that, nothing is faster.
_LEAF = 16
# Bits of a hash that choose a branch. Keys that share all of these stay in one dict.
_DEEPEST = 60

_Tree: TypeAlias = "dict[str, Any] | tuple[_Tree, ...]"


class PersistentMap(Generic[T]):
    """A map from text to values as a hash trie: branches of 32, and small dicts as leaves.

    Five bits of a key's hash choose the branch on each level. Putting a key copies one small dict
    and the branches above it. None is not a value: `get` gives it for a missing key.
    """

    __slots__ = ("_root", "size")

    def __init__(self, root: _Tree | None = None, size: int = 0) -> None:
        self._root: _Tree = {} if root is None else root
        self.size = size

    def get(self, key: str) -> T | None:
        node = self._root
        bits = hash(key)
        while type(node) is tuple:
            node = node[bits % _WIDTH]
            bits >>= _BITS
        found: T | None = node.get(key)  # type: ignore[union-attr]
        return found

    def put(self, key: str, value: T) -> PersistentMap[T]:
        """The map with this value, instead of the key's old one if it had one."""
        root = self._root
        # Most maps are small for all of their life: they skip the tree.
        if type(root) is dict and len(root) < _LEAF:
            leaf = {**root, key: value}
            return PersistentMap(leaf, len(leaf))
        size = self.size + (self.get(key) is None)
        return PersistentMap(_put(root, key, value, hash(key), 0), size)

    def __len__(self) -> int:
        return self.size

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as its entries: another process has other hashes, so the tree would be wrong.

        Sorted, because the order within the tree also differs between processes.
        """
        entries: dict[str, T] = {}
        nodes: list[_Tree] = [self._root]
        while nodes:
            node = nodes.pop()
            if type(node) is tuple:
                nodes.extend(node)
            else:
                entries.update(node)  # type: ignore[arg-type]
        return (_map_of, (dict(sorted(entries.items())),))


def _map_of(entries: dict[str, T]) -> PersistentMap[T]:
    found: PersistentMap[T] = PersistentMap()
    for key, value in entries.items():
        found = found.put(key, value)
    return found


# A map that is nearly always small: a plain dict, never changed in place, until it has grown. It
# saves the object around it, of which a conversation has one for every turn.
SmallMap: TypeAlias = dict[str, T] | PersistentMap[T]


def put_in(entries: SmallMap[T], key: str, value: T) -> SmallMap[T]:
    """The map with one more entry; the given one stays as it was."""
    if not entries:
        return {key: value}
    if isinstance(entries, PersistentMap):
        return entries.put(key, value)
    larger = {**entries, key: value}
    return larger if len(larger) < _LEAF else PersistentMap(larger, len(larger))


def _put(node: _Tree, key: str, value: Any, bits: int, depth: int) -> _Tree:
    """The subtree with this entry; `bits` is what is left of the hash after `depth` of it."""
    if type(node) is tuple:
        place = bits % _WIDTH
        child = _put(node[place], key, value, bits >> _BITS, depth + _BITS)
        return (*node[:place], child, *node[place + 1 :])
    assert type(node) is dict
    leaf = {**node, key: value}
    if len(leaf) <= _LEAF or depth >= _DEEPEST:
        return leaf
    children: list[dict[str, Any]] = [{} for _ in range(_WIDTH)]
    for name, one in leaf.items():
        children[(hash(name) >> depth) % _WIDTH][name] = one
    return tuple(children)
