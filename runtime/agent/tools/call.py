"""Calls a tool with the arguments that a model wrote, and makes the text of the result.

There is always a result: invalid arguments, an unknown tool, an exception and a value that
can't be read or is not JSON become failed results that say what and where. Only what ends the
evaluation passes through: DeadlineExceededError, VisibilityExpansionRequired, and a BaseException
that is not an Exception, all raised by the handler itself. Once the handler has returned, the call
has ended, whatever its value does when it is read. Nothing is recorded here.

The texts of rejected calls are recorded, and a replay compares them: a changed text makes runs
of earlier versions diverge.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
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
    """The outcome of a tool call.

    Attributes:
        name: The tool's name, as the model wrote it.
        params: What the handler got, or RejectedToolParams if it was not called.
        result: What the handler returned, or a failed result.
        text: What the model gets.
        value: The result's value as JSON.
        error_type: Why it failed; empty if it did not.
        error_message: The same, in words.
        interrupt: A BaseException that reading the value raised; it is raised when the outcome
            is recorded.
        raised: What the handler raised, if it did.
    """

    name: str
    params: Any
    result: ToolResult[Any]
    text: str
    value: Any = None
    error_type: str = ""
    error_message: str = ""
    interrupt: BaseException | None = None
    raised: Exception | None = None

    @property
    def succeeded(self) -> bool:
        return not self.error_type


def invoke(tool: Tool[Any, Any], arguments: str | None, context: object) -> ToolResult[Any]:
    """Call a tool with the arguments that a model wrote; there is always a result.

    Args:
        tool: The tool.
        arguments: JSON text; None and empty text are an empty object.
        context: Passed on to the handler, a ToolContext.

    Raises:
        DeadlineExceededError, VisibilityExpansionRequired: As the handler raised them.
    """
    return call_tool(tool, arguments, context).result


def call_tool(tool: Tool[Any, Any], arguments: str | None, context: object) -> Invocation:
    """Like `invoke`, but return the parameters, the text and the error as well."""
    ready = _prepared(tool, arguments)
    return ready if isinstance(ready, Invocation) else call_prepared(ready, context)


def call_by_name(
    registry: ToolRegistry, name: str, arguments: str | None, context: object
) -> Invocation:
    """Like `call_tool`, with the tool of this name; a failed result if there is none."""
    ready = prepared(registry, name, arguments)
    return ready if isinstance(ready, Invocation) else call_prepared(ready, context)


@dataclass(frozen=True)
class PreparedCall:
    """A valid call: the tool exists, and the parameters have its type."""

    tool: Tool[Any, Any]
    params: Any


def prepared(registry: ToolRegistry, name: str, arguments: str | None) -> PreparedCall | Invocation:
    """Look up the tool and decode the arguments; a rejected Invocation if that fails."""
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
    """Call the handler; there is always a result."""
    tool, params = call.tool, call.params
    try:
        returned = _handled(tool, params, context)
    except (DeadlineExceededError, VisibilityExpansionRequired):
        raise
    except Exception as error:
        return failed(tool.name, params, type(error).__name__, error_text(error), error)
    return _invocation(tool.name, params, returned)


def parse_arguments(text: str | None) -> dict[str, Any]:
    """Parse a call's arguments as a JSON object; None and empty text are an empty one."""
    if text is None or not text.strip():
        return {}
    data = read_json(text)
    if not isinstance(data, dict):
        raise DataDecodeError(f"arguments are a JSON object, not {_kind(data)}")
    return data


def parse_params(tool: Tool[Any, Any], text: str | None) -> Any:
    """Decode a call's arguments as the tool's parameters; DataDecodeError names the field."""
    arguments = parse_arguments(text)
    if tool.params_type is None:
        if arguments:
            raise DataDecodeError("the tool takes no parameters", path=next(iter(arguments)))
        return None
    return decode(tool.params_type, arguments)


def rejected(
    name: str, arguments: str | None, error: str, error_type: str = "InvalidToolCall"
) -> Invocation:
    """The outcome of a call that was not made, and why."""
    return Invocation(
        name=name,
        params=RejectedToolParams(raw_arguments=arguments, error=error),
        result=ToolResult(error, success=False),
        text=error,
        error_type=error_type,
        error_message=error,
    )


def failed(
    name: str, params: Any, error_type: str, error_message: str, raised: Exception | None = None
) -> Invocation:
    """The outcome of a call whose handler failed."""
    text = f"Tool {name!r} failed: {error_message}"
    return Invocation(
        name=name,
        params=params,
        result=ToolResult(text, success=False),
        text=text,
        error_type=error_type,
        error_message=error_message,
        raised=raised,
    )


def as_result(returned: object) -> ToolResult[Any]:
    """Make a ToolResult of what a handler returned: text, None, or a value."""
    if isinstance(returned, ToolResult):
        return returned
    if returned is None:
        return ToolResult(DONE)
    if isinstance(returned, str):
        return ToolResult(returned)
    return ToolResult("", value=returned)


def render_result(result: ToolResult[Any]) -> str:
    """Make the text that a model gets: the message, and the value as JSON unless excluded.

    DataEncodeError if either can't be encoded.
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


def _invocation(name: str, params: Any, returned: object) -> Invocation:
    """Read what a handler returned. Reading runs code of the value's own, which may raise."""
    try:
        result = as_result(returned)
        parts = _plain_parts(result)
        succeeded = bool(result.success)
        return Invocation(
            name=name,
            params=params,
            result=result,
            text=_text(result, parts),
            value=parts["value"],
            error_type="" if succeeded else "ToolFailed",
            error_message="" if succeeded else parts["message"],
        )
    except SchemaError as error:
        return failed(name, params, type(error).__name__, f"its result is not JSON: {error}")
    except BaseException as error:
        why = f"it has run to its end, but its result can't be read: {error_text(error)}"
        if isinstance(error, Exception):
            return failed(name, params, type(error).__name__, why, error)
        return replace(failed(name, params, type(error).__name__, why), interrupt=error)


def _kind(data: object) -> str:
    names = {list: "a list", str: "text", bool: "a truth value", type(None): "null"}
    return names.get(type(data), "a number")
