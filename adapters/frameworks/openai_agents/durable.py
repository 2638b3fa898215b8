"""`durable`: an agent of the OpenAI Agents SDK whose model calls and tools are steps.

    agent = durable(agent, on_interrupt={"pay": "ask"})
    with turnledger.run("order-17", ledger="runs.db"):
        result = await Runner.run(agent, "Pay the order.")

The same lines start, resume and replay the run. Outside of a run the agent is as it was.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, TypeVar

from turnledger.adapters.frameworks.openai_agents.model import ASKED, DurableModel
from turnledger.adapters.frameworks.packages import framework
from turnledger.ledger import InvalidInputError
from turnledger.ledger.errors import short_repr
from turnledger.runtime.agent.tools.tool import OnInterrupt
from turnledger.runtime.steps import OutcomeUnknownError, StepSpec, aperform, current_scope

with framework("agents", extra="openai-agents", integration="turnledger.openai_agents"):
    from agents import (
        Agent,
        ApplyPatchTool,
        ComputerTool,
        CustomTool,
        FunctionTool,
        Handoff,
        LocalShellTool,
        ModelProvider,
        MultiProvider,
        ShellTool,
        ToolOutputFileContent,
        ToolOutputImage,
        ToolOutputText,
    )
    from agents.tool import invoke_function_tool

AgentT = TypeVar("AgentT", bound=Agent[Any])
# They run here, and the SDK offers no place around them.
_UNGUARDED = (ApplyPatchTool, ComputerTool, LocalShellTool, ShellTool)
_OUTPUTS = {
    kind.__name__: kind for kind in (ToolOutputText, ToolOutputImage, ToolOutputFileContent)
}
_POLICIES = ("retry", "fail", "ask")


def durable(
    agent: AgentT,
    *,
    on_interrupt: Mapping[str, OnInterrupt] | None = None,
    model_provider: ModelProvider | None = None,
) -> AgentT:
    """A copy of an agent whose model calls and tools are steps of the run that it is run in.

    So are those of the agents that it hands off to. An agent that it has as a tool is one step;
    make that agent durable first, and its calls are steps inside of it. Function tools, custom
    tools and those of MCP servers are steps, known by the ids of their calls; hosted tools are
    part of the model's reply. Guardrails and hooks are called again on resume.

    Args:
        agent: The agent.
        on_interrupt: By the name of a tool, what a resume does if nobody knows how a call ended:
            "retry" calls it again (the default), "fail" tells the model that the outcome is
            unknown, "ask" lets the run wait for a person.
        model_provider: Gives the models of agents that have a model's name; by default the SDK's.

    Raises:
        InvalidInputError: It has a tool that runs on this machine and can't be a step.
    """
    policies = dict(on_interrupt or {})
    for name, policy in policies.items():
        if policy not in _POLICIES:
            raise InvalidInputError(
                f"Invalid on_interrupt {short_repr(policy)} for tool {name!r}: expected one of "
                f"{', '.join(_POLICIES)}."
            )
    made: AgentT = _Copies(policies, model_provider or MultiProvider()).of(agent)
    return made


class _Copies:
    """Durable copies of agents that hand off to each other, in circles too."""

    def __init__(self, policies: dict[str, OnInterrupt], provider: ModelProvider) -> None:
        self._policies = policies
        self._provider = provider
        self._made: dict[int, Any] = {}

    def of(self, agent: Any) -> Any:
        if isinstance(agent, DurableTools):
            return agent
        if id(agent) in self._made:
            return self._made[id(agent)]
        for tool in agent.tools:
            _check(tool)
        # A class of its own: copies that the SDK makes of the copy are durable as well.
        own = {"policies": self._policies, "__module__": type(agent).__module__}
        kind = type(type(agent).__name__, (DurableTools, type(agent)), own)
        given = {one.name: getattr(agent, one.name) for one in fields(agent) if one.init}
        given["model"] = DurableModel(agent.name, agent.model, self._provider)
        twin = self._made[id(agent)] = kind(**{**given, "handoffs": []})
        twin.handoffs = [self._handoff(one) for one in agent.handoffs]
        return twin

    def _handoff(self, handoff: Any) -> Any:
        if not isinstance(handoff, Handoff):
            return self.of(handoff)
        invoke = handoff.on_invoke_handoff

        async def on_invoke_handoff(context: Any, arguments: str) -> Any:
            return self.of(await invoke(context, arguments))

        twin = copy.copy(handoff)
        twin.on_invoke_handoff = on_invoke_handoff
        return twin


class DurableTools:
    """Makes steps of the tools of the agent class that follows it among the bases."""

    policies: ClassVar[Mapping[str, OnInterrupt]] = {}

    async def get_all_tools(self, run_context: Any) -> list[Any]:
        """All tools that are enabled, each of this machine's as a step."""
        found = await super().get_all_tools(run_context)  # type: ignore[misc]
        return [_durable_tool(tool, self.policies) for tool in found]


def _check(tool: Any) -> None:
    if isinstance(tool, _UNGUARDED):
        raise InvalidInputError(
            f"The tool {tool.name!r} can't be a durable step: a {type(tool).__name__} runs on this "
            "machine, and the SDK has no place around it. Use a function tool instead."
        )


def _durable_tool(tool: Any, policies: Mapping[str, OnInterrupt]) -> Any:
    _check(tool)
    if not isinstance(tool, FunctionTool | CustomTool):
        return tool  # hosted by the provider

    async def invoke(context: Any, arguments: str) -> Any:
        if isinstance(tool, FunctionTool):
            # With the tool's time limit, which is then part of the step.
            return await invoke_function_tool(
                function_tool=tool, context=context, arguments=arguments
            )
        made = tool.on_invoke_tool(context, arguments)
        return await made if hasattr(made, "__await__") else made

    async def on_invoke_tool(context: Any, arguments: str) -> Any:
        scope = current_scope()
        if scope is None:
            return await invoke(context, arguments)
        if ASKED not in scope.memory:
            raise InvalidInputError(
                f"The call of {tool.name!r} is not in the record: the model that made it is not "
                "the durable agent's. RunConfig(model=...) replaces it: set the model on the agent."
            )
        recorder = scope.recorder

        async def call() -> Any:
            value = await invoke(context, arguments)
            recorder.check()  # the SDK makes text of an error that halts the run, too
            return value

        spec = StepSpec(
            name=tool.name,
            key=context.tool_call_id,
            arguments=_arguments(arguments),
            on_interrupt=policies.get(tool.name, "retry"),
        )
        try:
            return await aperform(spec, call, _ToolValue())
        except OutcomeUnknownError as error:
            return str(error)  # for the model

    twin = copy.copy(tool)
    twin.on_invoke_tool = on_invoke_tool
    if isinstance(tool, FunctionTool):
        twin.timeout_seconds = None
    return twin


def _arguments(text: str) -> Any:
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return text


class _ToolValue:
    """A tool's result: JSON and the SDK's outputs as they are, anything else as the model's text.

    The SDK would send the model that text.
    """

    def encode(self, value: Any) -> Any:
        if type(value).__name__ in _OUTPUTS:
            return {"$output": type(value).__name__, "value": value.model_dump(exclude_unset=True)}
        if isinstance(value, list | tuple) and any(type(v).__name__ in _OUTPUTS for v in value):
            return {"$outputs": [self.encode(one) for one in value]}
        try:
            plain = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            return str(value)
        return plain if plain == value else str(value)

    def decode(self, data: Any) -> Any:
        if isinstance(data, dict) and "$output" in data:
            return _OUTPUTS[data["$output"]].model_validate(data["value"])
        if isinstance(data, dict) and "$outputs" in data:
            return [self.decode(one) for one in data["$outputs"]]
        return data
