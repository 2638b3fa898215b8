"""The redactor: replaces secrets in text, JSON and events with markers, before hashing and storing.

The bytes of blobs are not searched: a blob is named by its hash. The tables of formats are built
on the first search, and what only some texts need is imported for the first of them: a program
that opens a ledger to read it needs neither.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, Self
from weakref import WeakSet

from turnledger.ledger.arguments import check_methods
from turnledger.ledger.errors import InvalidInputError
from turnledger.ledger.redaction.rules import Fields, SecretPattern, marker, read_rules
from turnledger.ledger.redaction.views import BETWEEN, View, unescaped, without_percent

if TYPE_CHECKING:
    from turnledger.ledger.redaction.patterns import SecretFormat
    from turnledger.ledger.redaction.search import Search

# JSON in a JSON string, nested deeper than this, is searched as text only: each level of escapes
# doubles its length, so it is rare.
_NESTED = 16

# A text shorter than this holds no secret of a known format.
_SHORTEST = 6

# The keys of a pair where headers and variables are listed: {"name": "X-Api-Key", "value": "..."}.
_NAMES, _VALUES = ("name", "Name", "key", "Key"), frozenset({"value", "Value"})
# In JSON as text, the end of both.
_VALUE_KEY = 'alue":'

Path = tuple[str, ...]

# The redactors in use that have rules of their own: log messages are redacted with all of them.
WITH_OWN_RULES: WeakSet[Redactor] = WeakSet()


@check_methods(skip=("text", "value", "may_hold_secret", "may_be_in"))
class Redactor:
    """Finds secrets and replaces each with a marker, "[redacted: github-token]".

    Args:
        formats: Names of known formats; by default all that are rarely wrong.
        also: More names of known formats, beside `formats`.
        patterns: Regular expressions of one's own.
        fields: Keys of JSON objects and fields of events whose whole value is replaced, whatever
            it looks like; "config.password" is a password in a config.
        on_redacted: What happens where a program goes on with what was redacted: arguments of a
            tool call, a value of a step, a state or message that is read back. "refuse" does not
            make the call or record the state; "warn" goes on with the markers, and logs which
            places had which formats.

    Raises:
        InvalidInputError: A format is unknown, or a name or `on_redacted` is invalid.
    """

    def __init__(
        self,
        *,
        formats: Iterable[str] | None = None,
        also: Iterable[str] = (),
        patterns: Iterable[SecretPattern] = (),
        fields: Iterable[str] = (),
        on_redacted: Literal["refuse", "warn"] = "refuse",
    ) -> None:
        self.on_redacted = on_redacted
        self._names = None if formats is None else _checked(formats, "formats")
        self._more = _checked(also, "also")
        self.patterns = _patterns(patterns)
        self.fields = Fields(fields)
        if self.patterns or self.fields:
            WITH_OWN_RULES.add(self)

    @cached_property
    def formats(self) -> tuple[SecretFormat, ...]:
        """The formats that it finds."""
        from turnledger.ledger.redaction.contextual import BY_NAME, KNOWN

        names = {one.name for one in KNOWN} if self._names is None else {*self._names}
        names.update(self._more)
        return tuple(one for group in BY_NAME.values() for one in group if one.name in names)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a redactor from a TOML file; an InvalidInputError names the key that is wrong."""
        name = os.fspath(path)
        try:
            with open(path, "rb") as file:
                return cls(**read_rules(file))
        except OSError as error:
            raise InvalidInputError(
                f"The redactor's file {name} can't be read: {error.strerror}."
            ) from error
        except ValueError as error:  # an InvalidInputError, or a name with NUL
            raise InvalidInputError(f"The redactor's file {name}: {error}") from error

    def __repr__(self) -> str:
        return (
            f"<Redactor of {len(self.formats)} formats, {len(self.patterns)} patterns, "
            f"{len(self.fields.names)} fields>"
        )

    # --- the interface ---

    def text(self, text: str) -> str:
        """Text with its secrets replaced; the same object if there are none."""
        if not isinstance(text, str):
            raise InvalidInputError(f"Invalid text: got {type(text).__name__}, expected text.")
        return self._text(text, (), 0)

    def value(self, value: Any, path: Path = ()) -> Any:
        """JSON with secrets replaced in keys and values; the same object if there are none.

        `path` has the names of the fields that the value is in.
        """
        if not isinstance(path, tuple):
            raise InvalidInputError(f"Invalid path: got {type(path).__name__}, expected a tuple.")
        try:
            return self._value(value, path, 0)
        except (AttributeError, RecursionError) as error:
            raise InvalidInputError(
                "Invalid value: expected JSON, with text as keys and no deep nesting."
            ) from error

    def may_hold_secret(self, data: bytes) -> bool:
        """Whether text, or JSON, has to be searched for secrets."""
        if not isinstance(data, bytes):
            raise InvalidInputError(f"Invalid data: got {type(data).__name__}, expected bytes.")
        return self.may_be_in(data.decode(errors="replace"))

    def may_be_in(self, text: str) -> bool:
        """Whether there may be a secret in text, or in the values of JSON as text."""
        if not isinstance(text, str):
            raise InvalidInputError(f"Invalid text: got {type(text).__name__}, expected text.")
        if self._has_own_rules or (_VALUE_KEY in text and self._keyed.may_follow(text)):
            return True
        if self._search.finds(text):
            return True
        passes = self._search.passes
        views = [*unescaped(text, passes), *without_percent(text, passes)]
        return bool(views) and self._search.finds(BETWEEN.join(view.text for view in views))

    # --- the search ---

    @cached_property
    def _has_own_rules(self) -> bool:
        return bool(self.patterns or self.fields)

    @cached_property
    def _search(self) -> Search:
        from turnledger.ledger.redaction.search import Search

        return Search(self.formats)

    @cached_property
    def _keyed(self) -> Search:
        """The search for secrets that a name before them makes secrets."""
        from turnledger.ledger.redaction.search import Search

        return Search(one for one in self.formats if one.keyed)

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
                made[1] = self._after_name(made[0], made[1])  # ["X-Api-Key", "..."]
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
        """Replace a value, or the values of a list, that the name before it makes a secret."""
        if isinstance(value, list | tuple):
            made = [self._after_name(name, one) if type(one) is str else one for one in value]
            same = all(new is old for new, old in zip(made, value, strict=True))
            return value if same else type(value)(made)
        if not isinstance(value, str) or len(value) < _SHORTEST or len(name) > 100:
            return value
        if not self._keyed.may_follow(name):
            return value
        whole, start = f"{name}={value}", len(name) + 1
        spans = [
            (first - start, last - start, order)
            for order, first, last, _ in self._keyed.all(whole)
            if first >= start
        ]
        return _replaced(value, spans, self._keyed.markers) if spans else value

    def _text(self, text: str, path: Path, depth: int) -> str:
        if self.fields and path:
            name = self.fields.rule_for(path)
            if name is not None:
                return text if self._marker.fullmatch(text) or not text else marker(name)
        found = self._by_formats(text)
        return self._by_own_rules(found, path, depth) if self._has_own_rules else found

    def _by_formats(self, text: str) -> str:
        if len(text) < _SHORTEST:
            return text
        search = self._search
        # Escapes first: the part of a secret before an escape may look like a whole one.
        text = self._by_views(text, without_percent(text, search.passes), is_percent=True)
        text = self._by_views(text, unescaped(text, search.passes))
        spans = [(start, end, order) for order, start, end, _ in search.all(text)]
        return _replaced(text, spans, search.markers) if spans else text

    def _by_views(self, text: str, views: Iterable[View], *, is_percent: bool = False) -> str:
        # All in one search: a search of its own for each would cost more than what it reads.
        parts = list(views)
        if not parts:
            return text
        begins = [0, *accumulate(len(view.text) + len(BETWEEN) for view in parts)]
        spans: list[tuple[int, int, int]] = []
        for order, *places in self._search.all(BETWEEN.join(view.text for view in parts)):
            number = bisect_right(begins, places[0]) - 1
            view, begin = parts[number], begins[number]
            first, last, anchor = (place - begin for place in places)
            if last > len(view.text) or view.cuts(first, last):
                continue
            start, end = view.span(first, last)
            # Its own percent signs are not resolved, unless all around it is encoded.
            if (
                is_percent
                and self._search.formats[order].literally
                and (anchor < 0 or start - view.span(anchor, anchor + 1)[0] == first - anchor)
            ):
                continue
            spans.append((start, end, order))
        return _replaced(text, spans, self._search.markers) if spans else text

    def _by_own_rules(self, text: str, path: Path, depth: int) -> str:
        for one in self.patterns:
            if one.applies_to(path):
                spans = self._outside_markers(one.spans(text), text)
                if spans:
                    text = _replaced(text, [(*span, 0) for span in spans], (marker(one.name),))
        names = self.fields.words | {w for one in self.patterns for w in one.where.words}
        lowered = text.lower()
        if depth >= _NESTED or not names:
            return text
        # A name with escapes can only be compared once it is decoded.
        if "\\u00" not in lowered and not any(name in lowered for name in names):
            return text
        return self._json_text(text, path, depth)

    def _json_text(self, text: str, path: Path, depth: int) -> str:
        """Apply the rules for fields to JSON, and fragments of JSON, within text."""
        from turnledger.ledger.redaction.json_text import replace_values

        def change(value: str | float, names: Path) -> str | None:
            made = self._value(value, (*path, *names), depth + 1)
            return made if isinstance(made, str) and made != value else None

        return self.fields.in_text(replace_values(text, change), self._marker)

    def _outside_markers(
        self, spans: Iterable[tuple[int, int]], text: str
    ) -> Sequence[tuple[int, int]]:
        """The spans that touch no marker, so that redacting twice changes nothing."""
        if "[redacted: " not in text:
            return list(spans)
        taken = [found.span() for found in self._marker.finditer(text)]
        starts = [start for start, _ in taken]

        def touches(start: int, end: int) -> bool:
            before = bisect_left(starts, end) - 1
            return before >= 0 and taken[before][1] > start

        return [span for span in spans if not touches(*span)]


def _checked(given: Iterable[str], key: str) -> tuple[str, ...]:
    """Names of formats, each known."""
    if isinstance(given, str):
        raise InvalidInputError(f'{key}: expected a list of names, ["{given}"], got text.')
    names = tuple(given)
    if names:
        from turnledger.ledger.redaction.contextual import BY_NAME

        for name in names:
            if name not in BY_NAME:
                raise InvalidInputError(
                    f"{key}: unknown format {name!r}. "
                    f"Expected one of: {', '.join(sorted(BY_NAME))}."
                )
    return names


def _patterns(given: Iterable[SecretPattern]) -> tuple[SecretPattern, ...]:
    made = tuple(given)
    for one in made:
        if not isinstance(one, SecretPattern):
            raise InvalidInputError(
                f"patterns: expected SecretPattern(name, regex), got {type(one).__name__}."
            )
    return made


def _replaced(text: str, spans: Iterable[tuple[int, int, int]], markers: Sequence[str]) -> str:
    """Text with a marker in place of each span: its start, its end, and the marker's number."""
    parts: list[str] = []
    done = 0
    for start, end, number in sorted(spans, key=lambda one: (one[0], -one[1])):
        start = max(start, done)  # the rest of one that begins within another
        if start >= end:
            continue
        parts += (text[done:start], markers[number])
        done = end
    parts.append(text[done:])
    return "".join(parts)


def _unused(
    key: str, before: Mapping[str, Any], made: Mapping[str, Any], used: dict[str, int]
) -> str:
    """A key that no other item has: two redacted keys must not become one."""
    number, found = used.get(key, 1), key if key not in used else f"{key} {used[key] + 1}"
    while found in made or found in before:
        number += 1
        found = f"{key} {number}"
    used[key] = number
    return found


# All known formats that are rarely wrong: the default, and for code without a ledger at hand.
STANDARD = Redactor()
