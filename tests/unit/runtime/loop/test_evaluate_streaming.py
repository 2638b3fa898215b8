"""Text as it comes, and what else a provider is told or spared when a request is sent."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.agent import calls, says
from tests.unit.runtime.clocks import BEGIN, StandingClock
from tests.unit.runtime.evaluations import Scripted, again, events, messages, prompt_of, tool
from turnledger.ledger import Ledger, MessageAppended, ModelCallFailed
from turnledger.runtime import (
    Deadline,
    InProcessEventBus,
    PromptEvaluationError,
    Reply,
    Session,
    TextReceived,
    ThrottlePolicy,
    ToolCall,
)
from turnledger.runtime.agent.models import Sending

AT_ONCE = ThrottlePolicy(base_delay=timedelta(0), max_delay=timedelta(0))


def _heard(session: Session) -> list[TextReceived]:
    heard: list[TextReceived] = []
    session.bus.subscribe(TextReceived, heard.append)
    return heard


def test_text_is_told_as_it_comes_and_recorded_whole() -> None:
    """The bus and `on_delta` hear the same pieces; the ledger has one message."""
    session, told = Session(bus=InProcessEventBus()), []
    heard = _heard(session)
    adapter = Scripted([says("One two three.\n")], on_delta=told.append)
    answer = adapter.evaluate(prompt_of(), session=session)
    assert [piece.text for piece in heard] == ["One", " two", " three.", "\n"]
    assert told == heard
    assert {(piece.turn, piece.attempt, piece.adapter) for piece in heard} == {(1, 1, "scripted")}
    assert answer.text == "One two three.\n"
    assert [said.content for said in messages(session) if said.role == "assistant"] == [answer.text]


def test_nobody_is_told_of_text_unless_a_stream_was_asked_for() -> None:
    """Streaming is opt-in: without it the provider is not even asked for pieces."""
    session = Session(bus=InProcessEventBus())
    heard, sent = _heard(session), []
    Scripted([says("One two.")], on_send=sent.append).evaluate(prompt_of(), session=session)
    assert heard == []
    assert sent == [Sending()]


def test_an_interrupted_stream_is_a_failed_call_and_never_half_a_message() -> None:
    """It is tried again under the next attempt, and listeners can tell the two apart."""
    session = Session(bus=InProcessEventBus())
    heard = _heard(session)

    class BrokenError(Exception):
        retryable = True

    def breaks(sending: Sending) -> None:
        if not heard:
            assert sending.on_text is not None
            sending.on_text("Half a")
            raise BrokenError

    adapter = Scripted([says("Whole.")], on_send=breaks, stream=True, throttle=AT_ONCE)
    answer = adapter.evaluate(prompt_of(), session=session)
    assert answer.text == "Whole."
    assert [(piece.attempt, piece.text) for piece in heard] == [(1, "Half a"), (2, "Whole.")]
    assert [failed.error_type for failed in events(session, ModelCallFailed)] == ["BrokenError"]
    said = [event.message.content for event in events(session, MessageAppended)]
    assert "Half a" not in "".join(said)


def test_a_listener_that_fails_does_not_stop_a_stream() -> None:
    """On the bus; `on_delta` is the caller's own, and its error is the evaluation's."""
    session = Session(bus=InProcessEventBus())

    def fail(piece: TextReceived) -> None:
        raise RuntimeError("no terminal")

    session.bus.subscribe(TextReceived, fail)
    assert Scripted([says("ok")], stream=True).evaluate(prompt_of(), session=session).text == "ok"
    with pytest.raises(PromptEvaluationError, match="no terminal"):
        Scripted([says("ok")], on_delta=fail).evaluate(prompt_of(), session=session)


def test_a_request_is_given_the_time_until_the_deadline() -> None:
    """A provider that hangs can't hold a run longer than it may take."""
    clock, sent = StandingClock(), []

    def note(sending: Sending) -> None:
        sent.append(sending.timeout)
        clock.advance(timedelta(seconds=20))

    Scripted([calls(("c1", "add", '{"n": 2}')), says("2")], on_send=note).evaluate(
        prompt_of(tool()),
        session=Session(),
        deadline=Deadline(BEGIN + timedelta(seconds=50), clock=clock),
    )
    assert sent == [50.0, 30.0]


def test_a_stream_that_comes_drop_by_drop_ends_with_the_deadline() -> None:
    """Each piece comes in time, and all of them together do not."""
    clock, session = StandingClock(), Session()

    def wait(piece: TextReceived) -> None:
        clock.advance(timedelta(seconds=20))

    with pytest.raises(PromptEvaluationError, match="passed") as caught:
        Scripted([says("One two three four.")], on_delta=wait).evaluate(
            prompt_of(),
            session=session,
            deadline=Deadline(BEGIN + timedelta(seconds=50), clock=clock),
        )
    assert caught.value.provider_payload == {"deadline_expires_at": "2025-03-01T12:00:50+00:00"}
    assert [said.role for said in messages(session)] == ["system"]


def test_a_call_without_an_id_gets_one_that_stays() -> None:
    """The same in another process, and different from every other call's of the run."""
    replies = [
        Reply(tool_calls=(ToolCall("", "add", '{"n": 1}'), ToolCall("", "add", '{"n": 1}'))),
        Reply(tool_calls=(ToolCall("", "add", '{"n": 1}'),)),
        says("3"),
    ]
    with Ledger.open("memory://") as ledger:
        session = Session(bus=InProcessEventBus(), ledger=ledger)
        Scripted(replies).evaluate(prompt_of(tool()), session=session)
        asked = [
            call.call_id
            for event in events(session, MessageAppended)
            for call in event.message.tool_calls
        ]
        assert len(set(asked)) == 3
        assert all(call_id.startswith("call_") and len(call_id) <= 40 for call_id in asked)
        answered = [said.tool_call_id for said in messages(again(session)) if said.role == "tool"]
        assert answered == asked


def test_options_are_part_of_what_a_request_is() -> None:
    """Another temperature is another request; no options leave the digest as it was."""
    digests = []
    for options in (None, {}, {"temperature": 0}, {"temperature": 1}):
        adapter = Scripted([says("ok")], request_options=options)
        adapter.evaluate(prompt_of(), session=Session())
        digests.append(adapter.requests[0].digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
