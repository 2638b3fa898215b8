"""Lazy JSON: a state as JSON in which long lists are made item by item.

Printing, pointing into it and comparing cost what is printed, pointed at or different.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, Generic, TypeVar

from turnledger.projections.digests import canonical
from turnledger.projections.persistent.containers import PersistentList

T = TypeVar("T")

# What a pointer resolves to if it names nothing.
MISSING: Final = object()


class LazyList(Generic[T]):
    """A list of JSON values, each made when it is read.

    Args:
        items: Gives what the values are made of.
        make: Makes the JSON value of an item.
        source: What the list follows from.
        shared: For an earlier source and this one, how many items both lists begin with, as far
            as that can be said without looking at the items.
    """

    __slots__ = ("_items", "_make", "_shared", "_source")

    def __init__(
        self,
        items: Callable[[], Sequence[T]],
        make: Callable[[T], Any],
        source: Any,
        shared: Callable[[Any, Any], int],
    ) -> None:
        self._items = items
        self._make = make
        self._source = source
        self._shared = shared

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._items())

    def after(self, count: int) -> Iterator[Any]:
        """The values without the first `count`."""
        return map(self._make, self._items()[count:])

    def at(self, place: int) -> Any:
        """The value at a place; MISSING if the list is shorter."""
        items = self._items()
        return self._make(items[place]) if place < len(items) else MISSING

    def shared_with(self, earlier: LazyList[T]) -> int:
        """At least how many of the first values are those of an earlier list."""
        return self._shared(earlier._source, self._source)

    def is_same_as(self, earlier: LazyList[T]) -> bool:
        """Whether both follow from the same object. If not, they may still be equal."""
        return self._source is earlier._source


def lazy_list(items: PersistentList[T], make: Callable[[T], Any]) -> LazyList[T]:
    """The JSON of a persistent list. What two of its versions share is known from their trees."""
    return LazyList(lambda: items, make, items, lambda earlier, later: later.shared_with(earlier))


def none_shared(earlier: object, later: object) -> int:
    """`shared` for lists of which nothing is known without looking at the items."""
    return 0


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
            return place is not None and place < later.shared_with(earlier)
        if not isinstance(earlier, dict) or not isinstance(later, dict):
            return False
        if part not in earlier or part not in later:
            return part not in earlier and part not in later
        earlier, later = earlier[part], later[part]
    if not isinstance(earlier, LazyList) or not isinstance(later, LazyList):
        return False
    return later.is_same_as(earlier)


def without_shared(earlier: Any, later: Any) -> tuple[Any, Any]:
    """Both as plain JSON, with null (which keeps places) for items that two lists begin with."""
    if isinstance(earlier, LazyList) and isinstance(later, LazyList):
        return _lists_without_shared(earlier, later)
    if not isinstance(earlier, dict) or not isinstance(later, dict):
        return plain_json(earlier), plain_json(later)
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for name, value in earlier.items():
        if name in later:
            before[name], after[name] = without_shared(value, later[name])
        else:
            before[name] = plain_json(value)
    # In the order of the later one.
    return before, {n: after[n] if n in after else plain_json(v) for n, v in later.items()}


def _lists_without_shared(
    earlier: LazyList[Any], later: LazyList[Any]
) -> tuple[list[Any], list[Any]]:
    same = later.shared_with(earlier)
    before: list[Any] = [None] * same
    after: list[Any] = [None] * same
    alike = True
    rest = zip_longest(earlier.after(same), later.after(same), fillvalue=MISSING)
    for one, other in rest:
        both = one is not MISSING and other is not MISSING
        alike = alike and both and canonical(one) == canonical(other)
        if one is not MISSING:
            before.append(None if alike else one)
        if other is not MISSING:
            after.append(None if alike else other)
    return before, after
