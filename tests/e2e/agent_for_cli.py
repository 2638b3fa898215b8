"""An agent for tests of the command: `--app tests.e2e.agent_for_cli:loop`.

Its tools pay into a file. What they do beside that is said by the environment: AGENT_DIES is the
call within which the process kills itself, AGENT_WAITS the one within which it stands still. With
AGENT_APPROVAL, payments need a person's approval.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.agent import ScriptedLoop, calls, says, task
from turnledger.ledger import Ledger
from turnledger.runtime import Prompt, Reply, Tool, ToolContext, ToolResult


@dataclass(frozen=True)
class Bill:
    """What is to be paid; an amount of 13 is a program's fault."""

    amount: int = 5


@dataclass(frozen=True)
class Pay:
    amount: int


def dies_or_waits(context: ToolContext) -> None:
    """What the environment says of this call."""
    if os.environ.get("AGENT_DIES") == context.call_id:
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get("AGENT_WAITS") == context.call_id:
        print("waits", flush=True)
        signal.pause()


def pay(params: Pay, *, context: ToolContext) -> ToolResult[Any]:
    dies_or_waits(context)
    with Path(os.environ["AGENT_BANK"]).open("a") as bank:
        bank.write(f"{context.call_id}\n")
    return ToolResult(f"Paid {params.amount}.")


REPLIES = [
    calls(("p1", "pay", '{"amount": 2}')),
    calls(("p2", "pay", '{"amount": 3}')),
    says("Paid \x1b[31mall\x1b[0m of it."),
]


class Payer(ScriptedLoop[Bill, str]):
    text = "Pay ${amount}."
    description = "Pay."

    def create_prompt(self, request: Bill) -> Prompt[str]:
        if request.amount == 13 and os.environ.get("AGENT_BROKEN"):
            raise ZeroDivisionError("thirteen")
        tool = Tool[Pay, Any](
            name="pay",
            description=self.description,
            handler=pay,
            on_interrupt=os.environ.get("AGENT_POLICY", "ask"),  # type: ignore[arg-type]
            needs_approval="AGENT_APPROVAL" in os.environ,
        )
        return task(request, self.text, [tool], name="tests/pay")


class Edited(Payer):
    """The same agent, deployed with another text."""

    text = "Pay ${amount}.\nNo \x1b[31mcash."


class Described(Payer):
    """The same agent, deployed with another description of its tool."""

    description = "Pay at once."


def paid(request: Any) -> Reply:
    """The model: it pays twice, whatever the number of the turn."""
    done = sum(turn.role == "assistant" for turn in request.turns)
    return REPLIES[done]


def loop(ledger: Ledger) -> Payer:
    """The agent on a ledger."""
    return Payer(REPLIES, ledger=ledger)


def edited(ledger: Ledger) -> Payer:
    return Edited(paid, ledger=ledger)


def described(ledger: Ledger) -> Payer:
    return Described(paid, ledger=ledger)


def no_loop(ledger: Ledger) -> str:
    return "no loop"


if __name__ == "__main__":
    with Ledger.open(sys.argv[1]) as book:
        loop(book).execute(Bill(int(sys.argv[3])), run_id=UUID(sys.argv[2]))
