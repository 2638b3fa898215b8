"""Limits of open event streams: for one token, and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.problems import ProblemError

EACH_TOKEN, IN_ALL = 100, 500
RETRY_AFTER = 5


class StreamSlots:
    """The streams that are open.

    Args:
        each_token: How many one token may have open.
        in_all: How many may be open.
    """

    def __init__(self, each_token: int = EACH_TOKEN, in_all: int = IN_ALL) -> None:
        self._each_token = each_token
        self._in_all = in_all
        self._open: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """How many are open."""
        return self._open.total()

    @contextmanager
    def take(self, token_id: str) -> Iterator[None]:
        """Hold a place while a stream is open.

        Raises:
            ProblemError: The token or the server is at its limit of open streams.
        """
        if self._open[token_id] >= self._each_token:
            raise _too_many(f"This token has {self._each_token} event streams open.")
        if self.taken >= self._in_all:
            raise _too_many(f"The server has {self._in_all} event streams open.")
        self._open[token_id] += 1
        try:
            yield
        finally:
            self._open[token_id] -= 1
            if not self._open[token_id]:
                del self._open[token_id]


def _too_many(detail: str) -> ProblemError:
    return ProblemError(
        problems.TOO_MANY,
        f"{detail} Close one, or try again later.",
        headers={"retry-after": str(RETRY_AFTER)},
    )
