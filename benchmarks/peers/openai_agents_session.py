"""OpenAI Agents SDK: `SQLiteSession`, an item a message; its runner for the payment.

It has journal_mode=WAL and SQLite's default of synchronous=FULL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from benchmarks.peers.peer import ASKED, NextText, Peer

set_tracing_disabled(True)


class OpenAIAgents(Peer):
    """A session of the Agents SDK."""

    def begin(self, many: Sequence[str]) -> None:
        asyncio.run(self._session().add_items([_item(n, text) for n, text in enumerate(many)]))

    def _session(self) -> Any:
        return SQLiteSession("conversation", self.where)

    @cached_property
    def _reader(self) -> Any:
        return self._session()

    @cached_property
    def _loop(self) -> asyncio.Runner:
        """A loop for the thread that loads."""
        return asyncio.Runner()

    def go_on(self, next_text: NextText) -> None:
        asyncio.run(self._go_on(next_text))

    async def _go_on(self, next_text: NextText) -> None:
        session = self._session()
        number = len(await session.get_items())
        while True:
            await session.add_items([_item(number, next_text())])
            number += 1

    def load(self) -> Sequence[object]:
        found: Sequence[object] = self._loop.run(self._reader.get_items())
        return found

    def pay(self, tool: Callable[[], str]) -> None:
        Runner.run_sync(_agent(tool), ASKED, session=self._session())

    def recover(self, tool: Callable[[], str]) -> str:
        """The next run with the same session."""
        return str(Runner.run_sync(_agent(tool), ASKED, session=self._session()).final_output)


def _item(number: int, text: str) -> Any:
    return {"role": "assistant" if number % 2 else "user", "content": text}


def _agent(tool: Callable[[], str]) -> Any:
    @function_tool
    def pay() -> str:
        """Pay the invoice."""
        return tool()

    return Agent("clerk", model=_Scripted(), tools=[pay])


class _Scripted(Model):
    """Calls the tool, then answers with its result."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:  # noqa: A002
        last = input[-1]
        if isinstance(last, dict) and last.get("type") == "function_call_output":
            text = ResponseOutputText(text=last["output"], type="output_text", annotations=[])
            answer: Any = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            answer = ResponseFunctionToolCall(
                call_id=f"call_{len(input)}", name="pay", arguments="{}", type="function_call"
            )
        return ModelResponse(output=[answer], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError
