"""One call of a tool: from the text that a model wrote to the text that it is told.

Whatever a model sends and whatever a handler does, there is a result: wrong arguments, an
unknown tool, an exception and a value that is no JSON become failed results that say what
and where. Only what has to end the evaluation passes (time is up, sections to be opened,
and what is no Exception). Nothing is recorded here.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import msgspec

from turnledger.ledger.errors import error_text
from turnledger.runtime.agent.schema.schema import decode
from turnledger.runtime.agent.schema.values import read_json, to_plain
from turnledger.runtime.agent.tools.tool import (
    RejectedToolParams,
    Tool,
    ToolRegistry,
    ToolResult,
)
from turnledger.runtime.agent.visibility import VisibilityExpansionRequired
from turnledger.runtime.errors import (
    DataDecodeError,
    DataEncodeError,
    DeadlineExceededError,
    SchemaError,
)

DONE = "Done."


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """What became of a call.

    `params` is what the handler got, or RejectedToolParams if it was not called. `text` is
    what the model is told, `value` the result's value as JSON. A failed one says why in
    `error_type` and `error_message`.
    """

    name: str
    params: Any
    result: ToolResult[Any]
    text: str
    value: Any = None
    error_type: str = ""
    error_message: str = ""


def invoke(tool: Tool[Any, Any], arguments: str | None, context: object) -> ToolResult[Any]:
    """Call a tool with the arguments that a model wrote; there is always a result.

    DeadlineExceededError, VisibilityExpansionRequired and what is no Exception pass.
    """
    return call_tool(tool, arguments, context).result


def call_tool(tool: Tool[Any, Any], arguments: str | None, context: object) -> Invocation:
    """The same as `invoke`, with all that is known about the call."""
    ready = _prepared(tool, arguments)
    return ready if isinstance(ready, Invocation) else call_prepared(ready, context)


def call_by_name(
    registry: ToolRegistry, name: str, arguments: str | None, context: object
) -> Invocation:
    """Call the tool that a model named, if there is one."""
    ready = prepared(registry, name, arguments)
    return ready if isinstance(ready, Invocation) else call_prepared(ready, context)


@dataclass(frozen=True)
class PreparedCall:
    """A call that can be made: there is such a tool, and these are parameters that it takes."""

    tool: Tool[Any, Any]
    params: Any


def prepared(registry: ToolRegistry, name: str, arguments: str | None) -> PreparedCall | Invocation:
    """What a model asks for, ready to be called; if it can't be, what becomes of it instead."""
    tool = registry.get(name)
    if tool is None:
        known = ", ".join(registry.names()) or "none"
        return rejected(name, arguments, f"There is no tool {name!r}. The tools are: {known}.")
    return _prepared(tool, arguments)


def _prepared(tool: Tool[Any, Any], arguments: str | None) -> PreparedCall | Invocation:
    try:
        return PreparedCall(tool, parse_params(tool, arguments))
    except DataDecodeError as error:
        return rejected(tool.name, arguments, f"Invalid parameters for tool {tool.name!r}: {error}")


def call_prepared(call: PreparedCall, context: object) -> Invocation:
    """Have the handler called; there is always a result."""
    tool, params = call.tool, call.params
    try:
        returned = _handled(tool, params, context)
    except (DeadlineExceededError, VisibilityExpansionRequired):
        raise
    except Exception as error:
        return failed(tool.name, params, type(error).__name__, error_text(error))
    return _invocation(tool.name, params, as_result(returned))


def parse_arguments(text: str | None) -> dict[str, Any]:
    """A call's arguments: a JSON object. None and empty text are an empty one."""
    if text is None or not text.strip():
        return {}
    data = read_json(text)
    if not isinstance(data, dict):
        raise DataDecodeError(f"arguments are a JSON object, not {_kind(data)}")
    return data


def parse_params(tool: Tool[Any, Any], text: str | None) -> Any:
    """A call's arguments as the tool's parameters; DataDecodeError names the field."""
    arguments = parse_arguments(text)
    if tool.params_type is None:
        if arguments:
            raise DataDecodeError("the tool takes no parameters", path=next(iter(arguments)))
        return None
    return decode(tool.params_type, arguments)


def rejected(name: str, arguments: str | None, error: str) -> Invocation:
    """A call that was not made, and why."""
    return Invocation(
        name=name,
        params=RejectedToolParams(raw_arguments=arguments, error=error),
        result=ToolResult(error, success=False),
        text=error,
        error_type="InvalidToolCall",
        error_message=error,
    )


def failed(name: str, params: Any, error_type: str, error_message: str) -> Invocation:
    """A call whose handler came to nothing."""
    text = f"Tool {name!r} failed: {error_message}"
    return Invocation(
        name=name,
        params=params,
        result=ToolResult(text, success=False),
        text=text,
        error_type=error_type,
        error_message=error_message,
    )


def as_result(returned: object) -> ToolResult[Any]:
    """What a handler returned as a result: text is the message, None is done, else a value."""
    if isinstance(returned, ToolResult):
        return returned
    if returned is None:
        return ToolResult(DONE)
    if isinstance(returned, str):
        return ToolResult(returned)
    return ToolResult("", value=returned)


def render_result(result: ToolResult[Any]) -> str:
    """What a model is told: the message, and the value as JSON unless it is excluded.

    DataEncodeError if either can't be written.
    """
    return _text(result, _plain_parts(result))


def _handled(tool: Tool[Any, Any], params: Any, context: object) -> object:
    call = functools.partial(tool.handler, context=context)
    return call(params) if tool.takes_params else call()


def _plain_parts(result: ToolResult[Any]) -> dict[str, Any]:
    parts: dict[str, Any] = to_plain({"message": result.message, "value": result.value})
    if not isinstance(parts["message"], str):
        raise DataEncodeError("a result's message is text", path="message")
    return parts


def _text(result: ToolResult[Any], parts: dict[str, Any]) -> str:
    message: str = parts["message"]
    if parts["value"] is None or result.exclude_value_from_context:
        return message
    value = msgspec.json.encode(parts["value"]).decode()
    return f"{message}\n\n{value}" if message else value


def _invocation(name: str, params: Any, result: ToolResult[Any]) -> Invocation:
    try:
        parts = _plain_parts(result)
    except SchemaError as error:
        return failed(name, params, type(error).__name__, f"its result is no JSON: {error}")
    return Invocation(
        name=name,
        params=params,
        result=result,
        text=_text(result, parts),
        value=parts["value"],
        error_type="" if result.success else "ToolFailed",
        error_message="" if result.success else parts["message"],
    )


def _kind(data: object) -> str:
    names = {list: "a list", str: "text", bool: "a truth value", type(None): "null"}
    return names.get(type(data), "a number")
