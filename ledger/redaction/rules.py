"""A user's own redaction rules: regular expressions, names of fields, and the TOML file of both.

Rules are checked when they are made: InvalidInputError names the invalid one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Literal, TypedDict

from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import InvalidInputError, short_repr
from turnledger.ledger.redaction.linear import Expression
from turnledger.ledger.redaction.patterns import LazyRegex

_NAME = LazyRegex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEYS = ("formats", "also", "fields", "patterns", "on_redacted")
# The most that is read of a file: a device may have no end.
_LONGEST = 1024 * 1024
_PATTERN_KEYS = ("name", "regex", "fields")

Path = tuple[str, ...]


def marker(name: str) -> str:
    """The text that replaces a secret: its kind, and nothing else of it."""
    return f"[redacted: {name}]"


MOST_REGEX = 10_000


class Fields:
    """Names of fields at any depth, in any case; "a.b" is a b directly in an a."""

    def __init__(self, names: Iterable[str]) -> None:
        if isinstance(names, str):
            raise InvalidInputError(f'fields are names in a list, not text: ["{names}"].')
        self.names = tuple(names)
        for name in self.names:
            check_name(name, "field")
        self._rules = [(name, tuple(name.lower().split("."))) for name in self.names]
        # A text with such a field contains one of these.
        self.words = frozenset(rule[-1] for _, rule in self._rules)
        # In a fragment of JSON only the last name is seen, so "a.b" can't be found there.
        self._in_json = _in_json(rule[0] for _, rule in self._rules if len(rule) == 1)

    def __bool__(self) -> bool:
        return bool(self.names)

    def rule_for(self, path: Path) -> str | None:
        """The name of this field, or of one that it is in; None without one."""
        lowered = tuple(part.lower() for part in path)
        for name, rule in self._rules:
            size = len(rule)
            if any(lowered[end - size : end] == rule for end in range(size, len(lowered) + 1)):
                return name
        return None

    def in_text(self, text: str, redacted: re.Pattern[str]) -> str:
        """Replace the values of these fields in fragments of JSON within text."""

        def mark(found: re.Match[str]) -> str:
            value = found["text"] if found["text"] is not None else found["number"]
            if not value or redacted.fullmatch(value):
                return found[0]
            name = marker(found["name"].lower())
            taken = f"{found['quote']}{name}" if found["text"] is not None else f'"{name}"'
            return f"{found['before']}{taken}"

        for spelt in self._in_json:
            text = spelt.sub(mark, text)
        return text


@explain_methods(skip=("applies_to", "spans"))
class SecretPattern:
    """A regular expression for secrets of one's own.

    Args:
        name: What the marker says: letters, digits, dots, dashes and underscores.
        regex: The whole match is replaced, or its group `secret` if it has one.
        fields: Search the text of these fields only; by default all text.

    Raises:
        InvalidInputError: The name or the regular expression is invalid, or the expression
            matches empty text or can take more than linear time.
    """

    __slots__ = ("name", "regex", "where")

    def __init__(self, name: str, regex: str, fields: Iterable[str] = ()) -> None:
        check_name(name, "pattern")
        self.name = name
        self.regex = _compiled(regex, name)
        self.where = Fields(fields)

    def __repr__(self) -> str:
        return f"SecretPattern({self.name!r}, {self.regex.source!r}, {self.where.names!r})"

    def applies_to(self, path: Path) -> bool:
        return not self.where or self.where.rule_for(path) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        group = "secret" if "secret" in self.regex.groupindex else 0
        for start, end in self.regex.spans(text, group):
            if start >= 0:
                yield start, end


def check_name(name: str, what: str) -> None:
    """Raise InvalidInputError if a name can't be in a marker."""
    if not isinstance(name, str) or not _NAME.regex.fullmatch(name):
        raise InvalidInputError(
            f"Invalid name of a {what}: got {short_repr(name)}, expected up to 64 letters, digits, "
            "dots, dashes and underscores, the first a letter or digit."
        )


def _compiled(regex: str, name: str) -> Expression:
    if not isinstance(regex, str):
        raise InvalidInputError(
            f"Pattern {name!r}: the regular expression must be text, got {type(regex).__name__}."
        )
    if len(regex) > MOST_REGEX:
        raise InvalidInputError(
            f"Pattern {name!r}: the regular expression has {len(regex)} characters, expected at "
            f"most {MOST_REGEX}: a longer one takes seconds to compile. Split it."
        )
    try:
        return Expression(regex)
    except InvalidInputError as error:
        raise InvalidInputError(f"Pattern {name!r}{error}") from error


def _in_json(words: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Patterns for a field of JSON, and of JSON within a JSON string."""
    names = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    if not names:
        return ()
    number = r"(?P<number>-?[0-9][0-9.eE+-]*+)"
    plain = (
        rf'(?P<before>"(?P<name>(?i:{names}))"\s{{0,8}}:\s{{0,8}})'
        rf'(?:(?P<quote>")(?P<text>(?:[^"\\]|\\.)*+)|{number})'
    )
    escaped = (
        rf'(?P<before>\\"(?P<name>(?i:{names}))\\"\s{{0,8}}:\s{{0,8}})'
        rf'(?:(?P<quote>\\")(?P<text>(?:[^"\\]|\\[^"])*+)|{number})'
    )
    return re.compile(plain), re.compile(escaped)


# --- the TOML file ---


class Rules(TypedDict, total=False):
    """The arguments of a Redactor."""

    formats: list[str]
    also: list[str]
    fields: list[str]
    patterns: list[SecretPattern]
    on_redacted: Literal["refuse", "warn"]


def read_rules(file: BinaryIO) -> Rules:
    """Read the rules in a TOML file. What they name is checked by the Redactor."""
    import tomllib  # only a redactor with a file needs it

    try:
        given = tomllib.loads(file.read(_LONGEST).decode())
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"not valid TOML: {error}.") from error
    _refuse_others(given, _KEYS, "")
    rules = Rules()
    for key in ("formats", "also", "fields"):
        if key in given:
            rules[key] = _texts(given[key], key)
    if "on_redacted" in given:
        rules["on_redacted"] = given["on_redacted"]
    patterns = given.get("patterns", [])
    if not isinstance(patterns, list) or not all(isinstance(one, dict) for one in patterns):
        raise InvalidInputError("patterns: expected tables, [[patterns]].")
    rules["patterns"] = [_pattern(one, f"patterns[{n}]") for n, one in enumerate(patterns)]
    return rules


def _pattern(given: dict[str, Any], where: str) -> SecretPattern:
    _refuse_others(given, _PATTERN_KEYS, f"{where}.")
    for key in ("name", "regex"):
        if not isinstance(given.get(key), str):
            raise InvalidInputError(f"{where}.{key}: required, and must be text.")
    fields = _texts(given.get("fields", []), f"{where}.fields")
    try:
        return SecretPattern(given["name"], given["regex"], fields)
    except InvalidInputError as error:
        raise InvalidInputError(f"{where}: {error}") from error


def _texts(given: Any, key: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise InvalidInputError(f"{key}: expected a list of names.")
    return given


def _refuse_others(given: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in known:
            raise InvalidInputError(
                f"{where}{key}: unknown key. Expected one of: {', '.join(known)}."
            )
