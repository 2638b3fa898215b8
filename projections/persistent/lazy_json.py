"""A state as JSON whose long lists are made item by item, for those who need a part of it.

`Projection.outline` gives one. Printing it, pointing into it and comparing two of them then
cost what is printed, pointed at or different, where the whole JSON would cost the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, Generic, TypeVar

from turnledger.projections.digests import canonical
from turnledger.projections.persistent.containers import PersistentList

T = TypeVar("T")

NOTHING_THERE: Final = object()


class Items(Generic[T]):
    """A list of JSON values, each made when it is asked for.

    `source` is what the list follows from, and `shared` says of an earlier source and this one
    how many items both lists begin with, if that can be said without looking at the items.
    """

    __slots__ = ("_make", "_shared", "_source", "_things")

    def __init__(
        self,
        things: Callable[[], Sequence[T]],
        make: Callable[[T], Any],
        source: Any,
        shared: Callable[[Any, Any], int],
    ) -> None:
        self._things = things
        self._make = make
        self._source = source
        self._shared = shared

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._things())

    def after(self, count: int) -> Iterator[Any]:
        """Those that come after so many."""
        return map(self._make, self._things()[count:])

    def at(self, place: int) -> Any:
        """One of them; NOTHING_THERE if there are fewer."""
        things = self._things()
        return self._make(things[place]) if place < len(things) else NOTHING_THERE

    def shared_with(self, earlier: Items[T]) -> int:
        """How many of the first items are surely those of the earlier list."""
        return self._shared(earlier._source, self._source)

    def is_same_as(self, earlier: Items[T]) -> bool:
        """Whether nothing at all has changed, as far as that is easy to say."""
        return self._source is earlier._source


def listed(items: PersistentList[T], make: Callable[[T], Any]) -> Items[T]:
    """The JSON of a persistent list: items that two lists share are not made."""
    return Items(lambda: items, make, items, lambda earlier, later: later.shared_with(earlier))


def none_shared(earlier: object, later: object) -> int:
    """For lists of which nothing is known beforehand."""
    return 0


def whole(outline: Any) -> Any:
    """The plain JSON of an outline."""
    if isinstance(outline, Items):
        return list(outline)
    if isinstance(outline, dict):
        return {name: whole(value) for name, value in outline.items()}
    return outline


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


def list_index(part: str) -> int | None:
    """A part of a pointer as a place in a list; None if it is not one."""
    digits = part.isascii() and part.isdigit() and len(part) < 16
    return int(part) if digits and (part == "0" or part[0] != "0") else None


def pointed(outline: Any, parts: Sequence[str]) -> Any:
    """The part of an outline that a JSON Pointer names, itself an outline; or NOTHING_THERE."""
    for part in parts:
        if isinstance(outline, dict):
            outline = outline.get(part, NOTHING_THERE)
            continue
        place = list_index(part) if isinstance(outline, list | Items) else None
        if place is None:
            return NOTHING_THERE
        if isinstance(outline, Items):
            outline = outline.at(place)
        else:
            outline = outline[place] if place < len(outline) else NOTHING_THERE
    return outline


def unchanged(earlier: Any, later: Any, parts: Sequence[str]) -> bool:
    """Whether what a pointer names is surely the same in both: False if one has to look."""
    for part in parts:
        if isinstance(earlier, Items) and isinstance(later, Items):
            place = list_index(part)
            return place is not None and place < later.shared_with(earlier)
        if not isinstance(earlier, dict) or not isinstance(later, dict):
            return False
        if part not in earlier or part not in later:
            return part not in earlier and part not in later
        earlier, later = earlier[part], later[part]
    return isinstance(earlier, Items) and isinstance(later, Items) and later.is_same_as(earlier)


def cut(earlier: Any, later: Any) -> tuple[Any, Any]:
    """Both as plain JSON, with null for the items that two lists both begin with.

    Their places stay, so that every path into what differs means what it meant.
    """
    if isinstance(earlier, Items) and isinstance(later, Items):
        return _cut_lists(earlier, later)
    if not isinstance(earlier, dict) or not isinstance(later, dict):
        return whole(earlier), whole(later)
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for name, value in earlier.items():
        if name in later:
            before[name], after[name] = cut(value, later[name])
        else:
            before[name] = whole(value)
    # In the order of the later one.
    return before, {n: after[n] if n in after else whole(v) for n, v in later.items()}


def _cut_lists(earlier: Items[Any], later: Items[Any]) -> tuple[list[Any], list[Any]]:
    same = later.shared_with(earlier)
    before: list[Any] = [None] * same
    after: list[Any] = [None] * same
    alike = True
    rest = zip_longest(earlier.after(same), later.after(same), fillvalue=NOTHING_THERE)
    for one, other in rest:
        both = one is not NOTHING_THERE and other is not NOTHING_THERE
        alike = alike and both and canonical(one) == canonical(other)
        if one is not NOTHING_THERE:
            before.append(None if alike else one)
        if other is not NOTHING_THERE:
            after.append(None if alike else other)
    return before, after
