"""Structured answers: what is asked for, how a reply is read, and where it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agent import calls, says
from tests.unit.runtime.evaluations import (
    ADD,
    Scripted,
    Sum,
    again,
    events,
    messages,
    on,
    prompt_of,
    tool,
)
from turnledger.ledger import EvaluationFinished, Ledger, ToolMessageAmended
from turnledger.projections import ToolResultBlock
from turnledger.runtime import PromptEvaluationError, Session


def test_the_text_is_parsed_where_the_provider_parsed_nothing() -> None:
    """S4-11: and a parsed output nulls the text."""
    adapter = Scripted([says('{"total": 4}')])
    response = adapter.evaluate(prompt_of(output=Sum), session=Session())
    assert (response.output, response.text) == (Sum(4), None)


def test_what_the_provider_parsed_comes_first() -> None:
    """S4-11: whatever the text says; empty text is fine then."""
    for text in ('{"total": 4}', "", None):
        adapter = Scripted([says(text, parsed={"total": 7})])
        response = adapter.evaluate(prompt_of(output=Sum), session=Session())
        assert (response.output, response.text) == (Sum(7), None)


def test_without_parsing_the_text_is_returned_as_it_is() -> None:
    """S4-11: parse_output=False, also where it could be parsed."""
    adapter = Scripted([says(' {"total": 4}\n', parsed={"total": 7})])
    response = adapter.evaluate(prompt_of(output=Sum), session=Session(), parse_output=False)
    assert (response.output, response.text) == (None, ' {"total": 4}\n')


def test_an_array_is_parsed_in_both_ways() -> None:
    """S4-18: an array travels within an object where a provider enforces the schema."""
    for reply in (says('[{"total": 1}]'), says("", parsed={"items": [{"total": 1}]})):
        response = Scripted([reply]).evaluate(prompt_of(output=list[Sum]), session=Session())
        assert response.output == [Sum(1)]


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"total": "many"}', '{"total": 1, "x": 2}'])
def test_a_reply_that_is_not_what_was_asked_for_fails_in_the_response(text: str) -> None:
    """S4-3: and the reply is on record; read as text, it can still be had."""
    session, prompt = Session(), prompt_of(output=Sum)
    with pytest.raises(PromptEvaluationError, match="that was asked for") as caught:
        Scripted([says(text)]).evaluate(prompt, session=session)
    assert caught.value.phase == "response"
    assert messages(session)[-1].content == text
    found = Scripted([]).evaluate(prompt, session=session, resume=True, parse_output=False)
    assert found.text == text


@pytest.mark.parametrize(
    ("structured", "native", "parse", "asked"),
    [
        (True, True, True, True),
        (True, False, True, False),
        (False, True, True, False),
        (True, True, False, False),
    ],
)
def test_a_response_format_goes_out_only_where_it_is_wanted_and_native(
    structured: bool, native: bool, parse: bool, asked: bool
) -> None:
    """S4-18: and inline instructions are off exactly then."""
    prompt = prompt_of(output=Sum if structured else None)
    adapter = Scripted([says('{"total": 4}')], use_native_response_format=native)
    adapter.evaluate(prompt, session=Session(), parse_output=parse)
    (request,) = adapter.requests
    assert (request.response_format is not None) == asked
    assert ("total" in request.system) == (structured and not asked)
    if request.response_format is not None:
        schema = request.response_format["json_schema"]["schema"]
        assert schema["properties"]["total"]["type"] == "integer"
        assert schema["additionalProperties"] is False


def test_the_last_successful_tool_message_carries_the_parsed_output(tmp_path: Path) -> None:
    """S4-17, X21: by an amending event, once."""

    def fail(params: Any, *, context: Any) -> str:
        raise LookupError("no")

    with Ledger.open(str(tmp_path / "l.db")) as ledger:
        session = on(ledger)
        prompt = prompt_of(tool(), tool(fail, "fail"), output=Sum)
        script = [ADD, calls(("c2", "add", '{"n": 3}'), ("c3", "fail")), says('{"total":5}')]
        Scripted(script).evaluate(prompt, session=session)
        (amended,) = events(session, ToolMessageAmended)
        by_call = {said.tool_call_id: said for said in messages(session)}
        assert amended.message_id == by_call["c2"].message_id
        assert amended.content == 'Added 3.\n\n3\n\n{"total":5}'
        sent = session.state.conversation.history().for_send()
        results = [one for turn in sent for one in turn.blocks if isinstance(one, ToolResultBlock)]
        assert [one.content for one in results if one.call_id == "c2"] == [amended.content]
        other = again(session)
        assert Scripted([]).evaluate(prompt, session=other, resume=True).output == Sum(5)
        assert len(events(session, ToolMessageAmended, EvaluationFinished)) == 2


def test_without_a_tool_that_succeeded_nothing_is_amended() -> None:
    """S4-17: there is nothing to carry it."""
    session = Session()
    Scripted([says('{"total": 4}')]).evaluate(prompt_of(output=Sum), session=session)
    assert events(session, ToolMessageAmended) == []
    assert events(session, EvaluationFinished)[0].output == {"total": 4}


def test_a_parsed_answer_survives_a_restart() -> None:
    """S0-17: what the provider parsed is on record with its reply."""
    session, prompt = Session(), prompt_of(output=Sum)
    Scripted([says("", parsed={"total": 7})]).evaluate(prompt, session=session)
    response = Scripted([]).evaluate(prompt, session=again(session), resume=True)
    assert response.output == Sum(7)
