"""One call of a tool: whatever a model sends and a handler does, there is a result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.kinds import POINTS, PointDataclass
from turnledger.runtime import (
    DataDecodeError,
    DataEncodeError,
    DeadlineExceededError,
    SectionVisibility,
    Tool,
    ToolContext,
    ToolResult,
    VisibilityExpansionRequired,
)
from turnledger.runtime.agent.tools import (
    ToolRegistry,
    call_by_name,
    call_tool,
    invoke,
    parse_arguments,
    render_result,
)
from turnledger.runtime.agent.tools.tool import RejectedToolParams

CONTEXT = ToolContext(call_id="c1")


class Recorder:
    """A handler that remembers what it got and does what it is told."""

    def __init__(self, returned: object = None, error: BaseException | None = None) -> None:
        self.got: list[Any] = []
        self._returned = returned
        self._error = error

    def __call__(self, params: Any, *, context: ToolContext) -> Any:
        self.got.append((params, context))
        if self._error is not None:
            raise self._error
        return self._returned


def tool(handler: Any, params_type: Any = PointDataclass) -> Tool[Any, Any]:
    return Tool(name="t", description="d", handler=handler, params_type=params_type)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("text", [None, "", "  \n", "{}"])
def test_absent_arguments_are_an_empty_object(text: str | None) -> None:
    """S4-13: as providers leave them out."""
    assert parse_arguments(text) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "a JSON object, not a list"),
        ('"a"', "not text"),
        ("1", "not a number"),
        ("null", "not null"),
        ("true", "not a truth value"),
        ("{", "line 1, column 2"),
        ('{"a": NaN}', "JSON has no NaN"),
        ("{1: 2}", "line 1, column 2"),
    ],
)
def test_arguments_are_a_json_object(text: str, said: str) -> None:
    """S4-13: with text as keys, which is all that JSON has."""
    with pytest.raises(DataDecodeError, match=said):
        parse_arguments(text)


@pytest.mark.parametrize("point", POINTS)
def test_a_handler_gets_its_parameters_and_the_context(point: Any) -> None:
    """S0-19: of all three kinds."""
    handler = Recorder(ToolResult("fine", value=3))
    result = invoke(tool(handler, point), '{"x": 1}', CONTEXT)
    assert result == ToolResult("fine", value=3)
    assert handler.got == [(point(x=1), CONTEXT)]


def test_a_handler_without_parameters_gets_the_context_alone() -> None:
    """And one that takes them for None gets None."""

    def alone(*, context: ToolContext) -> str:
        return context.call_id

    assert invoke(Tool(name="t", description="d", handler=alone), None, CONTEXT).message == "c1"
    handler = Recorder("x")
    invoke(Tool[None, None](name="t", description="d", handler=handler), "", CONTEXT)
    assert handler.got == [(None, CONTEXT)]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"x": "1"}', "x: "),
        ('{"x": 1, "z": 2}', "z: an unknown key"),
        (None, "x: "),
        ("{}", "x: "),
        ("[1]", "a JSON object"),
        ("{x}", "not JSON"),
    ],
)
def test_invalid_parameters_are_a_failed_result_and_no_call(
    point: Any, arguments: str | None, said: str
) -> None:
    """S4-14: the text names the field, and listeners get what the model sent."""
    handler = Recorder("never")
    call = call_tool(tool(handler, point), arguments, CONTEXT)
    assert call.result.success is False
    assert said in call.result.message
    assert "'t'" in call.result.message
    assert call.params == RejectedToolParams(raw_arguments=arguments, error=call.result.message)
    assert call.error_type == "InvalidToolCall"
    assert handler.got == []


def test_arguments_for_a_tool_that_takes_none_are_refused() -> None:
    """S4-14: naming the first of them."""
    handler = Recorder("never")
    made = Tool[None, None](name="t", description="d", handler=handler)
    assert "a: the tool takes no parameters" in invoke(made, '{"a": 1}', CONTEXT).message
    assert handler.got == []


def test_an_unknown_tool_is_a_failed_result_that_names_the_known_ones() -> None:
    """So that the model can choose again."""
    registry = ToolRegistry([tool(Recorder("x"))])
    call = call_by_name(registry, "nope", '{"x": 1}', CONTEXT)
    assert call.result.success is False
    assert call.text == "There is no tool 'nope'. The tools are: t."
    assert call_by_name(registry, "t", '{"x": 1}', CONTEXT).text == "x"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such file"), "Tool 't' failed: ValueError: no such file"),
        (KeyError("a"), "KeyError: 'a'"),
        (RuntimeError(), "Tool 't' failed: RuntimeError"),
        (UnspeakableError(), "UnspeakableError (it can't say why)"),
        (ValueError("half \ud800"), "half ?"),
        (DataDecodeError("mine", path="p"), "p: mine"),
    ],
)
def test_an_exception_in_a_handler_is_a_failed_result(error: Exception, said: str) -> None:
    """S4-15: for the model to read."""
    call = call_tool(tool(Recorder(error=error)), '{"x": 1}', CONTEXT)
    assert call.result.success is False
    assert said in call.result.message
    assert call.text == call.result.message
    assert call.params == PointDataclass(1)
    assert call.error_type == type(error).__name__


@pytest.mark.parametrize(
    "error",
    [
        DeadlineExceededError(),
        VisibilityExpansionRequired({"a": SectionVisibility.FULL}),
        KeyboardInterrupt(),
        SystemExit(3),
    ],
)
def test_what_has_to_end_the_evaluation_passes(error: BaseException) -> None:
    """S4-15, X27: time is up, sections to be opened, and what is no Exception."""
    with pytest.raises(type(error)) as caught:
        invoke(tool(Recorder(error=error)), '{"x": 1}', CONTEXT)
    assert caught.value is error


@pytest.mark.parametrize(
    ("returned", "result", "text"),
    [
        ("words", ToolResult("words"), "words"),
        (None, ToolResult("Done."), "Done."),
        ({"a": [1]}, ToolResult("", value={"a": [1]}), '{"a":[1]}'),
        (PointDataclass(1), ToolResult("", value=PointDataclass(1)), '{"x":1,"y":0.0}'),
        (0, ToolResult("", value=0), "0"),
        (ToolResult("m", {"a": 1}), ToolResult("m", {"a": 1}), 'm\n\n{"a":1}'),
    ],
)
def test_a_bare_return_value_becomes_a_result(
    returned: object, result: ToolResult[Any], text: str
) -> None:
    """Text is the message, None is done, anything else a value."""
    call = call_tool(tool(Recorder(returned)), '{"x": 1}', CONTEXT)
    assert call.result == result
    assert call.text == text
    assert call.error_type == ""


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (ToolResult("m", value=object()), "value: object is not JSON"),
        (ToolResult("m", value={"a": float("nan")}), "value.a: JSON has no nan"),
        (ToolResult("m", value=b"x", exclude_value_from_context=True), "value: bytes"),
        (ToolResult(5), "message"),  # type: ignore[arg-type]
        (ToolResult("\ud800"), "message: half of a surrogate"),
        ("\ud800", "message: half of a surrogate"),
        (object(), "value: object is not JSON"),
    ],
)
def test_what_cannot_be_encoded_is_a_failed_result_that_says_so(
    returned: object, said: str
) -> None:
    """Also what the model is not shown: the ledger keeps it."""
    call = call_tool(tool(Recorder(returned)), '{"x": 1}', CONTEXT)
    assert call.result.success is False
    assert "its result is not JSON" in call.text
    assert said in call.text
    assert call.value is None


def test_a_handler_may_say_itself_that_it_failed() -> None:
    """X23: with a value, if it has one."""
    call = call_tool(
        tool(Recorder(ToolResult("not found", value=[1], success=False))), '{"x": 1}', CONTEXT
    )
    assert call.result.success is False
    assert (call.error_type, call.error_message, call.value) == ("ToolFailed", "not found", [1])


def test_a_result_is_shown_with_its_value_unless_that_is_excluded() -> None:
    """S4-22: the message, then JSON."""
    point = PointDataclass(1)
    assert render_result(ToolResult("m", point)) == 'm\n\n{"x":1,"y":0.0}'
    assert render_result(ToolResult("m", point, exclude_value_from_context=True)) == "m"
    assert render_result(ToolResult("m")) == "m"
    assert render_result(ToolResult("", "é")) == '"é"'
    with pytest.raises(DataEncodeError, match="value"):
        render_result(ToolResult("m", value=object()))


@given(st.text() | st.none(), st.sampled_from(POINTS))
def test_any_arguments_give_a_result(arguments: str | None, point: Any) -> None:
    """Whatever a model writes."""
    handler = Recorder("x")
    call = call_tool(tool(handler, point), arguments, CONTEXT)
    assert bool(handler.got) == call.result.success
    json.dumps(call.text)
