"""The two containers that states are made of: a stack and a map that never change.

Adding gives a new one and leaves the old one as it is, at the same price however much is
in it, also when several are made from the same old one. Neither is ever read in hash order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
A = TypeVar("A")

_LEAF = 16  # entries up to which a plain dict is copied
_BITS = 5
_WIDTH = 1 << _BITS
_DEEPEST = 60  # bits of a hash that are used

Tree: TypeAlias = "dict[str, Any] | tuple[Tree, ...]"


class Stack(Generic[T]):
    """An item on top of the items before it; the empty stack is None.

    A plain class and not a struct without garbage collection: the interpreter frees a
    chain of these without recursion, however long it is.
    """

    __slots__ = ("below", "item", "memo", "size")

    def __init__(self, below: Stack[T] | None, item: T) -> None:
        self.below = below
        self.item = item
        self.size: int = 1 if below is None else below.size + 1
        self.memo: Any = None

    def __reduce__(self) -> tuple[object, ...]:
        """Copied as a list of its cells: a long chain would recurse."""
        cells: list[tuple[T, Any]] = []
        cell: Stack[T] | None = self
        while cell is not None:
            cells.append((cell.item, cell.memo))
            cell = cell.below
        return (_stacked, (cells[::-1],))


def _stacked(cells: list[tuple[T, Any]]) -> Stack[T] | None:
    stack: Stack[T] | None = None
    for item, memo in cells:
        stack = Stack(stack, item)
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
    """The same of a stack that is there, and quicker where it is as small as most are."""
    below = stack.below
    if below is None:
        return (stack.item,)
    if below.below is None:
        return (below.item, stack.item)
    return tuple(in_order(stack))


def accumulated(stack: Stack[T] | None, start: A, step: Callable[[A, T], A]) -> A:
    """`step` over the items from the oldest on; what is known of lower cells is not redone.

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


class PersistentMap(Generic[T]):
    """Values by text: a tree of small dicts, of which adding copies one and the way to it."""

    __slots__ = ("_root", "size")

    def __init__(self, root: Tree | None = None, size: int = 0) -> None:
        self._root: Tree = {} if root is None else root
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
        """A map that has this value too, instead of the key's old one if it had one."""
        root = self._root
        if type(root) is dict and len(root) < _LEAF:
            leaf = {**root, key: value}
            return PersistentMap(leaf, len(leaf))
        size = self.size + (self.get(key) is None)
        return PersistentMap(_put(root, key, value, hash(key), 0), size)

    def __len__(self) -> int:
        return self.size

    def __reduce__(self) -> tuple[object, ...]:
        """Copied as its entries: in another process, text has other hashes."""
        entries: dict[str, T] = {}
        nodes: list[Tree] = [self._root]
        while nodes:
            node = nodes.pop()
            if type(node) is tuple:
                nodes.extend(node)
            else:
                entries.update(node)  # type: ignore[arg-type]
        return (_mapped, (dict(sorted(entries.items())),))


def _mapped(entries: dict[str, T]) -> PersistentMap[T]:
    found: PersistentMap[T] = PersistentMap()
    for key, value in entries.items():
        found = found.put(key, value)
    return found


# A map that is nearly always small: a plain dict that nobody changes, until it has grown.
SmallMap: TypeAlias = dict[str, T] | PersistentMap[T]


def put_in(entries: SmallMap[T], key: str, value: T) -> SmallMap[T]:
    """A map that has this value too; the old one stays as it was."""
    if isinstance(entries, PersistentMap):
        return entries.put(key, value)
    larger = {**entries, key: value}
    return larger if len(larger) < _LEAF else PersistentMap(larger, len(larger))


def _put(node: Tree, key: str, value: Any, bits: int, depth: int) -> Tree:
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
