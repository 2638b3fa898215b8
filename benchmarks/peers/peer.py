"""The interface of a peer: go on with a conversation, load it, pay, recover. And the messages.

Imports nothing but the standard library: what a process takes to resume is the peer's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import Random

# Gives the text of the next message. The one before is durable by then, as far as the peer makes
# it so by itself. It never returns at the end: the process is killed there.
NextText = Callable[[], str]
ASKED = "Please pay my invoice."
WORDS = [
    "the",
    "invoice",
    "for",
    "March",
    "was",
    "paid",
    "twice",
    "so",
    "a",
    "second",
    "payment",
    "has",
    "to",
    "be",
    "returned",
    "to",
    "customer",
    "account",
    "number",
    "please",
    "check",
    "again",
    "which",
    "order",
    "it",
    "belongs",
    "and",
    "tell",
    "them",
    "before",
    "Friday",
]


def texts(start: int, count: int) -> list[str]:
    """The texts of a conversation from a number on: 500 to 800 bytes each, always the same."""
    return [_text(number) for number in range(start, start + count)]


def _text(number: int) -> str:
    draw = Random(number)
    text = f"{number}:"
    for word in draw.choices(WORDS, k=160):
        text += f" {word}"
    return text[: draw.randint(500, 800)]


class Peer(ABC):
    """One conversation in one store, as the peer's documentation says that it is kept."""

    def __init__(self, where: str) -> None:
        """Take the path of a SQLite file or the URL of a PostgreSQL database; open nothing."""
        self.where = where

    @abstractmethod
    def begin(self, many: Sequence[str]) -> None:
        """Make the conversation and write texts, at once if the peer can; return or be killed."""

    @abstractmethod
    def go_on(self, next_text: NextText) -> None:
        """Open the store, load what is needed for the next message, then append for ever."""

    @abstractmethod
    def load(self) -> Sequence[object]:
        """All messages of the conversation, called while `go_on` waits for a text."""

    @abstractmethod
    def pay(self, tool: Callable[[], str]) -> None:
        """Let an agent, or what the peer has in its place, call the tool once."""

    @abstractmethod
    def recover(self, tool: Callable[[], str]) -> str:
        """After a kill in the tool: go on as the documentation says; what came of it."""


class NextTextOf:
    """A `next_text` of texts at hand, for peers whose only way to write is one by one."""

    def __init__(self, many: Sequence[str], at_end: Callable[[], str]) -> None:
        self._left = iter(many)
        self._at_end = at_end

    def __call__(self) -> str:
        text = next(self._left, None)
        return self._at_end() if text is None else text
