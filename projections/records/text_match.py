"""Matching text against recorded JSON: values and keys as text, not as JSON escapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, get_args, get_type_hints

import msgspec

from turnledger.ledger.errors import InvalidInputError
from turnledger.ledger.events.types import EVENT_TYPES

# Characters of an excerpt on each side of what was found.
AROUND: Final = 40
# These may be escaped in JSON in a shorter way than as \uXXXX.
_ESCAPED: Final = re.compile(r'["\\/\x00-\x1f]+')
_SPACES: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
# A float becomes its text as it is written.
_decode: Final = msgspec.json.Decoder(float_hook=str).decode


class TextMatch:
    """Finds text in events, whatever its case (`str.casefold`).

    Searched are an event's tag and, in its payload, text, numbers, and the keys of maps (the path
    of a file, say). Names of an event's fields are not, nor true, false and null. Text that is
    JSON itself, such as a tool call's arguments, is searched as it is and as its values.
    """

    def __init__(self, text: str) -> None:
        if not text:
            raise InvalidInputError("Invalid text to search for: it is empty.")
        self._folded = text.casefold()
        # Its longest part that JSON has as it is, unless the JSON has \uXXXX.
        self._plain = max(_ESCAPED.split(self._folded), key=len)

    def excerpt(self, tag: str, data: str) -> str | None:
        """One line around the first place that has the text; None if there is none.

        Args:
            tag: The event's tag.
            data: Its payload as JSON; ValueError if it is not JSON.
        """
        if self._folded in tag.casefold():
            return self._around(tag)
        # Most events do not have it, and decoding costs more than this.
        if self._plain not in data.casefold() and "\\u" not in data:
            return None
        return next((self._around(text) for text in texts(data) if self._is_in(text)), None)

    def _is_in(self, text: str) -> bool:
        return self._folded in text.casefold()

    def _around(self, text: str) -> str:
        start = text.casefold().index(self._folded)
        end = start + len(self._folded)
        if len(text.casefold()) != len(text):  # a character's folded form may be longer
            start, end = _unfolded(text, start, end)
        before, after = text[max(start - AROUND, 0) : start], text[end : end + AROUND]
        line = _SPACES.sub(" ", before + text[start:end][: 4 * AROUND] + after).strip()
        return f"{'…' if start > AROUND else ''}{line}{'…' if end + AROUND < len(text) else ''}"


def _unfolded(text: str, start: int, end: int) -> tuple[int, int]:
    """Where a part of the folded text is in the text itself, with the characters that it cuts."""
    first, place = 0, 0
    for number, character in enumerate(text):
        if place <= start:
            first = number
        place += len(character.casefold())
        if place >= end:
            return first, number + 1
    return first, len(text)


def texts(data: str) -> Iterator[str]:
    """The texts in a payload, in their order: values, numbers, keys of maps, JSON within text.

    ValueError if it is not JSON.
    """
    try:
        left: list[Any] = [_decode(data)]
    except (RecursionError, msgspec.DecodeError) as error:
        raise ValueError(f"not JSON: {error}") from error
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
            left.extend(_within(value))
        elif isinstance(value, dict):
            for key, inner in reversed(value.items()):
                left.append(inner)
                if key not in _field_names():
                    left.append(key)
        elif isinstance(value, list):
            left.extend(reversed(value))
        elif isinstance(value, int) and not isinstance(value, bool):
            yield str(value)


def _within(text: str) -> list[Any]:
    """The object or array that a text is the JSON of."""
    if text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        return [_decode(text)]
    except (RecursionError, msgspec.DecodeError):
        return []


@cache
def _field_names() -> frozenset[str]:
    """The names of all events' fields, and of those of their parts."""
    found: set[str] = set()
    left: list[Any] = list(EVENT_TYPES.values())
    while left:
        kind = left.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            found.update(kind.__struct_fields__)
            left.extend(get_type_hints(kind).values())
        left.extend(get_args(kind))
    return frozenset(found)
