"""What is fuzzed: a target draws an input and checks what becomes of it.

An input is known by its target, round and number, and is drawn from these alone, so that
any of them can be looked at again. What a target does not expect is an exception.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from turnledger.ledger import TurnledgerError


class BrokenPromiseError(AssertionError):
    """Something came out that must not; the text says what."""


class Target(ABC):
    """One thing that takes input. A target is made once for a round, and used as a context."""

    name: ClassVar[str]
    # How many inputs a round of about ten seconds has, and how many the normal suite tries.
    inputs: ClassVar[int]
    few: ClassVar[int]
    # How many inputs `make soak` wants.
    goal: ClassVar[int]

    def prepared(self) -> AbstractContextManager[object]:
        """What the inputs of a round need: a folder, say."""
        return nullcontext()

    @abstractmethod
    def draw(self, dice: random.Random) -> Any:
        """An input."""

    @abstractmethod
    def check(self, given: Any) -> bool:
        """Whether the input was accepted. Raises if it was neither that nor rightly refused."""

    def shown(self, given: Any) -> str:
        """The input for a person to look at."""
        return repr(given)

    def drawn(self, round_number: int, number: int) -> Any:
        return self.draw(random.Random(f"{self.name} {round_number} {number}"))

    def attempt(self, round_number: int, number: int) -> bool:
        """Draw an input and check it."""
        return self.checked(self.drawn(round_number, number))

    def checked(self, given: Any) -> bool:
        """Check an input; whatever is raised then is a broken promise."""
        try:
            return self.check(given)
        except BrokenPromiseError:
            raise
        except TurnledgerError as error:
            raise BrokenPromiseError(f"{type(error).__name__} out of place: {error}") from error
        except Exception as error:
            raise BrokenPromiseError(f"no typed error, but {type(error).__name__}") from error


def promise(kept: bool, what: str) -> None:
    """Raise if something does not hold; an `assert` would be mistaken for the code's own."""
    if not kept:
        raise BrokenPromiseError(what)
