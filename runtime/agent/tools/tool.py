"""Tool definitions: a name, a description, a parameters type and a handler.

    @dataclass(frozen=True)
    class Search:
        query: str

    def search(params: Search, *, context: ToolContext) -> ToolResult[list[str]]:
        return ToolResult("Found two pages.", value=["a", "b"])

    tool = Tool[Search, list[str]](name="search", description="Look it up.", handler=search)

Calling a tool is in `runtime.agent.tools.call`; recording calls and limiting their time is the
loop's.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, get_args, get_type_hints

from turnledger.ledger.arguments import explain_arguments, explain_methods
from turnledger.runtime.agent.generics import ParamsT, ResultT, Subscripted
from turnledger.runtime.agent.schema.schema import Schema, json_schema
from turnledger.runtime.errors import SchemaError, ToolDefinitionError

OnInterrupt = Literal["retry", "fail", "ask"]
# Whether calls of a tool need a person's approval: all, none, or what a function of the arguments
# says.
NeedsApproval: TypeAlias = bool | Callable[..., bool]

# What all providers accept.
_NAME = r"[a-zA-Z0-9_-]{1,64}"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NO_PARAMETERS: Schema = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class ToolResult(Generic[ResultT]):
    """What a handler returns: a message for the model, and optionally a value.

    Attributes:
        message: Text for the model.
        value: Appended to the message as JSON; the session and bus handlers get it too.
        success: False is a failure that the model may react to, and undoes what the handler
            changed in the session.
        exclude_value_from_context: Do not show the value to the model.
    """

    message: str
    value: ResultT | None = None
    success: bool = True
    exclude_value_from_context: bool = False


@dataclass(frozen=True, slots=True)
class RejectedToolParams:
    """Arguments as the model sent them, and why the tool does not accept them."""

    raw_arguments: Any
    error: str


@explain_methods()
class Tool(Subscripted, Generic[ParamsT, ResultT]):
    """A function that a model may call: `Tool[Params, Result](name=..., handler=...)`."""

    def __init__(
        self,
        *,
        name: str,
        description: str,
        handler: Callable[..., Any],
        on_interrupt: OnInterrupt | None = None,
        needs_approval: NeedsApproval = False,
        timeout: float | None = None,
        params_type: Any = None,
    ) -> None:
        """Define a tool; ToolDefinitionError if a model could not be offered it.

        Args:
            name: 1 to 64 letters, digits, '_' and '-'.
            description: Tells the model what the tool is for.
            handler: A synchronous function, `handler(params, *, context)` or
                `handler(*, context)`.
            on_interrupt: What happens to a call in doubt, whose outcome an interruption left
                unknown: run it again ("retry"), report it to the model ("fail"), or wait for
                a person's decision ("ask"). By default "retry", and "ask" with needs_approval.
            needs_approval: Whether a person has to approve each call before it runs; or a
                function of the parameters (of nothing, if the tool takes none) that says it for
                a call. It is asked once for each call; one that raises means yes.
            timeout: In seconds.
            params_type: Used if the tool is not subscripted; by default the annotation of the
                handler's first parameter. None means no parameters.
        """
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            raise ToolDefinitionError(
                f"Invalid tool name {name!r}: expected 1 to 64 letters, digits, '_' and '-'."
            )
        if not isinstance(description, str) or not description.strip():
            raise ToolDefinitionError("`description` is empty: say what the tool is for", tool=name)
        if on_interrupt is None:
            on_interrupt = "retry" if needs_approval is False else "ask"
        if on_interrupt not in get_args(OnInterrupt):
            raise ToolDefinitionError(
                f"invalid on_interrupt {on_interrupt!r}: expected 'retry', 'fail' or 'ask'",
                tool=name,
            )
        if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
            raise ToolDefinitionError(
                f"invalid timeout {timeout!r}: expected seconds above 0", tool=name
            )
        self.name = name
        self.description = inspect.cleandoc(description)
        self.handler = handler
        self.on_interrupt: OnInterrupt = on_interrupt
        self.timeout = timeout
        self.takes_params = _takes_params(handler, name)
        self.params_type = self._params_type(params_type)
        self.parameters = self._parameters()
        self.needs_approval = needs_approval
        self._check_approval()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"

    def asks_approval(self, params: Any) -> bool:
        """Whether a call with these parameters needs approval; what the function raises passes."""
        asked = self.needs_approval
        if not callable(asked):
            return asked
        return bool(asked(params) if self.takes_params else asked())

    def _check_approval(self) -> None:
        """Refuse a needs_approval that could not be asked."""
        places = (self.params_type,) if self.takes_params else ()
        wanted = "a function of the parameters" if places else "a function without parameters"
        check_approval(self.name, self.needs_approval, places, {}, wanted)

    def _params_type(self, given: Any) -> Any:
        """Return the type of the parameters; None if the tool takes none."""
        wanted = self.type_arguments[0] if self.type_arguments else given
        if wanted is None and self.takes_params:
            wanted = _annotated(self.handler, self.name)
        if wanted is None or wanted is type(None):
            return None
        if not self.takes_params:
            raise ToolDefinitionError(
                f"its parameters type is {wanted!r}, but its handler takes no parameters: "
                "write def handler(params, *, context)",
                tool=self.name,
            )
        return wanted

    def _parameters(self) -> Schema:
        if self.params_type is None:
            return _NO_PARAMETERS
        try:
            schema = json_schema(self.params_type)
        except SchemaError as error:
            raise ToolDefinitionError(f"its parameters: {error}", tool=self.name) from error
        if schema.get("type") != "object":
            raise ToolDefinitionError(
                f"invalid parameters type {self.params_type!r}: expected an object (a dataclass, "
                "a msgspec Struct, a pydantic model)",
                tool=self.name,
            )
        return schema


@explain_arguments
def tool_to_spec(tool: Tool[Any, Any]) -> dict[str, Any]:
    """Return the tool as providers take it: a function with a JSON schema of its parameters."""
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": deepcopy(tool.parameters),  # an adapter may change its copy
        },
    }


class ToolRegistry:
    """The tools of one evaluation by name, in the order of the prompt."""

    def __init__(self, tools: Iterable[Tool[Any, Any]] = ()) -> None:
        self._tools: dict[str, Tool[Any, Any]] = {}
        for tool in tools:
            if self._tools.setdefault(tool.name, tool) is not tool:
                raise ToolDefinitionError("two tools have this name: rename one", tool=tool.name)

    def get(self, name: str) -> Tool[Any, Any] | None:
        return self._tools.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def specs(self) -> list[dict[str, Any]]:
        return [tool_to_spec(tool) for tool in self]

    def __iter__(self) -> Iterator[Tool[Any, Any]]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


def check_approval(
    tool: str, asked: object, args: Sequence[Any], kwargs: Mapping[str, Any], wanted: str
) -> None:
    """ToolDefinitionError if needs_approval is neither a bool nor a function of these arguments.

    Args:
        tool: The tool's name.
        asked: What was given as needs_approval.
        args: As many arguments as the function gets by position.
        kwargs: The names of those that it gets by keyword.
        wanted: What it should be, for the error.
    """
    if isinstance(asked, bool):
        return
    if not callable(asked) or inspect.iscoroutinefunction(asked):
        raise ToolDefinitionError(
            f"invalid needs_approval {asked!r}: expected True, False or {wanted}, not async",
            tool=tool,
        )
    try:
        inspect.signature(asked).bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            f"needs_approval does not take the tool's arguments ({error}): expected {wanted}",
            tool=tool,
        ) from error


def _takes_params(handler: Any, name: str) -> bool:
    """Whether a handler takes parameters beside the context; checks its signature."""
    if not callable(handler):
        raise ToolDefinitionError(f"its handler is not callable: {handler!r}", tool=name)
    if inspect.iscoroutinefunction(handler) or inspect.isgeneratorfunction(handler):
        raise ToolDefinitionError(
            "its handler is a coroutine or generator function: make it synchronous", tool=name
        )
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            f"its handler's signature is unknown: {error}", tool=name
        ) from error
    wanted = "write def handler(params, *, context), or def handler(*, context)"
    others = [one for one in parameters if one.name != "context"]
    if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in others) and len(others) == len(
        parameters
    ):
        raise ToolDefinitionError(f"its handler takes no `context`; {wanted}", tool=name)
    for place, one in enumerate(parameters):
        if one.name == "context" and (
            one.kind is inspect.Parameter.POSITIONAL_ONLY
            or (place == 0 and any(other.kind in _POSITIONAL for other in others))
        ):
            raise ToolDefinitionError(
                f"its handler's `context` can't be given by keyword; {wanted}", tool=name
            )
    return _first_is_params(others, name, wanted)


def _first_is_params(others: list[inspect.Parameter], name: str, wanted: str) -> bool:
    needed = [
        one
        for place, one in enumerate(others)
        if not (place == 0 and one.kind in _POSITIONAL)
        and one.default is inspect.Parameter.empty
        and one.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    if needed:
        names = ", ".join(one.name for one in needed)
        raise ToolDefinitionError(
            f"its handler has other required parameters, {names}; {wanted}", tool=name
        )
    return bool(others) and (
        others[0].kind in _POSITIONAL or others[0].kind is inspect.Parameter.VAR_POSITIONAL
    )


def _annotated(handler: Callable[..., Any], name: str) -> Any:
    """Return the annotation of the handler's first parameter."""
    advice = "write Tool[Params, Result](...), or give params_type"
    function: Any = handler
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:
        raise ToolDefinitionError(
            f"its handler's annotations can't be read ({error}); {advice}", tool=name
        ) from error
    first = next(iter(inspect.signature(handler).parameters))
    if first not in hints:
        raise ToolDefinitionError(
            f"its handler's first parameter has no annotation; {advice}", tool=name
        )
    return hints[first]
