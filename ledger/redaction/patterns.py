"""Building blocks of secret formats: boundaries, assignments, placeholders, and `SecretFormat`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from typing import AnyStr, Generic, NamedTuple


class LazyRegex(Generic[AnyStr]):
    """A regular expression that is compiled on first use.

    Compiling all formats takes longer than importing the rest of the ledger, and most
    processes never meet text that any of them could match.
    """

    def __init__(self, source: AnyStr, flags: re.RegexFlag = re.NOFLAG) -> None:
        self.source: AnyStr = source
        self._flags = flags

    @cached_property
    def regex(self) -> re.Pattern[AnyStr]:
        return re.compile(self.source, self._flags)


# --- boundaries ---
# A token must not be found inside a longer word: base64 and ids contain every short prefix sooner
# or later. So a format looks at the characters before (LEFT...) and after it (RIGHT...). The
# shorter the prefix, the more characters count as "the word goes on".

# After an escape a new token may begin: of JSON or code (\n, \0, \x1b, \u001b), of a URL (%20),
# of mail (=3D), and of a terminal, whose colours and erasures end with m and K.
ESCAPED = (
    r"(?<=\\[nrtbf0])|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\x[0-9A-Fa-f]{2})|(?<=%[0-9A-Fa-f]{2})|(?<==3D)"
    r"|(?<=[\[;][0-9]m)|(?<=[\[;][0-9]{2}m)|(?<=[\[;][0-9]{3}m)|(?<=\[m)|(?<=\[K)|(?<=\[[0-2]K)"
)
# Markdown's emphasis: one or two underscores that are not part of a token.
_EMPHASIS = r"(?<=_)(?<![A-Za-z0-9_-]_)|(?<=__)(?<![A-Za-z0-9_-]__)"
LEFT = rf"(?:(?<![A-Za-z0-9_-])|{_EMPHASIS}|{ESCAPED})"
# For a prefix of letters alone, which standard base64 (with +) can contain.
LEFT_OF_LETTERS = rf"(?:(?<![A-Za-z0-9_+-])|{_EMPHASIS}|{ESCAPED})"
# For a prefix so short that base64 contains it now and then, followed by enough letters.
LEFT_OF_FEW = rf"(?:(?<![A-Za-z0-9_+/-])|{_EMPHASIS}|{ESCAPED})"
RIGHT = r"(?!_{0,2}[A-Za-z0-9-]|___)"
RIGHT_OF_FEW = r"(?!_{0,2}[A-Za-z0-9+/=-]|___)"
# A lookahead: the word that follows contains a digit. A long word without one is prose or a name.
HAS_DIGIT = r"(?=[A-Za-z_+/=~.-]{0,200}[0-9])"
# Placeholders in the place of a password (${PASSWORD}, <password>, ***), and our own markers:
# redacting text twice must not change it.
PLACEHOLDER = (
    r"(?:\$\{[^}\s]{0,80}\}|\$\([^)\s]{0,80}\)|\$[A-Z_][A-Z0-9_]{0,80}|\$[a-z_]{1,80}"
    r"|\{[^}\s]{0,80}\}|<[^>\s]{0,80}>|\[[^\]\s]{0,80}\]|%[A-Za-z_]{1,80}%|%\([a-z_]{1,40}\)s|%s"
    r"|\*{1,80}|x{3,80}|X{3,80}|PASSWORD|\.{3})"
)

# --- assignments ---

_BEFORE_IS = r"""["'\\\]]{0,16}+[ \t]{0,24}+"""
_AFTER_IS = r"""(?:["'`\\(]|\[(?!redacted: )|\s){0,24}+(?:b["'])?"""
_TYPES = r"(?:str|string|String|bytes|SecretStr|Optional\[str\]|str[ ]?\|[ ]?None)"
# What is between a name and its value: in code (after a type annotation, too), JSON, JSON within
# JSON, headers and XML; and in pairs: ("name", "value") or {"name": ..., "value": ...}.
IS = (
    rf"(?:{_BEFORE_IS}(?:=>|:=|==|:[ ]?{_TYPES}[ ]?=|[:=]){_AFTER_IS}"
    r"|>"
    r"""|["'\\]{1,16}[ \t]{0,4},\s{0,16}(?:["'\\]{1,16}value["'\\]{1,16}\s{0,4}:\s{0,4})?"""
    r"""b?["'\\]{1,16})"""
)

# --- identifiers, which are not secrets ---

# Words, at most one of them numbered, joined by dashes and the like: my_api-v2.client.
_WORDS = r"(?:[A-Z]++[a-z]{2,}+|[a-z]{3,}+|[A-Z]{3,}+)"
_PART = (
    rf"(?:{_WORDS}*+(?:[Vv]?[0-9]{{1,4}}+(?![0-9]){_WORDS}*+)?"
    r"|[A-Za-z]{0,3}[0-9]{0,5}[a-z]?|[0-9]{1,12}+)"
)
_IDENTIFIER = LazyRegex(
    rf"(?>{_PART}(?=[_/.~+=:-]|\Z))(?:[_/.~+=:-]++(?>{_PART}(?=[_/.~+=:-]|\Z)))*+"
)
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ANY_UUID = LazyRegex(UUID, re.IGNORECASE)

# A token begins a word of at least so many characters: letters, digits and +, -, /, _.
LONG = 14


def trie(words: Iterable[str]) -> str:
    """A regular expression for any of these, each begun with what it has in common with others."""
    by_first: dict[str, list[str]] = {}
    for word in words:
        # A character with its backslash, or a class or group as a whole, which is not divided.
        first = re.match(r"\\.|[\w-]|\[[^]]+\]\{[0-9]+\}|.*", word, re.DOTALL)
        assert first is not None
        by_first.setdefault(first[0], []).append(word[first.end() :])
    parts = [
        first if "" in rest else first + trie(rest) for first, rest in by_first.items() if first
    ]
    return "" if not parts else parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class SecretFormat(NamedTuple):
    """One kind of secret, and how to find it.

    The search looks for anchors (`literals`, `shape`, `dots`, `hints`; one is enough), and only at
    an anchor for the format itself. All repeats in `pattern` and `before` are bounded.

    Attributes:
        name: What the marker says, "github-token".
        pattern: A regular expression, matched `offset` characters before the anchor. If it has a
            group `secret`, only that group is replaced.
        example: A secret with its context, with random parts: "ghp_<base62:36>". The alphabets
            are in `tests/secret_samples.py`; the longest part is secret.
        literals: Exact text, one of which begins a word of at least `LONG` characters.
        shape: A regular expression for the beginning of such a word, instead of literals.
        dots: For a token of parts joined by dots: regular expressions, each for text of one
            length, from its beginning to the dot before a part of at least 20 characters.
        hints: Lower-case text, found anywhere and in any case. What has to follow some of them is
            in `search.AFTER`.
        offset: How far before the anchor the pattern begins.
        before: A regular expression for what ends where the pattern begins.
        keyed: The secret follows a name; in a JSON object, the key is that name.
        literally: A percent sign is a part of the secret, unless what is before it is
            percent-encoded too.
        accepts: A last check of the matched text; False means not a secret.
    """

    name: str
    pattern: str
    example: str
    literals: tuple[str, ...] = ()
    shape: str = ""
    dots: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    offset: int = 0
    before: str = ""
    keyed: bool = False
    literally: bool = False
    accepts: Callable[[str], bool] | None = None

    @property
    def regex(self) -> re.Pattern[str]:
        return _compiled(self.pattern)

    @property
    def before_regex(self) -> re.Pattern[str]:
        return _compiled(rf"(?:{self.before})\Z")

    @property
    def group(self) -> str | int:
        return "secret" if "secret" in self.regex.groupindex else 0


def is_not_identifier(text: str) -> bool:
    """Whether text does not look like a name in a program."""
    return not _IDENTIFIER.regex.fullmatch(text)


def is_random(text: str) -> bool:
    """Whether text looks neither like a name in a program nor like a UUID."""
    return not _IDENTIFIER.regex.fullmatch(text) and not _ANY_UUID.regex.fullmatch(text)


def token(
    name: str,
    literals: str,
    body: str,
    example: str,
    *,
    left: str = LEFT,
    right: str = RIGHT,
    accepts: Callable[[str], bool] | None = None,
) -> SecretFormat:
    """A token that is known by its prefix.

    Args:
        name: The name of the format.
        literals: The prefixes, separated by spaces.
        body: A regular expression for the whole token, prefix included.
        example: As in `SecretFormat`.
        left: What may be before it.
        right: What may be after it.
        accepts: As in `SecretFormat`.
    """
    pattern = left + body + right
    return SecretFormat(name, pattern, example, tuple(literals.split()), accepts=accepts)


def dotted(
    name: str, dots: tuple[str, ...], rest: str, example: str, *, left: str = LEFT
) -> SecretFormat:
    """A token of parts that are joined by dots.

    Args:
        name: The name of the format.
        dots: As in `SecretFormat`.
        rest: A regular expression for what follows.
        example: As in `SecretFormat`.
        left: What may be before it.
    """
    return SecretFormat(name, f"{left}(?:{'|'.join(dots)}){rest}{RIGHT}", example, dots=dots)


def named(
    name: str,
    before: str,
    hints: str,
    value: str,
    example: str,
    *,
    between: str = IS,
    right: str = RIGHT,
    accepts: Callable[[str], bool] | None = None,
) -> SecretFormat:
    """A value that is known by the name before it.

    Args:
        name: The name of the format.
        before: A regular expression for the beginning of the name, ignoring case.
        hints: What the name ends with, separated by spaces.
        value: A regular expression for the value: the secret.
        example: As in `SecretFormat`.
        between: What is between the name and the value.
        right: What may be after the value.
        accepts: As in `SecretFormat`.
    """
    ends = tuple(hints.split())
    return SecretFormat(
        name,
        f"(?i:{'|'.join(ends)}){between}(?P<secret>{value}){right}",
        example,
        hints=ends,
        before=f"(?i:{before})" if before else "",
        keyed=True,
        accepts=accepts,
    )
