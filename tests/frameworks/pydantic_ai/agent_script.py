"""Script: a pydantic-ai agent that pays an order in a durable run, and dies where it is told to.

    python -m tests.frameworks.pydantic_ai.agent_script '{"ledger": "runs.db", ...}'

Its first reply calls two tools side by side, its second one a third tool, its last one is text.
Each tool has an effect: a line in a file, on disk. It prints what came of it, as JSON. The same
plan starts the run, goes on with it, and replays it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import turnledger
from tests.servers.serving import Answer, Asked, Call, Scripted
from turnledger.ledger import Ledger
from turnledger.pydantic_ai import TurnledgerDurability

NAME = "order-17"
PROMPT = "Pay order 17."
PAY, LOOK, SEND = "pay", "look", "send"
# By the way an agent is run: in an event loop or not, streamed or not.
WAYS = ("run_sync", "run_stream_sync", "run", "run_stream", "iter")
Point = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the script does.

    Attributes:
        ledger: The ledger's address.
        server: The address of a server of Chat Completions that answers with `reply`.
        effects: The file in which tools leave their lines.
        way: One of WAYS.
        policy: The `on_interrupt` of the tool that pays.
        dies_at: The point at which it dies, from 1; 0 is none.
        dies_in: The name of the point at which it dies; empty is none.
        replay: Whether to replay, with sockets refused.
        prompt: What the agent is asked.
    """

    ledger: str
    server: str
    effects: str
    way: str = "run_sync"
    policy: str = "ask"
    dies_at: int = 0
    dies_in: str = ""
    replay: bool = False
    prompt: str = PROMPT


def reply(asked: Asked) -> Scripted:
    """The model's reply to each turn."""
    looks = Call(LOOK, '{"order": 17}', "call_look")
    pays = Call(PAY, '{"amount": 120}', "call_pay")
    sends = Call(SEND, '{"to": "ann"}', "call_send")
    return (Answer(calls=(looks, pays)), Answer(calls=(sends,)), Answer("Order 17 is paid."))[
        asked.turn - 1
    ]


def main(plan: Plan) -> dict[str, Any]:
    """Run the agent; give its output, or the error that came, and how often it connected."""
    refused = refuse_sockets() if plan.replay else []
    point, points = fuse(plan)
    with Ledger.open(plan.ledger) as ledger:
        lay(ledger, point)
        block = turnledger.run(NAME, ledger=ledger, replay=plan.replay)
        try:
            output = _run(plan, block, made_agent(plan, point))
        except Exception as error:
            return {"error": type(error).__name__, "text": str(error), "refused": refused}
    return {"output": output, "refused": refused, "points": points}


def work(plan: Plan, pipe: Connection) -> None:
    """`main` in a process that a test has started: sends what came of it."""
    pipe.send(main(plan))
    pipe.close()


def made_agent(plan: Plan, point: Point) -> Agent[None, str]:
    """The agent."""
    provider = OpenAIProvider(base_url=f"{plan.server}/v1", api_key="a key")
    agent = Agent(
        OpenAIChatModel("gpt-5", provider=provider),
        name="orders",
        instructions="You pay orders.",
        capabilities=[TurnledgerDurability()],
    )

    def leave(name: str) -> None:
        point(f"{name}, before its effect")
        line = os.open(plan.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(line, f"{name}\n".encode())
        os.fsync(line)
        os.close(line)
        point(f"{name}, after its effect")

    @agent.tool_plain(metadata={"on_interrupt": plan.policy})
    def pay(amount: int) -> str:
        leave(PAY)
        return f"Paid {amount}."

    @agent.tool_plain
    async def look(order: int) -> dict[str, int]:
        leave(LOOK)
        return {"order": order, "amount": 120}

    @agent.tool_plain
    def send(to: str) -> str:
        leave(SEND)
        return f"Sent to {to}."

    return agent


def _run(plan: Plan, block: Any, agent: Agent[None, str]) -> str:
    if plan.way == "run_sync":
        with block:
            return agent.run_sync(plan.prompt).output
    if plan.way == "run_stream_sync":
        with block:
            return agent.run_stream_sync(plan.prompt).get_output()
    return asyncio.run(_arun(plan, block, agent))


async def _arun(plan: Plan, block: Any, agent: Agent[None, str]) -> str:
    async with block:
        if plan.way == "run":
            return (await agent.run(plan.prompt)).output
        if plan.way == "run_stream":
            async with agent.run_stream(plan.prompt) as streamed:
                return "".join([piece async for piece in streamed.stream_text(delta=True)])
        async with agent.iter(plan.prompt) as steps:
            async for node in steps:
                if Agent.is_model_request_node(node):
                    async with node.stream(steps.ctx) as events:
                        async for _ in events:
                            pass
            assert steps.result is not None
            return steps.result.output


def fuse(plan: Plan) -> tuple[Point, list[str]]:
    """Counts the points that it is called at, and dies at the one of the plan."""
    points: list[str] = []

    def point(name: str) -> None:
        points.append(name)
        if len(points) == plan.dies_at or name == plan.dies_in:
            os.kill(os.getpid(), signal.SIGKILL)

    return point, points


def lay(ledger: Ledger, point: Point) -> None:
    """Points before and after everything that is written to the ledger."""
    for name in ("begin", "append", "claim"):
        whole = getattr(ledger, name)

        def counted(*args: Any, _whole: Any = whole, _name: str = name, **kwargs: Any) -> Any:
            point(f"before {_name}")
            found = _whole(*args, **kwargs)
            point(f"after {_name}")
            return found

        setattr(ledger, name, counted)


def refuse_sockets() -> list[str]:
    """Refuse all connections of this process; the list gets one address for each that is tried."""
    tried: list[str] = []

    def refuse(self: socket.socket, address: Any) -> Any:
        tried.append(str(address))
        raise ConnectionRefusedError(f"this process connects to nothing, not to {address}")

    for name in ("connect", "connect_ex"):
        setattr(socket.socket, name, refuse)
    return tried


if __name__ == "__main__":
    print(json.dumps(main(Plan(**json.loads(sys.argv[1])))))
