"""Errors that the user's code raised while it was called: where, and the user's part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from traceback import extract_tb

from turnledger.ledger import TurnledgerError
from turnledger.runtime.agent.traceback_text import is_users, relative_name, traceback_text

# SystemExit too: code that calls sys.exit would end a replay without a word.
RAISED = (Exception, SystemExit)


class UserCodeError(TurnledgerError, RuntimeError):
    """The user's code raised where it was called for a replay: a factory, or create_session.

    Attributes:
        where: The error's type, file, line and function.
        traceback: The traceback, without the frames of this package.
    """

    def __init__(self, where: str, traceback: str) -> None:
        self.where, self.traceback = where, traceback
        super().__init__(f"your code raised {where}\n\n{traceback}")


@dataclass(frozen=True)
class Raised:
    """An error of the user's code: its type and place, and its traceback without our frames."""

    where: str
    traceback: str


def raised_by_user(error: BaseException | None, redact: Callable[[str], str]) -> Raised | None:
    """Where the user's code raised; None if no line of it had a part in the error.

    Args:
        error: The error, as it was caught.
        redact: Replaces secrets.
    """
    # From the error that came out to what it was raised from: the first with the user's lines.
    for one in _with_causes(error):
        frames = [frame for frame in extract_tb(one.__traceback__) if is_users(frame.filename)]
        if frames:
            last = frames[-1]
            place = f"{relative_name(last.filename)}:{last.lineno} ({last.name})"
            return Raised(f"{type(one).__name__} at {place}", traceback_text(one, redact).rstrip())
    return None


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        shown = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or shown


@contextmanager
def calling_users_code(redact: Callable[[str], str]) -> Iterator[None]:
    """UserCodeError for what the user's code raises in the block; other errors pass."""
    try:
        yield
    except RAISED as error:
        raised = raised_by_user(error, redact)
        if raised is None:
            raise
        raise UserCodeError(raised.where, raised.traceback) from error
