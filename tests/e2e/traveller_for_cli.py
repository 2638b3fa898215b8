"""An agent that books rooms and minds what it is told: `--app tests.e2e.traveller_for_cli:loop`.

Its model is a function of the conversation, so that another text leads elsewhere. AGENT_DIES is
the call within which the process kills itself, after it has booked; AGENT_WAITS the one within
which it stands still.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.agent import ScriptedLoop, calls, says, task
from tests.e2e.agent_for_cli import dies_or_waits
from turnledger.ledger import Ledger
from turnledger.runtime import MessageBuilder, Prompt, Reply, Request, Tool, ToolContext, ToolResult


@dataclass(frozen=True)
class Trip:
    """Where somebody wants to go."""

    city: str = "Lisbon"


@dataclass(frozen=True)
class Room:
    city: str


def book(params: Room, *, context: ToolContext) -> ToolResult[Any]:
    with Path(os.environ["AGENT_BOOKINGS"]).open("a") as bookings:
        bookings.write(f"{context.call_id} {params.city}\n")
    dies_or_waits(context)
    return ToolResult("Booked.", value={"room": 7})


def model(request: Request) -> Reply:
    """Books the city that it heard of, and tells what came of it."""
    said = str(request.history.to_list())
    city = next(name for name in ("Porto", "Faro", "Lisbon") if name in said)
    if request.turn == 1:
        return calls(("b1", "book", f'{{"city": "{city}"}}'))
    if "no room" in said:
        return says("No luck.")
    return says(f"Booked, though it is unlucky, in {city}." if "13" in said else f"Booked {city}.")


class Traveller(ScriptedLoop[Trip, str]):
    def create_prompt(self, request: Trip) -> Prompt[str]:
        tool = Tool[Room, Any](
            name="book",
            description="Book a room.",
            handler=book,
            on_interrupt=os.environ.get("AGENT_POLICY", "retry"),  # type: ignore[arg-type]
        )
        asked = MessageBuilder.next_step(None).add_text(f"Book {request.city}.")
        prompt = task(request, "Book what is asked.", [tool], name="tests/travel")
        return prompt.with_messages(asked)


def loop(ledger: Ledger) -> Traveller:
    """The agent on a ledger."""
    return Traveller(model, ledger=ledger)


if __name__ == "__main__":
    with Ledger.open(sys.argv[1]) as book_of_runs:
        loop(book_of_runs).execute(Trip(), run_id=UUID(sys.argv[2]))
