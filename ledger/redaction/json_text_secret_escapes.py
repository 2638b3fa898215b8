"""Text with its needless escapes resolved: of slashes, as PHP writes them, and of & + = < and more.

What JSON may spell as an escape or not is spelt otherwise by every program; a format knows one
spelling only. Secrets are found in what the text says, and taken out of the text as it is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

# With a backslash more for each string of JSON that it stands in. Escapes of controls stay.
_SPELT = r"\\{1,16}(?:/|u00([2-7][0-9A-Fa-f]))"
_ESCAPE = re.compile(_SPELT)
_IN_BYTES = re.compile(_SPELT.encode())


def has_escapes(text: str) -> bool:
    """Whether there is something to resolve."""
    return ("\\/" in text or "\\u00" in text) and _ESCAPE.search(text) is not None


def has_escapes_in(data: bytes) -> bool:
    return data.find(b"\\/") >= 0 or data.find(b"\\u00") >= 0


def unescaped_bytes(data: bytes) -> bytes:
    return _IN_BYTES.sub(lambda found: bytes.fromhex((found[1] or b"2f").decode()), data)


class Unescaped:
    """A text without such escapes, that knows where each of its characters is spelt."""

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        # The places in the plain text after which the original is so much longer.
        self._places: list[int] = [0]
        self._longer: list[int] = [0]
        done = size = 0
        for found in _ESCAPE.finditer(text):
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
