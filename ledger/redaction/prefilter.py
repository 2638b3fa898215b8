"""Prefilter for secrets: rules out text that cannot contain a secret of a known format.

Nearly all text is ruled out. A secret contains a long word, or is in a URL, or follows the word
password; text with none of these is not searched. In long words the prefilter looks for the
prefixes of tokens, and before them for telling names. It errs in one direction only: text that it
lets through is searched and may turn out to hold no secret.
"""

from __future__ import annotations

from collections.abc import Iterable

from turnledger.ledger.redaction.json_text import has_escapes_in, unescaped_bytes
from turnledger.ledger.redaction.patterns import HEX_PARTS, IS, THREE_PARTS, LazyRegex, SecretFormat

# Every secret of a known format, passwords aside, contains a word of this length.
_WORD = 12
# How far before a long word the name may begin that tells what it is.
_BEFORE = 160
# `bytes.translate` makes every character of a word an "a" and all others a space, so that a single
# `find` of twelve "a" tells whether there is a long word: much faster than a regular expression.
_PLAIN = b"!#$%&*+-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ^_abcdefghijklmnopqrstuvwxyz~"
_WORDS = bytes(97 if code in _PLAIN or code > 127 else 32 for code in range(256))
_LONG = b"a" * _WORD
# The shortest token of a known format; of THREE_PARTS; of HEX_PARTS.
_SHORTEST = 14
_IN_PARTS = 55
_IN_HEX = 36
_DASHED = LazyRegex(rb"[0-9a-f]{32}-(?:us[0-9]|[0-9a-f]{8}-)")
# The characters of tokens; all others separate them.
_IN_TOKENS = b"-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_TOKENS = bytes(code if code in _IN_TOKENS else 32 for code in range(256))
# A word without a digit or a capital is not a secret, though it may be the name of one.
_HARMLESS = b"abcdefghijklmnopqrstuvwxyz_-."
_HEADER = b"authorization"

# Names before a value that make it a secret; hints of the `named` formats.
_NAMES = ("key", "token", "secret")
_NAMED = LazyRegex(
    rf"""(?:{"|".join(_NAMES)})(?:{IS}|[ \t]{{1,4}}["'\\]{{0,16}})[a-z0-9_+/~.%-]{{12}}"""
)
# user:password before a host; host:port is not one.
_IN_URL = LazyRegex(rb"""://[^/:@\s]{0,200}:(?![0-9]{1,5}(?:[/?#"'\\,;)\]\s]|\Z))""")
_ASSIGNED = LazyRegex(rb"(?i:password|pwd)[ ]{0,2}=")
_PARTS = (b"assword", b"ASSWORD", b"pwd", b"PWD", b"Pwd")
# Hints of secrets that may lack a long word: always looked for.
_ALWAYS = ("://", "password", "pwd")


class Prefilter:
    """The prefilter for a set of formats."""

    def __init__(self, formats: Iterable[SecretFormat]) -> None:
        formats = [one for one in formats if not one.short]
        # A token's prefixes and shortest length, by the first three characters.
        self._prefixes: dict[bytes, list[tuple[bytes, int]]] = {}
        for one in formats:
            for literal in () if one.hints else map(str.encode, one.literals):
                self._prefixes.setdefault(literal[:3], []).append((literal, one.shortest))
        hints = {hint for one in formats for hint in one.hints}
        self._is_named, self._in_url = not hints.isdisjoint(_NAMES), "://" in hints
        self._has_passwords = "password" in hints
        self._in_parts, self._in_hex = THREE_PARTS in hints, HEX_PARTS in hints
        special = {*_NAMES, *_ALWAYS, THREE_PARTS, HEX_PARTS}
        self._words = tuple(sorted(hints - special))

    def may_hold_secret(self, data: bytes) -> bool:
        """Whether text, or JSON, has to be searched for secrets."""
        # Searching for one character is fastest, and most text has none of these.
        in_url = self._in_url and data.find(b"@") >= 0
        if in_url and b"://" in data and _IN_URL.regex.search(data):
            return True
        if self._has_passwords and (
            (data.find(b"=") >= 0 and _assigns(data))
            or (data.find(b"machine ") >= 0 and data.find(b"login") >= 0)
        ):
            return True
        words = data.translate(_WORDS)
        place = words.find(_LONG)
        if place >= 0 and self._has_long_words(data, words, place):
            return True
        if (place >= 0 or in_url) and data.find(b"\\") >= 0 and has_escapes_in(data):
            plain = unescaped_bytes(data)
            return plain != data and self.may_hold_secret(plain)
        return False

    def _has_long_words(self, data: bytes, words: bytes, place: int) -> bool:
        """Whether a long word may be a secret, or has a hint of one before it."""
        # `in` is faster on str than on bytes; latin-1 keeps every place where it is.
        text, size, done = data.decode("latin-1"), len(data), 0
        near: list[str] = []
        while place >= 0:
            end = words.find(b" ", place)
            if end < 0:
                end = size
            word = data[place:end]
            if word.translate(None, _HARMLESS):
                if self._has_token(word):
                    return True
                near.append(text[max(place - _BEFORE, done) : end])
                done = end
            elif end - place >= len(_HEADER) and _HEADER in word:
                return True
            place = words.find(_LONG, end)
        return bool(near) and self._has_hint("".join(near).lower())

    def _has_hint(self, text: str) -> bool:
        for hint in self._words:
            if hint in text:
                return True
        if self._is_named and ("key" in text or "token" in text or "secret" in text):
            return _NAMED.regex.search(text) is not None
        return False

    def _has_token(self, word: bytes) -> bool:
        prefixes = self._prefixes
        for token in word.translate(_TOKENS).split():
            size = len(token)
            if size < _SHORTEST:
                continue
            # At the start, or after an escape or a mark: _, \n, %20, \x20, 196m, \u001b.
            begins = (token[:3], token[1:4], token[2:5], token[3:6], token[4:7], token[5:8])
            if not prefixes.keys().isdisjoint(begins) and self._begins(token, begins):
                return True
            if self._in_parts and size > _IN_PARTS and token.count(b".") >= 2:
                return True
            if (
                self._in_hex
                and size >= _IN_HEX
                and 0 < token.count(b"-") < 4
                and _DASHED.regex.search(token)
            ):
                return True
        return False

    def _begins(self, token: bytes, begins: Iterable[bytes]) -> bool:
        size = len(token)
        return any(
            size - at >= shortest and token.startswith(literal, at)
            for at, begin in enumerate(begins)
            for literal, shortest in self._prefixes.get(begin, ())
        )


def _assigns(data: bytes) -> bool:
    """Whether a name like password is followed by an equals sign."""
    if not any(data.find(part) >= 0 for part in _PARTS):
        return False
    return _ASSIGNED.regex.search(data) is not None
