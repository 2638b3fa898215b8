"""A user's project: sync and async tools, typed input and output, state with reducers.

It is not run: `test_typing` checks it with mypy --strict and pyright strict. Each `assert_type`
says what a type checker must find there.
"""

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, assert_type
from uuid import UUID

from pydantic import BaseModel, Field

from turnledger import (
    Agent,
    Ledger,
    RunEnded,
    RunResult,
    TextDelta,
    ToolContext,
    ToolEnded,
    ToolStarted,
    tool,
)
from turnledger.projections import reducer
from turnledger.runtime import Session


@dataclass(frozen=True)
class Ticket:
    """The input."""

    customer: str
    text: str


class Triage(BaseModel):
    """The output."""

    priority: Literal["low", "high"]
    reply: str


@dataclass(frozen=True)
class Credited:
    """A change of the state."""

    euros: int


@dataclass(frozen=True)
class Account:
    """The state."""

    euros: int = 0

    @reducer(on=Credited)
    def credited(self, event: Credited) -> "Account":
        return replace(self, euros=self.euros + event.euros)


@tool(on_interrupt="ask")
def credit(
    euros: Annotated[int, Field(ge=1)], reason: str = "", *, context: ToolContext
) -> dict[str, int]:
    """Credit an amount to the customer."""
    session: Session = context.session
    session[Account].apply(Credited(euros))
    assert_type(session[Account].latest(), Account | None)
    return {"credited": euros}


@tool
async def weather(city: str) -> str:
    """Look the weather up."""
    return f"Sunny in {city}."


def instructions(ticket: Ticket, session: Session) -> str:
    assert_type(session[Account].all(), tuple[Account, ...])
    return f"Triage the ticket of {ticket.customer}."


typed = Agent(
    "support/triage",
    model="openai:gpt-5",
    instructions=instructions,
    input=Ticket,
    tools=[credit, weather],
    output=Triage,
    state=(Account,),
)
talker = Agent("support/chat", model="openai:gpt-5", instructions="Answer.", tools=[weather])
lister = Agent("support/list", model="openai:gpt-5", instructions="List.", output=list[Triage])


def use(ledger: Ledger) -> None:
    result = typed.run(Ticket("acme", "My invoice is wrong."), ledger=ledger)
    assert_type(typed, Agent[Ticket, Triage])
    assert_type(result, RunResult[Triage])
    assert_type(result.output, Triage)
    assert_type(result.output.priority, Literal["low", "high"])
    assert_type(result.run_id, UUID)
    assert_type(result.usage.total_tokens, int)
    assert_type(result.session[Account].latest(), Account | None)
    assert_type(typed.recover(result.run_id, ledger=ledger).output, Triage)
    assert_type(talker.run("Hello.", ledger="runs.db").output, str)
    assert_type(lister.run("All.").output, list[Triage])
    for run in typed.list_recoverable(ledger=ledger):
        assert_type(run.run_id, UUID)
    typed.replay(result.run_id, ledger=ledger).check()


async def use_async(ledger: Ledger) -> None:
    result = await typed.arun(Ticket("acme", "My invoice is wrong."), ledger=ledger)
    assert_type(result, RunResult[Triage])
    assert_type((await typed.arecover(result.run_id)).output, Triage)
    async for event in typed.stream(Ticket("acme", "And now?"), continues=result.run_id):
        match event:
            case TextDelta(text):
                assert_type(text, str)
            case ToolStarted() | ToolEnded():
                assert_type(event.name, str)
            case RunEnded():
                assert_type(event.result, RunResult[Triage])


def call_as_functions() -> Coroutine[Any, Any, str]:
    assert_type(credit(20, context=ToolContext(call_id="call_1")), dict[str, int])
    return weather("Oslo")
