"""Building blocks of secret formats: boundaries, assignments, placeholders, and `SecretFormat`."""

from __future__ import annotations

import re
from collections.abc import Callable
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
    r"|\*{1,80}|x{3,80}|X{3,80}|\.{3})"
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

# Hints that are not words: three long parts joined by dots, and hexadecimal digits with dashes.
THREE_PARTS, HEX_PARTS = ".", "-"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class SecretFormat(NamedTuple):
    """One kind of secret, and how to find it.

    A format is searched for in two steps, so that most text costs nothing: the prefilter and
    `literals` and `hints` rule out text that cannot contain it, then `regex` decides.

    Attributes:
        name: What the marker says, "github-token".
        pattern: A regular expression, matched `offset` characters before one of `literals`;
            without literals it is searched for in the whole text. If it has a group `secret`,
            only that group is replaced.
        literals: Exact text that every secret of the format contains.
        hints: Lower-case words, one of which is in every text with such a secret. Without
            hints, the prefilter looks for a word of at least `shortest` characters that begins
            with one of `literals`.
        offset: How far before a literal the secret begins.
        keyed: The secret follows a name; in a JSON object, the key is that name.
        short: The secret may lack a long word, so the prefilter cannot rule text out.
        shortest: The length of the shortest word that is such a secret.
        accepts: A last check of the matched text; False means not a secret.
    """

    name: str
    pattern: str
    literals: tuple[str, ...]
    hints: tuple[str, ...] = ()
    offset: int = 0
    keyed: bool = False
    short: bool = False
    shortest: int = 14
    accepts: Callable[[str], bool] | None = None

    @property
    def regex(self) -> re.Pattern[str]:
        return _compiled(self.pattern)


def is_not_identifier(text: str) -> bool:
    """Whether text does not look like a name in a program."""
    return not _IDENTIFIER.regex.fullmatch(text)


def is_random(text: str) -> bool:
    """Whether text looks neither like a name in a program nor like a UUID."""
    return not _IDENTIFIER.regex.fullmatch(text) and not _ANY_UUID.regex.fullmatch(text)


def token(
    name: str,
    prefixes: str,
    body: str,
    *,
    left: str = LEFT,
    right: str = RIGHT,
    hints: str = "",
    shortest: int = 14,
    accepts: Callable[[str], bool] | None = None,
) -> SecretFormat:
    """A token that is known by its prefix.

    Args:
        name: The name of the format.
        prefixes: The prefixes, separated by spaces.
        body: A regular expression for the whole token, prefix included.
        left: What may be before it.
        right: What may be after it.
        hints: As in `SecretFormat`, separated by spaces.
        shortest: As in `SecretFormat`.
        accepts: As in `SecretFormat`.
    """
    return SecretFormat(
        name,
        left + body + right,
        tuple(prefixes.split()),
        tuple(hints.split()),
        shortest=shortest,
        accepts=accepts,
    )


def named(
    name: str,
    names: str,
    value: str,
    hints: str,
    *,
    between: str = IS,
    right: str = RIGHT,
    accepts: Callable[[str], bool] | None = None,
) -> SecretFormat:
    """A value that is known by the name before it.

    Args:
        name: The name of the format.
        names: A regular expression for the name before the value.
        value: A regular expression for the value: the secret.
        hints: As in `SecretFormat`, separated by spaces.
        between: What is between the name and the value.
        right: What may be after the value.
        accepts: As in `SecretFormat`.
    """
    pattern = f"(?:{names}){between}(?P<secret>{value}){right}"
    return SecretFormat(name, pattern, (), tuple(hints.split()), keyed=True, accepts=accepts)
