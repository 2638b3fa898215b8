"""Finds JSON in text, whole or in part, and replaces values in it where they stand.

Nothing is read and written anew: spaces, the digits of numbers and keys that are there twice stay
as they are. It reads each character once, and takes what is cut off, or no JSON after all.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

from turnledger.ledger.redaction.patterns import LazyRegex

Path = tuple[str, ...]
# A value of JSON, and its path, made to another; None if it stays.
Change = Callable[[str | float, Path], str | None]

# Where JSON may begin: an object, a list, or a string that holds one.
_BEGIN = LazyRegex(r'[{\[]|(?<!\\)"(?=\s{0,8}[{\[])')
_STRING = r'"(?:[^"\\]|\\.)*+'
_TOKEN = LazyRegex(
    rf'\s*+(?:(?P<mark>[{{}}\[\],:])|(?P<text>{_STRING})(?P<end>"|\Z)'
    r"|(?P<number>-?[0-9][0-9.eE+-]*+)|(?P<word>true|false|null|NaN|-?Infinity))",
    re.DOTALL,
)
_WHOLE_STRING = LazyRegex(_STRING + '"', re.DOTALL)
# Names of objects within objects are followed so deep, and no deeper.
_DEEPEST = 200
# With a backslash more for each string of JSON that it stands in. Escapes of controls stay.
_SPELT = r"\\{1,16}(?:/|u00([2-7][0-9A-Fa-f]))"
_ESCAPE = LazyRegex(_SPELT)
_IN_BYTES = LazyRegex(_SPELT.encode())


def changed_in(text: str, change: Change) -> str:
    """The text, with those values of JSON in it that `change` gives others for."""
    parts: list[str] = []
    done = place = 0
    while (begin := _BEGIN.regex.search(text, place)) is not None:
        place = begin.start()
        if text[place] == '"':
            found = _WHOLE_STRING.regex.match(text, place)
            end = place + 1 if found is None else found.end()
            leaves: list[tuple[int, int, Path]] = [] if found is None else [(place, end, ())]
            place = end
        else:
            leaves, place = _leaves(text, place)
        for start, end, path in leaves:
            made = _changed(text[start:end], path, change)
            if made is not None:
                parts += (text[done:start], made)
                done = end
    return "".join((*parts, text[done:])) if parts else text


def _changed(spelt: str, path: Path, change: Change) -> str | None:
    if spelt[0] != '"':
        made = change(0, path)
        return None if made is None else json.dumps(made)
    is_cut = len(spelt) == 1 or not _WHOLE_STRING.regex.fullmatch(spelt)
    try:
        value = json.loads(f'{spelt}"' if is_cut else spelt, strict=False)
    except ValueError:
        return None
    made = change(value, path)
    if made is None:
        return None
    # What is no text of its own, half a character, is spelt as an escape again.
    written = json.dumps(made, ensure_ascii=any("\ud800" <= char <= "\udfff" for char in made))
    return written[:-1] if is_cut else written


def _leaves(text: str, place: int) -> tuple[list[tuple[int, int, Path]], int]:
    """Where the texts and numbers of what begins here are, and where it ends, or is none."""
    leaves: list[tuple[int, int, Path]] = []
    # Of each object or list that is open: whether it is an object, and its path.
    stack: list[tuple[bool, Path]] = []
    path: Path = ()
    key: str | None = None
    while (token := _TOKEN.regex.match(text, place)) is not None:
        mark = token["mark"]
        if mark in ("{", "["):
            stack.append((mark == "{", path))
            key = None
        elif mark in ("}", "]"):
            if not stack:
                break
            path, key = stack.pop()[1], None
        elif mark == ",":
            key = None
            if stack and stack[-1][0]:
                path = stack[-1][1]
        elif token["text"] is not None and stack and stack[-1][0] and key is None:
            key = _key(token["text"])
            path = (*stack[-1][1], key) if len(stack) <= _DEEPEST else stack[-1][1]
        elif token["text"] is not None:
            leaves.append((token.start("text"), token.end(), path))
        elif token["number"] is not None:
            leaves.append((*token.span("number"), path))
        place = token.end()
        if not stack:
            break
    return leaves, place


def _key(spelt: str) -> str:
    try:
        return str(json.loads(f'{spelt}"', strict=False))
    except ValueError:
        return spelt[1:]


# --- escapes ---


def has_escapes(text: str) -> bool:
    """Whether there is something to resolve."""
    return ("\\/" in text or "\\u00" in text) and _ESCAPE.regex.search(text) is not None


def has_escapes_in(data: bytes) -> bool:
    return data.find(b"\\/") >= 0 or data.find(b"\\u00") >= 0


def unescaped_bytes(data: bytes) -> bytes:
    return _IN_BYTES.regex.sub(lambda found: bytes.fromhex((found[1] or b"2f").decode()), data)


class Unescaped:
    """A text without such escapes, that knows where each of its characters is spelt."""

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        # The places in the plain text after which the original is so much longer.
        self._places: list[int] = [0]
        self._longer: list[int] = [0]
        done = size = 0
        for found in _ESCAPE.regex.finditer(text):
            start, end = found.span()
            size += start - done + 1
            parts += (text[done:start], chr(int(found[1] or "2f", 16)))
            done = end
            self._places.append(size)
            self._longer.append(end - size)
        parts.append(text[done:])
        self.text = "".join(parts)

    def original(self, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Where in the original these places of the plain text are."""
        for start, end in spans:
            yield self._original(start), self._original(end)

    def _original(self, place: int) -> int:
        return place + self._longer[bisect_right(self._places, place) - 1]
