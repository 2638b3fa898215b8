"""Turns of a growing history: a linked list in which each turn knows the one before it.

A turn makes its `ChatTurn` and its digest when they are asked for, and keeps them.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from turnledger.projections.digests import combine, list_add, list_start, map_add, map_digest
from turnledger.projections.history.blocks import (
    Block,
    ChatTurn,
    ToolResultBlock,
    ToolUseBlock,
    stub_for,
)
from turnledger.projections.persistent.containers import (
    BREAKER_EVERY,
    PersistentList,
    SmallMap,
    Stack,
    accumulated,
    as_tuple,
    break_chain,
    in_order,
)

NO_CALLS: SmallMap[ToolUseBlock] = {}
NO_RESULTS: SmallMap[ToolResultBlock] = {}
NO_BLOCKS = list_start("history.blocks")
_NO_TURNS = list_start("history.turns")
# One turn in so many keeps the list of those before it, once such a list was made.
_LISTED_EVERY = 256


# Turns are Structs, because they are made in C. They link to earlier turns only, so the garbage
# collector need not look for cycles.


class UserTurn(msgspec.Struct, eq=False, gc=False):
    """A user's turn: results of the calls before it (`asked`), then all else.

    `complete` is the turn with a stub for each call that has no result: what it is
    once the assistant speaks again. `led` says that the history's first turn is synthetic.
    """

    asked: AssistantTurn | None
    results: SmallMap[ToolResultBlock]
    arrived: Stack[ToolResultBlock] | None
    blocks: Stack[Block] | None
    led: bool
    number: int
    _turn: ChatTurn | None = None
    _complete: ChatTurn | None = None
    _chain: bytes | None = None
    _past: PersistentList[Turn] | None = None

    @property
    def before(self) -> AssistantTurn | None:
        return self.asked

    @property
    def synthetic(self) -> bool:
        return self.led and self.asked is None

    @property
    def waits(self) -> bool:
        """Whether a call before it has no result."""
        return self.asked is not None and len(self.asked.calls) != len(self.results)

    def open_calls(self) -> list[ToolUseBlock]:
        if self.asked is None or not self.waits:
            return []
        return [call for call in self.asked.open_calls() if self.results.get(call.call_id) is None]

    def turn(self) -> ChatTurn:
        if self._turn is None:
            self._turn = self._made(stubs=False)
        return self._turn

    def complete(self) -> ChatTurn:
        asked = self.asked
        if asked is None or len(asked.calls) == len(self.results):
            if self._turn is None:
                self._turn = self._made(stubs=False)
            return self._turn
        if self._complete is None:
            self._complete = self._made(stubs=True)
        return self._complete

    def _made(self, *, stubs: bool) -> ChatTurn:
        arrived, asked = self.arrived, self.asked
        if (
            self.blocks is None
            and arrived is not None
            and arrived.below is None
            and asked is not None
            and len(asked.calls) == 1
        ):
            return ChatTurn("user", (arrived.item,))
        blocks: list[Block] = []
        if self.asked is not None and (stubs or self.results):
            for call in self.asked.open_calls():
                result = self.results.get(call.call_id)
                if result is not None:
                    blocks.append(result)
                elif stubs:
                    blocks.append(stub_for(call))
        blocks.extend(in_order(self.blocks))
        return ChatTurn("user", tuple(blocks), synthetic=self.synthetic)

    def digest(self, *, stubs: bool) -> bytes:
        """Digest of its content. Results stand in the order of the calls: a sum is enough."""
        total = accumulated(self.arrived, 0, sum_results)
        count = len(self.results)
        if stubs and self.waits:
            for call in self.open_calls():
                total = sum_results(total, stub_for(call))
                count += 1
        kind = "history.synthetic" if self.synthetic else "history.user"
        blocks = accumulated(self.blocks, NO_BLOCKS, list_add)
        return combine(kind, b"%d" % count, map_digest(total), blocks)


class AssistantTurn(msgspec.Struct, eq=False, gc=False):
    """An assistant's turn: its blocks, and its calls by their ids."""

    before: UserTurn
    blocks: Stack[Block]
    calls: SmallMap[ToolUseBlock]
    led: bool
    number: int
    _turn: ChatTurn | None = None
    _calls: list[ToolUseBlock] | None = None
    _chain: bytes | None = None
    _past: PersistentList[Turn] | None = None

    @property
    def waits(self) -> bool:
        return len(self.calls) > 0

    def open_calls(self) -> list[ToolUseBlock]:
        """All of its calls, in order: results are the next turn's."""
        if not self.calls:
            return []
        if self._calls is None:
            self._calls = [one for one in self.turn().blocks if type(one) is ToolUseBlock]
        return self._calls

    def turn(self) -> ChatTurn:
        if self._turn is None:
            self._turn = ChatTurn("assistant", as_tuple(self.blocks))
        return self._turn

    complete = turn

    def digest(self, *, stubs: bool) -> bytes:
        return combine("history.assistant", accumulated(self.blocks, NO_BLOCKS, list_add))


class _BreakerTurn(AssistantTurn, eq=False, gc=False):
    """A turn at which freeing a long history stops nesting."""

    def __del__(self) -> None:
        # The list holds the same turns: they must be freed by the loop, and not after it.
        self._past = None
        break_chain(self, "before")


def assistant_turn(
    before: UserTurn, blocks: Stack[Block], calls: SmallMap[ToolUseBlock]
) -> AssistantTurn:
    """An assistant's turn after a user's."""
    number = before.number + 1
    kind = AssistantTurn if number % BREAKER_EVERY else _BreakerTurn
    return kind(before, blocks, calls, before.led, number)


def user_turn(
    asked: AssistantTurn | None,
    results: SmallMap[ToolResultBlock],
    arrived: Stack[ToolResultBlock] | None,
    blocks: Stack[Block] | None,
    led: bool,
) -> UserTurn:
    """A user's turn after an assistant's, or the first one."""
    number = 1 if asked is None else asked.number + 1
    return UserTurn(asked, results, arrived, blocks, led, number)


Turn: TypeAlias = UserTurn | AssistantTurn


def turns_until(last: Turn | None) -> list[ChatTurn]:
    """The turns up to this one, the first one first; all are complete."""
    turns: list[ChatTurn] = []
    while last is not None:
        turns.append(last.complete())
        last = last.before
    turns.reverse()
    return turns


def turns_before(tip: Turn) -> PersistentList[Turn]:
    """The turns before one, as a list that shares its parts with those of other turns.

    It is begun at the nearest turn that has such a list already: the next turn's costs one step.
    """
    fresh: list[Turn] = []
    turn: Turn | None = tip
    while turn is not None and turn._past is None:
        fresh.append(turn)
        turn = turn.before
    past: PersistentList[Turn] = PersistentList()
    added: list[Turn] = []
    if turn is not None and turn._past is not None:
        past, added = turn._past, [turn]
    while fresh:
        turn = fresh.pop()
        # Kept by the last two too: a tip is replaced as long as its turn goes on.
        if len(fresh) < 2 or turn.number % _LISTED_EVERY == 0:
            past, added = past.extend(added), []
            turn._past = past
        added.append(turn)
    assert tip._past is not None
    return tip._past


def chain_until(last: Turn | None) -> bytes:
    """The running hash of the turns up to this one, all complete."""
    fresh: list[Turn] = []
    while last is not None and last._chain is None:
        fresh.append(last)
        last = last.before
    running = _NO_TURNS if last is None or last._chain is None else last._chain
    for turn in reversed(fresh):
        running = turn._chain = list_add(running, turn.digest(stubs=True))
    return running


def chain_at(tip: Turn | None) -> bytes:
    """The running hash of all turns, the last of them as it is now."""
    if tip is None:
        return _NO_TURNS
    return list_add(chain_until(tip.before), tip.digest(stubs=False))


def sum_results(total: int, result: ToolResultBlock) -> int:
    return map_add(total, result.call_id, result)
