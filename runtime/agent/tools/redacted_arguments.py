"""Calls whose arguments have a mark where a secret was: they are not made.

A recovery and a replay have only what is recorded, so a live call gets no more: without this,
`write_file` would write "[redacted: github-token]" into a file, and nobody would be told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from turnledger.runtime.agent.tools.call import Invocation, parse_arguments, rejected
from turnledger.runtime.errors import DataDecodeError

RedactedArguments = Literal["refuse", "call"]
REDACTED_ARGUMENTS = "RedactedArguments"
_BEGIN = "[redacted: "
_MARK = re.compile(r"\[redacted: [^]\n]{1,200}\]")
_MOST_NAMED = 5


def refused_as_redacted(name: str, arguments: str | None) -> Invocation | None:
    """A refusal that names the arguments with a mark, and the mark; None if there is none."""
    if arguments is None or _BEGIN not in arguments:
        return None
    try:
        found = list(_marks(parse_arguments(arguments), ""))
    except DataDecodeError:
        return None  # It is refused as invalid.
    if not found:
        return None
    places = [f"{path} has {mark}" for path, mark in found[:_MOST_NAMED]]
    more = f", and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    text = (
        f"Tool {name!r} was not called: {', '.join(places)}{more}, where a secret was taken out. "
        "Secrets are not kept, so no call can have them as arguments. Let the tool find the "
        "secret itself, in its environment say."
    )
    return rejected(name, arguments, text, REDACTED_ARGUMENTS)


def _marks(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The places of a value that have marks, each with its first mark."""
    if isinstance(value, dict):
        for key, item in value.items():
            inner = f"{path}.{key}" if path else key
            if found := _MARK.search(key):
                yield f"a key of {path or 'the arguments'}", found.group()
            yield from _marks(item, inner)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _marks(item, f"{path}[{place}]")
    elif isinstance(value, str) and (found := _MARK.search(value)):
        yield path, found.group()
