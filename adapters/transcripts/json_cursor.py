"""JSON cursor: a value with its path, so that errors can name the place.

A `Node` is a value and its path. Asking it for something that it is not is a
`TranscriptError`; nothing else is ever raised here, whatever the data is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from turnledger.adapters.transcripts.transcript import TranscriptError

# Deeper data is nothing that a provider sends, and would take the interpreter's own stack.
DEEPEST = 100
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Node:
    """A JSON value and the path that leads to it."""

    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: str = "") -> None:
        self.value = value
        self.path = path

    def fail(self, problem: str) -> NoReturn:
        raise TranscriptError(problem, path=self.path)

    @property
    def is_text(self) -> bool:
        return isinstance(self.value, str)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    @property
    def is_object(self) -> bool:
        return isinstance(self.value, dict)

    def get(self, *names: str) -> Node | None:
        """The first of these fields that is there and not null."""
        if not isinstance(self.value, dict):
            self.fail(f"an object is expected here, not {kind_of(self.value)}.")
        for name in names:
            found = self.value.get(name)
            if found is not None:
                return Node(found, self._under(name))
        return None

    def need(self, *names: str) -> Node:
        """The same, where one of them must be there."""
        found = self.get(*names)
        if found is None:
            self.fail(f"{' or '.join(map(repr, names))} is missing.")
        return found

    def each(self) -> Iterator[Node]:
        """The items of a list."""
        if not isinstance(self.value, list):
            self.fail(f"a list is expected here, not {kind_of(self.value)}.")
        for place, item in enumerate(self.value):
            yield Node(item, f"{self.path}[{place}]")

    def text(self) -> str:
        if not isinstance(self.value, str):
            self.fail(f"text is expected here, not {kind_of(self.value)}.")
        return self.value

    def text_at(self, *names: str, default: str = "") -> str:
        """The text of a field; the default if it is not there."""
        found = self.get(*names)
        return default if found is None else found.text()

    def one_of(self, *words: str) -> str:
        """The text, which must be one of these."""
        said = self.text()
        if said not in words:
            self.fail(f"{' or '.join(words)} is expected here, not {said!r:.80}.")
        return said

    def as_json(self) -> str:
        return json_text(self.value)

    def _under(self, name: str) -> str:
        if not _PLAIN_KEY.fullmatch(name):
            return f"{self.path}[{json.dumps(name)}]"
        return f"{self.path}.{name}" if self.path else name


def root_of(data: Any) -> Node:
    """The data of one transcript; TranscriptError if it is nested too deep to be read."""
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise TranscriptError(f"this is nested deeper than {DEEPEST} levels.")
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
    return Node(data)


def json_text(value: Any) -> str:
    """A value as JSON text, as it is kept: short, its keys in the order that they came in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def kind_of(value: Any) -> str:
    """What a value is, in the words of JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "a number"
