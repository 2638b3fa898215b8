"""What a tool is: its name, its parameters, its handler, and how models are told of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest

from tests.unit.runtime.kinds import POINTS, PointDataclass, PointModel, PointStruct, Tree
from turnledger.ledger.errors import TurnledgerError
from turnledger.runtime import Tool, ToolContext, ToolDefinitionError, ToolResult, tool_to_spec
from turnledger.runtime.agent.tools import ToolRegistry


def locate(params: PointDataclass, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult("there", value=str(params.x))


def bare(params, *, context):  # type: ignore[no-untyped-def]
    return ToolResult("there")


def alone(*, context: ToolContext) -> ToolResult[None]:
    return ToolResult("alone")


def tool(handler: Any = alone, **given: Any) -> Tool[Any, Any]:
    return Tool(**{"name": "t", "description": "Does it.", "handler": handler, **given})


@pytest.mark.parametrize("point", POINTS)
def test_a_tools_spec_is_a_function_with_a_schema(point: Any) -> None:
    """S4-6: for parameters of all three kinds."""
    made = Tool[point, None](name="locate", description="Finds a point.", handler=bare)
    spec = tool_to_spec(made)
    assert spec["type"] == "function"
    function = spec["function"]
    assert (function["name"], function["description"]) == ("locate", "Finds a point.")
    assert function["parameters"]["properties"]["x"] == {"type": "integer"}
    assert function["parameters"]["required"] == ["x"]
    assert function["parameters"]["additionalProperties"] is False


def test_a_spec_may_be_changed_without_changing_the_tool() -> None:
    """S4-6: providers want their own shapes."""
    tool_to_spec(tool(alone))["function"]["parameters"]["properties"]["x"] = 1
    assert tool_to_spec(tool(alone))["function"]["parameters"]["properties"] == {}


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    """S4-6: handlers may leave the parameters out, or take None."""
    empty = {"type": "object", "properties": {}, "additionalProperties": False}
    assert tool_to_spec(tool(alone))["function"]["parameters"] == empty
    assert Tool[None, None](name="t", description="d", handler=alone).params_type is None
    assert Tool[None, None](name="t", description="d", handler=bare).parameters == empty


@pytest.mark.parametrize(
    "made",
    [
        Tool[PointDataclass, str](name="t", description="d", handler=bare),
        Tool(name="t", description="d", handler=locate),
        Tool(name="t", description="d", handler=bare, params_type=PointDataclass),
        Tool(name="t", description="d", handler=functools.partial(locate)),
    ],
)
def test_the_parameters_type_is_found(made: Tool[Any, Any]) -> None:
    """In the subscript, in the argument, or in the handler's annotation."""
    assert made.params_type is PointDataclass
    assert made.on_interrupt == "retry"
    assert made.timeout is None


def test_handlers_may_be_methods_and_objects_that_can_be_called() -> None:
    """Their own first parameter does not count."""

    class Finder:
        def find(self, params: PointStruct, *, context: ToolContext) -> str:
            return "found"

        def __call__(self, params: PointModel, *, context: ToolContext) -> str:
            return "called"

    assert tool(Finder().find).params_type is PointStruct
    assert tool(Finder()).params_type is PointModel


async def later(params: PointDataclass, *, context: ToolContext) -> None: ...


def no_context(params: PointDataclass) -> None: ...


def too_much(params: PointDataclass, other: int, *, context: ToolContext) -> None: ...


def needs_keyword(params: PointDataclass, *, context: ToolContext, also: int) -> None: ...


def positional_context(params: PointDataclass, context: ToolContext, /) -> None: ...


def context_first(context: ToolContext, params: PointDataclass) -> None: ...


def optional_more(params: PointDataclass, *, context: ToolContext, also: int = 1) -> None: ...


def catches_all(params: PointDataclass, **rest: Any) -> None: ...


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (later, "synchronous"),
        (no_context, "takes no `context`"),
        (too_much, "other required parameters, other"),
        (needs_keyword, "other required parameters, also"),
        (positional_context, "be given by keyword"),
        (context_first, "be given by keyword"),
        (bare, "has no annotation"),
        (5, "is not callable"),
    ],
)
def test_a_handler_that_could_not_be_called_is_refused(
    handler: Callable[..., Any], said: str
) -> None:
    """S0-19: when the tool is made, saying what it should look like."""
    with pytest.raises(ToolDefinitionError, match=said) as caught:
        tool(handler)
    assert caught.value.tool == "t"
    assert isinstance(caught.value, TurnledgerError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("handler", [optional_more, catches_all])
def test_a_handler_may_take_more_if_nobody_has_to_hand_it_in(handler: Callable[..., Any]) -> None:
    """Defaults and **keywords."""
    assert tool(handler).params_type is PointDataclass


def test_an_annotation_that_cannot_be_read_is_refused() -> None:
    """The subscript is the way out."""

    @dataclass
    class Local:
        x: int

    def handler(params: Local, *, context: ToolContext) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"Tool\[Params, Result\]"):
        tool(handler)
    assert Tool[Local, None](name="t", description="d", handler=handler).params_type is Local


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": ""}, "1 to 64"),
        ({"name": "a b"}, "1 to 64"),
        ({"name": "a.b"}, "1 to 64"),
        ({"name": "x" * 65}, "1 to 64"),
        ({"name": "né"}, "1 to 64"),
        ({"name": "a\n"}, "1 to 64"),
        ({"name": None}, "1 to 64"),
        ({"description": " "}, "description"),
        ({"on_interrupt": "never"}, "'retry', 'fail' or 'ask'"),
        ({"timeout": 0}, "above 0"),
        ({"timeout": float("nan")}, "above 0"),
        ({"timeout": "5"}, "above 0"),
        ({"params_type": PointDataclass}, "its handler takes no parameters"),
        ({"handler": bare, "params_type": list[int]}, "invalid parameters type"),
        ({"handler": bare, "params_type": object}, "be encoded as JSON"),
    ],
)
def test_a_tool_that_no_provider_would_take_is_refused(given: dict[str, Any], said: str) -> None:
    """When it is made."""
    with pytest.raises(ToolDefinitionError, match=said):
        tool(**given)


def test_parameters_may_contain_themselves() -> None:
    """The root still says that it is an object."""
    made = Tool[Tree, None](name="t", description="d", handler=bare)
    assert made.parameters["type"] == "object"


def test_a_result_is_frozen_and_takes_its_fields_by_place_and_by_name() -> None:
    """S4-22: also with its type written down. By default it is a success, shown whole."""
    assert ToolResult("m") == ToolResult("m", None, True, False)
    result = ToolResult("m", 3, False, True)
    assert result == ToolResult(
        message="m", value=3, success=False, exclude_value_from_context=True
    )
    assert ToolResult[int]("m", value=3) == ToolResult("m", 3)
    with pytest.raises(FrozenInstanceError):
        result.message = "other"  # type: ignore[misc]


def test_a_context_has_all_that_handlers_may_use() -> None:
    """S4-22, S0-19: and can't be changed."""
    context = ToolContext(call_id="c1")
    for name in (
        "prompt",
        "rendered_prompt",
        "adapter",
        "session",
        "event_bus",
        "deadline",
        "resources",
    ):
        assert getattr(context, name) is None
    assert (context.call_id, context.is_resume) == ("c1", False)
    with pytest.raises(FrozenInstanceError):
        context.call_id = "c2"  # type: ignore[misc]


def test_a_registry_finds_tools_by_name_in_their_order() -> None:
    """S4-6: a name is one tool's."""
    first, second = tool(name="b"), tool(name="a")
    registry = ToolRegistry([first, second, first])
    assert registry.names() == ("b", "a")
    assert list(registry) == [first, second]
    assert len(registry) == 2
    assert registry.get("a") is second
    assert registry.get("c") is None
    assert [spec["function"]["name"] for spec in registry.specs()] == ["b", "a"]
    with pytest.raises(ToolDefinitionError, match="two tools have this name"):
        ToolRegistry([first, tool(name="b")])
