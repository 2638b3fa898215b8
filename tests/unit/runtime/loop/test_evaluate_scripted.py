"""The scripted provider: it refuses what the strictest provider refuses, and keeps no state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent import calls, says
from tests.unit.runtime.evaluations import Scripted, again, prompt_of, tool
from turnledger.ledger import TokenUsage
from turnledger.projections import ChatTurn, TextBlock, ToolResultBlock, ToolUseBlock
from turnledger.runtime import (
    PromptEvaluationError,
    Reply,
    ScriptedAdapter,
    ScriptError,
    Session,
    ToolCall,
)
from turnledger.runtime.loop.scripted import malformed


def user(*blocks: Any) -> ChatTurn:
    return ChatTurn("user", blocks)


def assistant(*blocks: Any) -> ChatTurn:
    return ChatTurn("assistant", blocks)


HI = TextBlock("Hi")


def use(call_id: str) -> ToolUseBlock:
    return ToolUseBlock(call_id, "add", "{}")


def result(call_id: str) -> ToolResultBlock:
    return ToolResultBlock(call_id, "ok")


@pytest.mark.parametrize(
    ("turns", "why"),
    [
        ([], "it is empty"),
        ([assistant(HI)], "does not begin with the user"),
        ([user(HI), user(HI)], "turn 2 has the role of the one before it"),
        ([user(HI), assistant(HI), assistant(HI)], "turn 3 has the role"),
        ([user(HI), assistant()], "turn 2 is empty"),
        ([user(HI), assistant(use("a"))], r"calls \['a'\] have no results"),
        ([user(HI), assistant(use("a")), user(HI)], r"answers \[\], and asked for were \['a'\]"),
        ([user(result("a"))], r"answers \['a'\], and asked for were \[\]"),
        ([user(HI), assistant(use("a")), user(result("b"))], r"answers \['b'\]"),
        ([user(HI), assistant(use("a")), user(result("a"), result("a"))], r"answers \['a', 'a'\]"),
        ([user(HI), assistant(use("a")), user(HI, result("a"))], "results that do not come first"),
        ([user(HI), assistant(use("a"), use("a")), user(result("a"))], "uses a call id twice"),
        ([user(HI, use("a"))], "is the user's and calls tools"),
    ],
)
def test_a_conversation_that_a_provider_would_refuse_is_refused(
    turns: list[ChatTurn], why: str
) -> None:
    """It says which turn, and why."""
    import re

    assert re.search(why, malformed(turns))


@pytest.mark.parametrize(
    "turns",
    [
        [user(HI)],
        [user(HI), assistant(HI), user(HI)],
        [user(HI), assistant(HI, use("a"), use("b")), user(result("b"), result("a"), HI)],
        [user(HI), assistant(use("a")), user(result("a")), assistant(use("a")), user(result("a"))],
    ],
)
def test_a_conversation_that_providers_take_is_taken(turns: list[ChatTurn]) -> None:
    """Also with results in another order, words after them, and an id that is used again."""
    assert malformed(turns) == ""


def test_reply_k_answers_turn_k_in_whatever_instance() -> None:
    """It has no state: another one goes on where the first stopped."""
    script = [calls(("a", "add")), calls(("b", "add")), says("end")]
    session = Session()
    for _ in range(3):
        with pytest.raises(PromptEvaluationError, match="script has"):
            Scripted(script[:1]).evaluate(prompt_of(tool()), session=session)
        adapter = Scripted(script)
        answer = adapter.evaluate(prompt_of(tool()), session=again(session), resume=True)
        assert answer.text == "end"
        assert [request.turn for request in adapter.requests] == [2, 3]
        session = Session()


def test_one_instance_serves_any_number_of_conversations() -> None:
    """From the first reply each time."""
    adapter: ScriptedAdapter[Any] = ScriptedAdapter([calls(("a", "add")), says("end")])
    for _ in range(3):
        assert adapter.evaluate(prompt_of(tool()), session=Session()).text == "end"


def test_a_function_of_the_request_may_reply() -> None:
    """What it raises is a call that failed."""

    def reply(request: Any) -> Reply:
        if request.turn == 1:
            return calls(("a", "add"))
        raise OSError(f"nothing for turn {request.turn}")

    adapter: ScriptedAdapter[Any] = ScriptedAdapter(reply)
    with pytest.raises(PromptEvaluationError, match="nothing for turn 2"):
        adapter.evaluate(prompt_of(tool()), session=Session())


def test_what_is_no_reply_is_refused() -> None:
    """By its type."""
    adapter: ScriptedAdapter[Any] = ScriptedAdapter([])
    with pytest.raises(ScriptError, match="reply dict: expected a Reply"):
        adapter.decode({"text": "ok"})


def test_the_issues_spelling_of_a_script_runs() -> None:
    """S4-9, S4-13: text, calls with arguments as text or as data, usage."""
    usage = TokenUsage(input_tokens=1, output_tokens=2)
    script = [
        Reply(text="One.", tool_calls=(ToolCall("c1", "add", '{"n": 1}'),), usage=usage),
        Reply(tool_calls=(ToolCall("c2", "add", {"n": 2}),), usage=usage),  # type: ignore[arg-type]
        Reply(text="done", usage=usage),
    ]
    session = Session()
    response = ScriptedAdapter[Any](script).evaluate(prompt_of(tool()), session=session)
    assert [event.result.value for event in response.tool_results] == [1, 2]
    assert session.state.usage.total.output_tokens == 6
