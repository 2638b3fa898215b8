"""Regular expressions of users, run in linear time: by `re` if they are simple, else by RE2.

An expression that `re` can take long for is run by google-re2, the extra `re2`, or refused. What
`re` can run never depends on the extra, so that installing it changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants as _ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from turnledger.ledger.errors import InvalidInputError

# The steps that `re` may take from one place of a text: the square root of a long text.
_MOST_STEPS = 2_000
_ENDLESS = 10**9
_ADVICE = (
    "Install the extra turnledger[re2], which runs it in linear time, or bound its repeats: "
    "{1,40} instead of +."
)


class Expression:
    """A compiled expression; an InvalidInputError without a subject says why it is refused."""

    def __init__(self, source: str) -> None:
        self.source = source
        try:
            compiled = re.compile(source)
            steps, _ = _cost(_parser.parse(source), is_last=True)
        except (re.error, OverflowError, ValueError, RecursionError) as error:
            raise InvalidInputError(f": invalid regular expression: {error}.") from error
        self._regex: Any = compiled
        self._is_re2 = steps > _MOST_STEPS
        if self._is_re2:
            self._regex = _in_re2(source)
        self.groupindex: dict[str, int] = dict(compiled.groupindex)
        if self._regex.search(b"" if self._is_re2 else "") is not None:
            raise InvalidInputError(" matches empty text, so it would match everywhere.")

    def spans(self, text: str, group: str | int) -> Iterator[tuple[int, int]]:
        """The spans of a group, in every match."""
        if not self._is_re2:
            for found in self._regex.finditer(text):
                yield found.span(group)
            return
        # RE2 searches UTF-8: its places are counted in characters, from one to the next.
        data = text.encode(errors="replace")
        at = place = 0

        def counted(to: int) -> int:
            nonlocal at, place
            if to >= at:
                place += len(data[at:to].decode(errors="ignore"))
                at = to
            return place

        number = self.groupindex.get(group, 0) if isinstance(group, str) else group
        for found in self._regex.finditer(data):
            if found.start(number) >= 0:
                yield counted(found.start(number)), counted(found.end(number))


def _in_re2(source: str) -> Any:
    try:
        import re2
    except ImportError as error:
        raise InvalidInputError(
            f" can take more than linear time on a long text. {_ADVICE}"
        ) from error
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(source.encode(), options)
    except re2.error as error:
        (why,) = error.args
        raise InvalidInputError(
            " can take more than linear time on a long text, and RE2 does not run it: "
            f"{why.decode(errors='replace')}. "
            "Bound its repeats: {1,40} instead of +."
        ) from error


def _cost(tree: Any, *, is_last: bool) -> tuple[int, int]:
    """The steps from one place at most, and the ways to match, of a sequence.

    `is_last`: nothing can fail after it. Then a repeat of one character at its end needs no bound:
    what it takes is a match, and the search goes on behind it.
    """
    steps, ways = 0, 1
    for number, (kind, given) in enumerate(tree):
        more, choices = _part(kind, given, is_last=is_last and number == len(tree) - 1)
        steps = min(steps + ways * more, _ENDLESS)
        ways = min(ways * choices, _ENDLESS)
    return steps, ways


def _part(kind: Any, given: Any, *, is_last: bool) -> tuple[int, int]:
    if kind in (_ops.MAX_REPEAT, _ops.MIN_REPEAT, _ops.POSSESSIVE_REPEAT):
        low, high, inner = given
        if high == _ops.MAXREPEAT:
            is_one = len(inner) == 1 and inner[0][0] in _ONE
            return (low + 1, 1) if is_last and is_one else (_ENDLESS, _ENDLESS)
        steps, ways = _cost(inner, is_last=False)
        total, paths = 0, 1
        for _ in range(min(high, _MOST_STEPS + 1)):
            total = min(total + paths * steps, _ENDLESS)
            paths = min(paths * ways, _ENDLESS)
            if total > _MOST_STEPS:
                return _ENDLESS, _ENDLESS
        if kind is _ops.POSSESSIVE_REPEAT:
            return total, 1
        return total, min(paths * (high - low + 1), _ENDLESS)
    if kind is _ops.SUBPATTERN:
        return _cost(given[-1], is_last=is_last)
    if kind is _ops.ATOMIC_GROUP:
        return _cost(given, is_last=is_last)[0], 1
    if kind in (_ops.ASSERT, _ops.ASSERT_NOT):
        return _cost(given[1], is_last=False)[0], 1
    if kind is _ops.BRANCH:
        costs = [_cost(one, is_last=is_last) for one in given[1]]
        return sum(steps for steps, _ in costs), sum(ways for _, ways in costs)
    if kind in (_ops.GROUPREF, _ops.GROUPREF_EXISTS):
        return _ENDLESS, _ENDLESS
    return 1, 1


_ONE = (_ops.LITERAL, _ops.NOT_LITERAL, _ops.IN, _ops.ANY)
