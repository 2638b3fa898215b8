"""JSON inside text: replaces single values in place.

Text is not decoded and encoded again, and each character is read once. JSON that is cut off is
handled as far as it goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from turnledger.ledger.redaction.patterns import LazyRegex

Path = tuple[str, ...]
# Gets a JSON value and its path, returns a replacement, or None to keep it.
Change = Callable[[str | float, Path], str | None]

# The start of JSON: an object, a list, or a string that contains one.
_BEGIN = LazyRegex(r'[{\[]|(?<!\\)"(?=\s{0,8}[{\[])')
_STRING = r'"(?:[^"\\]|\\.)*+'
_TOKEN = LazyRegex(
    rf'\s*+(?:(?P<mark>[{{}}\[\],:])|(?P<text>{_STRING})(?P<end>"|\Z)'
    r"|(?P<number>-?[0-9][0-9.eE+-]*+)|(?P<word>true|false|null|NaN|-?Infinity))",
    re.DOTALL,
)
_WHOLE_STRING = LazyRegex(_STRING + '"', re.DOTALL)
# Nested objects deeper than this no longer extend the path.
_DEEPEST = 200


def replace_values(text: str, change: Change) -> str:
    """Replace JSON values in a text, in place.

    Args:
        text: Any text, with JSON anywhere in it, or none.
        change: Called for each string and number (numbers as 0) with its path.
    """
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
    # A lone surrogate can't be encoded as UTF-8, so it is written as an escape again.
    written = json.dumps(made, ensure_ascii=any("\ud800" <= char <= "\udfff" for char in made))
    return written[:-1] if is_cut else written


def _leaves(text: str, place: int) -> tuple[list[tuple[int, int, Path]], int]:
    """The spans of strings and numbers in the JSON that begins here, and where it ends."""
    leaves: list[tuple[int, int, Path]] = []
    # For each open object or list: whether it is an object, and its path.
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
