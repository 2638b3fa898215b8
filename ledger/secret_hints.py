"""Tells quickly what can hold no secret of a known format, which is nearly everything.

A secret has a long word in it, or right after it: what has none is not looked at any further.
Around a long word, beginnings of tokens and names are looked for. It may be wrong in one way only:
what it lets through is searched, and may turn out to hold none.
"""

from __future__ import annotations

from collections.abc import Iterable

from ledger.secret_formats import IN_URL, NAMED, NAMES, THREE_PARTS, SecretFormat

# A secret of a known format holds a word as long as this, or has one right before it.
_WORD = 12
_BEFORE = 48
_PLAIN = b"!#$%&*+-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ^_abcdefghijklmnopqrstuvwxyz~"
_WORDS = bytes(97 if code in _PLAIN or code > 127 else 32 for code in range(256))
_LONG = b"a" * _WORD
# The shortest token of a known format has as many characters, of these.
_SHORTEST = 14
_IN_PARTS = 55
_IN_TOKENS = b"-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_TOKENS = bytes(code if code in _IN_TOKENS else 32 for code in range(256))
_PEM = b"-----BEGIN "
# What has neither a digit nor a capital in it is no secret, and may be the name of one.
_HARMLESS = b"abcdefghijklmnopqrstuvwxyz_-."
_HEADER = b"authorization"


class Hints:
    """What to look for, for some formats."""

    def __init__(self, formats: Iterable[SecretFormat]) -> None:
        formats = [one for one in formats if not one.short]
        tokens = [one for one in formats if not one.hints]
        self._starts = frozenset(word[:3].encode() for one in tokens for word in one.literals)
        hints = {hint for one in formats for hint in one.hints}
        self._is_named, self._in_url = not hints.isdisjoint(NAMES), "://" in hints
        self._in_parts = THREE_PARTS in hints
        self._words = tuple(sorted(hints - {*NAMES, "://", THREE_PARTS}))

    def may_hold_one(self, data: bytes) -> bool:
        """Whether it is worth searching this text, or JSON, for secrets."""
        words = data.translate(_WORDS)
        place, size, is_odd = words.find(_LONG), len(data), False
        while place >= 0:
            end = words.find(b" ", place)
            if end < 0:
                end = size
            word = data[place:end]
            if word.translate(None, _HARMLESS):
                if self._is_suspicious(data[max(place - _BEFORE, 0) : end]):
                    return True
                is_odd = True
            elif end - place >= len(_HEADER) and _HEADER in word:
                return True
            place = words.find(_LONG, end)
        return is_odd and _PEM in data

    def _is_suspicious(self, piece: bytes) -> bool:
        """Whether a long word, with what stands before it, may be a secret."""
        starts = self._starts
        for token in piece.translate(_TOKENS).split():
            if (
                len(token) >= _SHORTEST
                and (
                    token[:3] in starts  # or after an escape: \n, %20, \u001b
                    or token[1:4] in starts
                    or token[2:5] in starts
                    or token[5:8] in starts
                    or (self._in_parts and len(token) > _IN_PARTS and token.count(b".") >= 2)
                )
            ):
                return True
        text = piece.decode("latin-1").lower()
        for hint in self._words:
            if hint in text:
                return True
        if self._is_named and any(name in text for name in NAMES) and NAMED.search(text):
            return True
        return self._in_url and "://" in text and IN_URL.search(text) is not None
