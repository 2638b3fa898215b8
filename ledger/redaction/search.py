"""Search for secrets of known formats: finds anchors, and matches a format only at its anchor.

An anchor is what every secret of a format has: the beginning of a long word, or a telling name.
Anchors are found by operations that run in C over a piece of the text; a format's regular
expression, whose repeats are all bounded, is then matched at one place. So the time grows with the
text and no faster, and between two pieces other threads can run. Most pieces hold no secret, which
a prefilter sees at a fraction of the cost.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import itemgetter
from re import _parser  # type: ignore[attr-defined]
from typing import NamedTuple

from turnledger.ledger.clock import thread_seconds
from turnledger.ledger.redaction.patterns import IS, LONG, LazyRegex, SecretFormat, trie
from turnledger.ledger.redaction.prefilter import REACH as LOOKED_AT
from turnledger.ledger.redaction.prefilter import Prefilter
from turnledger.ledger.redaction.rules import marker

# Characters that are searched at once: less than a millisecond.
PIECE = 1 << 14
# How far before a piece an anchor may begin to matter to it, and how far behind it one may reach.
# What is found at an anchor starts at most as far before the piece as an anchor reaches.
LEAD, TAIL = 12, 64
# The characters of tokens. All of them alike, the beginning of a long word is always one text.
_IN_WORDS = b"+-/0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_ALIKE = bytes(97 if code in _IN_WORDS else 32 for code in range(256))
# Where an escape may follow: one of these, as a "!".
_MARKED = bytes(33 if code in b"\\[;%" else code for code in range(256))
_MARKS = (b"\\", b"%", b"\x1b")
# The rest of an escape, as in ESCAPED; of mail, =3D.
_ESCAPE = (
    r"(?:_{1,2}|[nrtbf0mK]|[0-9]{1,3}m|[0-2]K|[0-9A-Fa-f]{2}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})?"
)
_BEGIN = r"(?:_{1,2}|3D)?"
# --- what must follow a hint, or no format is tried there ---
# In bytes of lower-case text, so wider than in the formats: a space or a letter of another
# alphabet may be any byte beyond ASCII, or a question mark.
_SPACE = r"[\s\x1c-\x1f\x80-\xff?]"
_IS = IS.lower().replace(r"\s", _SPACE)
_NAMED = rf"""(?:{_IS}|[ \t]{{1,4}}["'\\]{{0,16}})[a-z0-9_+/~%-]{{20}}"""
_QUOTES = r"""["'\\]{0,8}"""
AFTER = {
    "key": rf"(?:-data)?{_NAMED}",
    "token": _NAMED,
    "secret": _NAMED,
    "secret=": r"[a-z2-7]{16}",
    "sig=": r"[a-z0-9%/+_-]{40}",
    "signature=": r"[0-9a-f]{64}",
    "bearer": r"(?:\\{0,8}[ \t]|%20|\+){1,4}[a-z0-9._~+/-]{16}",
    "auth": rf"(?:(?:{_QUOTES}[ ]{{0,4}}:|=){_SPACE}{{0,4}}{_QUOTES}[a-z0-9+/]{{12}}"
    rf"|orization{_IS}(?:(?:basic|token|ssws|api-?key|key)[\\ \t%+]"
    rf"|(?:token=)?{_QUOTES}[a-z0-9._~+/-]{{20}}))",
    "cookie": rf"(?:{_QUOTES}[ ]{{0,2}}:[ ]{{0,4}}{_QUOTES}|=)[^=]{{1,100}}+=[^\r\n\"'\\<>]{{16}}",
    "://": r"""(?:\[redacted|[^\s/:@"'<>?#\\\[]{0,200}+(?:(?<=//[0-9a-f]{32})@"""
    r"""|:[^\s"'<>](?:[^\s/"'<>?#@]{0,255}+|[^\s"'<>@]{0,127}+)@))""",
    ":543": r"[2-9]:[^:]{1,64}+:[^:]{1,64}+:",
    "q~": r"(?<=[0-9]q~)[a-z0-9_~.-]{31}",
    "curl ": r"(?:(?!curl )[^\n]){0,200}?(?<= )-(?:u|-user)",
    "machine ": rf"{_SPACE}{{0,3}}\S{{1,200}}{_SPACE}{{1,8}}+login",
}
# Characters from rare to frequent, in prose and code: a hint is looked for by its rarest.
_RARE = "~=:zqjxkvbw*gpmycuhldfrsinotaei -./0123456789"
# What follows a hint reaches so far at most.
REACH = 1_000
# Of a piece, the prefilter also sees what a format may look for before an anchor, and behind it.
BEFORE, BEHIND = 400, LOOKED_AT + 128
# A prefilter takes as long to compile as so many characters to be searched without one.
WORTH = 1 << 20
# An automaton keeps its states, up to 2 MB. Text can be made that fills them with what never comes
# again, and then it takes hundreds of times as long, for all other text too. So what it takes
# beyond this for a character, which is what a search takes, is added up; beyond so many seconds it
# is thrown away, and made again only after many more characters.
_SECONDS, _MOST_SECONDS, _PATIENCE = 20e-9, 0.1, 16


# A secret: the number of its format, its start and end, and where its anchor is. A plain tuple,
# which the garbage collector need not visit: there may be hundreds of thousands.
Found = tuple[int, int, int, int]


class _Entry:
    """A format in the search, compiled when the first of its anchors is found."""

    __slots__ = ("_before", "_format", "_group", "_match", "_order", "_reach", "literal")

    def __init__(self, order: int, one: SecretFormat, literal: str = "") -> None:
        self._order, self._format, self.literal = order, one, literal
        self._match: Callable[[str, int], re.Match[str] | None] | None = None
        self._before: re.Pattern[str] | None = None
        self._group: str | int = 0
        self._reach = 0

    def found(self, text: str, anchor: int, until: Until | None = None) -> Found | None:
        """The secret at an anchor. Notes in `until` from where on anchors are worth a look."""
        one = self._format
        if self._match is None:
            self._match, self._group = one.regex.match, one.group
            if one.before:
                self._reach = _parser.parse(one.before).getwidth()[1]
                if self._reach:
                    self._before = one.before_regex
                else:  # Of lookbehinds alone: the first that is tried.
                    self._match = re.compile(f"(?:{one.before}){one.pattern}").match
        start = anchor - one.offset
        hit = self._match(text, start) if start >= 0 else None
        if hit is None:
            return None
        if self._before and not self._before.search(text, max(start - self._reach, 0), start):
            return None
        start, end = hit.span(self._group)
        if until is not None:
            # Of hints within one long value only a few are looked at, whatever the value is.
            until[self] = (start + end) // 2
        if one.accepts is not None and not one.accepts(hit[self._group]):
            return None
        return self._order, start, end, anchor


# Of each hint of a format: its anchors come in the order of the text, those of all hints do not.
Until = dict[_Entry, int]


class _Hint(NamedTuple):
    """A hint: how far in it its rarest character is, and the formats that it leads to."""

    text: bytes
    offset: int
    entries: list[_Entry]


class Search:
    """The search for some formats. Compiles its expressions when it is made.

    Args:
        formats: What is searched for; of equal spans, the first gives the secret its name.
        worth: After how many characters prefilters are made.
    """

    def __init__(self, formats: Iterable[SecretFormat], worth: int = WORTH) -> None:
        self.formats = tuple(formats)
        self._worth = worth
        # For the formats that are found at words and dots, and for those at hints: one automaton
        # for all would have more states than it can keep.
        self._prefilters: tuple[Prefilter, Prefilter] | None = None
        self._searched = 0
        self._lost_seconds = 0.0
        self.markers = tuple(marker(one.name) for one in self.formats)
        # By the first two characters of a word.
        self._by_first: dict[str, list[_Entry]] = {}
        self._shaped: list[_Entry] = []
        self._dotted: list[tuple[int, _Entry]] = []
        dots: list[str] = []
        hints: dict[str, list[_Entry]] = {}
        words: list[str] = []
        shapes: list[str] = []
        for order, one in enumerate(self.formats):
            for literal in one.literals:
                words.append(re.escape(literal))
                entry = _Entry(order, one, literal)
                self._by_first.setdefault(literal[:2], []).append(entry)
            if one.shape:
                shapes.append(one.shape)
                self._shaped.append(_Entry(order, one))
            for before in one.dots:
                dots.append(f"(?<={before})")
                self._dotted.append((width(before), _Entry(order, one)))
            for hint in one.hints:
                hints.setdefault(hint, []).append(_Entry(order, one))
        # The group tells whether it is a shape.
        any_of = f"(?:{trie(shapes) or '(?!)'}()|{trie(words) or '(?!)'})"
        long = f"(?=[A-Za-z0-9+/_-]{{{LONG}}}+)"
        # Each begins with one character, which `re` looks for in a fast loop.
        self._long_word = re.compile(b" " + b"a" * LONG)
        self._begin = re.compile(f"{_BEGIN}(?={any_of})".encode())
        self._after_mark = re.compile(f"!{long}{_ESCAPE}(?={any_of})".encode())
        self._after_sign = [
            (sign, re.compile(f"{re.escape(sign.decode())}{long}_{{0,2}}+(?={any_of})".encode()))
            for sign in (b"/", b"+")
        ]
        self._dot = re.compile(rf"\.(?=[A-Za-z0-9_-]{{20}})(?:{'|'.join(dots)})".encode())
        self._dots = LazyRegex("".join(f"(?:{before}())?" for before in dots).encode())
        # All hints with the same rarest character are looked for at once.
        self._hints: dict[str, list[_Hint]] = {}
        sources: dict[str, list[str]] = {}
        for hint, entries in hints.items():
            rarest = min(hint, key=_RARE.find)
            offset = hint.index(rarest)
            self._hints.setdefault(rarest, []).append(_Hint(hint.encode(), offset, entries))
            begun = f"(?<={re.escape(hint)})" if offset else ""
            sources.setdefault(rarest, []).append(
                f"{re.escape(hint[offset + 1 :])}{begun}(?={AFTER.get(hint, '')})()"
            )
        # One alone may be taken whole: its text is found faster than a character.
        self._at_rarest = [
            (re.compile(f"{re.escape(rarest)}{many(sources[rarest])}".encode()), group)
            for rarest, group in self._hints.items()
        ]

    def finds(self, text: str) -> bool:
        """Whether there is a secret."""
        return next(self.found(text), None) is not None

    def passes(self, text: str) -> bool:
        """Whether there may be a secret, for all that the prefilter knows."""
        return any(any(self._to_search(text, begin)) for begin in range(0, len(text), PIECE))

    def all(self, text: str) -> Iterator[Found]:
        """The secrets, in order, none of which overlap."""
        return _apart(self._in_order(text))

    def found(self, text: str) -> Iterator[Found]:
        """The secrets, in no order; they may overlap."""
        return chain.from_iterable(found for _, found in self._pieces(text))

    def _in_order(self, text: str) -> Iterator[Found]:
        """The secrets by where they start; sorted in pieces, between which other threads run."""
        waiting: list[Found] = []
        for end, found in self._pieces(text):
            waiting += found
            waiting.sort(key=itemgetter(1, 0))
            done = bisect_left(waiting, end - TAIL, key=itemgetter(1))
            yield from waiting[:done]
            waiting = waiting[done:]
        yield from waiting

    def _pieces(self, text: str) -> Iterator[tuple[int, Iterator[Found]]]:
        """The ends of the pieces of a text, and the secrets with an anchor in each."""
        data = lowered = b""
        until: Until = {}
        for begin in range(0, len(text), PIECE):
            words, hints = self._to_search(text, begin)
            if not words and not hints:
                continue
            if not data:
                # One byte a character: places are the same, and no anchor has other alphabets.
                data = text.encode("latin-1", "replace")
                lowered = data.lower()
            end = min(begin + PIECE, len(data))
            found = [self._at_words(text, data, begin, end)] if words else []
            if words and self._dotted:
                found.append(self._at_dots(text, data, begin, end))
            if hints and self._hints:
                found.append(self._at_hints(text, lowered, begin, end, until))
            yield end, chain.from_iterable(found)

    def _to_search(self, text: str, begin: int) -> tuple[bool, bool]:
        """Whether a piece of a text has to be searched for words and dots, and for hints."""
        prefilters = self._prefilters
        if prefilters is None:
            self._searched += min(PIECE, len(text) - begin)
            if self._searched <= self._worth:
                return True, True
            prefilters = self._prefilters = (
                Prefilter(one for one in self.formats if one.literals or one.shape or one.dots),
                Prefilter(one for one in self.formats if one.hints),
            )
        piece = text[max(begin - BEFORE, 0) : begin + PIECE + BEHIND]
        if begin > BEFORE:
            piece = f"a{piece}"  # What is cut off is not the beginning of a text, nor of a word.
        if not piece.isascii():
            piece = piece.encode("ascii", "replace").decode("ascii")
        begun = thread_seconds()
        found = prefilters[0].passes(piece), prefilters[1].passes(piece)
        lost = self._lost_seconds + thread_seconds() - begun - len(piece) * _SECONDS
        self._lost_seconds = max(lost, 0.0)
        if lost > _MOST_SECONDS:
            self._prefilters, self._lost_seconds = None, 0.0
            self._searched = self._worth - _PATIENCE * WORTH
        return found

    def may_follow(self, name: str) -> bool:
        """Whether a name may make the value after it a secret."""
        lowered = name.lower().encode("latin-1", "replace")
        return any(hint.text in lowered for group in self._hints.values() for hint in group)

    def _at_words(self, text: str, data: bytes, begin: int, end: int) -> Iterator[Found]:
        first = max(begin - LEAD, 0)
        piece = data[first : end + TAIL]
        found = [self._at_long_words(piece)]
        if any(mark in piece for mark in _MARKS):
            found.append(self._after_mark.finditer(piece.translate(_MARKED)))
        found += [regex.finditer(piece) for sign, regex in self._after_sign if sign in piece]
        for one in chain.from_iterable(found):
            place = first + one.end()
            if begin <= place < end:
                shaped = self._shaped if one.lastindex else ()
                for entry in chain(self._by_first.get(text[place : place + 2], ()), shaped):
                    if text.startswith(entry.literal, place):
                        secret = entry.found(text, place)
                        if secret is not None:
                            yield secret

    def _at_long_words(self, piece: bytes) -> Iterator[re.Match[bytes]]:
        match = self._begin.match
        for one in self._long_word.finditer(b" " + piece.translate(_ALIKE)):
            found = match(piece, one.start())
            if found is not None:
                yield found

    def _at_dots(self, text: str, data: bytes, begin: int, end: int) -> Iterator[Found]:
        for one in self._dot.finditer(data, begin, min(end + TAIL, len(data))):
            place = one.end()
            if place > end:
                break
            which = self._dots.regex.match(data, place)
            assert which is not None
            for (width, entry), is_there in zip(self._dotted, which.groups(), strict=True):
                secret = None if is_there is None else entry.found(text, place - width)
                if secret is not None:
                    yield secret

    def _at_hints(
        self, text: str, lowered: bytes, begin: int, end: int, until: Until
    ) -> Iterator[Found]:
        for regex, hints in self._at_rarest:
            for one in regex.finditer(lowered, begin, end + REACH):
                place = one.start()
                if place >= end or one.lastindex is None:
                    break
                hint = hints[one.lastindex - 1]
                anchor = place - hint.offset
                for entry in hint.entries:
                    if anchor >= until.get(entry, 0):
                        secret = entry.found(text, anchor, until)
                        if secret is not None:
                            yield secret


def _apart(found: Iterable[Found]) -> Iterator[Found]:
    """Secrets in order, without what they have in common."""
    group: list[Found] = []
    reach = 0
    for one in found:
        _, start, end, _ = one
        if start >= reach and group:
            yield from _disjoint(group)
            group = []
        if end > start:
            group.append(one)
            reach = max(reach, end)
    yield from _disjoint(group)


def _disjoint(group: list[Found]) -> list[Found]:
    """Secrets that overlap, each cut to what the others leave; in order.

    One within another goes; of two that overlap in part, the first format keeps that part.
    """
    if len(group) < 2:
        return group
    kept: list[Found] = []
    for order, start, end, anchor in sorted(group, key=lambda one: (one[1], -one[2], one[0])):
        while kept and start < kept[-1][2] < end and order < kept[-1][0]:
            last = kept.pop()
            if last[1] < start:
                kept.append((last[0], last[1], start, last[3]))
        if kept:
            start = max(start, kept[-1][2])
        if start < end:
            kept.append((order, start, end, anchor))
    return kept


def many(sources: list[str]) -> str:
    """A lookahead for one of these; of one alone, itself."""
    return sources[0] if len(sources) == 1 else f"(?={'|'.join(sources)})"


def width(pattern: str) -> int:
    """How many characters a regular expression for text of one length matches."""
    least, most = _parser.parse(pattern).getwidth()
    assert least == most, pattern
    return int(most)
