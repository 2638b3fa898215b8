"""Views of text: escapes, terminal sequences, entities and percent-encoding resolved.

A view is searched like text, and a span in it is mapped back to the text. Only what is around such
marks is resolved: most text has none. Terminal sequences are left out, since `grep --color` puts
them into the middle of a key.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache
from html.entities import html5

from turnledger.ledger.redaction.patterns import LazyRegex

# Escape sequences of a terminal: colours and erasures, and the choice of a character set.
_SEQUENCE = r"(?:\[[0-?]{0,32}[ -/]{0,2}[@-~]|[()][A-Z0-9])"
_TERMINAL = rf"\x1b{_SEQUENCE}"
# Of JSON and code, \u0041, \x41 and \/, with more backslashes for each string around them.
_ESCAPE = (
    rf"\\(?:\\{{0,15}}+(?:(?:u001[bB]|x1[bB]|033|e){_SEQUENCE}"
    r"|u(?P<u>[0-9A-Fa-f]{4})|x(?P<x>[0-9A-Fa-f]{2})|(?P<c>[/_-])))"
)
_ENTITY = (
    r"&(?:(?P<name>quot|amp|lt|gt|apos);"
    r"|#(?:(?P<number>[0-9]{1,5})|[xX](?P<hex>[0-9A-Fa-f]{1,4}));)"
)
# By the character that they begin with: `re` looks for one character in a fast loop.
_ESCAPES = "\x1b\\&"
_BEGUN = {"\x1b": LazyRegex(_TERMINAL), "\\": LazyRegex(_ESCAPE), "&": LazyRegex(_ENTITY)}
_MARK = LazyRegex(f"{_TERMINAL}|{_ESCAPE}|{_ENTITY}")
_BEGUN["%"] = LazyRegex(r"%(?:25){0,4}(?P<p>[0-9A-Fa-f]{2})")
_WITH_PERCENT = LazyRegex(f"{_MARK.source}|{_BEGUN['%'].source}")
# The marks of a line with so little between them that what is around them overlaps.
_GAP = 160
_RUNS = {
    char: LazyRegex(
        re.sub(
            r"\(\?P<\w+>",
            "(?:",
            f"{one.source}(?:[^{re.escape(char)}\n]{{0,{_GAP}}}+{one.source})*+",
        )
    )
    for char, one in _BEGUN.items()
}
# What is resolved with a mark: the word that it is in, up to a length, and what is around that: a
# name, or a marker. A private key has many words.
_WORD = 8_000
_REST_OF_WORD = LazyRegex(rf"[^ \n]{{0,{_WORD}}}+")
_AROUND = 160
_KEY_WORDS, _KEY = ("-----", "PRIVATE", "Private-"), (2_000, 6_000)
# Stands between views that are searched at once: no secret has both of its characters in it.
BETWEEN = "\n\0\n"
# Characters of windows that are tested at once.
_BATCH = 15_000
# Marks that are encoded again, as in JSON in JSON.
_ROUNDS = 4


class View:
    """A part of a text with its marks resolved, and a map from its places to those of the text.

    Args:
        text: The text.
        first: Where the part begins.
        last: Where it ends.
        percent: Whether percent-encoding is resolved too.
        spaced: Whether a plus sign is a space, as in a form.
    """

    def __init__(
        self, text: str, first: int, last: int, *, percent: bool = False, spaced: bool = False
    ) -> None:
        self._first = first
        self._is_cut = (first > 0, last < len(text))
        self.text = text[first:last]
        marks = (_WITH_PERCENT if percent else _MARK).regex
        if spaced:
            self.text = self.text.replace("+", " ")
        self._marks = marks
        # The text before each round of resolving, from the inner to the outer.
        self._rounds: list[str] = []
        for _ in range(_ROUNDS):
            made, count = marks.subn(_character, self.text)
            if not count:
                break
            self._rounds.append(self.text)
            self.text = made

    @cached_property
    def _maps(self) -> list[tuple[list[int], list[bool], list[int]]]:
        """Of each round: the ends of what replaces marks, if it is a character, and their ends."""
        maps = []
        for text in self._rounds:
            ends: list[int] = []
            kept: list[bool] = []
            afters: list[int] = []
            less = 0
            for found in self._marks.finditer(text):
                start, after = found.span()
                size = len(_character(found))
                less += after - start - size
                ends.append(after - less)
                kept.append(size > 0)
                afters.append(after)
            maps.append((ends, kept, afters))
        return maps

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The same span in the text, without a terminal sequence before or after it."""
        for ends, kept, afters in reversed(self._maps):
            place = bisect_right(ends, start) - 1
            if place >= 0:
                start += afters[place] - ends[place]
            place = bisect_left(ends, end)
            if place == len(ends) or ends[place] > end or not kept[place]:
                place -= 1
            if place >= 0:
                end += afters[place] - ends[place]
        return self._first + start, self._first + end

    def cuts(self, start: int, end: int) -> bool:
        """Whether this span of the view may be a part of something that the view cuts off."""
        before, after = self._is_cut
        return (before and start == 0) or (after and end == len(self.text))


def _character(found: re.Match[str]) -> str:
    return _meaning(found[0])


@lru_cache(maxsize=4096)
def _meaning(mark: str) -> str:
    """The character that a mark stands for; nothing for a terminal's."""
    found = _WITH_PERCENT.regex.fullmatch(mark)
    kind = None if found is None else found.lastgroup
    if found is None or kind is None:
        return ""
    given: str = found[kind]
    if kind == "c":
        return given
    if kind == "name":
        return html5[given + ";"]
    return chr(int(given, 10 if kind == "number" else 16))


def unescaped(text: str, passes: Callable[[str], bool]) -> Iterator[View]:
    """Views of what is around escapes, where that passes a test with the escapes resolved."""
    return _views(text, passes, _ESCAPES)


def without_percent(text: str, passes: Callable[[str], bool]) -> Iterator[View]:
    """Views of words with percent-encoding, and of what is around them; tested likewise."""
    return _views(text, passes, "%")


def _views(text: str, passes: Callable[[str], bool], chars: str) -> Iterator[View]:
    percent = "%" in chars
    spans = [
        run.span() for char in chars if char in text for run in _RUNS[char].regex.finditer(text)
    ]
    found = _windows(text, sorted(spans))
    for windows in _batches(_whole_words(text, found) if percent else found):
        joined = BETWEEN.join(text[first:last] for first, last in windows)
        # In a form a plus sign is a space; elsewhere, as in an address, it is itself.
        for spaced in (True, False) if percent and "+" in joined else (False,):
            resolved = _resolved(joined.replace("+", " ") if spaced else joined, percent=percent)
            if passes(resolved):
                for first, last in windows:
                    if not spaced or text.find("+", first, last) >= 0:
                        yield View(text, first, last, percent=percent, spaced=spaced)


def _batches(windows: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Windows, so many at once that together they are worth a look."""
    batch: list[tuple[int, int]] = []
    size = 0
    for first, last in windows:
        batch.append((first, last))
        size += last - first
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _resolved(text: str, *, percent: bool) -> str:
    """The text of a view: made faster, and without a map."""
    chars = f"{_ESCAPES}%" if percent else _ESCAPES
    for _ in range(_ROUNDS):
        total = 0
        for char in chars:
            if char in text:
                made = "" if char == "\x1b" else _character
                text, count = _BEGUN[char].regex.subn(made, text)
                total += count
        if not total:
            break
    return text


def _windows(text: str, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What to resolve marks in: each mark with what is around its word, in one if they overlap."""
    has_key: bool | None = None
    rest_of_word, rfind = _REST_OF_WORD.regex.match, text.rfind
    first = last = word = -1
    for start, end in spans:
        if has_key is None:
            has_key = any(word in text for word in _KEY_WORDS)
        if end <= word and not has_key:
            continue
        lowest = max(start - _WORD, 0)
        before = max(rfind(" ", lowest, start), rfind("\n", lowest, start), lowest) - _AROUND
        rest = rest_of_word(text, end)
        assert rest is not None
        word = rest.end()
        after = word + _AROUND
        if has_key:
            before, after = min(before, start - _KEY[0]), max(after, end + _KEY[1])
        before = max(before, 0)
        if before > last:
            if last >= 0:
                yield first, last
            first = before
        last = max(after, last)
    if last >= 0:
        yield first, last


def _whole_words(text: str, windows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Windows that end behind a word.

    Where a plus sign is a space, the first half of a secret may look like a whole one.
    """
    for first, last in windows:
        found = _REST_OF_WORD.regex.match(text, last)
        yield first, min(last if found is None else found.end() + 1, len(text))
