"""Operations of pydantic-ai as durable steps: the name, key and arguments of each.

`cache_key` is what pydantic-ai gives to engines that know work by its inputs: a tuple of live
objects, another one for each kind of operation. Only what is listed here is read from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import version
from threading import Lock
from typing import Any, TypeAlias

from pydantic_ai.durable_exec import (
    CapabilityOperationId,
    EventStreamHandlerId,
    ModelCancelSuspendedResponseId,
    ModelCompactMessagesId,
    ModelRequestId,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
)
from pydantic_ai.messages import ModelResponse

from turnledger.adapters.frameworks.pydantic_ai import projection
from turnledger.projections.digests import canonical
from turnledger.runtime.agent.tools.tool import OnInterrupt
from turnledger.runtime.journal.tool_scope import strand
from turnledger.runtime.steps import OpenStep, StepOutcome, StepScope, StepSpec
from turnledger.runtime.steps.messages.conversation import Conversation
from turnledger.runtime.steps.messages.request_delta import RequestDeltas
from turnledger.runtime.steps.record.recorder import Place

CLIENT = f"pydantic-ai {version('pydantic-ai-slim')}"
_MEMORY = "turnledger.pydantic_ai"
_KEY_DIGITS = 16


@dataclass
class RunMemory:
    """What this integration remembers of a run in this process.

    Attributes:
        deltas: The last requests, which the next ones are recorded against.
        asked: How often a name and key were asked for in a place.
        agent_runs: How many runs of agents began in a place.
        in_order: The agent's runs that were begun where their place's own code runs, and not
            beside it: the order of their requests is known.
    """

    deltas: RequestDeltas = field(default_factory=RequestDeltas)
    asked: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    agent_runs: Counter[str] = field(default_factory=Counter)
    in_order: set[str] = field(default_factory=set)
    _conversation: Conversation | None = None
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, scope: StepScope) -> RunMemory:
        known = scope.memory.setdefault(_MEMORY, cls())
        assert isinstance(known, cls)
        return known

    def conversation(self, scope: StepScope) -> Conversation:
        """The messages that are on record. It reads the run, once: not in an event loop."""
        with self._lock:
            if self._conversation is None:
                self._conversation = Conversation(scope.ledger.read(scope.run_id))
            return self._conversation

    def key(self, scope: StepScope, name: str, key: str) -> str:
        """A step's key; the second step of that name and key in a place has "~2" after it.

        Models repeat the ids of calls, and a call that waited for an approval is made again.
        """
        place = (scope.place.parent, name, key)
        self.asked[place] += 1
        number = self.asked[place]
        return key if number == 1 else f"{key}~{number}"


@dataclass(frozen=True)
class Asked:
    """An operation that pydantic-ai asks for.

    Attributes:
        agent: The agent's name.
        scope: Where pydantic-ai asks for it, in a task of its own.
        operation: Its typed id.
        name: pydantic-ai's own name for it.
        cache_key: Its inputs.
        on_interrupt: What a resume does if nobody knows how it ended.
        raises: Error classes that are raised again as themselves.
    """

    agent: str
    scope: StepScope
    operation: Any
    name: str
    cache_key: tuple[Any, ...]
    on_interrupt: OnInterrupt
    raises: tuple[type[Exception], ...]

    @property
    def is_tool_call(self) -> bool:
        return isinstance(self.operation, ToolsetCallToolId)

    async def begin(self) -> StepOutcome | OpenStep:
        """Ask for the operation as a step."""
        spec = _STEPS.get(type(self.operation), _other)(self)
        begun = await self._place(spec).abegin(spec)
        if spec.kind == "model":
            RunMemory.of(self.scope).deltas.add(begun.call_id, spec.arguments)
        return begun

    def _place(self, spec: StepSpec) -> StepScope:
        """Where the step is: an agent's requests follow each other, whatever task they are in."""
        scope = self.scope
        if spec.kind == "tool" or self.cache_key[-1].run_id not in RunMemory.of(scope).in_order:
            return scope
        return StepScope(scope.recorder, Place(scope.place.parent, strand()), scope.step)

    def keyed(self, name: str, key: str | None, arguments: Any = None) -> StepSpec:
        """A step that is known by its key; by its ordinal if it has none."""
        if key is not None:
            key = RunMemory.of(self.scope).key(self.scope, name, key)
        return StepSpec(
            name=name,
            key=key,
            arguments=arguments,
            on_interrupt=self.on_interrupt,
            raises=self.raises,
        )


_Make: TypeAlias = Callable[[Asked], StepSpec]


def _model_request(asked: Asked) -> StepSpec:
    _, messages, settings, parameters, _ = asked.cache_key
    model = asked.operation.model_name
    return _model_step(
        asked, "model", model, projection.request(model, messages, settings, parameters)
    )


def _compaction(asked: Asked) -> StepSpec:
    _, context, instructions, _ = asked.cache_key
    model = asked.operation.model_name
    sent = projection.request(
        model, context.messages, context.model_settings, context.model_request_parameters
    )
    return _model_step(asked, "compact", model, {**sent, "instructions": instructions})


def _model_step(asked: Asked, what: str, model: str, sent: Any) -> StepSpec:
    return StepSpec(
        name=f"{asked.agent}.{what}",
        kind="model",
        arguments=sent,
        request=RunMemory.of(asked.scope).deltas.recorded(model, sent),
        model=model,
        client=CLIENT,
        on_interrupt=asked.on_interrupt,
        raises=asked.raises,
    )


def _cancel(asked: Asked) -> StepSpec:
    _, response, _ = asked.cache_key
    assert isinstance(response, ModelResponse)
    return asked.keyed(f"{asked.agent}.cancel", None, {"response": response.provider_response_id})


def _call_tool(asked: Asked) -> StepSpec:
    name, arguments, context, _ = asked.cache_key
    return asked.keyed(name, context.tool_call_id or None, projection.plain(arguments))


def _validate(asked: Asked) -> StepSpec:
    name, arguments, context, _ = asked.cache_key
    key = context.tool_call_id or None
    return asked.keyed(f"{name}.validate", key, projection.plain(arguments))


def _get_tools(asked: Asked) -> StepSpec:
    return asked.keyed(f"{asked.operation.toolset_id}.tools", None)


def _get_instructions(asked: Asked) -> StepSpec:
    return asked.keyed(f"{asked.operation.toolset_id}.instructions", None)


def _event(asked: Asked) -> StepSpec:
    # Of parallel tools the first to end is told first: the order is left to chance, so that an
    # event is known by what it says.
    told = projection.event(asked.cache_key[0])
    key = sha256(canonical(told)).hexdigest()[:_KEY_DIGITS]
    return asked.keyed(f"{asked.agent}.event", key, told)


def _capability(asked: Asked) -> StepSpec:
    operation = asked.operation
    name = f"{operation.capability_id}.{operation.operation}"
    # Its last input is the run context; of a call of a workspace it is the id of the run.
    *inputs, context = asked.cache_key
    key = getattr(context, "tool_call_id", None) or None
    return asked.keyed(name, key, projection.plain(inputs))


def _other(asked: Asked) -> StepSpec:
    """A kind of operation that a later release of pydantic-ai has added."""
    return asked.keyed(asked.name, None)


_STEPS: dict[type[Any], _Make] = {
    CapabilityOperationId: _capability,
    EventStreamHandlerId: _event,
    ModelCancelSuspendedResponseId: _cancel,
    ModelCompactMessagesId: _compaction,
    ModelRequestId: _model_request,
    ToolsetCallToolId: _call_tool,
    ToolsetGetInstructionsId: _get_instructions,
    ToolsetGetToolsId: _get_tools,
    ToolsetValidateToolArgumentsId: _validate,
}
