"""`AnthropicAdapter` with the real SDK, against a strict server on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from tests.servers.anthropic_messages import AnthropicMessages as Wire
from tests.servers.serving import (
    Answer,
    Call,
    Raw,
    Script,
    Status,
    StrictServer,
    replies,
)
from tests.unit.runtime.evaluations import (
    Scripted,
    Sum,
    again,
    calls,
    events,
    messages,
    on,
    prompt_of,
    tool,
)
from turnledger.adapters.providers.anthropic.adapter import AnthropicAdapter
from turnledger.ledger import InvalidInputError, Ledger, ModelCallFailed, ModelReplied, TokenUsage
from turnledger.runtime import (
    InProcessEventBus,
    PromptEvaluationError,
    Session,
    TextReceived,
    ThrottlePolicy,
)

AT_ONCE = ThrottlePolicy(base_delay=timedelta(0), max_delay=timedelta(0))
BUDGET = {"type": "enabled", "budget_tokens": 1024}
ADD = Call("add", '{"n": 2}')

Asking: TypeAlias = Callable[..., tuple[StrictServer, AnthropicAdapter[Any]]]


@dataclass(frozen=True)
class Ages:
    """An output whose keys nobody knows before."""

    ages: dict[str, int]


@pytest.fixture
def asking() -> Iterator[Asking]:
    """A server with a script, and an adapter that asks it."""
    with ExitStack() as stack:

        def make(script: Script, **more: Any) -> tuple[StrictServer, AnthropicAdapter[Any]]:
            server = stack.enter_context(StrictServer(Wire(), script))
            adapter: AnthropicAdapter[Any] = AnthropicAdapter(
                model=more.pop("model", "claude-haiku-4-5"),
                client_kwargs={"base_url": server.url, "api_key": "key"},
                throttle=more.pop("throttle", AT_ONCE),
                **more,
            )
            stack.callback(adapter.close)
            return server, adapter

        yield make


def session() -> Session:
    return Session(bus=InProcessEventBus())


# --- whole runs ---------------------------------------------------------------------------


def test_a_run_with_a_tool(asking: Asking) -> None:
    """The call is run, its result goes back, and the answer and the tokens are on record."""
    server, adapter = asking(replies(Answer("Let me see.", (ADD,)), Answer("It is 2.")))
    run = session()
    answer = adapter.evaluate(prompt_of(tool()), session=run)
    assert answer.text == "It is 2."
    assert [result.name for result in answer.tool_results] == ["add"]
    first, second = server.bodies
    assert first["max_tokens"] == 16_000
    assert first["tool_choice"] == {"type": "auto"}
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
    asked, brought = second["messages"][1]["content"], second["messages"][2]["content"]
    assert asked[1]["input"] == {"n": 2}
    assert brought[0]["tool_use_id"] == asked[1]["id"]
    replied = events(run, ModelReplied)
    assert replied[0].usage == TokenUsage(
        input_tokens=11, output_tokens=7, cached_tokens=3, reasoning_tokens=2
    )
    assert [one.finish_reason for one in replied] == ["tool_use", "end_turn"]


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_goes_back_unchanged_over_two_tool_turns(asking: Asking, stream: bool) -> None:
    """Each reply's thinking stands in its turn again, signature and all, whole or streamed."""
    script = replies(
        Answer("First.", (ADD,), thinking="one"),
        Answer(None, (ADD, ADD), thinking="two"),
        Answer("Done.", thinking="three"),
    )
    server, adapter = asking(script, thinking=BUDGET, stream=stream)
    assert adapter.evaluate(prompt_of(tool()), session=session()).text == "Done."
    assert not server.refused
    assert [body["thinking"] for body in server.bodies] == [BUDGET] * 3
    thoughts = [
        [block["thinking"] for block in message["content"] if block["type"] == "thinking"]
        for message in server.bodies[2]["messages"]
        if message["role"] == "assistant"
    ]
    assert thoughts == [["one"], ["two"]]
    assert server.bodies[2]["messages"][:3] == server.bodies[1]["messages"]


def test_another_process_sends_the_thinking_back_too(asking: Asking) -> None:
    """It is in the ledger: what is resumed elsewhere asks as the first process would have."""

    def script(asked: Any) -> Any:
        if asked.turn == 1:
            return Answer(None, (ADD,), thinking="one")
        return Status(400, "no") if asked.attempt == 1 else Answer("It is 2.")

    with Ledger.open("memory://") as ledger:
        server, adapter = asking(script, thinking=BUDGET)
        run = on(ledger)
        with pytest.raises(PromptEvaluationError):
            adapter.evaluate(prompt_of(tool()), session=run)
        answer = adapter.evaluate(prompt_of(tool()), session=again(run), resume=True)
        assert answer.text == "It is 2."
        assert server.bodies[1] == server.bodies[2]
        assert server.bodies[2]["messages"][1]["content"][0]["thinking"] == "one"


@pytest.mark.parametrize("kind", ["enabled", "adaptive"])
def test_a_conversation_begun_elsewhere_goes_on_with_thinking_asked_for(
    asking: Asking, kind: str
) -> None:
    """With a budget it is off until the answer is there; where the model decides it need not."""
    thinking = BUDGET if kind == "enabled" else {"type": "adaptive"}
    run = session()
    elsewhere = Scripted([calls(("call|1", "add", '{"n": 2}')), RuntimeError("gone")])
    with pytest.raises(PromptEvaluationError):
        elsewhere.evaluate(prompt_of(tool()), session=run)
    # The first reply was the other provider's: here the second comes first.
    server, adapter = asking(lambda asked: Answer("It is 2."), thinking=thinking)
    answer = adapter.evaluate(prompt_of(tool()), session=run, resume=True)
    assert answer.text == "It is 2."
    assert not server.refused
    sent = server.bodies[0]
    assert sent["thinking"] == ({"type": "disabled"} if kind == "enabled" else thinking)
    assert sent["messages"][1]["content"][0]["id"] != "call|1"


def test_a_forced_call_comes_first_and_without_thinking(asking: Asking) -> None:
    """The two exclude each other: the call was asked for, so thinking waits for it."""
    server, adapter = asking(
        replies(Answer(None, (ADD,)), Answer("It is 2.", thinking="hm")),
        thinking={"type": "adaptive"},
        tool_choice="required",
    )
    assert adapter.evaluate(prompt_of(tool()), session=session()).text == "It is 2."
    assert [(body["tool_choice"]["type"], body["thinking"]["type"]) for body in server.bodies] == [
        ("any", "disabled"),
        ("auto", "adaptive"),
    ]


def test_a_structured_answer_is_enforced_by_the_provider(asking: Asking) -> None:
    """The schema goes into the request, and nothing about it into the prompt."""
    server, adapter = asking(replies(Answer('{"total": 2}')))
    answer = adapter.evaluate(prompt_of(output=Sum), session=session())
    assert answer.output == Sum(2)
    schema = server.bodies[0]["output_config"]["format"]["schema"]
    assert schema["properties"] == {"total": {"type": "integer"}}
    assert "schema" not in server.bodies[0]["system"]


def test_a_refusal_is_an_answer(asking: Asking) -> None:
    """Its words are the text, and why it ended is on record."""
    _, adapter = asking(replies(Answer(refusal="I'd rather not.")))
    run = session()
    assert adapter.evaluate(prompt_of(), session=run).text == "I'd rather not."
    assert events(run, ModelReplied)[0].finish_reason == "refusal"


# --- streams ------------------------------------------------------------------------------


def test_a_stream_is_heard_and_recorded_as_the_whole_answer_is(asking: Asking) -> None:
    """Pieces go to the listener; the ledger can't tell the two ways apart."""
    script = replies(Answer("One two three.", (ADD,), thinking="hm"), Answer("Four five."))
    heard: list[TextReceived] = []
    _, streaming = asking(script, on_delta=heard.append)
    _, whole = asking(script)
    one, other = session(), session()
    assert streaming.evaluate(prompt_of(tool()), session=one).text == "Four five."
    assert whole.evaluate(prompt_of(tool()), session=other).text == "Four five."
    assert "".join(piece.text for piece in heard) == "One two three.Four five."
    assert len(heard) > 2

    def recorded(run: Session) -> Any:
        said = [(m.role, m.content, m.tool_calls) for m in messages(run)]
        return said, [(r.usage, r.provider_data) for r in events(run, ModelReplied)]

    assert recorded(one) == recorded(other)


def test_an_answer_that_may_be_very_long_is_streamed_though_nobody_listens(asking: Asking) -> None:
    """The SDK would refuse to wait for it in one piece."""
    server, adapter = asking(replies(Answer("Long.")), max_tokens=64_000)
    assert adapter.evaluate(prompt_of(), session=session()).text == "Long."
    assert server.asked[0].streams
    server, adapter = asking(replies(Answer("Short.")), max_tokens=21_333)
    assert adapter.evaluate(prompt_of(), session=session()).text == "Short."
    assert not server.asked[0].streams


@pytest.mark.parametrize(("kind", "attempts"), [("overloaded_error", 2), ("billing_error", 1)])
def test_an_error_in_the_middle_of_a_stream(asking: Asking, kind: str, attempts: int) -> None:
    """The SDK raises it with the status 200: what kind it is says whether to try again."""
    event = f'{{"type": "error", "error": {{"type": "{kind}", "message": "so sorry"}}}}'
    broken = Raw(f"event: error\ndata: {event}\n\n".encode(), content_type="text/event-stream")
    server, adapter = asking(
        lambda asked: broken if asked.attempt == 1 else Answer("It is 2."), stream=True
    )
    run = session()
    if attempts == 1:
        with pytest.raises(PromptEvaluationError, match="so sorry"):
            adapter.evaluate(prompt_of(), session=run)
    else:
        assert adapter.evaluate(prompt_of(), session=run).text == "It is 2."
    assert len(server.asked) == attempts
    assert "so sorry" in events(run, ModelCallFailed)[0].error_message


# --- errors -------------------------------------------------------------------------------


def test_an_output_that_can_not_be_enforced_fails_before_anything_is_sent(asking: Asking) -> None:
    """The error says what to do, and doing it helps."""
    server, adapter = asking(replies())
    with pytest.raises(PromptEvaluationError, match="use_native_response_format=False"):
        adapter.evaluate(prompt_of(output=Ages), session=session())
    assert not server.asked
    _, told = asking(replies(Answer('{"ages": {"Ada": 36}}')), use_native_response_format=False)
    assert told.evaluate(prompt_of(output=Ages), session=session()).output == Ages({"Ada": 36})


# --- making one -----------------------------------------------------------------------------


def test_a_client_with_messages_create_is_enough() -> None:
    """Nothing else of the SDK is needed, and what was given is not closed."""
    asked: list[dict[str, Any]] = []

    def create(**payload: Any) -> Any:
        asked.append(payload)
        return {"content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn"}

    client = SimpleNamespace(messages=SimpleNamespace(create=create))
    with AnthropicAdapter[Any](model="claude", client=client, max_tokens=100) as adapter:
        assert adapter.evaluate(prompt_of(), session=session()).text == "Hello."
    assert asked[0]["max_tokens"] == 100


@pytest.mark.parametrize(
    "wrong", [{"model": ""}, {"max_tokens": 0}, {"max_tokens": True}, {"thinking": "adaptive"}]
)
def test_what_can_not_be_meant_is_an_error(wrong: dict[str, Any]) -> None:
    """It is told when the adapter is made."""
    with pytest.raises(InvalidInputError):
        AnthropicAdapter(**{"model": "claude", "client": SimpleNamespace(), **wrong})


def test_max_tokens_and_thinking_are_part_of_what_is_asked() -> None:
    """Two requests that differ in them are not the same request; options have the last word."""
    adapter: AnthropicAdapter[Any] = AnthropicAdapter(
        model="claude",
        client=SimpleNamespace(),
        max_tokens=2048,
        thinking=BUDGET,
        request_options={"max_tokens": 4096, "service_tier": "auto"},
    )
    assert adapter.request_options == {
        "max_tokens": 4096,
        "thinking": BUDGET,
        "service_tier": "auto",
    }
