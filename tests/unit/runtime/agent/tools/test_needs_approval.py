"""`needs_approval`: True, False or a function of the arguments, checked when a tool is defined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from turnledger import tool
from turnledger.runtime import Tool, ToolContext
from turnledger.runtime.errors import ToolDefinitionError


@dataclass(frozen=True)
class Refund:
    euros: int


def refund(params: Refund, *, context: ToolContext) -> str:
    return "refunded"


def reset(*, context: ToolContext) -> str:
    return "reset"


def is_large(params: Refund) -> bool:
    return params.euros > 10


def made(needs_approval: Any, handler: Any = refund, **options: Any) -> Tool[Any, Any]:
    return Tool(
        name="refund",
        description="Refund.",
        handler=handler,
        needs_approval=needs_approval,
        params_type=Refund if handler is refund else None,
        **options,
    )


def test_a_tool_says_of_its_parameters_whether_they_need_approval() -> None:
    """A function gets the decoded parameters, or nothing if the tool takes none."""
    assert made(True).asks_approval(Refund(1)) is True
    assert made(False).asks_approval(Refund(1)) is False
    large = made(is_large)
    assert [large.asks_approval(Refund(euros)) for euros in (5, 50)] == [False, True]
    assert made(lambda: 1, reset).asks_approval(None) is True


def test_a_tool_made_of_a_function_gives_its_own_arguments() -> None:
    """By keyword, defaults included, and without the context."""
    seen: list[tuple[int, str]] = []

    def large(euros: int, reason: str) -> bool:
        seen.append((euros, reason))
        return euros > 10

    @tool(needs_approval=large)
    def credit(euros: int, context: ToolContext, reason: str = "none") -> str:
        """Credit an amount."""
        return "credited"

    assert credit.params_type is not None
    assert credit.asks_approval(credit.params_type(euros=50)) is True
    assert credit.asks_approval(credit.params_type(euros=5, reason="x")) is False
    assert seen == [(50, "none"), (5, "x")]
    assert credit.on_interrupt == "ask"


def test_such_a_tool_asks_when_interrupted_unless_it_says_otherwise() -> None:
    """Others are run again, as ever."""
    assert [made(needed).on_interrupt for needed in (True, is_large, False)] == [
        "ask",
        "ask",
        "retry",
    ]
    assert made(True, on_interrupt="retry").on_interrupt == "retry"
    assert made(False, on_interrupt="fail").on_interrupt == "fail"


async def later(params: Refund) -> bool:
    return False


@pytest.mark.parametrize("wrong", ["yes", None, 1, later])
def test_what_can_not_be_asked_is_refused(wrong: Any) -> None:
    """A coroutine would always be true."""
    with pytest.raises(ToolDefinitionError, match="Tool 'refund': invalid needs_approval"):
        made(wrong)


def test_a_function_with_another_signature_is_refused() -> None:
    """When the tool is defined, and not when a call comes; the error says what it has to take."""
    with pytest.raises(ToolDefinitionError, match="expected a function of the parameters"):
        made(lambda: True)
    with pytest.raises(ToolDefinitionError, match="expected a function without parameters"):
        made(lambda params: True, reset)
    with pytest.raises(ToolDefinitionError, match="takes euros, reason by keyword"):

        @tool(needs_approval=lambda euros: True)
        def credit(euros: int, reason: str = "") -> str:
            """Credit an amount."""
            return "credited"
