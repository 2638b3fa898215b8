"""The histories of evaluations that are not the current one: a value, like all of a state.

Those that were left last are in memory, older ones in a file (projections/attic.py).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import final

from projections.attic import Away
from projections.containers import NotLoadedError, Stack, in_order
from projections.history import MessageHistory
from projections.persistent import HashedMap

# With so many turns in memory, the older histories are put away until few are left.
_MOST_TURNS = 8192
_TURNS_LEFT = 4096


class _AwayHistory:
    """A history in a file."""

    __slots__ = ("_away", "_digest")

    def __init__(self, history: MessageHistory) -> None:
        self._away = Away(history)
        self._digest = history._digest

    @property
    def digest(self) -> bytes:
        if self._digest is None:
            self._digest = self._away.fetched().digest
        return self._digest

    def fetched(self) -> MessageHistory:
        return self._away.fetched()


_Past = MessageHistory | _AwayHistory


def _digest_of(history: _Past) -> bytes:
    return history.digest


def _put_away(history: MessageHistory) -> _Past:
    """The same in a file; as it is if that can't be, or if most of it is not here anyway."""
    try:
        return _AwayHistory(history)
    except (OSError, NotLoadedError, pickle.PicklingError):
        return history


@final
class PastHistories:
    """Histories by the evaluations' names, the one that was left last is the last."""

    __slots__ = ("_all", "_near", "_turns")

    def __init__(
        self,
        _all: HashedMap[_Past] | None = None,
        _near: Stack[str] | None = None,
        _turns: int = 0,
    ) -> None:
        self._all: HashedMap[_Past] = HashedMap(plain=_digest_of) if _all is None else _all
        # Whose histories may be in memory, and how many turns these have at most.
        self._near = _near
        self._turns = _turns

    def get(self, name: str) -> MessageHistory | None:
        found = self._all.get(name)
        return found.fetched() if isinstance(found, _AwayHistory) else found

    def put(self, name: str, history: MessageHistory) -> PastHistories:
        turns = self._turns + len(history)
        longer = PastHistories(self._all.put(name, history), Stack(self._near, name), turns)
        return longer if turns <= _MOST_TURNS else longer._without_the_old()

    def remove(self, name: str) -> PastHistories:
        return PastHistories(self._all.remove(name), self._near, self._turns)

    def _without_the_old(self) -> PastHistories:
        everything, turns = self._all, 0
        near: list[str] = []
        # A name may be there twice, or its evaluation may be the current one by now.
        for name in dict.fromkeys(reversed(in_order(self._near))):
            history = everything.get(name)
            if not isinstance(history, MessageHistory):
                continue
            if not near or turns + len(history) <= _TURNS_LEFT:
                near.append(name)
                turns += len(history)
            else:
                everything = everything.put(name, _put_away(history))
        names: Stack[str] | None = None
        for name in reversed(near):
            names = Stack(names, name)
        return PastHistories(everything, names, turns)

    def items(self) -> Iterator[tuple[str, MessageHistory]]:
        for name, history in self._all.items():
            yield name, history.fetched() if isinstance(history, _AwayHistory) else history

    @property
    def digest(self) -> bytes:
        return self._all.digest

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)
