"""An agent that pays: what the demo kills. Take it with `--app payments:agent`.

Its one dangerous tool appends to a file, on disk before it returns: a payment that happened stays
paid. It is declared `on_interrupt="ask"`: if its outcome is unknown, a person is asked.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from turnledger import Agent, Reply, Session, ToolCall, ToolContext, ToolResult, tool
from turnledger.ledger import TokenUsage

# Where payments go, and whether the tool stands still after paying (to be killed there).
BANK = Path(os.environ.get("DEMO_BANK", "bank.txt"))
STANDSTILL = os.environ.get("DEMO_STANDSTILL", "")
# How long a run that is reached over HTTP stays with a worker that was killed.
LEASE = timedelta(seconds=float(os.environ.get("DEMO_LEASE", "60")))


@dataclass(frozen=True)
class Invoice:
    """What the agent is asked to settle."""

    number: int


@dataclass(frozen=True)
class Payment:
    """What the session remembers."""

    invoice: int
    amount: int


@tool
def find_invoice(number: int) -> ToolResult[Any]:
    """Look an invoice up."""  # harmless, and run again without asking
    return ToolResult("Found it.", value={"invoice": number, "amount": 120})


@tool(on_interrupt="ask")
def pay(invoice: int, amount: int, context: ToolContext) -> ToolResult[Any]:
    """Pay an invoice."""
    with BANK.open("a") as bank:
        bank.write(f"{context.call_id} {amount}\n")
        bank.flush()
        os.fsync(bank.fileno())
    if STANDSTILL:
        Path(STANDSTILL).touch()
        time.sleep(600)
    session: Session = context.session
    session[Payment].append(Payment(invoice, amount))
    return ToolResult(f"Paid {amount}.", value={"paid": amount})


@tool
def thank(number: int) -> str:
    """Thank the sender."""
    return "They were thanked."


USAGE = TokenUsage(input_tokens=420, output_tokens=17)
REPLIES = [
    Reply("Let me look.", (ToolCall("call_1", "find_invoice", '{"number": 17}'),), USAGE),
    Reply("I pay it.", (ToolCall("call_2", "pay", '{"invoice": 17, "amount": 120}'),), USAGE),
    Reply("I thank them.", (ToolCall("call_3", "thank", '{"number": 17}'),), USAGE),
    Reply("Invoice 17 is paid: 120.", usage=USAGE),
]
agent = Agent(
    "demo/settle",
    model=REPLIES,
    instructions="Settle invoice ${number}.",
    input=Invoice,
    tools=[find_invoice, pay, thank],
    state=(Payment,),
    lease=LEASE,
)
