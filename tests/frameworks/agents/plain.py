"""The shop as a plain `while` loop, with OpenAI's and with Anthropic's SDK.

The client is wrapped, and each tool is a step that is known by the id of its call.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, NamedTuple

import turnledger
from tests.frameworks.agents.shop import Shop, ToolText
from turnledger.runtime.steps import OutcomeUnknownError

Message = dict[str, Any]


class Asking(NamedTuple):
    """A tool call that the model asks for."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class Loop(ABC):
    """What the two SDKs have in common, as this agent's author would write it."""

    def __init__(self, shop: Shop, colour: str, stream: bool) -> None:
        self.shop, self.colour, self.stream = shop, colour, stream
        self.wording = shop.wording
        self.tools = {tool.name: self._tool(tool) for tool in self.wording.tools}

    def _tool(self, tool: ToolText) -> Callable[..., Any]:
        settings: Any = {"key": _key, "on_interrupt": tool.on_interrupt}
        function = self.shop.function(tool, self.colour)
        if self.colour == "sync":

            @turnledger.step(tool.name, **settings)
            def call(call_id: str, given: dict[str, Any]) -> str:
                made: str = function(**given)
                return made

            return call

        @turnledger.step(tool.name, **settings)
        async def acall(call_id: str, given: dict[str, Any]) -> str:
            made: str = await function(**given)
            return made

        return acall

    # --- the loops ---

    def run(self) -> str:
        """The answer to the last question."""
        return asyncio.run(self.arun()) if self.colour == "async" else self.srun()

    def srun(self) -> str:
        given = self.client()
        client: Any = turnledger.wrap(given)
        messages, answer = self.opening(), ""
        with given, self.shop.block() as run, ThreadPoolExecutor() as pool:
            for name, number in self.wording.before:
                run.step(name, self.shop.check, number)
            for question in self.wording.questions:
                messages.append({"role": "user", "content": question})
                while True:
                    reply = self.ask(client, messages)
                    messages.append(self.message(reply))
                    calls = self.calls(reply)
                    if not calls:
                        answer = self.text(reply)
                        break
                    tasks = [pool.submit(copy_context().run, self.call, one) for one in calls]
                    messages += self.results(calls, [task.result() for task in tasks])
            for name, number in self.wording.after:
                run.step(name, self.shop.check, number)
        return answer

    async def arun(self) -> str:
        given = self.client()
        client: Any = turnledger.wrap(given)
        messages, answer = self.opening(), ""
        async with given, self.shop.block() as run:
            for name, number in self.wording.before:
                await run.astep(name, self.shop.acheck, number)
            for question in self.wording.questions:
                messages.append({"role": "user", "content": question})
                while True:
                    reply = await self.aask(client, messages)
                    messages.append(self.message(reply))
                    calls = self.calls(reply)
                    if not calls:
                        answer = self.text(reply)
                        break
                    results = await asyncio.gather(*map(self.acall, calls))
                    messages += self.results(calls, results)
            for name, number in self.wording.after:
                await run.astep(name, self.shop.acheck, number)
        return answer

    def ask(self, client: Any, messages: list[Message]) -> Any:
        make, finish = self.asked(client)
        if not self.stream:
            return make(**self.request(messages))
        with make(**self.request(messages)) as stream:
            for number, _ in enumerate(stream):
                self.shop.piece(number)
            return getattr(stream, finish)()

    async def aask(self, client: Any, messages: list[Message]) -> Any:
        make, finish = self.asked(client)
        if not self.stream:
            return await make(**self.request(messages))
        async with make(**self.request(messages)) as stream:
            number = 0
            async for _ in stream:
                self.shop.piece(number)
                number += 1
            return await getattr(stream, finish)()

    def call(self, asking: Asking) -> str:
        try:
            made: str = self.tools[asking.name](asking.call_id, asking.arguments)
        except OutcomeUnknownError:
            return UNKNOWN
        return made

    async def acall(self, asking: Asking) -> str:
        try:
            made: str = await self.tools[asking.name](asking.call_id, asking.arguments)
        except OutcomeUnknownError:
            return UNKNOWN
        return made

    # --- the SDKs ---

    @abstractmethod
    def client(self) -> Any:
        """The SDK's client; to read certificates would take longer than all else here."""

    @abstractmethod
    def asked(self, client: Any) -> tuple[Callable[..., Any], str]:
        """The method that asks, and that of a stream which gives the whole."""

    @abstractmethod
    def opening(self) -> list[Message]: ...

    @abstractmethod
    def request(self, messages: list[Message]) -> dict[str, Any]: ...

    @abstractmethod
    def message(self, reply: Any) -> Message: ...

    @abstractmethod
    def text(self, reply: Any) -> str: ...

    @abstractmethod
    def calls(self, reply: Any) -> list[Asking]: ...

    @abstractmethod
    def results(self, calls: list[Asking], results: list[str]) -> list[Message]: ...


UNKNOWN = "Nobody knows how it ended."


def _key(call_id: str, given: dict[str, Any]) -> str:
    return call_id


class OpenAILoop(Loop):
    """Chat Completions."""

    def client(self) -> Any:
        import openai

        url = f"{self.shop.server}/v1"
        if self.colour == "sync":
            http = openai.DefaultHttpxClient(verify=False)
            return openai.OpenAI(api_key="key", base_url=url, http_client=http)
        ahttp = openai.DefaultAsyncHttpxClient(verify=False)
        return openai.AsyncOpenAI(api_key="key", base_url=url, http_client=ahttp)

    def asked(self, client: Any) -> tuple[Callable[..., Any], str]:
        completions = client.chat.completions
        return (completions.stream if self.stream else completions.create), "get_final_completion"

    def opening(self) -> list[Message]:
        return [{"role": "system", "content": self.wording.system}]

    def request(self, messages: list[Message]) -> dict[str, Any]:
        tools = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema,
                    "strict": True,
                },
            }
            for tool in self.wording.tools
        ]
        return {
            "model": self.wording.model,
            "messages": messages,
            "tools": tools,
            "max_completion_tokens": self.wording.limit,
        }

    def message(self, reply: Any) -> Message:
        message = reply.choices[0].message
        made: Message = {"role": "assistant", "content": message.content}
        if message.tool_calls:
            made["tool_calls"] = [
                {
                    "id": one.id,
                    "type": "function",
                    "function": {"name": one.function.name, "arguments": one.function.arguments},
                }
                for one in message.tool_calls
            ]
        return made

    def text(self, reply: Any) -> str:
        return str(reply.choices[0].message.content)

    def calls(self, reply: Any) -> list[Asking]:
        return [
            Asking(one.id, one.function.name, json.loads(one.function.arguments))
            for one in reply.choices[0].message.tool_calls or ()
        ]

    def results(self, calls: list[Asking], results: list[str]) -> list[Message]:
        return [
            {"role": "tool", "tool_call_id": call.call_id, "content": result}
            for call, result in zip(calls, results, strict=True)
        ]


class AnthropicLoop(Loop):
    """Messages."""

    def client(self) -> Any:
        import anthropic

        url = self.shop.server
        if self.colour == "sync":
            http = anthropic.DefaultHttpxClient(verify=False)
            return anthropic.Anthropic(api_key="key", base_url=url, http_client=http)
        ahttp = anthropic.DefaultAsyncHttpxClient(verify=False)
        return anthropic.AsyncAnthropic(api_key="key", base_url=url, http_client=ahttp)

    def asked(self, client: Any) -> tuple[Callable[..., Any], str]:
        messages = client.messages
        return (messages.stream if self.stream else messages.create), "get_final_message"

    def opening(self) -> list[Message]:
        return []

    def request(self, messages: list[Message]) -> dict[str, Any]:
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
            for tool in self.wording.tools
        ]
        return {
            "model": self.wording.model,
            "system": self.wording.system,
            "messages": messages,
            "tools": tools,
            "max_tokens": self.wording.limit,
        }

    def message(self, reply: Any) -> Message:
        kept = {"text": ("text",), "tool_use": ("id", "name", "input")}
        content = [
            {"type": one.type, **{name: getattr(one, name) for name in kept[one.type]}}
            for one in reply.content
        ]
        return {"role": "assistant", "content": content}

    def text(self, reply: Any) -> str:
        return "".join(one.text for one in reply.content if one.type == "text")

    def calls(self, reply: Any) -> list[Asking]:
        uses = (one for one in reply.content if one.type == "tool_use")
        return [Asking(one.id, one.name, one.input) for one in uses]

    def results(self, calls: list[Asking], results: list[str]) -> list[Message]:
        content = [
            {"type": "tool_result", "tool_use_id": call.call_id, "content": result}
            for call, result in zip(calls, results, strict=True)
        ]
        return [{"role": "user", "content": content}]


def with_openai(shop: Shop, colour: str, stream: bool) -> str:
    return OpenAILoop(shop, colour, stream).run()


def with_anthropic(shop: Shop, colour: str, stream: bool) -> str:
    return AnthropicLoop(shop, colour, stream).run()
