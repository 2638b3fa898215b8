"""`TurnledgerDurability`: makes an agent of pydantic-ai durable.

    agent = Agent("openai:gpt-5", name="support", capabilities=[TurnledgerDurability()])

    with turnledger.run("ticket-17", ledger="runs.db"):
        agent.run_sync("Refund order 17")

Inside a run each model request and each tool call is a step; outside of one it does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from pydantic_ai.agent import AbstractAgent, EventStreamHandler
from pydantic_ai.capabilities import AbstractCapability, WrapRunHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    conversation_id_from_run_id,
)
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, RunContext

from turnledger.adapters.frameworks.pydantic_ai.backend import NotJsonError, StepOperationBackend
from turnledger.adapters.frameworks.pydantic_ai.operations import RunMemory
from turnledger.runtime.journal.tool_scope import is_strand
from turnledger.runtime.steps import current_scope

_UNNAMED = "agent"


class TurnledgerDurability(BaseDurabilityCapability[AgentDepsT]):
    """Capability that records an agent's model requests and tool calls as durable steps."""

    engine_spec = DurabilityEngineSpec(
        engine_name="Turnledger",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=JSON_CODEC,
        serialization_failure=lambda error: NotJsonError(str(error)),
        # A toolset that comes with a single run has no steps.
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        # A replay connects to nothing: the first step that needs a server opens its session.
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        raises: tuple[type[Exception], ...] = (),
    ) -> None:
        """Make the capability; the agent's model, name and toolsets are found by themselves.

        Args:
            models: Further models by id, for `agent.run(..., model=id)`.
            event_stream_handler: Gets the events of a run as they come; each is told once, not
                again on a resume.
            name: Begins the names of the agent's steps; by default the agent's name.
            raises: Error classes of tools that a resume raises again as themselves. Others, but
                for the built-in ones and those of pydantic-ai, are a StepFailedError.
        """
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._raises = tuple(raises)

    def for_agent(self, agent: AbstractAgent[AgentDepsT, Any]) -> AbstractCapability[AgentDepsT]:
        """The capability bound to an agent, which needs no name of its own here."""
        if self.name or agent.name:
            return super().for_agent(agent)
        named = copy(self)
        named.name = _UNNAMED
        return super(TurnledgerDurability, named).for_agent(agent)

    @property
    def in_durable_context(self) -> bool:
        """Whether this code is inside of a run."""
        return current_scope() is not None

    def get_default_run_id(self) -> str | None:
        """An id that is the same on every resume: the run, the step that this is in, a count."""
        scope = current_scope()
        if scope is None:
            return None
        place = scope.place.parent
        runs = RunMemory.of(scope).agent_runs
        runs[place] += 1
        return ":".join([str(scope.run_id), *([place] if place else []), str(runs[place])])

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """An id that is the same on every resume, too."""
        scope = current_scope()
        if scope is None:
            return None
        # The one hook that is called in the task of the agent's caller, in every run.
        if is_strand(scope.place.strand):
            RunMemory.of(scope).in_order.add(run_id)
        return str(conversation_id_from_run_id(run_id))

    async def wrap_run(
        self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """Let tools that are called side by side all end before the error of one is raised.

        pydantic-ai would cancel the others, and leave them in doubt; which one fails first, and
        so what the agent raises, would be left to chance.
        """
        tools = ctx.tool_manager
        is_plain = tools is None or tools.get_parallel_execution_mode() == "parallel"
        if self.agent is None or not self.in_durable_context or not is_plain:
            return await handler()
        with self.agent.parallel_tool_call_execution_mode("parallel_ordered_events"):
            return await handler()

    def get_durable_operation_backend(self) -> StepOperationBackend:
        """The backend that performs operations as steps."""
        return StepOperationBackend(
            agent=self.name, default_model_id=self.default_model_id, raises=self._raises
        )
