"""`@tool`: a tool from a function's signature and docstring, called as a function or by a model."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Event as Flag
from threading import Thread, current_thread
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from turnledger.ledger import InvalidInputError
from turnledger.runtime.agent.tool_context import ToolContext
from turnledger.runtime.agent.tools import async_calls
from turnledger.runtime.agent.tools.async_calls import on_loop, result_of
from turnledger.runtime.agent.tools.call import call_tool
from turnledger.runtime.agent.tools.docstrings import parse_docstring
from turnledger.runtime.agent.tools.function_tool import FunctionTool, tool
from turnledger.runtime.agent.tools.tool import Tool, ToolResult
from turnledger.runtime.errors import ToolDefinitionError

WHO: ContextVar[str] = ContextVar("who", default="")


@dataclass
class Place:
    city: str
    zip_code: str = ""


class Item(BaseModel):
    name: str
    price: Annotated[float, Field(ge=0)]


@tool
def weather(city: str, days: Annotated[int, Field(ge=1, le=7)] = 1) -> str:
    """Tell the weather.

    It is a forecast.

    Args:
        city: Where, as a name
            that people use.
        days: For how many days.

    Returns:
        A sentence.
    """
    return f"{city}: sun for {days} days"


@tool
def units(unit: Literal["m", "cm", "ft"], other: Literal["z", "a"] | None = None) -> str:
    """Choose."""
    return f"{unit} {other}"


@tool(name="buy", on_interrupt="ask", timeout=5, description="Buy things.")
def purchase(items: list[Item], to: Place, note: str = "") -> ToolResult[int]:
    """This text is not used."""
    return ToolResult(f"To {to.city}: {items[0].name}{note}", value=len(items))


@tool
def here(*, context: ToolContext) -> dict[str, str]:
    """Say which call it is."""
    return {"call": context.call_id}


@tool
async def later(text: str, context: ToolContext) -> str:
    """Answer later."""
    await asyncio.sleep(0)
    return f"{text} {context.call_id} {WHO.get()} {current_thread().name}"


def told(made: Tool[Any, Any], arguments: str) -> str:
    return call_tool(made, arguments, ToolContext(call_id="c1")).text


def test_a_tool_is_still_its_function() -> None:
    """Tests call it as it was written; a prompt takes it as a Tool."""
    assert weather("Oslo", days=2) == "Oslo: sun for 2 days"
    assert isinstance(weather, Tool)
    assert weather.__name__ == weather.name == "weather"
    assert asyncio.run(later("x", ToolContext(call_id="c9"))).startswith("x c9")


def test_name_description_and_policy_can_be_given() -> None:
    """What is not given comes from the function."""
    assert (purchase.name, purchase.description) == ("buy", "Buy things.")
    assert (purchase.on_interrupt, purchase.timeout) == ("ask", 5)
    assert (weather.on_interrupt, weather.timeout) == ("retry", None)
    assert weather.description == "Tell the weather.\n\nIt is a forecast."


def test_the_schema_is_that_of_the_signature() -> None:
    """With texts of the docstring, limits of Field, defaults, and no room for more."""
    assert weather.parameters == {
        "type": "object",
        "title": "weather",
        "additionalProperties": False,
        "properties": {
            "city": {"type": "string", "description": "Where, as a name that people use."},
            "days": {
                "type": "integer",
                "description": "For how many days.",
                "minimum": 1,
                "maximum": 7,
                "default": 1,
            },
        },
        "required": ["city"],
    }
    assert here.parameters["properties"] == {}


def test_literals_keep_the_order_in_which_they_are_written() -> None:
    """Also within a union with None."""
    found = units.parameters["properties"]
    assert found["unit"]["enum"] == ["m", "cm", "ft"]
    assert found["other"]["anyOf"][0]["enum"] == ["z", "a"]


def test_a_model_calls_it_with_json() -> None:
    """Values have their types; what does not fit is refused by field, and nothing is called."""
    assert told(weather, '{"city": "Oslo"}') == "Oslo: sun for 1 days"
    bought = '{"items": [{"name": "tea", "price": 1.5}], "to": {"city": "Bonn"}}'
    assert told(purchase, bought) == "To Bonn: tea\n\n1"
    assert told(here, "") == '{"call":"c1"}'
    assert "days: Input should be less than or equal to 7" in told(
        weather, '{"city": "Oslo", "days": 8}'
    )
    assert "city" in told(weather, '{"days": 1}')
    assert "town" in told(weather, '{"city": "Oslo", "town": "Bergen"}')


def test_parameters_may_have_the_names_of_a_models_methods() -> None:
    """And be positional only."""

    @tool
    def odd(json: str, copy: int, model_x: bool = True, /) -> str:
        """Odd."""
        return f"{json} {copy} {model_x}"

    assert told(odd, '{"json": "a", "copy": 2}') == "a 2 True"


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("Do it.\n\nArgs:\n  a (int): One.\n  b: Two,\n    and more.\n\nRaises:\n  x: y", "google"),
        (
            "Do it.\n\nParameters\n----------\na : int\n    One.\nb\n    Two,\n    and more.",
            "numpy",
        ),
        ("Do it.\n\n:param int a: One.\n:param b: Two,\n  and more.\n:raises X: never", "rest"),
    ],
)
def test_docstrings_of_three_styles_are_read(text: str, parameters: str) -> None:
    """The description is what stands before the first section."""
    found = parse_docstring(text)
    assert found.description == "Do it.", parameters
    assert found.parameters == {"a": "One.", "b": "Two, and more."}


def test_text_that_looks_a_little_like_a_section_is_description() -> None:
    """A colon, a rule or a word alone makes none."""
    text = "Note: args are odd.\n\nSee\n---\nargs: none"
    assert parse_docstring(text).description == text
    assert parse_docstring(None) == ("", {})


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: tool(lambda a: a), "no description"),
        (lambda: tool(description="x")(lambda a: a), "Invalid tool name|has no annotation"),
        (lambda: tool(5), "takes a function"),
        (lambda: tool(Place), "takes a function"),
        (lambda: tool(weather), "takes a function"),
        (lambda: tool(_many), "takes any arguments"),
        (lambda: tool(_generator), "generator"),
        (lambda: tool(_unknown), "can't be read"),
        (lambda: tool(_object), "its parameters"),
        (lambda: tool(on_interrupt="never")(_plain), "on_interrupt"),
    ],
)
def test_what_a_model_could_not_call_is_refused(make: Any, why: str) -> None:
    """With the tool's name and what to do."""
    with pytest.raises(ToolDefinitionError, match=why):
        make()


def _many(*args: str) -> None:
    """Many."""


def _generator(a: str) -> Any:
    """Generate."""
    yield a


def _unknown(a: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Unknown."""


def _object(a: Flag) -> None:
    """An object that JSON can't be."""


def _plain(a: str) -> None:
    """Plain."""


def test_an_async_tool_runs_on_the_callers_loop() -> None:
    """In its thread, with the context variables of the thread that waits."""

    async def run() -> str:
        loop = asyncio.get_running_loop()

        def work() -> str:
            WHO.set("the caller")
            with on_loop(loop):
                return told(later, '{"text": "hi"}')

        return await asyncio.to_thread(work)

    assert asyncio.run(run()) == f"hi c1 the caller {current_thread().name}"


def test_without_a_loop_an_async_tool_runs_in_the_background() -> None:
    """In a thread of the process, which all such tools share."""
    assert told(later, '{"text": "hi"}').endswith("turnledger-async-tools")
    assert async_calls._background_loop() is async_calls._background_loop()


def test_an_async_tool_that_fails_is_a_failed_result() -> None:
    """A task that is cancelled is an interrupt: the call is in doubt, not failed."""

    @tool
    async def fails(cancelled: bool) -> None:
        """Fail."""
        raise asyncio.CancelledError if cancelled else ValueError("no luck")

    assert "no luck" in told(fails, '{"cancelled": false}')
    with pytest.raises(asyncio.CancelledError):
        told(fails, '{"cancelled": true}')


def test_an_interrupt_of_the_waiting_thread_cancels_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing goes on after Ctrl-C was told to the caller."""
    began, ended = Flag(), Flag()

    async def work() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    class Interrupted(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            assert began.wait(60)
            raise KeyboardInterrupt

    monkeypatch.setattr(async_calls, "Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        result_of(work())
    assert ended.wait(60)


def test_a_loop_that_would_wait_for_itself_is_refused() -> None:
    """A deadlock otherwise."""

    async def run() -> None:
        with on_loop(asyncio.get_running_loop()):
            result_of(later("x", ToolContext()))

    with pytest.raises(InvalidInputError, match="wait for itself"):
        asyncio.run(run())


def test_many_threads_may_run_async_tools_at_once() -> None:
    """Each gets its own result."""
    found: dict[int, str] = {}

    def work(number: int) -> None:
        found[number] = told(later, f'{{"text": "{number}"}}')

    threads = [Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [found[number].split()[0] for number in range(8)] == [str(n) for n in range(8)]


def test_the_type_of_a_tool_is_known_by_its_class() -> None:
    """Integrations tell a function from a Tool with a handler of its own."""
    assert isinstance(weather, FunctionTool)
    assert (weather.is_async, later.is_async) == (False, True)
