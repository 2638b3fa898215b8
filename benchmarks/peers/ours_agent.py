"""Turnledger's agent: one run, whose loop writes the events of each reply and each tool's call.

SQLite: journal_mode=WAL, synchronous=FULL. The tool asks a person when its outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from benchmarks.peers.ours import RUN, loaded
from benchmarks.peers.peer import ASKED, NextText, NextTextOf, Peer
from benchmarks.peers.worker import die
from turnledger import Agent, Ledger, tool
from turnledger.runtime import (
    DecisionRequiredError,
    ProviderAdapter,
    Reply,
    Request,
    ToolCall,
)


class OurAgent(Peer):
    """A run of an agent."""

    def begin(self, many: Sequence[str]) -> None:
        agent = _conversation(NextTextOf(many, die))
        agent.run(ASKED, ledger=self.where, run_id=RUN)

    def go_on(self, next_text: NextText) -> None:
        _conversation(next_text).recover(RUN, ledger=self.where)

    def load(self) -> Sequence[object]:
        return loaded(self._reader)

    @cached_property
    def _reader(self) -> Ledger:
        return Ledger.open(self.where)

    def pay(self, tool: Callable[[], str]) -> None:
        _agent(_pay_once, tool).run(ASKED, ledger=self.where, run_id=RUN)

    def recover(self, tool: Callable[[], str]) -> str:
        try:
            return str(_agent(_pay_once, tool).recover(RUN, ledger=self.where).output)
        except DecisionRequiredError:
            return "waits for a person"


def _conversation(next_text: NextText) -> Agent[str, str]:
    def reply(request: Request) -> Reply:
        return Reply(text=next_text(), tool_calls=(ToolCall(f"call_{request.turn}", "pay", "{}"),))

    return _agent(reply, next_text)


def _pay_once(request: Request) -> Reply:
    if request.turn == 1:
        return Reply(text=None, tool_calls=(ToolCall("call_1", "pay", "{}"),))
    return Reply(text="Paid.")


def _agent(reply: Callable[[Request], Reply], work: Callable[[], str]) -> Agent[str, str]:
    @tool(on_interrupt="ask")
    def pay() -> str:
        """Pay the invoice."""
        return work()

    return Agent(
        "peers/clerk",
        model=_Scripted(reply),
        instructions="Pay.",
        tools=[pay],
        max_turns=None,
    )


class _Scripted(ProviderAdapter[str]):
    """A model in this process that does not look at the conversation, as the peers' do not."""

    name = "scripted"

    def __init__(self, reply: Callable[[Request], Reply]) -> None:
        super().__init__(model="scripted")
        self._reply = reply

    def encode(self, request: Request) -> Any:
        return request

    def send(self, payload: Any, sending: Any) -> Any:
        return self._reply(payload)

    def decode(self, raw: Any) -> Reply:
        assert isinstance(raw, Reply)
        return raw
