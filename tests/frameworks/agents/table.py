"""The table: every framework, in both colours, streamed and not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import TypeAlias

from tests.frameworks.agents.shop import Shop
from tests.servers.anthropic_messages import AnthropicMessages
from tests.servers.openai_chat import OpenAIChat
from tests.servers.openai_responses import OpenAIResponses
from tests.servers.serving import Wire

Agent: TypeAlias = Callable[[Shop, str, bool], str]


@dataclass(frozen=True)
class Framework:
    """Where the shop's agent of a framework is, and what its server speaks.

    Attributes:
        agent: The function `(shop, colour, stream) -> answer`, as "module:name".
        wire: The server's format.
        modules: What is imported before it.
        missing: The ways that the framework does not have.
        own_run: Whether it has a run of its own, and not one in a block with other steps.
    """

    agent: str
    wire: Callable[[], Wire]
    modules: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    own_run: bool = False

    def load(self) -> Agent:
        """The agent, with all that it imports."""
        for each in self.modules:
            import_module(each)
        module, _, name = self.agent.partition(":")
        found: Agent = getattr(import_module(f"tests.frameworks.agents.{module}"), name)
        return found


FRAMEWORKS = {
    "openai": Framework("plain:with_openai", OpenAIChat, ("openai.resources.chat",)),
    "anthropic": Framework(
        "plain:with_anthropic", AnthropicMessages, ("anthropic.resources.messages",)
    ),
    "langchain": Framework("langchain:run_agent", OpenAIChat, own_run=True),
    "langchain-in-block": Framework("langchain:run_in_block", OpenAIChat),
    "langgraph": Framework("langchain:run_graph", OpenAIChat, own_run=True),
    "pydantic-ai": Framework("pydantic_ai:run", OpenAIChat),
    "openai-agents": Framework("openai_agents:run", OpenAIResponses, missing=("sync-stream",)),
}
PLAIN = ("openai", "anthropic")
# By name, colour and stream.
WAYS = {
    "sync": ("sync", False),
    "async": ("async", False),
    "async-stream": ("async", True),
    "sync-stream": ("sync", True),
}


@dataclass(frozen=True)
class Cell:
    """One way to run the shop with one framework."""

    framework: str
    way: str

    def __str__(self) -> str:
        return f"{self.framework}-{self.way}"


CELLS = [
    Cell(framework, way)
    for framework, way in product(FRAMEWORKS, WAYS)
    if way not in FRAMEWORKS[framework].missing
]
