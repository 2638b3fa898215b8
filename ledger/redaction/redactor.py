"""The redactor: takes secrets out of text, JSON and events, and marks where they were.

It is asked before anything is hashed or stored. What has no long word in it can hold no secret
of a known format, and is told so quickly; only what may hold one is searched. Bytes of blobs are
not looked at: they are named by their hash.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self
from weakref import WeakSet

from turnledger.ledger.errors import InvalidInputError
from turnledger.ledger.redaction.contextual import BY_NAME, KNOWN
from turnledger.ledger.redaction.json_text import Unescaped, changed_in, has_escapes
from turnledger.ledger.redaction.patterns import SecretFormat
from turnledger.ledger.redaction.prefilter import Hints
from turnledger.ledger.redaction.rules import (
    Fields,
    SecretPattern,
    check_formats,
    marker,
    read_rules,
)

# Deeper JSON within JSON text than this is looked at as text only: each level is twice as long.
_NESTED = 16

# What the parts of a pair are called where headers and variables are listed.
_NAMES, _VALUES = ("name", "Name", "key", "Key"), frozenset({"value", "Value"})

Path = tuple[str, ...]

# Those in use that know more than the known formats: a log is everybody's.
WITH_OWN_RULES: WeakSet[Redactor] = WeakSet()


class Redactor:
    """What is taken for a secret, and taken out.

    `formats` are names of known formats, all that are rarely wrong unless said otherwise; `also`
    are more of them. `patterns` are regular expressions of one's own. Of `fields`, keys of JSON
    objects and fields of events, the whole value is taken out, whatever it looks like;
    "config.password" is a password in a config.
    """

    def __init__(
        self,
        *,
        formats: Iterable[str] | None = None,
        also: Iterable[str] = (),
        patterns: Iterable[SecretPattern] = (),
        fields: Iterable[str] = (),
    ) -> None:
        self.formats = _formats(formats, also)
        self.patterns = _patterns(patterns)
        self.fields = Fields(fields)
        self._keyed = tuple(one for one in self.formats if one.keyed)
        # Whether everything has to be searched: what is asked for may be short.
        self._has_short = any(one.short for one in self.formats)
        self._searches_all = bool(self.patterns or self.fields or self._has_short)
        self._hints = Hints(self.formats)
        if self.patterns or self.fields:
            WITH_OWN_RULES.add(self)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """The redactor that a TOML file describes; InvalidInputError names what is wrong in it."""
        return cls(**read_rules(path))

    def __repr__(self) -> str:
        return (
            f"<Redactor of {len(self.formats)} formats, {len(self.patterns)} patterns, "
            f"{len(self.fields.names)} fields>"
        )

    # --- what is redacted ---

    def text(self, text: str) -> str:
        """Text without its secrets; the very same if there are none."""
        return self._text(text, (), 0)

    def value(self, value: Any, path: Path = ()) -> Any:
        """JSON without its secrets, in keys and values; the very same if there are none.

        `path` are the names of the fields that it stands in.
        """
        return self._value(value, path, 0)

    def may_hold_one(self, data: bytes) -> bool:
        """Whether it is worth searching this text, or JSON, for secrets."""
        return self._searches_all or self._hints.may_hold_one(data)

    # --- how ---

    @cached_property
    def _marker(self) -> re.Pattern[str]:
        """The markers that this redactor writes."""
        names = [one.name for one in self.formats] + [one.name for one in self.patterns]
        names += self.fields.names
        return re.compile("|".join(re.escape(marker(name)) for name in names) or r"(?!)")

    def _value(self, value: Any, path: Path, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, path, depth)
        if isinstance(value, dict):
            return self._mapping(value, path, depth)
        if isinstance(value, list | tuple):
            made = [self._value(item, path, depth) for item in value]
            if len(made) == 2 and isinstance(made[0], str):
                made[1] = self._after_name(made[0], made[1])  # a header, as many clients have it
            same = all(new is old for new, old in zip(made, value, strict=True))
            return value if same else type(value)(made)
        if isinstance(value, int | float) and not isinstance(value, bool) and self.fields:
            name = self.fields.rule_for(path)
            return value if name is None else marker(name)
        return value

    def _mapping(self, value: Mapping[str, Any], path: Path, depth: int) -> Mapping[str, Any]:
        made: dict[str, Any] = {}
        changed = False
        used: dict[str, int] = {}
        named = next((value[name] for name in _NAMES if isinstance(value.get(name), str)), None)
        for key, item in value.items():
            new_key = self._text(key, (), depth)
            new = self._after_name(key, self._value(item, (*path, key), depth))
            if named is not None and key in _VALUES:
                new = self._after_name(named, new)
            if new_key is not key:
                new_key = _unused(new_key, value, made, used)
            changed = changed or new_key is not key or new is not item
            made[new_key] = new
        return made if changed else value

    def _after_name(self, name: str, value: Any) -> Any:
        """A value that is known for a secret by its key; or the values of a list."""
        if isinstance(value, list | tuple):
            made = [self._after_name(name, one) if type(one) is str else one for one in value]
            same = all(new is old for new, old in zip(made, value, strict=True))
            return value if same else type(value)(made)
        if not isinstance(value, str) or len(value) < 6 or len(name) > 100:
            return value
        lowered = name.lower()
        keyed = [one for one in self._keyed if any(hint in lowered for hint in one.hints)]
        if not keyed:
            return value
        whole, start = f"{name}={value}", len(name) + 1
        for one in keyed:
            spans = [span for span in _spans(one, whole) if span[0] >= start]
            whole = _replaced(whole, spans, marker(one.name))
        found = whole[start:]
        return value if found == value else found

    def _text(self, text: str, path: Path, depth: int) -> str:
        if self.fields and path:
            name = self.fields.rule_for(path)
            if name is not None:
                return text if self._marker.fullmatch(text) or not text else marker(name)
        found = text
        if self._has_short or self._hints.may_hold_one(text.encode(errors="replace")):
            found = self._by_formats(text)
        if self._searches_all:
            found = self._by_own_rules(found, path, depth)
        return text if found == text else found

    def _by_formats(self, text: str) -> str:
        # First as the text says it: what stands before an escape may look like all of a secret.
        if has_escapes(text):
            plain = Unescaped(text)
            for one in self._candidates(plain.text):
                made = _replaced(text, plain.original(_spans(one, plain.text)), marker(one.name))
                if made is not text:
                    text, plain = made, Unescaped(made)
        for one in self._candidates(text):
            text = _replaced(text, _spans(one, text), marker(one.name))
        return text

    def _candidates(self, text: str) -> list[SecretFormat]:
        """The formats that this text may have: what each of them needs is in it."""
        lowered = text.lower()
        return [
            one
            for one in self.formats
            if (not one.literals or any(literal in text for literal in one.literals))
            and (not one.hints or any(hint in lowered for hint in one.hints))
        ]

    def _by_own_rules(self, text: str, path: Path, depth: int) -> str:
        for one in self.patterns:
            if one.applies_to(path):
                text = _replaced(
                    text, self._outside_markers(one.spans(text), text), marker(one.name)
                )
        names = self.fields.words | {w for one in self.patterns for w in one.where.words}
        lowered = text.lower()
        if depth >= _NESTED or not names:
            return text
        # A name may be spelt with escapes: then only reading it tells.
        if "\\u00" not in lowered and not any(name in lowered for name in names):
            return text
        return self._json_text(text, path, depth)

    def _json_text(self, text: str, path: Path, depth: int) -> str:
        """Text with JSON in it, redacted by the names there; else by what looks like JSON."""

        def change(value: str | float, names: Path) -> str | None:
            made = self._value(value, (*path, *names), depth + 1)
            return made if isinstance(made, str) and made != value else None

        return self.fields.in_text(changed_in(text, change), self._marker)

    def _outside_markers(
        self, spans: Iterable[tuple[int, int]], text: str
    ) -> Sequence[tuple[int, int]]:
        """Those that touch no marker: what is redacted stays as it is."""
        if "[redacted: " not in text:
            return list(spans)
        taken = [found.span() for found in self._marker.finditer(text)]
        starts = [start for start, _ in taken]

        def touches(start: int, end: int) -> bool:
            before = bisect_left(starts, end) - 1
            return before >= 0 and taken[before][1] > start

        return [span for span in spans if not touches(*span)]


def _formats(names: Iterable[str] | None, also: Iterable[str]) -> tuple[SecretFormat, ...]:
    wanted = {one.name for one in KNOWN} if names is None else {*check_formats(names, "formats")}
    wanted |= {*check_formats(also, "also")}
    return tuple(one for group in BY_NAME.values() for one in group if one.name in wanted)


def _patterns(given: Iterable[SecretPattern]) -> tuple[SecretPattern, ...]:
    made = tuple(given)
    for one in made:
        if not isinstance(one, SecretPattern):
            raise InvalidInputError(
                f"patterns are SecretPattern(name, regex), not {type(one).__name__}."
            )
    return made


def _spans(one: SecretFormat, text: str) -> Iterator[tuple[int, int]]:
    """Where secrets of this format are."""
    group = "secret" if "secret" in one.regex.groupindex else 0
    for found in _matches(one, text):
        if one.accepts is None or one.accepts(found[group]):
            yield found.span(group)


def _matches(one: SecretFormat, text: str) -> Iterator[re.Match[str]]:
    if not one.literals:
        yield from one.regex.finditer(text)
        return
    match, offset = one.regex.match, one.offset
    for literal in one.literals:
        place = text.find(literal)
        while place >= 0:
            hit = match(text, place - offset) if place >= offset else None
            if hit is not None:
                yield hit
            place = text.find(literal, place + 1 if hit is None else max(hit.end(), place + 1))


def _replaced(text: str, spans: Iterable[tuple[int, int]], mark: str) -> str:
    parts: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if start < done or start == end:
            continue
        parts += (text[done:start], mark)
        done = end
    if not parts:
        return text
    parts.append(text[done:])
    return "".join(parts)


def _unused(
    key: str, before: Mapping[str, Any], made: Mapping[str, Any], used: dict[str, int]
) -> str:
    """A key that nothing else has: two secrets are not to fall into one."""
    number, found = used.get(key, 1), key if key not in used else f"{key} {used[key] + 1}"
    while found in made or found in before:
        number += 1
        found = f"{key} {number}"
    used[key] = number
    return found


# All known formats: for who says nothing else, and who has no ledger to ask.
STANDARD = Redactor()
