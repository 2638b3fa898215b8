"""Turnledger's ledger, an event a message, and its steps, a step a message.

SQLite: journal_mode=WAL, synchronous=FULL. The step that pays asks a person when its outcome is
unknown; the others are repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from uuid import UUID, uuid4

import turnledger
from benchmarks.peers.peer import NextText, NextTextOf, Peer
from benchmarks.peers.worker import die
from turnledger.ledger import (
    ANY,
    InnerMessage,
    Ledger,
    MessageAppended,
    RunStarted,
    ToolCallCompleted,
)
from turnledger.projections import Conversation, fold

RUN = UUID("01890a5d-ac96-774b-bcce-b302099a8057")


def loaded(ledger: Ledger) -> Sequence[object]:
    """The conversation, ready to send to a provider."""
    return fold(ledger.read(RUN), Conversation()).history().for_send()


class OurLedger(Peer):
    """A run of a ledger. It has no tools: the payment is that of `ours_agent.py`."""

    def begin(self, many: Sequence[str]) -> None:
        events = [_message(number, text) for number, text in enumerate(many)]
        with Ledger.open(self.where) as ledger:
            ledger.append(RUN, RunStarted(request_type="Peers"), ANY)
            for start in range(0, len(events), 500):
                ledger.append(RUN, events[start : start + 500], ANY)

    def go_on(self, next_text: NextText) -> None:
        self._ledger = Ledger.open(self.where)
        number = len(self.load())
        while True:
            self._ledger.append(RUN, _message(number, next_text()), ANY)
            number += 1

    def load(self) -> Sequence[object]:
        return loaded(self._ledger)

    def pay(self, tool: Callable[[], str]) -> None:
        raise NotImplementedError

    def recover(self, tool: Callable[[], str]) -> str:
        raise NotImplementedError


class OurSteps(Peer):
    """A run of steps. `turnledger.step` is imported where it is used: `OurLedger` needs none."""

    def begin(self, many: Sequence[str]) -> None:
        self.go_on(NextTextOf(many, die))

    def go_on(self, next_text: NextText) -> None:
        @turnledger.step
        def say() -> str:
            return next_text()

        with turnledger.run(RUN, ledger=self.where):
            while True:
                say()

    def load(self) -> Sequence[object]:
        events = (record.event for record in self._reader.read(RUN))
        return [event.value for event in events if isinstance(event, ToolCallCompleted)]

    @cached_property
    def _reader(self) -> Ledger:
        return Ledger.open(self.where)

    def pay(self, tool: Callable[[], str]) -> None:
        self._paid(tool)

    def recover(self, tool: Callable[[], str]) -> str:
        """The same program again."""
        from turnledger.runtime import DecisionRequiredError

        try:
            return self._paid(tool)
        except DecisionRequiredError:
            return "waits for a person"

    def _paid(self, tool: Callable[[], str]) -> str:
        @turnledger.step(on_interrupt="ask")
        def pay() -> str:
            return tool()

        with turnledger.run(RUN, ledger=self.where):
            return pay()


def _message(number: int, text: str) -> MessageAppended:
    return MessageAppended(
        message=InnerMessage(
            role="assistant" if number % 2 else "user",
            content=text,
            evaluation_id="one",
            sequence=number,
            turn=number // 2,
            prompt_ns="peers",
            prompt_key="conversation",
            created_at=datetime.now(UTC),
            message_id=uuid4(),
        )
    )
