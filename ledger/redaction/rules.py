"""What a user takes for a secret: regular expressions, and names of fields.

Both are checked when they are made: a name that can't be marked, a regular expression that is
none, or one that could take for ever, is an InvalidInputError that names it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypedDict

from turnledger.ledger.errors import InvalidInputError
from turnledger.ledger.redaction.contextual import BY_NAME
from turnledger.ledger.redaction.patterns import LazyRegex

_NAME = LazyRegex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# In so many ways something may be repeated within something that is repeated, and no more.
_FEW = 50
_KEYS = ("formats", "also", "fields", "patterns")
# More than anybody writes by hand; of a device that never ends, no more is read.
_LONGEST = 1024 * 1024
_PATTERN_KEYS = ("name", "regex", "fields")

Path = tuple[str, ...]


def marker(name: str) -> str:
    """What stands in the place of a secret: which kind it was, and nothing else of it."""
    return f"[redacted: {name}]"


class Fields:
    """Names of fields, at any depth; "a.b" is a b right within an a. Capitals do not matter."""

    def __init__(self, names: Iterable[str]) -> None:
        if isinstance(names, str):
            raise InvalidInputError(f'fields are names in a list, not text: ["{names}"].')
        self.names = tuple(names)
        for name in self.names:
            check_name(name, "field")
        self._rules = [(name, tuple(name.lower().split("."))) for name in self.names]
        # What stands in a text that has such a field.
        self.words = frozenset(rule[-1] for _, rule in self._rules)
        # What is cut out of JSON tells a name, and not what it was in.
        self._in_json = _in_json(rule[0] for _, rule in self._rules if len(rule) == 1)

    def __bool__(self) -> bool:
        return bool(self.names)

    def rule_for(self, path: Path) -> str | None:
        """The name by which something at this path is meant, itself or what it is in."""
        lowered = tuple(part.lower() for part in path)
        for name, rule in self._rules:
            size = len(rule)
            if any(lowered[end - size : end] == rule for end in range(size, len(lowered) + 1)):
                return name
        return None

    def in_text(self, text: str, redacted: re.Pattern[str]) -> str:
        """Text that is no JSON as a whole, with such fields of JSON in it taken out."""

        def mark(found: re.Match[str]) -> str:
            said = found["text"] if found["text"] is not None else found["number"]
            if not said or redacted.fullmatch(said):
                return found[0]
            name = marker(found["name"].lower())
            taken = f"{found['quote']}{name}" if found["text"] is not None else f'"{name}"'
            return f"{found['before']}{taken}"

        for spelt in self._in_json:
            text = spelt.sub(mark, text)
        return text


class SecretPattern:
    """A regular expression of one's own: what its group `secret` matches is taken out, else all.

    With `fields`, it is looked for in the text of these fields only.
    """

    __slots__ = ("name", "regex", "where")

    def __init__(self, name: str, regex: str, fields: Iterable[str] = ()) -> None:
        check_name(name, "pattern")
        self.name = name
        self.regex = _compiled(regex, name)
        self.where = Fields(fields)

    def __repr__(self) -> str:
        return f"SecretPattern({self.name!r}, {self.regex.pattern!r}, {self.where.names!r})"

    def applies_to(self, path: Path) -> bool:
        return not self.where or self.where.rule_for(path) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        group = "secret" if "secret" in self.regex.groupindex else 0
        for found in self.regex.finditer(text):
            if found.start(group) >= 0:
                yield found.span(group)


def check_name(name: str, what: str) -> None:
    """InvalidInputError if a marker can't say this name."""
    if not isinstance(name, str) or not _NAME.regex.fullmatch(name):
        raise InvalidInputError(
            f"The name of a {what} is letters, digits, dots, dashes and underscores, up to 64 of "
            f"them: not {name!r}."
        )


def check_formats(given: Iterable[str], key: str) -> list[str]:
    """The names of known formats that were given; InvalidInputError if one is unknown."""
    if isinstance(given, str):
        raise InvalidInputError(f'{key} are names in a list, not text: ["{given}"].')
    names = list(given)
    for name in names:
        if name not in BY_NAME:
            raise InvalidInputError(
                f"{key}: {name!r} is no known format. Known are: {', '.join(sorted(BY_NAME))}."
            )
    return names


def _compiled(regex: str, name: str) -> re.Pattern[str]:
    if not isinstance(regex, str):
        raise InvalidInputError(
            f"Pattern {name!r}: a regular expression is text, not {type(regex).__name__}."
        )
    try:
        compiled = re.compile(regex)
    except (re.error, OverflowError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"Pattern {name!r} is no regular expression: {error}.") from error
    if compiled.search(""):
        raise InvalidInputError(
            f"Pattern {name!r} matches empty text, so it would match everywhere."
        )
    parser = getattr(re, "_parser", None)
    if parser is not None and _can_explode(parser.parse(regex), ways=1):
        raise InvalidInputError(
            f"Pattern {name!r} repeats something within something that is repeated, or repeats "
            "alternatives that begin alike, which can take for ever. Write the inner repeat "
            "without a way back, as in ++, *+ or (?>...), or repeat it a fixed number of times."
        )
    return compiled


def _can_explode(tree: Any, *, ways: int) -> bool:
    """Whether the same text can be read in many ways: the time may grow exponentially.

    `ways` is how often what is around it may be repeated.
    """
    for operation, given in tree:
        kind = str(operation)
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, inner = given
            varies = int(high) > int(low)
            if (ways > 1 and varies and ways * int(high) > _FEW) or _can_explode(
                inner, ways=ways * max(int(high), 1)
            ):
                return True
        elif kind in ("POSSESSIVE_REPEAT", "ATOMIC_GROUP"):
            inner = given[2] if kind == "POSSESSIVE_REPEAT" else given
            if _can_explode(inner, ways=1):
                return True
        elif (kind == "BRANCH" and ways > _FEW and _begin_alike(given[1])) or any(
            _can_explode(inner, ways=ways) for inner in _parts(kind, given)
        ):
            return True
    return False


def _begin_alike(branches: list[Any]) -> bool:
    """Whether two alternatives can begin with the same character, as far as can be told."""
    seen: set[int] = set()
    for branch in branches:
        first = _first(branch)
        if first is None or first & seen:
            return True
        seen |= first
    return False


def _first(tree: Any) -> set[int] | None:
    """The characters that this can begin with; None if there are too many to tell."""
    for operation, given in tree:
        match str(operation):
            case "LITERAL":
                return {given}
            case "IN":
                found: set[int] = set()
                for what, one in given:
                    if str(what) == "LITERAL":
                        found.add(one)
                    elif str(what) == "RANGE" and one[1] - one[0] < 256:
                        found.update(range(one[0], one[1] + 1))
                    else:
                        return None
                return found
            case "SUBPATTERN":
                return _first(given[-1])
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT" if given[0] > 0:
                return _first(given[2])
            case "AT" | "ASSERT" | "ASSERT_NOT":
                continue
            case _:
                return None
    return None


def _parts(kind: str, given: Any) -> list[Any]:
    match kind:
        case "SUBPATTERN":
            return [given[-1]]
        case "BRANCH":
            return list(given[1])
        case "ASSERT" | "ASSERT_NOT":
            return [given[1]]
        case "GROUPREF_EXISTS":
            return [one for one in given[1:] if one is not None]
    return []


def _in_json(words: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """A field of JSON, and of JSON that stands in a string."""
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
    """What a Redactor is made of."""

    formats: list[str]
    also: list[str]
    fields: list[str]
    patterns: list[SecretPattern]


def read_rules(path: str | os.PathLike[str]) -> Rules:
    """The rules in a file."""
    import tomllib  # only a redactor with a file needs it

    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            given = tomllib.loads(file.read(_LONGEST).decode())
    except OSError as error:
        raise InvalidInputError(
            f"The redactor's file {name} can't be read: {error.strerror}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"The redactor's file {name} is no TOML: {error}.") from error
    try:
        return _rules(given)
    except InvalidInputError as error:
        raise InvalidInputError(f"The redactor's file {name}: {error}") from error


def _rules(given: dict[str, Any]) -> Rules:
    _refuse_others(given, _KEYS, "")
    rules = Rules()
    for key in ("formats", "also"):
        if key in given:
            rules[key] = check_formats(_texts(given[key], key), key)
    if "fields" in given:
        rules["fields"] = _texts(given["fields"], "fields")
        Fields(rules["fields"])
    patterns = given.get("patterns", [])
    if not isinstance(patterns, list) or not all(isinstance(one, dict) for one in patterns):
        raise InvalidInputError("patterns: each is a table of its own, [[patterns]].")
    rules["patterns"] = [_pattern(one, f"patterns[{n}]") for n, one in enumerate(patterns)]
    return rules


def _pattern(given: dict[str, Any], where: str) -> SecretPattern:
    _refuse_others(given, _PATTERN_KEYS, f"{where}.")
    for key in ("name", "regex"):
        if not isinstance(given.get(key), str):
            raise InvalidInputError(f"{where}.{key}: is needed, and is text.")
    fields = _texts(given.get("fields", []), f"{where}.fields")
    try:
        return SecretPattern(given["name"], given["regex"], fields)
    except InvalidInputError as error:
        raise InvalidInputError(f"{where}: {error}") from error


def _texts(given: Any, key: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise InvalidInputError(f"{key}: is a list of names.")
    return given


def _refuse_others(given: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in known:
            raise InvalidInputError(f"{where}{key}: there is no such key; {', '.join(known)} are.")
