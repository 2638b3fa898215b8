"""The table: every framework, in both colours, streamed and not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import Any

from tests.frameworks.agents.shop import Shop
from tests.servers.anthropic_messages import AnthropicMessages
from tests.servers.openai_chat import OpenAIChat
from tests.servers.openai_responses import OpenAIResponses
from tests.servers.serving import Wire


@dataclass(frozen=True)
class Framework:
    """Where the shop's agent of a framework is, and what its server speaks.

    Attributes:
        agent: The function `(shop, colour, stream, block) -> answer`, as "module:name".
        wire: The server's format.
        missing: Colour and stream that the framework does not have.
    """

    agent: str
    wire: Callable[[], Wire]
    missing: tuple[tuple[str, bool], ...] = ()

    def load(self) -> Callable[[Shop, str, bool, Any], str]:
        module, _, name = self.agent.partition(":")
        found: Callable[[Shop, str, bool, Any], str] = getattr(
            import_module(f"tests.frameworks.agents.{module}"), name
        )
        return found


FRAMEWORKS = {
    "openai": Framework("plain:with_openai", OpenAIChat),
    "anthropic": Framework("plain:with_anthropic", AnthropicMessages),
    "pydantic-ai": Framework("pydantic_ai:run", OpenAIChat),
    "openai-agents": Framework("openai_agents:run", OpenAIResponses, missing=(("sync", True),)),
}
PLAIN = ("openai", "anthropic")


@dataclass(frozen=True)
class Cell:
    """One way to run the shop."""

    framework: str
    colour: str
    stream: bool

    def __str__(self) -> str:
        return f"{self.framework}-{self.colour}{'-stream' * self.stream}"


CELLS = [
    Cell(framework, colour, stream)
    for framework, colour, stream in product(FRAMEWORKS, ("sync", "async"), (False, True))
    if (colour, stream) not in FRAMEWORKS[framework].missing
]
