"""Agent steps: model calls and tool calls of a LangChain agent, as steps.

What a step is known by leaves out what changes by itself: the ids of messages, and what a provider
says about a reply. The value is recorded as LangGraph's serializer packs it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from typing import Any, Literal, Protocol

from langchain.agents.middleware import ModelRequest, ModelResponse, ToolCallRequest
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from turnledger.adapters.frameworks.langgraph.conversation import turns_of, usage_of
from turnledger.adapters.frameworks.langgraph.drafts import dumped
from turnledger.adapters.frameworks.langgraph.open_run import REPLIES
from turnledger.adapters.frameworks.langgraph.packed_values import JsonReader, JsonWriter
from turnledger.ledger import Event
from turnledger.projections.digests import canonical
from turnledger.runtime.agent.tools.tool import OnInterrupt
from turnledger.runtime.loop.perform.tool_in_doubt import UNKNOWN
from turnledger.runtime.steps import (
    OpenStep,
    StepOutcome,
    StepScope,
    StepSpec,
    off_loop,
    raise_outcome,
)
from turnledger.runtime.steps.block import BLOCK, WORKFLOW
from turnledger.runtime.steps.messages.conversation import Asked, Conversation
from turnledger.runtime.steps.messages.request_delta import RequestDeltas
from turnledger.runtime.steps.record import divergence as diverging
from turnledger.runtime.steps.record.recorder import DECIDED_FAILED, UNKNOWN_OUTCOME
from turnledger.runtime.steps.scope import raise_failure
from turnledger.runtime.steps.spec import step_id

MODEL_STEP = "langchain.model"
# The key of a scope's memory with the last requests of the run.
_DELTAS = "langgraph.requests"
# And with the messages that are on record.
_SAID = "langgraph.said"
Raises = tuple[type[Exception], ...]


class Steps(Protocol):
    """Where the steps of an agent are recorded, and how they are told apart."""

    @property
    def scope(self) -> StepScope: ...

    @property
    def is_saved(self) -> bool:
        """Whether a saver records the agent's messages, in the same run."""
        ...

    def key(self, name: str, base: str) -> str:
        """The key of a step that is known by a text."""
        ...


class AgentStep:
    """A call of an agent's that is performed once, or answered from the record."""

    def __init__(self, scope: StepScope, spec: StepSpec, serde: SerializerProtocol) -> None:
        self.scope, self.spec, self._serde = scope, spec, serde

    def perform(self, call: Callable[[], Any]) -> Any:
        """Perform it, or answer it from the record."""
        self._check_replay()
        begun = self.scope.begin(self.spec, self.new_messages())
        if isinstance(begun, StepOutcome):
            return self.recorded(begun)
        try:
            with self.scope.inside(begun):
                value = call()
        except GraphBubbleUp:
            begun.leave()  # the graph was interrupted on purpose, and runs the task again
            raise
        except BaseException as error:
            raise_failure(self.scope, begun, error)
        return self.ended(begun, value)

    async def aperform(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """`perform` for an event loop."""
        self._check_replay()
        begun = await self.scope.abegin(self.spec, await off_loop(self.new_messages))
        if isinstance(begun, StepOutcome):
            return self.recorded(begun)
        try:
            with self.scope.inside(begun):
                value = await call()
        except GraphBubbleUp:
            begun.leave()
            raise
        except Exception as error:
            await off_loop(partial(raise_failure, self.scope, begun, error))
        except BaseException:
            begun.leave()
            raise
        return await off_loop(partial(self.ended, begun, value))

    def _check_replay(self) -> None:
        """In a replay, report a step that is not on record as what it should have been."""
        recorder = self.scope.recorder
        index, spec = recorder.index, self.spec
        call_id = step_id(self.scope.place.parent, spec.name, spec.key, 0)
        if not self.scope.is_replay or call_id in index.entries:
            return
        expected = index.unasked()
        if expected is None:
            return
        found = spec.arguments if spec.kind == "tool" else index.whole_request(spec.request)
        whole = index.whole(expected)
        if (expected.kind, expected.name) == (spec.kind, spec.name):
            raise recorder.halt(diverging.changed_arguments(whole, found, spec.client))
        raise recorder.halt(diverging.other_step(whole, call_id, spec.name, found, spec.client))

    def recorded(self, outcome: StepOutcome) -> Any:
        """The value of an outcome, or its error."""
        raise_outcome(outcome, self.spec.raises)
        return self.remember(self.decode(outcome.value))

    def ended(self, step: OpenStep, value: Any) -> Any:
        """Record a value, and give it as a resume will."""
        try:
            data = self.encode(value)
            made = self.decode(data)
        except Exception as error:
            outcome = step.unrecordable(f"{type(error).__name__}: {error}")
        else:
            outcome = step.complete(data, takes=self.decode, **self.about(value))
        raise_outcome(outcome, self.spec.raises)
        return self.remember(self.decode(outcome.value) if step.is_redacted else made)

    # --- what kinds of calls differ in ---

    def new_messages(self) -> Sequence[Event]:
        """What is recorded before the start."""
        return ()

    def encode(self, value: Any) -> Any:
        return JsonWriter(sys.maxsize).typed(*dumped(self._serde, value), ())

    def decode(self, data: Any) -> Any:
        return self._serde.loads_typed(JsonReader(_no_blob).typed(data))

    def about(self, value: Any) -> Mapping[str, Any]:
        """What is recorded beside the value."""
        return {}

    def remember(self, value: Any) -> Any:
        return value


class ToolStep(AgentStep):
    """A tool call of an agent, known by the id that the model gave it."""

    def __init__(
        self,
        steps: Steps,
        request: ToolCallRequest,
        serde: SerializerProtocol,
        on_interrupt: OnInterrupt,
        raises: Raises,
    ) -> None:
        """Prepare the step.

        Args:
            steps: Where it is recorded.
            request: The call.
            serde: Packs its value.
            on_interrupt: What a resume does if nobody knows how it ended.
            raises: Error classes that are raised again as themselves.
        """
        call = self._call = request.tool_call
        known = call["id"] or sha256(canonical(call["args"])).hexdigest()[:16]
        spec = StepSpec(
            name=call["name"],
            key=steps.key(call["name"], known),
            arguments=call["args"],
            on_interrupt=on_interrupt,
            raises=raises,
            again=True,
        )
        super().__init__(steps.scope, spec, serde)

    def recorded(self, outcome: StepOutcome) -> Any:
        """Its result; the model is told of a call that is unknown, or decided to have failed."""
        if outcome.error_type == UNKNOWN_OUTCOME:
            return self._message(UNKNOWN, "error")
        if outcome.error_type == DECIDED_FAILED:
            return self._message(outcome.error_message, "error")
        return super().recorded(outcome)

    def decode(self, data: Any) -> Any:
        """The tool's message; of what a person decided, a message that says it."""
        value = super().decode(data)
        if isinstance(value, ToolMessage | Command):
            return value
        return self._message(value if isinstance(value, str) else json.dumps(value), "success")

    def _message(self, text: str, status: Literal["success", "error"]) -> ToolMessage:
        name, call_id = self._call["name"], self._call["id"]
        return ToolMessage(text, name=name, tool_call_id=call_id, status=status)


class ModelStep(AgentStep):
    """A model call of an agent, known by its request."""

    def __init__(
        self, steps: Steps, request: ModelRequest, serde: SerializerProtocol, raises: Raises
    ) -> None:
        """Prepare the step.

        Args:
            steps: Where it is recorded.
            request: The call.
            serde: Packs its value.
            raises: Error classes that are raised again as themselves.
        """
        body = _body(request)
        digest = sha256(canonical(body)).hexdigest()
        memory = steps.scope.memory
        self._deltas: RequestDeltas = memory.setdefault(_DELTAS, RequestDeltas())
        spec = StepSpec(
            name=MODEL_STEP,
            key=steps.key(MODEL_STEP, digest[:32]),
            arguments=body,
            kind="model",
            raises=raises,
            model=body["model"],
            client=f"langchain {version('langchain')}",
            request=self._deltas.recorded(MODEL_STEP, body),
            again=True,
        )
        self._body, self._request, self._is_saved = body, request, steps.is_saved
        self._asked: Asked | None = None
        super().__init__(steps.scope, spec, serde)

    def new_messages(self) -> Sequence[Event]:
        """The messages of the request that are not on record, in a run of the caller's."""
        index, spec = self.scope.recorder.index, self.spec
        entry = index.entries.get(step_id(self.scope.place.parent, spec.name, spec.key, 0))
        is_answered = entry is not None and entry.outcome is not None and not entry.performed
        is_ours = index.started is not None and index.started.request_type in (BLOCK, WORKFLOW)
        if self._is_saved or self.scope.is_replay or is_answered or not is_ours:
            return ()
        request, clean = self._request, self.scope.ledger.redact_text
        prompt = (request.system_message, *request.messages)
        system = "\n\n".join(str(one.text) for one in prompt if isinstance(one, SystemMessage))
        turns = [*turns_of(request.messages, clean)]
        self._asked = self._conversation().asked(MODEL_STEP, clean(system), turns)
        return self._asked.events

    def _conversation(self) -> Conversation:
        """The conversations of the run; it reads the run once."""
        known: Conversation | None = self.scope.memory.get(_SAID)
        if known is None:
            read = Conversation(self.scope.ledger.read(self.scope.run_id))
            known = self.scope.memory.setdefault(_SAID, read)
        return known

    def ended(self, step: OpenStep, value: Any) -> Any:
        self._deltas.add(step.call_id, self._body)
        return super().ended(step, value)

    def encode(self, value: Any) -> Any:
        if isinstance(value, AIMessage):
            value = ModelResponse(result=[value])
        command = None
        if isinstance(value, ExtendedModelResponse):
            value, command = value.model_response, value.command
        kept = {"result": value.result, "structured_response": value.structured_response}
        return super().encode(kept if command is None else {**kept, "command": command})

    def decode(self, data: Any) -> Any:
        kept = super().decode(data)
        command = kept.pop("command", None)
        response: Any = ModelResponse(**kept)
        if command is None:
            return response
        return ExtendedModelResponse(model_response=response, command=command)

    def about(self, value: Any) -> Mapping[str, Any]:
        reply = _reply(value)
        if reply is None:
            return {}
        said = reply.response_metadata
        events: Sequence[Event] = ()
        message_id = None
        if self._asked is not None:
            (turn,) = turns_of([reply], self.scope.ledger.redact_text)
            events, message_id = self._conversation().replied(self._asked, turn)
        return {
            "events": events,
            "message_id": message_id,
            "usage": usage_of(reply),
            "finish_reason": str(said.get("finish_reason") or said.get("stop_reason") or ""),
            "model": str(said.get("model_name") or said.get("model") or ""),
        }

    def remember(self, value: Any) -> Any:
        """The saver records no reply again whose usage is recorded here."""
        reply = _reply(value)
        if reply is not None and reply.id is not None:
            self.scope.memory.setdefault(REPLIES, set()).add(reply.id)
        return value


def _reply(value: Any) -> AIMessage | None:
    if isinstance(value, ExtendedModelResponse):
        value = value.model_response
    messages = value.result if isinstance(value, ModelResponse) else [value]
    return next((one for one in messages if isinstance(one, AIMessage)), None)


def _body(request: ModelRequest) -> dict[str, Any]:
    """A request as it is compared and recorded."""
    model = request.model
    named = getattr(model, "model_name", None) or getattr(model, "model", None)
    system = request.system_message
    body: dict[str, Any] = {
        "model": str(named or type(model).__name__),
        "system": _content(system) if system is not None else None,
        "messages": [_message(message) for message in request.messages],
        "tools": [convert_to_openai_tool(tool) for tool in request.tools],
        "tool_choice": request.tool_choice,
        "parameters": _parameters(model),
        "settings": request.model_settings,
        "response_format": _format(request.response_format),
    }
    return {name: value for name, value in body.items() if value not in (None, [], {})}


def _parameters(model: Any) -> dict[str, Any]:
    """What a model was made with, as far as it says so and JSON has it: its temperature, say."""
    found = getattr(model, "_identifying_params", None)
    kept = {}
    for name, value in found.items() if isinstance(found, Mapping) else ():
        try:
            kept[str(name)] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            continue  # a callback, say
    return {name: value for name, value in kept.items() if value is not None}


def _content(message: BaseMessage) -> Any:
    content = message.content
    return str(content) if isinstance(content, str) else content


def _message(message: BaseMessage) -> dict[str, Any]:
    found: dict[str, Any] = {"type": message.type, "content": _content(message)}
    if isinstance(message, AIMessage) and message.tool_calls:
        found["tool_calls"] = [
            {"id": call["id"], "name": call["name"], "args": call["args"]}
            for call in message.tool_calls
        ]
    if isinstance(message, ToolMessage):
        found["tool_call_id"] = message.tool_call_id
        found["status"] = message.status
    if message.name:
        found["name"] = message.name
    return found


def _format(wanted: Any) -> Any:
    schema = getattr(wanted, "schema", wanted)
    if schema is None or isinstance(schema, str | dict):
        return schema
    return getattr(schema, "__name__", type(schema).__name__)


def _no_blob(name: str) -> bytes:
    raise LookupError(name)
