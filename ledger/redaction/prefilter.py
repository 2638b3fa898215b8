"""Prefilter for secrets: rules out text that cannot contain one, by an automaton for many formats.

The automaton is that of Rust's `regex`, which pydantic-core runs for the pattern of a string. It
reads each character once, whatever the number of formats, and says yes or no. It has no lookaround,
so each format is widened for it: the wide form matches wherever the format does, and now and then
elsewhere. What is not ruled out is searched by `search.Search`, so a form that is too wide costs
time, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from re import _constants as _ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from turnledger.ledger.redaction.patterns import IS, RIGHT, SecretFormat, trie

# How many characters of a secret and of what is before it are looked at; then anything may follow.
REACH = 512
# A repeat of more times has no upper bound in an automaton, and at most such a lower one: each time
# is a state of its own. So is each place in a word that must not be before a secret.
_MOST_TIMES, _LEAST_TIMES, _MOST_FORBIDDEN = 8, 24, 3
_EXACT_TIMES = 48
# What may be between a name and its value, in more orders than in `IS`, which many formats have.
_MARKS = r"""[\s"'\\\]\[=>:`(,|]{1,40}"""
_WIDE_IS = (
    rf"""(?:[\s"'\\\]]{{0,40}}[=:>,](?:{_MARKS})?"""
    rf"(?:(?:str|String|string|bytes|SecretStr|Optional|None|value|b){_MARKS}){{0,4}})"
)
# What follows a word.
_WIDE_RIGHT = r"(?:[^A-Za-z0-9-]|\Z)"
_AT_BEGIN = "(?:^|"
_NEVER = "[a&&b]"
_ASCII = range(128)
# Stands for all characters beyond ASCII, with which the automata would be several times as large.
_BEYOND = ord("?")
_OF_CATEGORY = {
    _ops.CATEGORY_SPACE: {code for code in _ASCII if chr(code).isspace()},
    _ops.CATEGORY_NOT_SPACE: {code for code in _ASCII if not chr(code).isspace()},
    _ops.CATEGORY_DIGIT: {code for code in _ASCII if chr(code).isdigit()},
    _ops.CATEGORY_WORD: {code for code in _ASCII if chr(code).isalnum() or code == ord("_")},
}


class Prefilter:
    """The automaton for some formats. Compiled when it is made, in some 0.03 s."""

    def __init__(self, formats: Iterable[SecretFormat]) -> None:
        # Imported here: a program that reads a ledger, or appends little, does not need it.
        from pydantic_core import SchemaValidator, core_schema

        by_lead: dict[str, list[str]] = {}
        at_words: list[str] = []
        ends: dict[str, None] = {}
        for one in formats:
            lead, source = widened(f"(?:{one.before}){one.pattern}")
            if len(lead) > 1 and lead[0].startswith(_AT_BEGIN):
                # At the beginning of a word, which is said in a few ways: one lead fits all.
                ends |= dict.fromkeys(lead)
                at_words.append(source)
            else:
                by_lead.setdefault("|".join(lead), []).append(source)
        if at_words:
            by_lead["|".join(ends)] = at_words
        parts = (f"(?:{lead}){trie(sources)}" for lead, sources in by_lead.items())
        string = core_schema.str_schema(pattern=f"(?-u:{'|'.join(parts) or _NEVER})")
        self._matches = SchemaValidator(string).isinstance_python

    def passes(self, text: str) -> bool:
        """Whether there may be a secret in an ASCII text."""
        return self._matches(text)


def widened(pattern: str) -> tuple[list[str], str]:
    """Expressions in Rust's syntax for all that a pattern matches, and more.

    The first are for what may be before it, as its lookbehinds say; the last is for itself.
    """
    parsed = _parser.parse(pattern.replace(IS, _WIDE_IS).replace(RIGHT, _WIDE_RIGHT))
    return _lead(parsed, False), _sequence(parsed, REACH, False)[0]


def _lead(items: Any, folded: bool) -> list[str]:
    """What a pattern's first lookbehind wants before it, or what several do not forbid."""
    forbidden: list[str] = []
    for kind, given in items:
        if _width(kind, given):
            break
        lead: list[str] = []
        if kind is _ops.SUBPATTERN:
            lead = _lead(given[3], folded or bool(given[1] & re.IGNORECASE))
        elif kind is _ops.BRANCH:
            leads = [_lead(one, folded) for one in given[1]]
            lead = [one for part in leads for one in part] if all(leads) else []
        elif kind is _ops.ASSERT and given[0] < 0:
            lead = [_sequence(given[1], REACH, folded)[0]]
        elif kind is _ops.ASSERT_NOT and given[0] < 0:
            if [one for one, _ in given[1]] == [_ops.IN]:
                lead = [f"{_AT_BEGIN}{_class(given[1][0][1], folded, outside=True)})"]
            elif all(one is _ops.LITERAL for one, _ in given[1]):
                forbidden.append("".join(chr(code) for _, code in given[1]))
        if lead:
            return lead
    return [_not_after(forbidden[:_MOST_FORBIDDEN], folded)] if forbidden else []


def _not_after(words: list[str], folded: bool) -> str:
    """The shortest ends of text that ends with none of these words."""
    before: dict[str, list[str]] = {}
    for word in words:
        before.setdefault(word[-1], []).append(word[:-1])
    letters = [(_ops.LITERAL, ord(letter)) for letter in before]
    ends = [f"^|{_class(letters, folded, outside=True)}"]
    ends += [
        f"(?:{_not_after(rest, folded)}){_class([(_ops.LITERAL, ord(letter))], folded)}"
        for letter, rest in before.items()
        if "" not in rest
    ]
    return f"(?:{'|'.join(ends)})"


def _width(kind: Any, given: Any) -> int:
    """The most characters that an item matches."""
    if kind is _ops.SUBPATTERN:
        return int(given[3].getwidth()[1])
    if kind is _ops.BRANCH:
        return max(int(one.getwidth()[1]) for one in given[1])
    return 0 if kind in (_ops.ASSERT, _ops.ASSERT_NOT, _ops.AT) else 1


def _sequence(items: Any, room: int, folded: bool) -> tuple[str, int]:
    """The expression of items that `re` parsed, and how many characters may follow it.

    Args:
        items: What `re` parsed.
        room: How many characters they may take; items behind the last of them are left out.
        folded: Whether case is ignored.
    """
    parts = []
    for kind, given in items:
        part, room = _item(kind, given, room, folded)
        parts.append(part)
        if room <= 0:
            break
    return "".join(parts), room


def _item(kind: Any, given: Any, room: int, folded: bool) -> tuple[str, int]:
    if kind is _ops.AT and given is _ops.AT_END_STRING:
        return "$", room
    if kind in (_ops.ASSERT, _ops.ASSERT_NOT, _ops.AT):
        return "", room
    if kind is _ops.SUBPATTERN:
        source, room = _sequence(given[3], room, folded or bool(given[1] & re.IGNORECASE))
        return f"(?:{source})", room
    if kind is _ops.ATOMIC_GROUP:
        source, room = _sequence(given, room, folded)
        return f"(?:{source})", room
    if kind is _ops.BRANCH:
        branches = [_sequence(one, room, folded) for one in given[1]]
        return f"(?:{'|'.join(one for one, _ in branches)})", min(left for _, left in branches)
    if kind in (_ops.MAX_REPEAT, _ops.MIN_REPEAT, _ops.POSSESSIVE_REPEAT):
        low, high, inner = given
        source, _ = _sequence(inner, room, folded)
        is_small = high <= _MOST_TIMES or low == high <= _EXACT_TIMES
        times = f"{low},{high}" if is_small else f"{min(low, _LEAST_TIMES)},"
        return f"(?:{source}){{{times}}}", room - high * inner.getwidth()[1]
    return _class(given if kind is _ops.IN else [(kind, given)], folded), room - 1


def _class(members: list[tuple[Any, Any]], folded: bool, *, outside: bool = False) -> str:
    """A class of characters, or of those outside of it."""
    codes: set[int] = set()
    for kind, given in members:
        if kind is _ops.NEGATE:
            outside = not outside
        elif kind is _ops.RANGE:
            codes.update(range(given[0], given[1] + 1))
        elif kind is _ops.CATEGORY:
            codes.update(_OF_CATEGORY[given])
        elif kind is _ops.ANY:
            codes.update(_ASCII)
        else:
            assert kind in (_ops.LITERAL, _ops.NOT_LITERAL), kind
            outside = outside or kind is _ops.NOT_LITERAL
            codes.add(given)
    if folded:
        codes.update([ord(chr(code).swapcase()) for code in codes])
    # A category has characters beyond ASCII in it, and others outside of it.
    if outside:
        codes = set(_ASCII).difference(codes)
    if outside or any(kind is _ops.CATEGORY for kind, _ in members):
        codes.add(_BEYOND)
    if len(codes) == 1 and (char := chr(*codes)).isascii() and char.isprintable() and char != " ":
        return char if char.isalnum() else f"\\{char}"
    # As ranges: codes that follow one another are as far from their numbers.
    runs = [
        [code for _, code in run]
        for _, run in groupby(enumerate(sorted(codes)), lambda pair: pair[1] - pair[0])
    ]
    return "[" + "".join(f"\\x{run[0]:02x}-\\x{run[-1]:02x}" for run in runs) + "]"
