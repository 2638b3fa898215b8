"""`TurnledgerPlugin`: model calls and tools of Google ADK agents as steps of a run.

    app = App(name="shop", root_agent=agent, plugins=[TurnledgerPlugin({"pay": "ask"})])
    runner = Runner(app=app, session_service=TurnledgerSessionService("runs.db"))
    async with turnledger.run("order-17", ledger="runs.db"):
        async for event in runner.run_async(...):
            ...

The plugin puts a step around the model and around each tool just before ADK calls them, so that
callbacks of agents and of other plugins run as ever, on a resume too. Outside of a run both are as
they were.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any
from uuid import uuid5

from turnledger.adapters.frameworks.model_step import ModelStep, close_stream, raise_model_outcome
from turnledger.adapters.frameworks.packages import framework
from turnledger.adapters.frameworks.sessions import AsItIs, transcript_of, usage_in
from turnledger.ledger import InvalidInputError
from turnledger.ledger.errors import short_repr
from turnledger.runtime.agent.tools.tool import OnInterrupt
from turnledger.runtime.steps import (
    OpenStep,
    OutcomeUnknownError,
    StepOutcome,
    StepScope,
    StepSpec,
    aperform,
    current_scope,
    off_loop,
    raise_outcome,
)

with framework("google.adk", extra="adk", integration="turnledger.adk"):
    from google.adk.events.event_actions import EventActions
    from google.adk.models import LlmResponse
    from google.adk.plugins.base_plugin import BasePlugin
    from google.genai import errors
    from pydantic import ConfigDict
    from pydantic_core import to_jsonable_python

_CLIENT = f"google-adk {version('google-adk')}"
_WIRE = "gemini"
_POLICIES = ("retry", "fail", "ask")
# The label under which ADK tells a model which agent asks it.
_AGENT_LABEL = "adk_agent_name"
# A mark on what has a step around it already.
_MARK = "_turnledger_step"


class TurnledgerPlugin(BasePlugin):
    """An ADK plugin: model calls and tools are steps of the run that they are called in.

    Give the runner a `TurnledgerSessionService` too: then what a resumed run reads of its session
    is what it read, and it appends nothing twice.

    Args:
        on_interrupt: By the name of a tool, what a resume does if nobody knows how a call ended:
            "retry" calls it again (the default), "fail" tells the model that the outcome is
            unknown, "ask" lets the run wait for a person.
        name: The plugin's name in ADK.
    """

    def __init__(
        self,
        on_interrupt: Mapping[str, OnInterrupt] | None = None,
        *,
        name: str = "turnledger",
    ) -> None:
        super().__init__(name=name)
        self._policies = dict(on_interrupt or {})
        for tool, policy in self._policies.items():
            if policy not in _POLICIES:
                raise InvalidInputError(
                    f"Invalid on_interrupt {short_repr(policy)} for tool {tool!r}: expected one "
                    f"of {', '.join(_POLICIES)}."
                )

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Put a step around the agent's model, once."""
        context = callback_context.get_invocation_context()
        model = await context.agent.canonical_model_async(callback_context)
        if not hasattr(model.generate_content_async, _MARK):
            # A pydantic model: its own attribute comes before the method of its class.
            object.__setattr__(
                model, "generate_content_async", _durable_model(model.generate_content_async)
            )

    async def before_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any
    ) -> None:
        """Put a step around the tool, once."""
        if not hasattr(tool.run_async, _MARK):
            policy = self._policies.get(tool.name, "retry")
            tool.run_async = _durable_tool(tool.name, tool.run_async, policy)


# --- models -----------------------------------------------------------------------------


class GeminiErrors:
    """The errors that a model over Google's SDK raises."""

    def facts(self, error: Exception) -> tuple[int | None, Any] | None:
        """The status and the body of the answer."""
        return (error.code, error.details) if isinstance(error, errors.APIError) else None

    def again(self, outcome: StepOutcome) -> Exception | None:
        """The error of that class, status and body."""
        kind: Any = getattr(errors, outcome.error_type, None)
        if not isinstance(kind, type) or not issubclass(kind, errors.APIError):
            return None
        made: Exception = kind(outcome.status or 0, outcome.value)
        return made


_ERRORS = GeminiErrors()


class _Recorded(LlmResponse):
    """A response as it is recorded: its bytes are base64."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", extra="ignore")


def _durable_model(generate: Any) -> Any:
    async def generate_content_async(llm_request: Any, stream: bool = False) -> Any:
        scope = current_scope()
        if scope is None:
            async for response in generate(llm_request, stream=stream):
                yield response
            return
        call = _step(scope, llm_request)
        begun = await call.begin()
        if isinstance(begun, StepOutcome):
            raise_model_outcome(begun, _ERRORS)
            for recorded in _responses(begun.value):
                yield recorded
            return
        async for response in _live(scope, call, begun, generate(llm_request, stream=stream)):
            yield response

    setattr(generate_content_async, _MARK, True)
    return generate_content_async


async def _live(
    scope: StepScope, call: ModelStep, step: OpenStep, stream: AsyncIterator[Any]
) -> AsyncIterator[Any]:
    """The responses as they come; the last one when all of them are on disk.

    Partial ones are for display, and the whole one after them has all that they had.
    """
    whole: list[Any] = []
    try:
        while True:
            # Around each response, and not around `yield`: the reader has its own context.
            with scope.inside(step):
                response = await anext(stream, None)
            if response is None:
                break
            if response.partial:
                yield response
                continue
            if whole:
                yield whole[-1]
            _name_calls(scope, step, response, len(whole))
            whole.append(response)
    except GeneratorExit:
        step.leave()
        raise
    except BaseException as error:
        await call.fail(step, error, _ERRORS)
        raise
    finally:
        await close_stream(stream)
    made = await off_loop(partial(_completed, call, step, whole))
    if made:
        yield made[-1]


def _completed(call: ModelStep, step: OpenStep, whole: list[Any]) -> list[Any]:
    """Record the responses, and give them as a resume will."""
    data = [
        _Recorded.model_construct(**dict(one)).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        for one in whole
    ]
    last: dict[str, Any] = data[-1] if data else {}
    content = last.get("content")
    read = transcript_of(_WIRE, {"contents": [content]}) if content else None
    answer = {"candidates": [{"content": content}], "usageMetadata": last.get("usageMetadata")}
    outcome = call.complete(
        step,
        data,
        turn=read.turns[-1] if read is not None and read.turns else None,
        usage=usage_in(_WIRE, answer),
        model=last.get("modelVersion", ""),
        finish_reason=str(last.get("finishReason", "")),
        takes=_responses,
    )
    raise_outcome(outcome)
    return _responses(outcome.value if step.is_redacted else data)


def _responses(data: Any) -> list[Any]:
    return [_response(one) for one in data]


def _response(data: Any) -> Any:
    # Through JSON text: only there base64 is read as bytes.
    read = _Recorded.model_validate_json(json.dumps(data))
    return LlmResponse.model_construct(**dict(read))


def _name_calls(scope: StepScope, step: OpenStep, response: Any, place: int) -> None:
    """Give calls without an id one that a resume gives them too; ADK would make random ones."""
    parts = (response.content.parts or ()) if response.content else ()
    for number, part in enumerate(parts):
        if part.function_call and not part.function_call.id:
            own = uuid5(scope.run_id, f"{step.call_id} {place} {number}")
            part.function_call.id = f"adk-{own}"


def _step(scope: StepScope, request: Any) -> ModelStep:
    """The step of a request, which is written by the names of Gemini's API."""
    config = request.config
    # HTTP options hold headers and keys.
    settings = config.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude={"http_options"}, fallback=_named
    )
    contents = [
        one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in request.contents
    ]
    agent = (config.labels or {}).get(_AGENT_LABEL, "")
    body = {"model": request.model or "", "contents": contents, "config": settings}
    return ModelStep(
        scope,
        name=f"{agent} model".strip(),
        wire=_WIRE,
        body=body,
        client=_CLIENT,
        model=request.model or "",
    )


def _named(value: Any) -> str:
    """What stands for something that is not data: a class, say."""
    return getattr(value, "__name__", type(value).__name__)


# --- tools ------------------------------------------------------------------------------


def _durable_tool(name: str, run: Any, policy: OnInterrupt) -> Any:
    async def run_async(*, args: dict[str, Any], tool_context: Any) -> Any:
        scope = current_scope()
        if scope is None:
            return await run(args=args, tool_context=tool_context)
        recorder = scope.recorder
        # What the tool did in this process, beside its result.
        did: Any = None

        async def call() -> Any:
            nonlocal did
            result = await run(args=args, tool_context=tool_context)
            recorder.check()  # a tool may have caught what halts the run
            did = tool_context.actions.model_dump(mode="json", exclude_defaults=True)
            return {"result": to_jsonable_python(result), "actions": did}

        confirmed = tool_context.tool_confirmation
        key = tool_context.function_call_id
        spec = StepSpec(
            name=name,
            # A call that a person has confirmed is another one than that which asked for it.
            key=key if confirmed is None else f"{key}-confirmed",
            arguments={"args": args, **({} if confirmed is None else {"confirmed": confirmed})},
            on_interrupt=policy,
        )
        try:
            done = await aperform(spec, call, AsItIs())
        except OutcomeUnknownError as error:
            return {"error": str(error)}  # for the model
        if did != done["actions"]:  # it is answered from the record, or was redacted
            _apply(tool_context, done["actions"])
        return done["result"]

    setattr(run_async, _MARK, True)
    return run_async


def _apply(tool_context: Any, recorded: Mapping[str, Any]) -> None:
    """Do what a tool did beside its result: state changes, a transfer, a request for consent."""
    actions = EventActions.model_validate(recorded)
    for name, value in actions.state_delta.items():
        tool_context.state[name] = value
    for name in actions.model_fields_set - {"state_delta"}:
        setattr(tool_context.actions, name, getattr(actions, name))
