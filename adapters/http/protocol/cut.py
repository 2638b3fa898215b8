"""Cutting: large values shortened for people, with a list of everything that was shortened.

Texts, lists and objects have limits of their own, and so has the whole. If the whole is too
large, its parts get equal shares: small ones stay as they are, and only large ones are shortened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, Literal, TypeVar

import msgspec

from turnledger.projections.persistent.lazy_json import LazyList
from turnledger.projections.run_state.json_diff import escaped

# Characters of a text, entries of a list or an object, and levels of nesting.
TEXT, ENTRIES, DEPTH = 2_000, 100, 20
# Entries of a list right below the answer, whose length the client asked for.
LISTED: Final = 1_000
# Bytes of JSON: of all values together, of one pointer, and of all pointers before the last ones.
BYTES, POINTER, POINTERS = 100_000, 1_000, 30_000
# Shortened values that are listed at most; some are kept for what these are in.
CUTS, KEPT = 200, DEPTH + 10
# Bytes that a part of a value that is too large has at least: of a list, whose end can be left
# out, and of an object. With less than the last it is left out.
OF_LIST, OF_OBJECT, LEAST = 2_000, 100, 32
# A value with less room than this gives it to its first parts. How often shares are made larger by
# what small parts do not need.
UNSHARED, ROUNDS = 1_000, 4

S = TypeVar("S", bound=msgspec.Struct)


class Cut(msgspec.Struct, frozen=True):
    """A value that was shortened: where it is in the answer, and how long it is in full.

    A text has its first characters (`total` is how many there are, as Unicode code points); a
    list or an object its first entries (`total` is how many there are). With `depth`, a list or
    an object is so deep that null stands for it.
    """

    pointer: str
    kind: Literal["text", "list", "object", "depth"]
    total: int


def plain_fields(one: msgspec.Struct) -> dict[str, Any]:
    """A Struct's fields that are set, as an object that can be cut."""
    fields = msgspec.structs.asdict(one).items()
    return {name: value for name, value in fields if value is not msgspec.UNSET}


def cut_fields(answer: S, *names: str) -> S:
    """An answer with some fields cut; its field `cut` lists what was shortened in them.

    Args:
        answer: An answer that has a field `cut`.
        names: The fields. A list there keeps up to 1,000 entries.
    """
    made, found = cut({name: getattr(answer, name) for name in names}, fields=True)
    return msgspec.structs.replace(answer, **made, cut=found)


def cut(value: Any, *, fields: bool = False, pairs: bool = False) -> tuple[Any, list[Cut]]:
    """A value with what is too large in it shortened, and a list of that.

    Args:
        value: JSON data, plain or lazy. Lazy lists in it are empty in the result, and listed.
        fields: Whether it is an object of an answer's fields: they are all there, and lists among
            them keep up to 1,000 entries.
        pairs: Whether these lists have pairs in them: both parts of each are there.
    """
    listed = LISTED if fields else ENTRIES
    complete = {0: fields, 2: pairs}
    room = BYTES if _weight(value, 0, listed, BYTES) >= BYTES else 2 * BYTES
    cutter = _Cutter(listed, complete, is_large=room == BYTES)
    made, _ = cutter.value(value, "", 0, room)
    return made, cutter.found


class _Cutter:
    def __init__(self, listed: int, complete: dict[int, bool], *, is_large: bool) -> None:
        self._listed = listed
        self._complete = complete
        self._is_large = is_large
        self._pointers = 0
        self.found: list[Cut] = []

    def value(self, value: Any, pointer: str, depth: int, room: int) -> tuple[Any, int]:
        """A value shortened to this many bytes, about, and its size."""
        if isinstance(value, str):
            return self._text(value, pointer, room)
        if isinstance(value, LazyList):
            if total := len(value):
                self._add(Cut(pointer, "list", total))
            return [], 2
        if not isinstance(value, dict | list | tuple) or not value:
            return value, _size(value)
        if depth > DEPTH:
            self._add(Cut(pointer, "depth", len(value)))
            return None, 4
        return self._entries(value, pointer, depth, room)

    def _text(self, text: str, pointer: str, room: int) -> tuple[str, int]:
        shown = text[:TEXT]
        size = _size(shown)
        if size > room:
            lengths = range(len(shown))
            fits = bisect_right(lengths, room, key=lambda length: _size(shown[:length]))
            shown = shown[: max(0, fits - 1)]
            size = _size(shown)
        if len(shown) < len(text):
            self._add(Cut(pointer, "text", len(text)))
        return shown, size

    def _entries(self, value: Any, pointer: str, depth: int, room: int) -> tuple[Any, int]:
        named, complete = isinstance(value, dict), self._complete.get(depth)
        entries = list(_shown(value, depth, self._listed))
        names = [_size(name) + 2 if named else 1 for name, _ in entries]
        children = [child for _, child in entries]
        share = self._share(value, children, depth + 1, room - 2 - sum(names) - LEAST)
        made: dict[Any, Any] = {}
        left = room - 2
        for before, (name, child) in zip(names, entries, strict=True):
            inner = f"{pointer}/{escaped(str(name))}"
            if not complete and self._must_stop(inner, left - before):
                break
            made[name], size = self.value(child, inner, depth + 1, min(share, left - before))
            left -= before + size
        if len(made) < len(value):
            self._add(Cut(pointer, "object" if named else "list", len(value)))
        return (made if named else list(made.values())), room - left

    def _must_stop(self, pointer: str, left: int) -> bool:
        is_full = len(self.found) > CUTS - KEPT or self._pointers > POINTERS
        return left < LEAST or is_full or _size(pointer) > POINTER

    def _add(self, found: Cut) -> None:
        self.found.append(found)
        self._pointers += _size(found.pointer)

    def _share(self, value: Any, children: list[Any], depth: int, room: int) -> int:
        """Bytes that each child may have: what the small ones do not need is for the others."""
        if not self._is_large or room < UNSHARED:
            return BYTES
        least = OF_OBJECT if isinstance(value, dict) else OF_LIST
        share, waiting = room, children
        for _ in range(ROUNDS):
            share = max(room // max(len(waiting), 1), least)
            large, small = [], 0
            for child in waiting:
                weight = _weight(child, depth, self._listed, share)
                if weight < share:
                    small += weight
                else:
                    large.append(child)
                if share == least and small + share * len(large) > room:
                    return share  # those after it are left out
            if len(large) in (0, len(waiting)):
                break
            room, waiting = room - small, large
        return share


def _shown(value: Any, depth: int, listed: int) -> Iterator[tuple[Any, Any]]:
    """The first entries, by their names or places."""
    if isinstance(value, dict):
        return islice(value.items(), ENTRIES)
    return islice(enumerate(value), listed if depth == 1 else ENTRIES)


def _weight(value: Any, depth: int, listed: int, most: int) -> int:
    """Bytes of a value without what its own limits cut off; counted up to `most`, about."""
    if isinstance(value, str):
        return _size(value[:TEXT])
    if not isinstance(value, dict | list | tuple) or not value or depth > DEPTH:
        return 4 if isinstance(value, dict | list | tuple | LazyList) else _size(value)
    weight = 2
    for name, child in _shown(value, depth, listed):
        weight += _size(name) + 2 if isinstance(value, dict) else 1
        weight += _weight(child, depth + 1, listed, most - weight)
        if weight >= most:
            break
    return weight


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))
