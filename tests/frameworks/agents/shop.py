"""The shop: one small agent that every framework of the table is built as.

The model's first reply looks an order up and pays it, side by side; the second notes it and sends
a mail; the third is text. If it is asked again, it answers with text. Each tool has an effect: a
line in a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import turnledger
from tests.servers.serving import Answer, Asked, Call
from turnledger.ledger import Ledger
from turnledger.runtime.agent.tools.tool import OnInterrupt
from turnledger.runtime.steps.block import RunBlock

IN_STREAM = "in a stream"
Point = Callable[[str], None]
ANSWER = "Order 17 is paid."
REPLIES = (
    Answer(
        calls=(
            Call("look", '{"order": 17}', "call_look"),
            Call("pay", '{"amount": 120}', "call_pay"),
        )
    ),
    Answer(
        calls=(
            Call("note", '{"text": "paid"}', "call_note"),
            Call("mail", '{"to": "ann"}', "call_mail"),
        )
    ),
    Answer(ANSWER),
    Answer("You are welcome."),
)


def reply(asked: Asked) -> Answer:
    """What the model says: it depends on nothing but the number of its replies so far."""
    return REPLIES[asked.turn - 1]


@dataclass(frozen=True)
class ToolText:
    """A tool as the model is told of it; its function is the one of its `does`."""

    does: str
    name: str
    description: str
    parameter: str
    kind: type
    on_interrupt: OnInterrupt

    @property
    def schema(self) -> dict[str, Any]:
        """Its parameters."""
        kind = "integer" if self.kind is int else "string"
        return {
            "type": "object",
            "properties": {self.parameter: {"type": kind}},
            "required": [self.parameter],
            "additionalProperties": False,
        }


TOOLS = (
    ToolText("look", "look", "Look an order up.", "order", int, "retry"),
    ToolText("pay", "pay", "Pay an amount.", "amount", int, "ask"),
    ToolText("note", "note", "Note a text.", "text", str, "retry"),
    ToolText("mail", "mail", "Send a mail.", "to", str, "fail"),
)
POLICIES = {tool.does: tool.on_interrupt for tool in TOOLS}


@dataclass(frozen=True, kw_only=True)
class Wording:
    """All that an author may change in the agent.

    Attributes:
        before: Steps of the program's own before the agent: name and argument.
        after: Steps after it.
        system: The system text.
        questions: What the user says.
        model: The model's name.
        limit: An option of the request: the most tokens of a reply.
        tools: What is offered, in order.
    """

    before: tuple[tuple[str, int], ...] = ()
    after: tuple[tuple[str, int], ...] = ()
    system: str = "You keep a shop."
    questions: tuple[str, ...] = ("Pay order 17.",)
    model: str = "model-1"
    limit: int = 500
    tools: tuple[ToolText, ...] = TOOLS


@dataclass
class Shop:
    """An agent's surroundings in one process.

    Attributes:
        server: The address of the model's server.
        ledger: Where its run is recorded.
        name: The run's name.
        effects: The file with the tools' effects.
        point: Called wherever the process may die.
        wording: The agent.
        replay: Whether to replay the run.
    """

    server: str
    ledger: Ledger
    name: str
    effects: Path
    point: Point
    wording: Wording = field(default_factory=Wording)
    replay: bool = False

    def block(self) -> RunBlock:
        """The run, for agents that are run in a block."""
        return turnledger.run(self.name, ledger=self.ledger, replay=self.replay)

    def act(self, does: str, given: Any) -> str:
        """A tool's effect, and what it returns."""
        self.point(f"in {does}, before its effect")
        with open(self.effects, "ab") as file:
            file.write(f"{does}\n".encode())
        self.point(f"in {does}, after its effect")
        return result_of(does, given)

    def piece(self, number: int) -> None:
        """Called with the number of each piece of a streamed reply."""
        if number == 1:
            self.point(IN_STREAM)

    def function(self, tool: ToolText, colour: str) -> Callable[..., Any]:
        """A tool's function; it takes its parameter by name."""

        def synchronous(**given: Any) -> str:
            return self.act(tool.does, given[tool.parameter])

        async def asynchronous(**given: Any) -> str:
            return self.act(tool.does, given[tool.parameter])

        return synchronous if colour == "sync" else asynchronous

    def check(self, number: int) -> int:
        """What a step of the program's own does."""
        self.point("in a step of the program")
        return number * 2

    async def acheck(self, number: int) -> int:
        """The same in an event loop."""
        return self.check(number)


def result_of(does: str, given: Any) -> str:
    """What a tool returns."""
    return f"{does}: {given}, done."


def effects_in(file: Path) -> list[str]:
    """The tools whose effects happened, in order."""
    return file.read_text().split() if file.exists() else []


def call_of(call_id: str) -> Call:
    """The model's call that a step is: its id ends with that of the call."""
    return next(
        one for reply in REPLIES for one in reply.calls if one.call_id in call_id.split(":")
    )
