"""What every provider must do alike when something goes wrong."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import pytest

from tests.conformance.providers.harness import UnderTest
from tests.servers.serving import (
    Answer,
    Call,
    CutBody,
    HalfStream,
    Hang,
    Raw,
    Scripted,
    Status,
    replies,
)
from tests.unit.runtime.evaluations import events, messages, prompt_of, tool
from turnledger.ledger import MessageAppended, ModelCalled, ModelCallFailed, ToolCallFailed
from turnledger.runtime import Deadline, PromptEvaluationError, Session, ThrottlePolicy

WHOLE = Answer("The whole answer, all of it, to the end.")
ADD = Call("add", '{"n": 2}')


def _first(fault: Scripted, then: Answer = WHOLE) -> Any:
    """A fault to the first request, and an answer to the next."""
    return lambda asked: fault if asked.attempt == 1 else then


def _failed(session: Session) -> list[tuple[bool, int | None]]:
    return [(one.retryable, one.status) for one in events(session, ModelCallFailed)]


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 529])
def test_what_may_pass_is_tried_again(provider: UnderTest, code: int) -> None:
    """The failure is recorded with its status, and the answer once."""
    session = Session()
    provider.tells(_first(Status(code)))
    answer = provider.adapter().evaluate(prompt_of(), session=session)
    assert answer.text == WHOLE.text
    assert _failed(session) == [(True, code)]
    assert [one.attempt for one in events(session, ModelCalled)] == [1, 2]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 413, 422])
def test_what_would_fail_again_fails_at_once(provider: UnderTest, code: int) -> None:
    """One request, and an error of the request that says what the provider said."""
    session = Session()
    provider.tells(lambda asked: Status(code, "no such thing here"))
    with pytest.raises(PromptEvaluationError, match="no such thing here") as caught:
        provider.adapter().evaluate(prompt_of(), session=session)
    assert caught.value.phase == "request"
    assert len(provider.server.asked) == 1
    assert _failed(session) == [(False, code)]


def test_a_quota_that_is_used_up_is_not_waited_for(provider: UnderTest) -> None:
    """Whichever provider, or gateway in front of it, says so."""
    kind = "insufficient_quota"
    provider.tells(lambda asked: Status(429, "You exceeded your current quota", kind=kind))
    with pytest.raises(PromptEvaluationError):
        provider.adapter().evaluate(prompt_of(), session=Session())
    assert len(provider.server.asked) == 1


def test_a_wait_that_the_provider_asks_for_is_kept_to(provider: UnderTest) -> None:
    """Longer than the policy allows is not waited at all: the error comes at once."""
    session = Session()
    provider.tells(lambda asked: Status(429, headers={"retry-after": "3600"}))
    policy = ThrottlePolicy(max_total_delay=timedelta(seconds=30))
    with pytest.raises(PromptEvaluationError):
        provider.adapter(throttle=policy).evaluate(prompt_of(), session=session)
    assert len(provider.server.asked) == 1
    assert _failed(session) == [(True, 429)]


def test_a_provider_that_is_not_there_is_tried_again(provider: UnderTest) -> None:
    """As often as the policy says; then the error is the request's, and the run resumable."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        session, adapter = Session(), provider.provider.adapter(url, stream=provider.stream)
        with adapter, pytest.raises(PromptEvaluationError) as caught:
            adapter.evaluate(prompt_of(), session=session)
    assert caught.value.phase == "request"
    assert [retryable for retryable, _ in _failed(session)] == [True] * 3
    provider.tells(replies(WHOLE))
    again = provider.adapter().evaluate(prompt_of(), session=session, resume=True)
    assert again.text == WHOLE.text


def test_a_provider_that_hangs_can_not_hold_a_run_beyond_its_deadline(
    provider: UnderTest,
) -> None:
    """The request is given up when time is up, and the error says why."""
    session = Session()
    provider.tells(lambda asked: Hang())
    with pytest.raises(PromptEvaluationError) as caught:
        provider.adapter().evaluate(
            prompt_of(), session=session, deadline=Deadline.after(timedelta(seconds=0.5))
        )
    assert caught.value.provider_payload is not None
    assert "deadline_expires_at" in caught.value.provider_payload
    assert all(retryable for retryable, _ in _failed(session))


def test_an_answer_that_is_cut_off_is_no_answer(provider: UnderTest) -> None:
    """It is asked for again; nothing of the first half is recorded."""
    session = Session()
    provider.tells(_first(CutBody(WHOLE)))
    answer = provider.adapter().evaluate(prompt_of(), session=session)
    assert answer.text == WHOLE.text
    assert [retryable for retryable, _ in _failed(session)] == [True]
    said = [one.message.content for one in events(session, MessageAppended)]
    assert said.count(WHOLE.text or "") == 1
    assert len(said) == 2


def test_a_stream_that_ends_early_is_no_answer(provider: UnderTest) -> None:
    """In good order, after each number of its events: only the whole stream is an answer."""
    if not provider.stream:
        provider.tells(replies(WHOLE))
        assert provider.adapter().evaluate(prompt_of(), session=Session()).text == WHOLE.text
        return
    provider.tells(replies(WHOLE))
    provider.adapter().evaluate(prompt_of(), session=Session())
    count = len(provider.server.wire.stream(provider.server.asked[-1], WHOLE))
    for events_sent in range(1, count - 2):
        session = Session()
        half = HalfStream(WHOLE, events_sent)
        provider.server._attempts.clear()
        provider.tells(_first(half))
        answer = provider.adapter().evaluate(prompt_of(), session=session)
        assert answer.text == WHOLE.text
        said = [one.content for one in messages(session) if one.role == "assistant"]
        assert said == [WHOLE.text]


def test_an_empty_answer_is_an_error(provider: UnderTest) -> None:
    """Not an empty text that looks like one."""
    provider.tells(replies(Answer()))
    with pytest.raises(PromptEvaluationError) as caught:
        provider.adapter().evaluate(prompt_of(), session=Session())
    assert caught.value.phase == "response"


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b'{"choices": []}', b"not JSON"])
def test_an_answer_that_is_none_is_a_typed_error(provider: UnderTest, body: bytes) -> None:
    """Whatever a proxy in between may send; nothing is recorded as said."""
    session = Session()
    provider.tells(lambda asked: Raw(body))
    with pytest.raises(PromptEvaluationError):
        provider.adapter().evaluate(prompt_of(), session=session)
    assert [one.role for one in messages(session)] == ["system"]


def test_a_tool_that_is_not_there_is_told_to_the_model(provider: UnderTest) -> None:
    """As a failed result; the next request has the call and its result."""
    session = Session()
    provider.tells(replies(Answer(calls=(Call("subtract", "{}"), ADD)), Answer("Two.")))
    answer = provider.adapter().evaluate(prompt_of(tool()), session=session)
    assert answer.text == "Two."
    assert [one.name for one in events(session, ToolCallFailed)] == ["subtract"]
    assert provider.server.refused == []


def test_arguments_that_are_none_are_told_to_the_model(provider: UnderTest) -> None:
    """Wrong types, and (where a format carries text) no JSON at all."""
    session = Session()
    provider.tells(
        replies(Answer(calls=(Call("add", '{"n": "x"}'), Call("add", "{not JSON"))), Answer("Two."))
    )
    answer = provider.adapter().evaluate(prompt_of(tool()), session=session)
    assert answer.text == "Two."
    assert events(session, ToolCallFailed)
    assert provider.server.refused == []


def test_a_call_id_that_comes_again_is_another_call(provider: UnderTest) -> None:
    """In a later reply; each call has its result, and what is sent has no id twice."""
    session, twice = Session(), Call("add", '{"n": 2}', "same_id")
    provider.tells(replies(Answer(calls=(twice,)), Answer(calls=(twice,)), Answer("Four.")))
    answer = provider.adapter().evaluate(prompt_of(tool()), session=session)
    assert answer.text == "Four."
    assert len([one for one in messages(session) if one.role == "tool"]) == 2
    assert provider.server.refused == []


def test_a_call_id_twice_in_one_reply_is_an_error(provider: UnderTest) -> None:
    """Nobody could tell whose result it is; nothing is run."""
    session, twice = Session(), Call("add", '{"n": 2}', "same_id")
    provider.tells(replies(Answer(calls=(twice, twice))))
    with pytest.raises(PromptEvaluationError, match="twice"):
        provider.adapter().evaluate(prompt_of(tool()), session=session)
    assert [one.role for one in messages(session)] == ["system"]


def test_a_conversation_costs_its_turns_and_not_their_square(provider: UnderTest) -> None:
    """Requests are recorded by digest: each turn adds as many bytes as the one before."""
    session, turns = Session(), 12
    asking = [Answer(calls=(Call("add", '{"n": 1}'),)) for _ in range(turns)]
    provider.tells(replies(*asking, Answer("Done.")))
    provider.adapter().evaluate(prompt_of(tool()), session=session)
    journal = session.journal
    sizes = [len(record.data) for record in journal.ledger.read(journal.run_id)]
    per_turn = (len(sizes) - 5) // turns
    first, last = sum(sizes[4 : 4 + 3 * per_turn]), sum(sizes[-1 - 3 * per_turn : -1])
    assert last < first * 1.2
