"""The turns of a history while it grows: each knows the one before it and can be added to.

Adding gives a new turn beside the old one and shares all else, so that every earlier history
stays as it was. A turn becomes a `ChatTurn`, or a digest, when somebody asks, and remembers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from turnledger.projections.digests import combine, list_add, list_start, map_add, map_digest
from turnledger.projections.history.blocks import (
    Block,
    ChatTurn,
    ToolResultBlock,
    ToolUseBlock,
    stub_for,
)
from turnledger.projections.persistent.containers import (
    SmallMap,
    Stack,
    accumulated,
    as_tuple,
    in_order,
)

NO_CALLS: SmallMap[ToolUseBlock] = {}
NO_RESULTS: SmallMap[ToolResultBlock] = {}
NO_BLOCKS = list_start("history.blocks")
_NO_TURNS = list_start("history.turns")


class UserTurn:
    """A user's turn: results of the calls before it (`asked`), then all else.

    `complete` is the turn with a stub for each call that has no result: what it is
    once the assistant speaks again. `led` says that the history's first turn is synthetic,
    and `away` how many of its first turns are not in memory.
    """

    __slots__ = (
        "_chain",
        "_complete",
        "_turn",
        "arrived",
        "asked",
        "away",
        "blocks",
        "led",
        "number",
        "results",
    )

    def __init__(
        self,
        asked: AssistantTurn | None,
        results: SmallMap[ToolResultBlock],
        arrived: Stack[ToolResultBlock] | None,
        blocks: Stack[Block] | None,
        led: bool,
    ) -> None:
        self.asked = asked
        self.results = results
        self.arrived = arrived
        self.blocks = blocks
        self.led = led
        self.number: int = 1 if asked is None else asked.number + 1
        self.away: int = 0 if asked is None else asked.away
        self._turn: ChatTurn | None = None
        self._complete: ChatTurn | None = None
        self._chain: bytes | None = None

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
        if not self.waits:
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
            only = as_tuple(arrived)
            return ChatTurn("user", only)
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
        """Of its content. The calls say in which order results stand: a sum is enough."""
        total = accumulated(self.arrived, 0, sum_results)
        count = len(self.results)
        if stubs and self.waits:
            for call in self.open_calls():
                total = sum_results(total, stub_for(call))
                count += 1
        return _user_digest(
            self.synthetic, count, total, accumulated(self.blocks, NO_BLOCKS, list_add)
        )


class AssistantTurn:
    """An assistant's turn: its blocks, and its calls by their ids."""

    __slots__ = ("_calls", "_chain", "_turn", "away", "before", "blocks", "calls", "led", "number")

    def __init__(
        self, before: UserTurn, blocks: Stack[Block], calls: SmallMap[ToolUseBlock]
    ) -> None:
        self.before = before
        self.blocks = blocks
        self.calls = calls
        self.led = before.led
        self.away = before.away
        self.number: int = before.number + 1
        self._turn: ChatTurn | None = None
        self._calls: list[ToolUseBlock] | None = None
        self._chain: bytes | None = None

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


Turn: TypeAlias = UserTurn | AssistantTurn


class PastTurns(UserTurn):
    """The turns up to a user's one, complete, of which most lie in a file. Never the last turn.

    `said` are those that came after the ones `below`: a history that goes on and is put away
    again writes what came since, not all that it ever was.
    """

    __slots__ = ("below", "said")

    def __init__(self, below: PastTurns | None, said: Sequence[ChatTurn], last: UserTurn) -> None:
        super().__init__(None, NO_RESULTS, None, None, last.led)
        self.below = below
        self.said = said
        self.number = self.away = last.number
        self._chain = last._chain

    def all(self) -> list[ChatTurn]:
        """Every one of them, the first one first."""
        turns: list[ChatTurn] = []
        for past in self._until(None):
            turns.extend(past.said)
        return turns

    def chain(self) -> bytes:
        """The running hash up to here; what was asked for once is not read again."""
        known: PastTurns | None = self
        while known is not None and known._chain is None:
            known = known.below
        running = _NO_TURNS if known is None or known._chain is None else known._chain
        for past in self._until(known):
            for turn in past.said:
                running = list_add(running, digest_of(turn))
            past._chain = running
        return running

    def _until(self, end: PastTurns | None) -> list[PastTurns]:
        found: list[PastTurns] = []
        past: PastTurns | None = self
        while past is not end and past is not None:
            found.append(past)
            past = past.below
        found.reverse()
        return found


def turns_until(last: Turn | None) -> list[ChatTurn]:
    """The turns up to this one, the first one first; all are complete."""
    turns: list[ChatTurn] = []
    while last is not None and type(last) is not PastTurns:
        turns.append(last.complete())
        last = last.before
    turns.reverse()
    return [*last.all(), *turns] if type(last) is PastTurns else turns


def chain_until(last: Turn | None) -> bytes:
    """The running hash of the turns up to this one, all complete."""
    fresh: list[Turn] = []
    while last is not None and last._chain is None and type(last) is not PastTurns:
        fresh.append(last)
        last = last.before
    running = last.chain() if type(last) is PastTurns else None
    if running is None:
        running = _NO_TURNS if last is None or last._chain is None else last._chain
    for turn in reversed(fresh):
        running = turn._chain = list_add(running, turn.digest(stubs=True))
    return running


def chain_at(tip: Turn | None) -> bytes:
    """The running hash of all turns, the last of them as it is now."""
    if tip is None:
        return _NO_TURNS
    return list_add(chain_until(tip.before), tip.digest(stubs=False))


def digest_of(turn: ChatTurn) -> bytes:
    """The digest of a complete turn that is a value by now: the same as while it grew."""
    if turn.role == "assistant":
        return combine("history.assistant", _blocks_digest(turn.blocks))
    results = [block for block in turn.blocks if type(block) is ToolResultBlock]
    others = [block for block in turn.blocks if type(block) is not ToolResultBlock]
    total = 0
    for result in results:
        total = sum_results(total, result)
    return _user_digest(turn.synthetic, len(results), total, _blocks_digest(others))


def _blocks_digest(blocks: Sequence[Block]) -> bytes:
    running = NO_BLOCKS
    for block in blocks:
        running = list_add(running, block)
    return running


def _user_digest(synthetic: bool, results: int, total: int, blocks: bytes) -> bytes:
    kind = "history.synthetic" if synthetic else "history.user"
    return combine(kind, b"%d" % results, map_digest(total), blocks)


def sum_results(total: int, result: ToolResultBlock) -> int:
    return map_add(total, result.call_id, result)
