"""`@tool`: makes a tool of any function, from its signature and its docstring.

    @tool(on_interrupt="ask")
    def credit(euros: int, reason: str = "") -> str:
        \"\"\"Credit an amount to the customer.

        Args:
            euros: The amount.
        \"\"\"
        return f"Credited {euros} EUR."

The result is a Tool, and still a function: tests call it as it was written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import make_dataclass
from functools import partial, update_wrapper
from types import SimpleNamespace
from typing import Any, Generic, ParamSpec, TypeVar, get_type_hints, overload

from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.errors import error_text, short_repr
from turnledger.runtime.agent.tools.docstrings import parse_docstring
from turnledger.runtime.agent.tools.tool import (
    NeedsApproval,
    OnInterrupt,
    Tool,
    check_approval,
)
from turnledger.runtime.errors import ToolDefinitionError

P = ParamSpec("P")
R = TypeVar("R")

_CONTEXT = "context"
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class FunctionTool(Tool, Generic[P, R]):
    """A tool made of a function by `@tool`. Calling it calls the function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        on_interrupt: OnInterrupt | None = None,
        needs_approval: NeedsApproval = False,
        timeout: float | None = None,
    ) -> None:
        called = name or str(getattr(function, "__name__", ""))
        documented = parse_docstring(getattr(function, "__doc__", None))
        about = description or documented.description
        if not about:
            raise ToolDefinitionError(
                "it has no description: write a docstring, or give `description`", tool=called
            )
        signature = _signature(function, called)
        parameters = [one for one in signature if not _is_context(one)]
        kind = _params_type(function, called, parameters, documented.parameters)
        self._parameter_names = tuple(one.name for one in parameters)
        call = partial(_call, function, signature)
        super().__init__(
            name=called,
            description=about,
            handler=call if kind is not None else partial(call, None),
            on_interrupt=on_interrupt,
            needs_approval=needs_approval,
            timeout=timeout,
            params_type=kind,
        )
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as it was written."""
        return self.function(*args, **kwargs)

    def asks_approval(self, params: Any) -> bool:
        """Whether a call needs approval: needs_approval gets the function's own arguments."""
        asked = self.needs_approval
        if not callable(asked):
            return asked
        return bool(asked(**{name: getattr(params, name) for name in self._parameter_names}))

    def _check_approval(self) -> None:
        names = dict.fromkeys(self._parameter_names)
        wanted = f"a function that takes {', '.join(names) or 'no arguments'} by keyword"
        check_approval(self.name, self.needs_approval, (), names, wanted)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    on_interrupt: OnInterrupt | None = None,
    needs_approval: NeedsApproval = False,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


@explain_arguments
def tool(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Make a tool of a function: `@tool`, or `@tool(on_interrupt="ask")`.

    Parameters and their schema come from the signature: every parameter needs an annotation, and
    `Annotated[int, Field(ge=1)]` adds to it. A parameter `context: ToolContext` gets the call's
    context and is not shown to the model. The description comes from the docstring, with a text
    for each parameter. The function may be `async def`; it returns text, a value that can be
    JSON, or a ToolResult. ToolDefinitionError if a model could not be offered it.

    Args:
        function: The function, where the decorator has no arguments.
        settings: `name` (by default the function's), `description` (the docstring's),
            `on_interrupt`, `needs_approval` and `timeout` as for Tool. A function given as
            `needs_approval` gets the same arguments by keyword, without the context.
    """
    if function is None:
        return partial(_make, **settings)
    return _make(function, **settings)


def _make(function: Callable[P, R], **settings: Any) -> FunctionTool[P, R]:
    if not callable(function) or isinstance(function, type | Tool):
        raise ToolDefinitionError(f"@tool takes a function, not {short_repr(function)}")
    return FunctionTool(function, **settings)


def _signature(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(f"its signature is unknown: {error}", tool=name) from error
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDefinitionError("it is a generator function: return a value", tool=name)
    for one in found:
        if one.kind in _VARIADIC:
            raise ToolDefinitionError(
                f"its parameter {one} takes any arguments: a model needs to know their names",
                tool=name,
            )
        if one.annotation is inspect.Parameter.empty and not _is_context(one):
            raise ToolDefinitionError(
                f"its parameter {one.name!r} has no annotation: write {one.name}: str, say",
                tool=name,
            )
    return found


def _is_context(parameter: inspect.Parameter) -> bool:
    """Whether it is the ToolContext, whose class is known by its name alone at this layer."""
    kind = parameter.annotation
    said = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    return parameter.name == _CONTEXT and (
        kind is inspect.Parameter.empty or said.rpartition(".")[2] == "ToolContext"
    )


def _call(
    function: Callable[..., Any],
    signature: list[inspect.Parameter],
    params: Any,
    /,
    *,
    context: object,
) -> object:
    """Call a function with the fields of its parameters."""
    args, kwargs = [], {}
    for one in signature:
        value = context if _is_context(one) else getattr(params, one.name)
        if one.kind is inspect.Parameter.POSITIONAL_ONLY:
            args.append(value)
        else:
            kwargs[one.name] = value
    returned = function(*args, **kwargs)
    if not isinstance(returned, Coroutine):
        return returned
    from turnledger.runtime.agent.tools.async_calls import result_of  # and with it asyncio

    return result_of(returned)


def _params_type(
    function: Callable[..., Any],
    name: str,
    parameters: list[inspect.Parameter],
    documented: dict[str, str],
) -> type | None:
    """A pydantic dataclass with a field for each parameter; None without parameters.

    Not a model: a parameter may be called `json` or `copy`, as methods of models are.
    """
    if not parameters:
        return None
    from pydantic import ConfigDict
    from pydantic.dataclasses import dataclass
    from pydantic.fields import FieldInfo

    hints = _hints(function, name, parameters)
    fields: list[tuple[str, Any, Any]] = []
    for one in parameters:
        hint = hints[one.name]
        if one.default is inspect.Parameter.empty:
            field = FieldInfo.from_annotation(hint)
        else:
            field = FieldInfo.from_annotated_attribute(hint, one.default)
        field.description = field.description or documented.get(one.name)
        fields.append((one.name, hint, field))
    try:
        made: type = make_dataclass(name, fields, kw_only=True)
        return dataclass(config=ConfigDict(extra="forbid"))(made)
    except Exception as error:
        raise ToolDefinitionError(f"its parameters: {error_text(error)}", tool=name) from error


def _hints(
    function: Callable[..., Any], name: str, parameters: list[inspect.Parameter]
) -> dict[str, Any]:
    """The annotations as types; those of the context and of the result are not needed."""
    holder = SimpleNamespace(__annotations__={one.name: one.annotation for one in parameters})
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(holder, globalns=scope, include_extras=True)
    except Exception as error:
        raise ToolDefinitionError(
            f"its annotations can't be read: {error_text(error)}. Define the types that they name "
            "at the top level of a module",
            tool=name,
        ) from error
