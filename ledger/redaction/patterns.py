"""How formats of secrets are spelt: what may stand before and after one, and what is only a name.

The formats themselves are in `ledger.redaction.tokens` and `ledger.redaction.contextual`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
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


# After an escape a new token may begin: of JSON or code (\n, \0, \x1b, \u001b), of a URL (%20),
# of mail (=3D), and of a terminal, whose colours and erasures end with m and K.
ESCAPED = (
    r"(?<=\\[nrtbf0])|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\x[0-9A-Fa-f]{2})|(?<=%[0-9A-Fa-f]{2})|(?<==3D)"
    r"|(?<=[\[;][0-9]m)|(?<=[\[;][0-9]{2}m)|(?<=[\[;][0-9]{3}m)|(?<=\[m)|(?<=\[K)|(?<=\[[0-2]K)"
)
# Markdown's emphasis: one or two underscores that belong to no token.
_EMPHASIS = r"(?<=_)(?<![A-Za-z0-9_-]_)|(?<=__)(?<![A-Za-z0-9_-]__)"
# A token begins where none can be going on: base64 holds every short prefix sooner or later.
LEFT = rf"(?:(?<![A-Za-z0-9_-])|{_EMPHASIS}|{ESCAPED})"
# For a prefix of letters alone, that the other base64 can hold too.
LEFT_OF_LETTERS = rf"(?:(?<![A-Za-z0-9_+-])|{_EMPHASIS}|{ESCAPED})"
# For one so short that base64 holds it, and as many letters after it, now and then.
LEFT_OF_FEW = rf"(?:(?<![A-Za-z0-9_+/-])|{_EMPHASIS}|{ESCAPED})"
RIGHT = r"(?!_{0,2}[A-Za-z0-9-]|___)"
RIGHT_OF_FEW = r"(?!_{0,2}[A-Za-z0-9+/=-]|___)"
# Whether something is a digit in what follows: a long word is no secret.
HAS_DIGIT = r"(?=[A-Za-z_+/=~.-]{0,200}[0-9])"
# What a placeholder says in the place of a password, and what stands there after redacting.
PLACEHOLDER = (
    r"(?:\$\{[^}\s]{0,80}\}|\$\([^)\s]{0,80}\)|\$[A-Z_][A-Z0-9_]{0,80}|\$[a-z_]{1,80}"
    r"|\{[^}\s]{0,80}\}|<[^>\s]{0,80}>|\[[^\]\s]{0,80}\]|%[A-Za-z_]{1,80}%|%\([a-z_]{1,40}\)s|%s"
    r"|\*{1,80}|x{3,80}|X{3,80}|\.{3})"
)

_BEFORE_IS = r"""["'\\\]]{0,16}+[ \t]{0,24}+"""
_AFTER_IS = r"""(?:["'`\\(]|\[(?!redacted: )|\s){0,24}+(?:b["'])?"""
_TYPES = r"(?:str|string|String|bytes|SecretStr|Optional\[str\]|str[ ]?\|[ ]?None)"
# What stands between a name and its value: in code, JSON, JSON within JSON, headers and XML; a
# type may come first. Of a pair the name is quoted and a comma follows, or "value" has a key.
IS = (
    rf"(?:{_BEFORE_IS}(?:=>|:=|==|:[ ]?{_TYPES}[ ]?=|[:=]){_AFTER_IS}"
    r"|>"
    r"""|["'\\]{1,16}[ \t]{0,4},\s{0,16}(?:["'\\]{1,16}value["'\\]{1,16}\s{0,4}:\s{0,4})?"""
    r"""b?["'\\]{1,16})"""
)

# A name in a program: words, one of them numbered at most, with dashes and the like between.
_WORDS = r"(?:[A-Z]++[a-z]{2,}+|[a-z]{3,}+|[A-Z]{3,}+)"
_PART = (
    rf"(?:{_WORDS}*+(?:[Vv]?[0-9]{{1,4}}+(?![0-9]){_WORDS}*+)?"
    r"|[A-Za-z]{0,3}[0-9]{0,5}[a-z]?|[0-9]{1,12}+)"
)
_NAME = LazyRegex(rf"(?>{_PART}(?=[_/.~+=:-]|\Z))(?:[_/.~+=:-]++(?>{_PART}(?=[_/.~+=:-]|\Z)))*+")
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ANY_UUID = LazyRegex(UUID, re.IGNORECASE)

# Hints that are no words: three long parts with dots between them, and hex with dashes.
THREE_PARTS, HEX_PARTS = ".", "-"


class SecretFormat(NamedTuple):
    """How a kind of secret is spelt.

    `regex` is tried where one of `literals` stands, `offset` characters before it; without
    literals it is searched for. What its group `secret` matches is replaced, else all of it,
    unless `accepts` says that it is none.
    `hints` are words, in small letters, of which one is in a text that has it; without, a word
    of at least `shortest` characters begins with one of its literals. One that is `keyed` has a
    name before it: in an object, the key is that name. One that is `short` has no long word in
    it by which to find it.
    """

    name: str
    spelt: LazyRegex[str]
    literals: tuple[str, ...]
    hints: tuple[str, ...] = ()
    offset: int = 0
    keyed: bool = False
    short: bool = False
    shortest: int = 14
    accepts: Callable[[str], bool] | None = None

    @property
    def regex(self) -> re.Pattern[str]:
        return self.spelt.regex


def is_no_name(text: str) -> bool:
    """Whether this is no name that a program gives to something."""
    return not _NAME.regex.fullmatch(text)


def is_random(text: str) -> bool:
    """Whether this is neither a name nor an id: what else has its shape is a secret."""
    return not _NAME.regex.fullmatch(text) and not _ANY_UUID.regex.fullmatch(text)


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
    """A token that is known by its beginning."""
    return SecretFormat(
        name,
        LazyRegex(left + body + right),
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
    """A value that is known by the name before it."""
    spelt = LazyRegex(f"(?:{names}){between}(?P<secret>{value}){right}")
    return SecretFormat(name, spelt, (), tuple(hints.split()), keyed=True, accepts=accepts)
