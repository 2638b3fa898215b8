"""`ScriptedAdapter`: a provider with scripted replies, for tests and the demo.

It has no state: reply k answers turn k in any process, so that a run that is resumed elsewhere
gets the right one. It refuses a conversation that the strictest provider would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import TurnledgerError
from turnledger.projections import ChatTurn, ToolResultBlock, ToolUseBlock
from turnledger.runtime.agent.models.request import Reply, Request, Sending, ToolChoice
from turnledger.runtime.agent.models.retry import ThrottlePolicy
from turnledger.runtime.loop.adapter import ProviderAdapter
from turnledger.runtime.loop.events import TextReceived

OutputT = TypeVar("OutputT")


class ScriptError(TurnledgerError, ValueError):
    """The script has no reply for a turn, or no provider would take the conversation."""


@explain_methods()
class ScriptedAdapter(ProviderAdapter[OutputT]):
    """Replies in the order of the turns, or a function from the request to the reply.

    An exception among the replies, or raised by the function, is a call that failed.
    """

    name = "scripted"

    def __init__(
        self,
        replies: Sequence[Reply | Exception] | Callable[[Request], Reply],
        *,
        model: str = "script",
        tool_choice: ToolChoice = "auto",
        parallel_tools: int = 1,
        throttle: ThrottlePolicy | None = None,
        use_native_response_format: bool = False,
        request_options: Mapping[str, Any] | None = None,
        stream: bool = False,
        on_delta: Callable[[TextReceived], None] | None = None,
    ) -> None:
        super().__init__(
            model=model,
            tool_choice=tool_choice,
            parallel_tools=parallel_tools,
            throttle=throttle,
            use_native_response_format=use_native_response_format,
            request_options=request_options,
            stream=stream,
            on_delta=on_delta,
        )
        self._replies = replies

    def encode(self, request: Request) -> Any:
        problem = malformed(request.turns)
        if problem:
            raise ScriptError(f"A provider would refuse this conversation: {problem}.")
        return request

    def send(self, payload: Any, sending: Sending) -> Any:
        reply = self._scripted(payload)
        if sending.on_text is not None and isinstance(reply, Reply) and reply.text:
            for piece in re.findall(r"\s*\S+|\s+$", reply.text):
                sending.on_text(piece)
        return reply

    def _scripted(self, payload: Request) -> Reply:
        if callable(self._replies):
            return self._replies(payload)
        place = payload.turn - 1
        if place >= len(self._replies):
            raise ScriptError(
                f"The script has {len(self._replies)} replies: none for turn {payload.turn}."
            )
        reply = self._replies[place]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def decode(self, raw: Any) -> Reply:
        if not isinstance(raw, Reply):
            raise ScriptError(f"Invalid scripted reply {type(raw).__name__}: expected a Reply.")
        return raw


def malformed(turns: Sequence[ChatTurn]) -> str:
    """The first rule of the strictest provider that a conversation breaks; empty if none."""
    if not turns:
        return "it is empty"
    if turns[0].role != "user":
        return "it does not begin with the user"
    asked: list[str] = []
    for place, turn in enumerate(turns):
        if place and turns[place - 1].role == turn.role:
            return f"turn {place + 1} has the role of the one before it"
        if not turn.blocks:
            return f"turn {place + 1} is empty"
        results = [block.call_id for block in turn.blocks if isinstance(block, ToolResultBlock)]
        leading = turn.blocks[: len(results)]
        if not all(isinstance(block, ToolResultBlock) for block in leading):
            return f"turn {place + 1} has results that do not come first"
        if sorted(results) != sorted(asked):
            return f"turn {place + 1} answers {results}, and asked for were {asked}"
        asked = [block.call_id for block in turn.blocks if isinstance(block, ToolUseBlock)]
        if len(set(asked)) != len(asked):
            return f"turn {place + 1} uses a call id twice"
        if asked and turn.role == "user":
            return f"turn {place + 1} is the user's and calls tools"
    return f"calls {asked} have no results" if asked else ""
