"""Scripted models for pydantic-ai's agents, and a run "order" in which an agent pays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

import turnledger
from turnledger.ledger import Ledger, run_id_for
from turnledger.pydantic_ai import TurnledgerDurability


def calls(*given: tuple[str, dict[str, Any], str]) -> ModelResponse:
    """A reply that calls tools: each by name, arguments and id."""
    parts = [ToolCallPart(name, args, tool_call_id=key) for name, args, key in given]
    return ModelResponse(parts=parts)


def says(text: str) -> ModelResponse:
    """A reply of text."""
    return ModelResponse(parts=[TextPart(text)])


class Scripted:
    """Replies by turn; `asked` has the messages of each request that came to it."""

    def __init__(self, *replies: ModelResponse | Exception) -> None:
        self._replies = replies
        self.asked: list[list[ModelMessage]] = []
        self.model = FunctionModel(self._reply, stream_function=self._stream, model_name="scripted")

    def agent(self, *, name: str = "shop", raises: Any = (), **more: Any) -> Agent[Any, Any]:
        """A durable agent on this model."""
        capabilities = [TurnledgerDurability(raises=raises), *more.pop("capabilities", ())]
        return Agent(self.model, name=name, capabilities=capabilities, **more)

    @property
    def told(self) -> list[Any]:
        """What tools returned to the model, by its last request."""
        return [
            part.content
            for message in self.asked[-1]
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]

    def _next(self, messages: Sequence[ModelMessage]) -> ModelResponse:
        self.asked.append(list(messages))
        turn = sum(isinstance(one, ModelResponse) for one in messages)
        reply = self._replies[turn]
        if isinstance(reply, Exception):
            raise reply
        # pydantic-ai stamps ids on what it is given.
        return ModelResponse(parts=list(reply.parts))

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return self._next(messages)

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for place, part in enumerate(self._next(messages).parts):
            if isinstance(part, TextPart):
                for word in part.content.split(" "):
                    yield f"{word} "
            else:
                assert isinstance(part, ToolCallPart)
                key = part.tool_call_id
                yield {
                    place: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=key)
                }


PAYS = calls(("pay", {"amount": 120}, "call_1"))


class Crash(BaseException):
    """The process ends here, as far as the run can tell."""


def events(ledger: Ledger, *kinds: type[Any]) -> Iterator[Any]:
    """The events of the run "order", of some kinds."""
    for record in ledger.read(run_id_for("order")):
        if not kinds or isinstance(record.event, kinds):
            yield record.event


def run(ledger: Ledger, *, replay: bool = False) -> Any:
    """The block of the run "order"."""
    return turnledger.run("order", ledger=ledger, replay=replay)


def paying(scripted: Scripted, done: list[Any], *, dies: bool = False, **more: Any) -> Agent[Any]:
    """An agent with a tool that pays."""
    agent = scripted.agent(raises=more.pop("raises", ()))

    @agent.tool_plain(**more)
    def pay(amount: int) -> str:
        done.append(amount)
        if dies:
            raise Crash
        return f"Paid {amount}."

    return agent
