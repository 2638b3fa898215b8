"""The histories of evaluations that are not the current one: a value, like all of a state.

Those that were left last are in memory, older ones in a file (`persistent.spill`). One that
goes on after that is written again from where it was: its older turns lie there already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from turnledger.projections.history.blocks import ChatTurn
from turnledger.projections.history.message_history import (
    MessageHistory,
    Repairs,
    _System,
    repairs_of,
    told,
)
from turnledger.projections.history.turns import PastTurns, Turn, UserTurn
from turnledger.projections.history.validate import Repair
from turnledger.projections.persistent.containers import Stack
from turnledger.projections.persistent.hashed import HashedMap, OrderedMap
from turnledger.projections.persistent.spill import NOT_PUT_AWAY, Away, away

# With so many turns in memory, the older histories are put away until few are left.
_MOST_TURNS = 8192
_TURNS_LEFT = 4096
# So many turns at most are written again when a history that went on is put away again.
_AGAIN = 64


class _AwayHistory:
    """A history in a file: its end, which is read when it goes on, and what lies below that."""

    __slots__ = ("_below", "_digest", "_end", "_repaired")

    def __init__(self, history: MessageHistory) -> None:
        """One of NOT_PUT_AWAY if that can't be."""
        turns, below = _in_memory(history._tip)
        repairs, repaired = _newly_repaired(history._repairs)
        tip = history._tip
        if len(turns) > _AGAIN and tip is not None:
            # Only the last two, one of each side, may still be added to.
            last = tip.asked if isinstance(tip, UserTurn) else tip
            assert last is not None
            past = below.number if below is not None else 0
            kept = last.before.number - past
            below = PastTurns(below, away(turns[:kept]), last.before)
            turns = turns[kept:]
            if repairs:
                repaired, repairs = Stack(repaired, away(repairs)), []
        self._below = below
        self._repaired = repaired
        self._end: Away[_End] = Away((history.system, turns, repairs))
        self._digest = history._digest

    @property
    def digest(self) -> bytes:
        if self._digest is None:
            self._digest = self.fetched().digest
        return self._digest

    def fetched(self) -> MessageHistory:
        """One that is equal, and goes on like it."""
        system, turns, repairs = self._end.fetched()
        tip: Turn | None = self._below
        for turn in turns:
            tip, _ = told(tip, None, turn)
        known = self._repaired
        for repair in repairs:
            known = Stack(known, repair)
        history = MessageHistory(tip, _System(system), known)
        history._digest = self._digest
        return history


_End = tuple[str, list[ChatTurn], list[Repair]]
_Past = MessageHistory | _AwayHistory


def _in_memory(tip: Turn | None) -> tuple[list[ChatTurn], PastTurns | None]:
    """The turns that are, the last one as it is now; and what lies below them."""
    turns: list[ChatTurn] = []
    turn = tip
    while turn is not None and type(turn) is not PastTurns:
        turns.append(turn.turn() if turn is tip else turn.complete())
        turn = turn.before
    turns.reverse()
    return turns, turn if type(turn) is PastTurns else None


def _newly_repaired(repairs: Repairs) -> tuple[list[Repair], Repairs]:
    """The repairs that are in memory, and those of long ago."""
    found: list[Repair] = []
    while repairs is not None and isinstance(repairs.item, Repair | UserTurn):
        found.extend(reversed(repairs_of(repairs.item)))
        repairs = repairs.below
    found.reverse()
    return found, repairs


def _digest_of(history: _Past) -> bytes:
    return history.digest


def _put_away(history: MessageHistory) -> _Past:
    """The same in a file; as it is if that can't be."""
    try:
        return _AwayHistory(history)
    except NOT_PUT_AWAY:
        return history


@final
class PastHistories:
    """Histories by the evaluations' names, the one that was left last is the last."""

    __slots__ = ("_all", "_near", "_turns")

    def __init__(
        self,
        _all: HashedMap[_Past] | None = None,
        _near: OrderedMap[int] | None = None,
        _turns: int = 0,
    ) -> None:
        self._all: HashedMap[_Past] = HashedMap(plain=_digest_of) if _all is None else _all
        # Whose histories are in memory, with how many turns each, and with how many in all.
        self._near: OrderedMap[int] = OrderedMap() if _near is None else _near
        self._turns = _turns

    def get(self, name: str) -> MessageHistory | None:
        found = self._all.get(name)
        return found.fetched() if isinstance(found, _AwayHistory) else found

    def put(self, name: str, history: MessageHistory) -> PastHistories:
        tip = history._tip
        here = 1 if tip is None else tip.number - tip.away
        turns = self._turns - (self._near.get(name) or 0) + here
        near = self._near.remove(name).put(name, here)
        longer = PastHistories(self._all.put(name, history), near, turns)
        return longer if turns <= _MOST_TURNS else longer._without_the_old()

    def remove(self, name: str) -> PastHistories:
        turns = self._turns - (self._near.get(name) or 0)
        return PastHistories(self._all.remove(name), self._near.remove(name), turns)

    def _without_the_old(self) -> PastHistories:
        everything, turns = self._all, 0
        left: list[tuple[str, int]] = []
        for name, here in reversed(list(self._near.items())):
            history = everything.get(name)
            assert isinstance(history, MessageHistory)
            if not left or turns + here <= _TURNS_LEFT:
                left.append((name, here))
                turns += here
            else:
                everything = everything.put(name, _put_away(history))
        near: OrderedMap[int] = OrderedMap()
        for name, here in reversed(left):
            near = near.put(name, here)
        return PastHistories(everything, near, turns)

    def items(self) -> Iterator[tuple[str, MessageHistory]]:
        for name, history in self._all.items():
            yield name, history.fetched() if isinstance(history, _AwayHistory) else history

    @property
    def digest(self) -> bytes:
        return self._all.digest

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __reduce__(self) -> tuple[object, ...]:
        """Copied with everything that lies in the file: that is this process's own."""
        return (_together, (list(self.items()),))


def _together(histories: list[tuple[str, MessageHistory]]) -> PastHistories:
    past = PastHistories()
    for name, history in histories:
        past = past.put(name, history)
    return past
