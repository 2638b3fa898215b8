"""Agents that are `while` loops over a wrapped client, with tools that are steps."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.servers.serving import Answer, Asked, Call
from tests.unit.adapters.clients.stories import Stopped
from tests.unit.adapters.clients.wrapped import WAYS, Way, Wrapped, cells, wrapped
from turnledger.adapters.testing.no_network import no_network
from turnledger.ledger import run_id_for
from turnledger.projections import Conversation, PendingTools, fold
from turnledger.runtime.steps import run, step

CITIES = ("Oslo", "Rome", "Lima")
CALLS = tuple(Call("measure", json.dumps({"city": city})) for city in CITIES)
FUNCTION = {
    "name": "measure",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
LOOPS = [way for way in WAYS if way.sdk in ("openai-chat", "anthropic") and not way.stream]


def script(asked: Asked) -> Answer:
    return Answer("Measuring.", CALLS) if asked.turn == 1 else Answer("All is well.")


class _Loop:
    """An agent that measures in three cities at once, and may be stopped in one of them."""

    def __init__(self, there: Wrapped, client: Any) -> None:
        self.there, self.client = there, client
        self.measured: list[str] = []
        self.stops_in = ""

        @step(key=lambda city: city)
        async def measure(city: str) -> int:
            self.measured.append(city)
            await asyncio.sleep(0)
            if city == self.stops_in:
                raise Stopped
            return len(city)

        self.measure = measure

    async def run(self, **options: Any) -> str:
        loop = self._chat if self.there.way.sdk == "openai-chat" else self._messages
        async with run("agent", ledger=self.there.ledger, **options):
            return await loop()

    async def _results(self, cities: list[str]) -> list[int]:
        return await asyncio.gather(*(self.measure(city) for city in cities))

    async def _chat(self) -> str:
        messages: list[Any] = [{"role": "user", "content": "How are they?"}]
        tools = [{"type": "function", "function": FUNCTION}]
        while True:
            came = self.client.chat.completions.create(
                model="gpt-test", messages=messages, tools=tools
            )
            came = await came if self.there.way.colour == "async" else came
            message = came.choices[0].message
            if not message.tool_calls:
                return str(message.content)
            calls = [call.model_dump() for call in message.tool_calls]
            messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
            cities = [json.loads(call["function"]["arguments"])["city"] for call in calls]
            for call, found in zip(calls, await self._results(cities), strict=True):
                result = {"role": "tool", "tool_call_id": call["id"], "content": str(found)}
                messages.append(result)

    async def _messages(self) -> str:
        messages: list[Any] = [{"role": "user", "content": "How are they?"}]
        tools = [{"name": FUNCTION["name"], "input_schema": FUNCTION["parameters"]}]
        while True:
            came = self.client.messages.create(
                model="claude-test", max_tokens=100, messages=messages, tools=tools
            )
            came = await came if self.there.way.colour == "async" else came
            uses = [block for block in came.content if block.type == "tool_use"]
            if not uses:
                return str(came.content[0].text)
            content = [block.model_dump(exclude_none=True) for block in came.content]
            messages.append({"role": "assistant", "content": content})
            found = await self._results([use.input["city"] for use in uses])
            results = [
                {"type": "tool_result", "tool_use_id": use.id, "content": str(one)}
                for use, one in zip(uses, found, strict=True)
            ]
            messages.append({"role": "user", "content": results})


@pytest.mark.process
@pytest.mark.parametrize("way", cells(LOOPS, ("openai-chat-sync", "anthropic-async")))
def test_an_agent_that_is_stopped_in_a_tool_goes_on(way: Way) -> None:
    """What ended is not done again; a replay does nothing; the views show the conversation."""
    with wrapped(way, script) as there:

        async def story() -> None:
            agent = _Loop(there, there.client())
            agent.stops_in = "Rome"
            with pytest.raises(Stopped):
                await agent.run()
            agent.stops_in, before = "", list(agent.measured)
            assert await agent.run() == "All is well."
            assert agent.measured.count("Oslo") == before.count("Oslo") == 1
            done = len(agent.measured)
            with no_network() as attempts:
                assert await agent.run(replay=True) == "All is well."
            assert attempts == []
            assert len(agent.measured) == done

        there.run(story)
        assert [asked.turn for asked in there.server.asked] == [1, 2]
        records = list(there.ledger.read(run_id_for("agent")))
        history = fold(records, Conversation()).history()
        assert [turn.role for turn in history.to_list()] == [
            "user",
            "assistant",
            "user",
            "assistant",
        ]
        assert all(call.is_over for call in fold(records, PendingTools()).calls)


@pytest.mark.process
def test_different_calls_side_by_side_keep_their_answers() -> None:
    """Tasks that ask in another order when they are resumed."""
    way = next(way for way in WAYS if str(way) == "anthropic-async-stream")

    def echo(asked: Asked) -> Answer:
        return Answer(f"echo of {asked.body['messages'][0]['content']}")

    with wrapped(way, echo) as there:

        async def asked(client: Any, order: list[int]) -> list[str]:
            async def one(number: int) -> str:
                for _ in range(order.index(number)):
                    await asyncio.sleep(0)
                return await way.ask(client, [("user", f"question {number}")])

            async with run("side", ledger=there.ledger):
                return await asyncio.gather(*(one(number) for number in range(5)))

        async def story() -> None:
            client = there.client()
            expected = [f"echo of question {number}" for number in range(5)]
            assert await asked(client, [4, 3, 2, 1, 0]) == expected
            assert await asked(client, [1, 0, 4, 2, 3]) == expected

        there.run(story)
        assert len(there.server.asked) == 5
