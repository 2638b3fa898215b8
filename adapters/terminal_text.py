"""Sanitizes text for terminals: escape codes and control characters can't act or hide text.

They, and characters that reorder or hide text, are written out (`\\x1b`, `\\u202e`). Joiners
within words and emoji are left alone.
"""

from __future__ import annotations

import re
from functools import cache

_UNSAFE = (
    "\x00-\x1f\x7f-\x9f"  # controls, C0 and C1: \x9b alone begins an escape code
    "\u00ad\u061c\u180e\u200b\u200e\u200f"  # invisible, and direction marks
    "\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # separators, bidi overrides, isolates
    "\U000e0000-\U000e007f"  # tags: invisible text
    "\ud800-\udfff"  # lone surrogates
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@cache
def _unsafe() -> re.Pattern[str]:
    return re.compile(f"[{_UNSAFE}]")


def visible(text: str) -> str:
    """The text on one line, with every unsafe character written out."""
    return _unsafe().sub(_written_out, text)


def visible_lines(text: str) -> str:
    """Like `visible`, but line breaks stay."""
    return "\n".join(map(visible, text.split("\n")))


def safe_json(encoded: bytes) -> bytes:
    """Escape every unsafe character in JSON text; the value and the layout stay.

    JSON has such characters only within strings, where an escape means the same.
    """
    text = encoded.decode("utf-8", "surrogatepass")
    return _unsafe().sub(_escaped, text).encode()


def _written_out(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character == "\n":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
