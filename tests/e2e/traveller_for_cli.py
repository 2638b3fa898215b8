"""An agent that books rooms and minds what it is told: `--app tests.e2e.traveller_for_cli:loop`.

Its model is a function of the conversation, so that another text leads elsewhere. AGENT_DIES is
the call within which the process kills itself, after it has booked; AGENT_WAITS the one within
which it stands still.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from turnledger.ledger import Ledger
from turnledger.runtime import (
    InProcessEventBus,
    MainLoop,
    MarkdownSection,
    MessageBuilder,
    Prompt,
    PromptTemplate,
    Reply,
    Request,
    ScriptedAdapter,
    Session,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
)


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
    if os.environ.get("AGENT_DIES") == context.call_id:
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get("AGENT_WAITS") == context.call_id:
        print("waits", flush=True)
        signal.pause()
    return ToolResult("Booked.", value={"room": 7})


def model(request: Request) -> Reply:
    """Books the city that it heard of, and tells what came of it."""
    said = str(request.history.to_list())
    city = next(name for name in ("Porto", "Faro", "Lisbon") if name in said)
    if request.turn == 1:
        return Reply(tool_calls=(ToolCall("b1", "book", f'{{"city": "{city}"}}'),))
    if "no room" in said:
        return Reply(text="No luck.")
    return Reply(
        text=f"Booked, though it is unlucky, in {city}." if "13" in said else f"Booked {city}."
    )


class Traveller(MainLoop[Trip, str]):
    def create_session(self) -> Session:
        return Session(bus=self._bus)

    def create_prompt(self, request: Trip) -> Prompt[str]:
        tool = Tool[Room, Any](
            name="book",
            description="Book a room.",
            handler=book,
            on_interrupt=os.environ.get("AGENT_POLICY", "retry"),  # type: ignore[arg-type]
        )
        task = MarkdownSection(title="Task", template="Book what is asked.", key="t", tools=[tool])
        asked = MessageBuilder.next_step(None).add_text(f"Book {request.city}.")
        template = PromptTemplate[str](ns="tests", key="travel", sections=[task])
        return Prompt(template).with_messages(asked)


def loop(ledger: Ledger) -> Traveller:
    """The agent on a ledger."""
    return Traveller(adapter=ScriptedAdapter(model), bus=InProcessEventBus(), ledger=ledger)


if __name__ == "__main__":
    with Ledger.open(sys.argv[1]) as book_of_runs:
        loop(book_of_runs).execute(Trip(), run_id=UUID(sys.argv[2]))
