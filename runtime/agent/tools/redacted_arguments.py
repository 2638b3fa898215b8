"""Tool calls whose arguments were redacted: refused, or made with a warning.

A recovery and a replay have only what is recorded, so a live call gets no more. Without this check
`write_file` would write "[redacted: github-token]" into a file, and neither the model nor the log
would say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from turnledger.ledger import Redactor
from turnledger.ledger.redaction.safe_logging import warn_of_redacted
from turnledger.runtime.agent.tools.call import Invocation, parse_arguments, rejected
from turnledger.runtime.errors import DataDecodeError

REDACTED_ARGUMENTS = "RedactedArguments"
_BEGIN = "[redacted: "
_MARK = re.compile(r"\[redacted: [^]\n]{1,200}\]")
_MOST_NAMED = 5


def refused_as_redacted(
    name: str, arguments: str | None, redactor: Redactor | None
) -> Invocation | None:
    """The failed result of a call with redacted arguments; None if the call may be made.

    It names the arguments and their markers.

    Args:
        name: The tool.
        arguments: The arguments as recorded, JSON.
        redactor: The ledger's redactor: with `on_redacted="warn"` no call is refused.
    """
    if redactor is not None and redactor.on_redacted == "warn":
        return None
    found = _redacted_places(arguments)
    if not found:
        return None
    places = found[:_MOST_NAMED]
    more = f", and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    text = (
        f"Tool {name!r} was not called: {', '.join(places)}{more}, where a secret was taken out. "
        "Secrets are not kept, so no call can have them as arguments. Let the tool find the "
        "secret itself, in its environment say."
    )
    return rejected(name, arguments, text, REDACTED_ARGUMENTS)


def warn_of_redacted_arguments(name: str, call_id: str, arguments: str | None) -> None:
    """Log that a tool is called with redacted arguments, if it is.

    Args:
        name: The tool.
        call_id: The id of the call.
        arguments: The arguments as recorded, JSON.
    """
    found = _redacted_places(arguments)
    if found:
        warn_of_redacted(f"tool {name!r} is called with redacted arguments, call {call_id}", found)


def _redacted_places(arguments: str | None) -> list[str]:
    if arguments is None or _BEGIN not in arguments:
        return []
    try:
        return [f"{path} has {mark}" for path, mark in _marks(parse_arguments(arguments), "")]
    except DataDecodeError:
        return []  # The call is refused as invalid.


def _marks(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The places of a value that have markers, each with its first marker."""
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
