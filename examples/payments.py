"""An agent that pays: what the demo kills. Take it with `--app examples.payments:loop`.

Its one dangerous tool appends to a file, on disk before it returns: a payment that happened stays
paid. It is declared `on_interrupt="ask"`: if its outcome is unknown, a person is asked.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnledger.ledger import Ledger, TokenUsage
from turnledger.runtime import (
    InProcessEventBus,
    MainLoop,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Reply,
    ScriptedAdapter,
    Session,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
)

# Where payments go, and whether the tool stands still after paying (to be killed there).
BANK = Path(os.environ.get("DEMO_BANK", "bank.txt"))
STANDSTILL = os.environ.get("DEMO_STANDSTILL", "")


@dataclass(frozen=True)
class Invoice:
    """What the agent is asked to settle."""

    number: int


@dataclass(frozen=True)
class Lookup:
    number: int


@dataclass(frozen=True)
class Payment:
    invoice: int
    amount: int


def find_invoice(params: Lookup, *, context: ToolContext) -> ToolResult[Any]:
    """Look an invoice up: harmless, and run again without asking."""
    return ToolResult("Found it.", value={"invoice": params.number, "amount": 120})


def pay(params: Payment, *, context: ToolContext) -> ToolResult[Any]:
    """Pay, and remember it in the session."""
    with BANK.open("a") as bank:
        bank.write(f"{context.call_id} {params.amount}\n")
        bank.flush()
        os.fsync(bank.fileno())
    if STANDSTILL:
        Path(STANDSTILL).touch()
        time.sleep(600)
    context.session[Payment].append(params)
    return ToolResult(f"Paid {params.amount}.", value={"paid": params.amount})


def thank(params: Lookup, *, context: ToolContext) -> ToolResult[Any]:
    """Say thanks."""
    return ToolResult("They were thanked.")


USAGE = TokenUsage(input_tokens=420, output_tokens=17)
REPLIES = [
    Reply("Let me look.", (ToolCall("call_1", "find_invoice", '{"number": 17}'),), USAGE),
    Reply("I pay it.", (ToolCall("call_2", "pay", '{"invoice": 17, "amount": 120}'),), USAGE),
    Reply("I thank them.", (ToolCall("call_3", "thank", '{"number": 17}'),), USAGE),
    Reply("Invoice 17 is paid: 120.", usage=USAGE),
]


class Clerk(MainLoop[Invoice, str]):
    """Settles invoices."""

    def create_session(self) -> Session:
        return Session(bus=self._bus, tags={"agent": "clerk"})

    def create_prompt(self, request: Invoice) -> Prompt[str]:
        tools = [
            Tool[Lookup, Any](
                name="find_invoice", description="Look an invoice up.", handler=find_invoice
            ),
            Tool[Payment, Any](
                name="pay", description="Pay an invoice.", handler=pay, on_interrupt="ask"
            ),
            Tool[Lookup, Any](name="thank", description="Thank the sender.", handler=thank),
        ]
        task = MarkdownSection[Invoice](
            title="Task", template="Settle invoice ${number}.", key="task", tools=tools
        )
        return Prompt(PromptTemplate(ns="demo", key="settle", sections=[task])).bind(request)


def loop(ledger: Ledger) -> Clerk:
    """The agent on a ledger."""
    return Clerk(adapter=ScriptedAdapter(REPLIES), bus=InProcessEventBus(), ledger=ledger)
