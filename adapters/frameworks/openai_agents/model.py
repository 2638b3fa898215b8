"""`DurableModel`: the model of an OpenAI Agents SDK agent, its calls as steps of a run.

Outside of a run it is the model that it wraps. Streamed events are handed on as they come; the
record is on disk before the event that ends the response is handed on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

from turnledger.adapters.frameworks.model_step import ModelStep, close_stream, raise_model_outcome
from turnledger.adapters.frameworks.openai_agents.errors import OpenAIErrors
from turnledger.adapters.frameworks.openai_agents.hooks import token_usage
from turnledger.adapters.frameworks.openai_agents.session import turns_in
from turnledger.adapters.frameworks.packages import framework
from turnledger.ledger import TokenUsage
from turnledger.runtime.steps import (
    OpenStep,
    StepOutcome,
    StepScope,
    current_scope,
    off_loop,
    raise_outcome,
)

with framework("agents", extra="openai-agents", integration="turnledger.openai_agents"):
    from agents import Model, ModelProvider, ModelResponse, exceptions
    from openai.types.responses import ResponseStreamEvent
    from pydantic import TypeAdapter

# In the memory of a run: whether a durable model was asked in it.
ASKED = "turnledger.openai_agents.asked"
_CLIENT = f"openai-agents {version('openai-agents')}"
_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_ERRORS = OpenAIErrors()
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_RAISES = tuple(
    kind
    for kind in vars(exceptions).values()
    if isinstance(kind, type) and issubclass(kind, exceptions.AgentsException)
)


class DurableModel(Model):
    """A model whose calls are steps of the run that they are made in.

    Args:
        name: The steps' name: the agent's.
        model: The model, or its name.
        provider: Gives the model of a name.
    """

    def __init__(self, name: str, model: Model | str | None, provider: ModelProvider) -> None:
        self._name = f"{name} model"
        self._given = model
        self._provider = provider
        self._model: Model | None = model if isinstance(model, Model) else None

    @property
    def inner(self) -> Model:
        """The model that it wraps."""
        if self._model is None:
            self._model = self._provider.get_model(self._given)
        return self._model

    async def close(self) -> None:
        """Close the model that it wraps."""
        if self._model is not None:
            await self._model.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self.inner._cleanup_on_run_end(owner)

    def get_retry_advice(self, request: Any) -> Any:
        """As of the model that it wraps."""
        return self.inner.get_retry_advice(request)

    async def get_response(self, *args: Any, **more: Any) -> Any:
        """The model's response, or the recorded one; arguments as of `Model.get_response`."""
        scope = current_scope()
        if scope is None:
            return await self.inner.get_response(*args, **more)
        call = self._step(scope, args, more)
        begun = await call.begin()
        if isinstance(begun, StepOutcome):
            raise_model_outcome(begun, _ERRORS, _RAISES)
            return _RESPONSE.validate_python(begun.value)
        try:
            with scope.inside(begun):
                response = await self.inner.get_response(*args, **more)
        except BaseException as error:
            await call.fail(begun, error, _ERRORS)
            raise
        data = _RESPONSE.dump_python(response, mode="json", exclude_unset=True, warnings=False)
        turns, _ = turns_in(response.to_input_items())
        outcome = await off_loop(
            partial(
                call.complete,
                begun,
                data,
                turn=turns[-1] if turns else None,
                usage=token_usage(response.usage),
                takes=_RESPONSE.validate_python,
            )
        )
        raise_outcome(outcome, _RAISES)
        return _RESPONSE.validate_python(outcome.value if begun.is_redacted else data)

    async def stream_response(self, *args: Any, **more: Any) -> AsyncIterator[Any]:
        """The events of a response; arguments as of `Model.stream_response`."""
        scope = current_scope()
        if scope is None:
            async for event in self.inner.stream_response(*args, **more):
                yield event
            return
        call = self._step(scope, args, more)
        begun = await call.begin()
        if isinstance(begun, StepOutcome):
            raise_model_outcome(begun, _ERRORS, _RAISES)
            for data in begun.value:
                yield _EVENT.validate_python(data)
            return
        async for event in self._live(scope, call, begun, args, more):
            yield event

    async def _live(
        self, scope: StepScope, call: ModelStep, step: OpenStep, args: Any, more: Any
    ) -> AsyncIterator[Any]:
        """The events as they come; the step's outcome is recorded before the last one."""
        stream = self.inner.stream_response(*args, **more).__aiter__()
        came: list[dict[str, Any]] = []
        is_open = True
        try:
            while True:
                # Around each event, and not around `yield`: the reader has its own context.
                with scope.inside(step):
                    event = await anext(stream, None)
                if event is None:
                    break
                if is_open:
                    _add(came, event.model_dump(mode="json", exclude_unset=True, warnings=False))
                if is_open and event.type in _ENDS:
                    is_open = False
                    await self._end(call, step, came, event.response)
                yield event
            if is_open:
                is_open = False
                await self._end(call, step, came, None)
        except GeneratorExit:
            step.leave()
            raise
        except BaseException as error:
            if is_open:
                await call.fail(step, error, _ERRORS)
            raise
        finally:
            await close_stream(stream)

    async def _end(
        self, call: ModelStep, step: OpenStep, came: list[dict[str, Any]], response: Any
    ) -> None:
        items = (
            [item.model_dump(exclude_unset=True) for item in response.output] if response else []
        )
        turns, _ = turns_in(items)
        used = response.usage if response is not None else None
        outcome = await off_loop(
            partial(
                call.complete,
                step,
                came,
                turn=turns[-1] if turns else None,
                usage=token_usage(used) if used is not None else TokenUsage(),
                model=response.model if response is not None else "",
            )
        )
        raise_outcome(outcome, _RAISES)

    def _step(self, scope: StepScope, args: Sequence[Any], more: Mapping[str, Any]) -> ModelStep:
        scope.memory[ASKED] = True
        given = self._given if isinstance(self._given, str) else getattr(self.inner, "model", "")
        model = given if isinstance(given, str) else ""
        request = _request(*_by_place(args, more))
        return ModelStep(
            scope,
            name=self._name,
            wire="openai-responses",
            body={"model": model, **request} if model else request,
            client=_CLIENT,
            model=model,
        )


def _by_place(args: Sequence[Any], more: Mapping[str, Any]) -> list[Any]:
    """The arguments of a request by place; the SDK gives them by place or by name."""
    names = (
        "system_instructions",
        "input",
        "model_settings",
        "tools",
        "output_schema",
        "handoffs",
        "tracing",
    )
    given = {**dict(zip(names, args, strict=False)), **more}
    rest = {name: value for name, value in given.items() if name not in names}
    return [*(given[name] for name in names[:-1]), rest]


def _request(
    system_instructions: str | None,
    items: Any,
    model_settings: Any,
    tools: Sequence[Any],
    output_schema: Any,
    handoffs: Sequence[Any],
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """A request as JSON, by the names of the Responses API; without what only traces it."""
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    request = {
        "instructions": system_instructions,
        "input": list(items),
        "settings": _set(model_settings.to_json_dict()),
        "tools": [_tool(tool) for tool in (*tools, *handoffs)],
        "output": output_schema
        and not output_schema.is_plain_text()
        and output_schema.json_schema(),
        **more,
    }
    return {name: value for name, value in request.items() if value}


def _set(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _tool(tool: Any) -> dict[str, Any]:
    """What the model is told of a tool or a handoff."""
    described = ("name", "tool_name", "description", "tool_description", "params_json_schema")
    found = {name: getattr(tool, name, None) for name in (*described, "input_json_schema")}
    if found["params_json_schema"] is None and found["input_json_schema"] is None:
        config = getattr(tool, "tool_config", None)
        found["config"] = _fields(tool) if config is None else config
    return {"type": type(tool).__name__, **{k: v for k, v in found.items() if v is not None}}


def _fields(tool: Any) -> Any:
    return asdict(tool) if is_dataclass(tool) and not isinstance(tool, type) else None


def _add(came: list[dict[str, Any]], event: dict[str, Any]) -> None:
    """Keep an event; pieces of one text are kept as one piece."""
    last = came[-1] if came else {}
    if (
        event["type"].endswith(".delta")
        and isinstance(event.get("delta"), str)
        and all(
            event.get(name) == last.get(name)
            for name in ("type", "item_id", "output_index", "content_index", "summary_index")
        )
    ):
        came[-1] = {**event, "delta": last["delta"] + event["delta"]}
        return
    came.append(event)
