"""Lazy JSON: a state as JSON in which long lists are made item by item.

Printing, pointing into it and comparing cost what is printed, pointed at or different.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from turnledger.projections.persistent.containers import PersistentList

T = TypeVar("T")

# What a pointer resolves to if it names nothing.
MISSING: Final = object()


class LazyList(Generic[T]):
    """A list of JSON values, each made when it is read.

    Args:
        items: Gives what the values are made of.
        make: Makes the JSON value of an item.
        source: What the list follows from; a `PersistentList` if that is the items themselves.
    """

    __slots__ = ("_items", "_make", "_source")

    def __init__(
        self, items: Callable[[], Sequence[T]], make: Callable[[T], Any], source: Any
    ) -> None:
        self._items = items
        self._make = make
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._items())

    def __len__(self) -> int:
        return len(self._items())

    def after(self, count: int) -> Iterator[Any]:
        """The values without the first `count`. Of a persistent list it costs those taken."""
        items = self._items()
        rest = items.after(count) if isinstance(items, PersistentList) else iter(items[count:])
        return map(self._make, rest)

    def at(self, place: int) -> Any:
        """The value at a place; MISSING if the list is shorter."""
        items = self._items()
        return self._make(items[place]) if place < len(items) else MISSING

    def mapped(self, change: Callable[[Any], Any]) -> LazyList[T]:
        """The list with each value changed by a function, when it is read."""
        make = self._make
        return LazyList(self._items, lambda item: change(make(item)), self._source)

    def differences(self, earlier: LazyList[T]) -> Iterator[int]:
        """The places that both lists have, and where their values may differ."""
        ours, theirs = self._source, earlier._source
        if isinstance(ours, PersistentList) and isinstance(theirs, PersistentList):
            return ours.differences(theirs)
        return iter(() if ours is theirs else range(min(len(self), len(earlier))))

    def is_same_at(self, earlier: LazyList[T], place: int) -> bool:
        """Whether both lists have the same object at a place. If not, it may still be equal."""
        ours, theirs = self._source, earlier._source
        if not isinstance(ours, PersistentList) or not isinstance(theirs, PersistentList):
            return False
        return place < min(len(ours), len(theirs)) and ours[place] is theirs[place]

    def is_same_as(self, earlier: LazyList[T]) -> bool:
        """Whether both follow from the same object. If not, they may still be equal."""
        return self._source is earlier._source


def lazy_list(items: PersistentList[T], make: Callable[[T], Any]) -> LazyList[T]:
    """The JSON of a persistent list. What two of its versions share is known from their trees."""
    return LazyList(lambda: items, make, items)


def plain_json(value: Any) -> Any:
    """Lazy JSON as plain JSON, with all of its lists made."""
    if isinstance(value, LazyList):
        return list(value)
    if isinstance(value, dict):
        return {name: plain_json(inner) for name, inner in value.items()}
    return value


# --- JSON Pointers -----------------------------------------------------------------------


def pointer_parts(pointer: str) -> tuple[str, ...]:
    """The parts of a JSON Pointer (RFC 6901); ValueError says what is wrong with it."""
    if pointer and not pointer.startswith("/"):
        raise ValueError(
            f"Invalid JSON Pointer {pointer!r}: it begins with '/', like /usage/total."
        )
    if "~" in pointer.replace("~0", "").replace("~1", ""):
        raise ValueError(
            f"Invalid JSON Pointer {pointer!r}: '~' is written ~0, and '/' in a name ~1."
        )
    parts = pointer.split("/")[1:]
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


def _list_index(part: str) -> int | None:
    """A part of a pointer as a place in a list; None if it is not one."""
    digits = part.isascii() and part.isdigit() and len(part) < 16
    return int(part) if digits and (part == "0" or part[0] != "0") else None


def resolve(value: Any, parts: Sequence[str]) -> Any:
    """What a JSON Pointer names in lazy or plain JSON; MISSING if it names nothing."""
    for part in parts:
        if isinstance(value, dict):
            value = value.get(part, MISSING)
            continue
        place = _list_index(part) if isinstance(value, list | LazyList) else None
        if place is None:
            return MISSING
        if isinstance(value, LazyList):
            value = value.at(place)
        else:
            value = value[place] if place < len(value) else MISSING
    return value


# --- comparing ---------------------------------------------------------------------------


def unchanged(earlier: Any, later: Any, parts: Sequence[str]) -> bool:
    """Whether a pointed-at value is known to be the same without making it; False is unknown."""
    for part in parts:
        if isinstance(earlier, LazyList) and isinstance(later, LazyList):
            place = _list_index(part)
            return place is not None and later.is_same_at(earlier, place)
        if not isinstance(earlier, dict) or not isinstance(later, dict):
            return False
        if part not in earlier or part not in later:
            return part not in earlier and part not in later
        earlier, later = earlier[part], later[part]
    if not isinstance(earlier, LazyList) or not isinstance(later, LazyList):
        return False
    return later.is_same_as(earlier)
