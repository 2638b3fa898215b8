"""What every provider must do alike when all goes well."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.providers.harness import UnderTest
from tests.servers.serving import Answer, Call, Used, replies
from tests.unit.runtime.evaluations import (
    Sum,
    again,
    events,
    messages,
    on,
    prompt_of,
    tool,
)
from turnledger.ledger import Ledger, ModelReplied, TokenUsage, ToolCallCompleted
from turnledger.runtime import PromptEvaluationError, Session, TextReceived, ToolInvoked

ADD = Call("add", '{"n": 2}')


def _accepted(provider: UnderTest) -> None:
    assert [str(refused) for refused in provider.server.refused] == []


def test_a_model_answers(provider: UnderTest) -> None:
    """The text is the answer, as it was said; streamed, it was told in pieces first."""
    session, heard = Session(), list[TextReceived]()
    session.bus.subscribe(TextReceived, heard.append)
    provider.tells(replies(Answer("It is four, über alles. 🎩")))
    answer = provider.adapter().evaluate(prompt_of(), session=session)
    assert answer.text == "It is four, über alles. 🎩"
    assert answer.provider_payload
    _accepted(provider)
    if provider.stream:
        assert len(heard) > 1
        assert "".join(piece.text for piece in heard) == answer.text
    else:
        assert heard == []


def test_usage_is_recorded_per_call(provider: UnderTest) -> None:
    """Input with what was cached, output with what was reasoned, and the model that it was."""
    session = Session()
    used = Used(input=1200, output=340, cached=1000, reasoning=128)
    provider.tells(replies(Answer(calls=(ADD,), used=used), Answer("4", used=used, thinking="Hm.")))
    provider.adapter().evaluate(prompt_of(tool()), session=session)
    replied = events(session, ModelReplied)
    for one in replied:
        assert one.usage.input_tokens == 1200
        assert one.usage.output_tokens == 340
        assert one.usage.cached_tokens == 1000
        assert one.usage.reasoning_tokens == 128
        assert "test" in one.model
    total = session.journal.state.usage.total
    assert (total.input_tokens, total.output_tokens) == (2400, 680)


def test_tools_run_and_their_results_go_back(provider: UnderTest) -> None:
    """Two at once and one more: each result is sent under its own call."""
    session, invoked = Session(), list[ToolInvoked]()
    session.bus.subscribe(ToolInvoked, invoked.append)
    provider.tells(
        replies(
            Answer("Let me see.", calls=(ADD, Call("add", '{"n": 3}'))),
            Answer(calls=(Call("add", '{"n": 5}'),)),
            Answer("Ten."),
        )
    )
    answer = provider.adapter().evaluate(prompt_of(tool()), session=session)
    assert answer.text == "Ten."
    assert [one.params.n for one in invoked] == [2, 3, 5]
    assert [one.total for one in session[Sum].all()] == [2, 3, 5]
    assert len({one.call_id for one in invoked}) == 3
    _accepted(provider)
    assert len(provider.server.asked) == 3


def test_a_model_that_thinks_is_given_its_thoughts_back(provider: UnderTest) -> None:
    """Where the format has them, unchanged (the server checks signatures); elsewhere not at all."""
    provider.tells(
        replies(
            Answer(calls=(ADD,), thinking="Two first."),
            Answer("And on.", calls=(ADD, ADD), thinking="Then twice."),
            Answer("Six.", thinking="Done."),
        )
    )
    with Ledger.open("memory://") as ledger:
        session = on(ledger)
        answer = provider.adapter().evaluate(prompt_of(tool()), session=session)
        assert "Two first." not in "".join(said.content for said in messages(session))
        kept = [one.provider_data is not None for one in events(session, ModelReplied)]
        assert kept[:2] == [provider.provider.thinks] * 2
    assert answer.text == "Six."
    _accepted(provider)


def test_a_forced_tool_is_forced_once(provider: UnderTest) -> None:
    """S4-9: the first request names the tool, later ones leave the choice to the model."""
    provider.tells(replies(Answer(calls=(ADD,)), Answer("Two.")))
    choice = {"type": "function", "function": {"name": "add"}}
    answer = provider.adapter(tool_choice=choice).evaluate(prompt_of(tool()), session=Session())
    assert answer.text == "Two."
    first, second = (str(body) for body in provider.server.bodies)
    forced = ("'name': 'add'}", "allowedFunctionNames")
    assert any(mark in _choice_in(first) for mark in forced)
    assert not any(mark in _choice_in(second) for mark in forced)
    _accepted(provider)


def _choice_in(body: str) -> str:
    """The part of a request about the choice of tools, under whatever name."""
    for name in ("'tool_choice': ", "'toolConfig': "):
        if name in body:
            return body.split(name, 1)[1][:120]
    return ""


@pytest.mark.parametrize("choice", ["none", "required"])
def test_every_word_for_a_choice_is_understood(provider: UnderTest, choice: str) -> None:
    """In the provider's own words; the server would refuse a wrong one."""
    provider.tells(replies(Answer("Two.")))
    answer = provider.adapter(tool_choice=choice).evaluate(prompt_of(tool()), session=Session())
    assert answer.text == "Two."
    _accepted(provider)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("array", [True, False])
@pytest.mark.parametrize("with_tools", [True, False])
def test_output_is_parsed(provider: UnderTest, native: bool, array: bool, with_tools: bool) -> None:
    """Enforced by the provider or asked for in the prompt, an object or a list of them."""
    text = '{"items": [{"total": 4}]}' if native and array else '{"total": 4}'
    if array and not native:
        text = '[{"total": 4}]'
    provider.tells(replies(Answer(text)))
    prompt = prompt_of(*([tool()] if with_tools else []), output=list[Sum] if array else Sum)
    adapter = provider.adapter(use_native_response_format=native)
    answer = adapter.evaluate(prompt, session=Session())
    assert answer.output == ([Sum(4)] if array else Sum(4))
    assert answer.text is None
    _accepted(provider)


def test_the_first_choice_is_the_answer(provider: UnderTest) -> None:
    """S4-7: where a provider sends several, the others are not looked at."""
    provider.tells(replies(Answer("First.", others=("Second.", "Third."))))
    assert provider.adapter().evaluate(prompt_of(), session=Session()).text == "First."


def test_a_refusal_is_told_as_one(provider: UnderTest) -> None:
    """Never as an output that parses, and never as an empty success."""
    session = Session()
    provider.tells(replies(Answer(refusal="I can't help with that.")))
    with pytest.raises(PromptEvaluationError) as caught:
        provider.adapter().evaluate(prompt_of(output=Sum), session=session)
    assert caught.value.phase == "response"
    recorded = events(session, ModelReplied)
    assert not recorded or recorded[0].finish_reason.lower() in ("refusal", "safety")


def test_parallel_calls_run_side_by_side(provider: UnderTest) -> None:
    """With parallel_tools, and the results go back in the order of the calls."""
    provider.tells(replies(Answer(calls=(ADD, Call("add", '{"n": 3}'))), Answer("Five.")))
    session = Session()
    answer = provider.adapter(parallel_tools=2).evaluate(prompt_of(tool()), session=session)
    assert answer.text == "Five."
    assert sorted(one.value for one in events(session, ToolCallCompleted)) == [2, 3]
    _accepted(provider)


def test_options_go_into_every_request(provider: UnderTest) -> None:
    """In the provider's own words, and an option that it does not know is refused at once."""
    known: dict[str, Any] = {
        "gemini": {"generationConfig": {"temperature": 0.5}},
        "anthropic": {"stop_sequences": ["END"]},
    }.get(provider.provider.name, {"temperature": 0.5})
    provider.tells(replies(Answer("Two.")))
    adapter = provider.adapter(request_options=known)
    assert adapter.evaluate(prompt_of(), session=Session()).text == "Two."
    (body,) = provider.server.bodies
    name, value = next(iter(known.items()))
    assert (
        body[name] == value if not isinstance(value, dict) else value.items() <= body[name].items()
    )


def test_a_session_in_another_process_goes_on(provider: UnderTest) -> None:
    """The provider keeps nothing: what is on disk is enough for the next request."""
    with Ledger.open("memory://") as ledger:
        session = on(ledger)
        provider.tells(replies(Answer(calls=(ADD,), thinking="Hm."), Answer("Four.")))

        prompt = prompt_of(tool())
        interrupted = provider.adapter()
        interrupted.send = _once(interrupted.send)  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            interrupted.evaluate(prompt, session=session)
        answer = provider.adapter().evaluate(prompt, session=again(session), resume=True)
        assert answer.text == "Four."
        _accepted(provider)


def _once(send: Any) -> Any:
    """Sends once; the second time the process is told to stop."""
    sent: list[Any] = []

    def sending(payload: Any, how: Any) -> Any:
        if sent:
            raise KeyboardInterrupt
        sent.append(payload)
        return send(payload, how)

    return sending


def test_no_usage_told_is_none_recorded(provider: UnderTest) -> None:
    """Zero, and no error: some servers tell nothing."""
    session = Session()
    provider.tells(replies(Answer("ok", used=Used(0, 0, 0, 0))))
    provider.adapter().evaluate(prompt_of(), session=session)
    (replied,) = events(session, ModelReplied)
    assert replied.usage == TokenUsage()
