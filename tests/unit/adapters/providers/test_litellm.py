"""`LiteLLMAdapter`: who makes the call, what thinking goes back, and the real package, quietly."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given

from tests.servers.anthropic_messages import AnthropicMessages
from tests.servers.openai_chat import OpenAIChat
from tests.servers.serving import Answer, Asked, Call, Raw, StrictServer, Wire, replies
from tests.unit.adapters.conversations import begun, growing, plain, steps
from tests.unit.adapters.conversations import request as asked
from tests.unit.runtime.evaluations import Sum, events, prompt_of, tool
from turnledger.adapters.providers.litellm import LiteLLMAdapter, LiteLLMChat
from turnledger.adapters.providers.openai.chat import ChatStream
from turnledger.ledger import InvalidInputError, ModelReplied, TokenUsage
from turnledger.projections import TextBlock, ToolResultBlock, ToolUseBlock
from turnledger.runtime import InProcessEventBus, PromptEvaluationError, Reply, Session
from turnledger.runtime.agent.models import Sending
from turnledger.runtime.agents.async_runs import run_async

CLAUDE = "anthropic/claude-sonnet-4-5"


def message(**said: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": "stop"}
    return {"id": "x", "model": "m", "choices": [choice]}


def call(call_id: str, **more: Any) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "add", "arguments": "{}"},
    } | more


def quiet() -> Session:
    return Session(bus=InProcessEventBus())


def sent_back(reply: Reply, model: str) -> dict[str, Any]:
    """The assistant's message, as it is written after this reply."""
    said = [TextBlock(reply.text)] if reply.text else []
    calls = [ToolUseBlock(one.call_id, one.name, one.arguments) for one in reply.tool_calls]
    history = begun().add_assistant(*said, *calls)
    place = len(history)
    history = history.add_user(*(ToolResultBlock(one.call_id, "done") for one in reply.tool_calls))
    kept = {} if reply.provider_data is None else {place: reply.provider_data}
    payload = LiteLLMChat(model=model).encode(asked(history, provider_data=kept, model=model))
    (found,) = (one for one in payload["messages"] if one["role"] == "assistant")
    assert isinstance(found, dict)
    return found


# --- who makes the call ---


def test_a_completion_that_is_given_is_called_with_the_request_alone() -> None:
    """It may take no timeout; the package is not needed."""
    heard: list[dict[str, Any]] = []

    def completion(**said: Any) -> Any:
        heard.append(said)
        return message(content="Hi.")

    adapter: LiteLLMAdapter[Any] = LiteLLMAdapter(model=CLAUDE, completion=completion)
    payload = adapter.encode(asked(begun(), model=CLAUDE))
    reply = adapter.decode(adapter.send(payload, Sending(timeout=3)))
    assert reply.text == "Hi."
    assert heard == [payload]


def test_a_factory_is_called_once_with_what_it_is_given() -> None:
    """At the first request, and not before."""
    made: list[dict[str, Any]] = []

    def factory(**given: Any) -> Any:
        made.append(given)
        return lambda **_: message(content="Hi.")

    adapter: LiteLLMAdapter[Any] = LiteLLMAdapter(
        model=CLAUDE, completion_factory=factory, completion_kwargs={"api_key": "k"}
    )
    assert made == []
    for _ in range(2):
        adapter.send(adapter.encode(asked(begun())), Sending())
    assert made == [{"api_key": "k"}]


@pytest.mark.parametrize("other", [{"completion_factory": dict}, {"completion_kwargs": {}}])
def test_a_completion_and_how_to_make_one_are_too_much(other: dict[str, Any]) -> None:
    """One of them would be left without a word."""
    with pytest.raises(InvalidInputError, match="not both"):
        LiteLLMAdapter(model=CLAUDE, completion=lambda **_: None, **other)


@pytest.mark.parametrize(
    ("own", "left", "timeout"),
    [(None, None, None), (None, 9.0, 9.0), (5, 9.0, 5), (60, 9.0, 9.0), (60, None, 60)],
)
def test_the_package_is_told_the_time_that_is_left_and_to_try_once(
    own: float | None, left: float | None, timeout: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shorter of the user's own timeout and the deadline's; retries are the loop's."""
    heard: list[dict[str, Any]] = []

    def make(adapter: Any, **kwargs: Any) -> Any:
        return lambda **said: heard.append(kwargs | said) or message(content="Hi.")

    monkeypatch.setattr(LiteLLMAdapter, "make_client", make)
    kwargs = {} if own is None else {"timeout": own}
    adapter: LiteLLMAdapter[Any] = LiteLLMAdapter(model=CLAUDE, completion_kwargs=kwargs)
    adapter.send({"model": CLAUDE}, Sending(timeout=left))
    (said,) = heard
    assert (said["num_retries"], said["max_retries"]) == (0, 0)
    assert said.get("timeout") == timeout


# --- structured output ---


@pytest.mark.parametrize("required", [True, False])
def test_a_structured_reply_needs_text_unless_it_need_not(required: bool) -> None:
    """What a provider parsed is enough only if that was said."""
    adapter: LiteLLMAdapter[Any] = LiteLLMAdapter(
        model=CLAUDE,
        completion=lambda **_: message(content=None, parsed={"total": 3}),
        require_structured_output_text=required,
    )
    if not required:
        response = adapter.evaluate(prompt_of(output=Sum), session=quiet())
        assert response.output == Sum(3)
        return
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(prompt_of(output=Sum), session=quiet())
    assert caught.value.phase == "response"


# --- what goes back ---


def test_signed_thinking_goes_back() -> None:
    """In the order in which it came; what is not signed is not taken back by anybody."""
    thinking = [
        {"type": "thinking", "thinking": "hm", "signature": "s1"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "thinking", "thinking": "unsigned"},
    ]
    raw = plain(message(content="", thinking_blocks=thinking, tool_calls=[call("c1")]))
    reply = LiteLLMChat(model=CLAUDE).decode(raw)
    assert sent_back(reply, CLAUDE)["thinking_blocks"] == thinking[:2]


def test_thinking_goes_to_no_other_model() -> None:
    """Another provider would refuse it."""
    thinking = [{"type": "thinking", "thinking": "hm", "signature": "s1"}]
    raw = message(thinking_blocks=thinking, tool_calls=[call("c1")])
    reply = LiteLLMChat(model=CLAUDE).decode(raw)
    assert "thinking_blocks" not in sent_back(reply, "openai/gpt-4o")


def test_thinking_that_comes_in_pieces_is_put_together() -> None:
    """A signature ends a block."""
    stream = ChatStream(lambda _: None)
    for piece in (
        {"thinking": "h", "signature": ""},
        {"thinking": "m", "signature": None},
        {"thinking": "", "signature": "s1"},
        {"thinking": "so", "signature": ""},
        {"thinking": "", "signature": "s2"},
    ):
        delta = {"thinking_blocks": [{"type": "thinking", **piece}]}
        stream.add({"choices": [{"index": 0, "delta": delta}]})
    stream.add({"choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}]})
    reply = LiteLLMChat(model=CLAUDE).decode(stream.whole())
    assert reply.provider_data["litellm"]["thinking_blocks"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s1"},
        {"type": "thinking", "thinking": "so", "signature": "s2"},
    ]


@pytest.mark.parametrize(
    "signed",
    [
        call("c1__thought__sig", provider_specific_fields={"thought_signature": "sig"}),
        call("c1", provider_specific_fields={"thought_signature": "sig"}),
        call("c1__thought__sig"),
    ],
)
def test_the_signature_of_a_call_goes_back_beside_its_id(signed: dict[str, Any]) -> None:
    """An id with a signature in it is too long for others, and for the ledger's readers."""
    model = "gemini/gemini-3-pro"
    reply = LiteLLMChat(model=model).decode(message(tool_calls=[signed, call("c2")]))
    assert [one.call_id for one in reply.tool_calls] == ["c1", "c2"]
    first, second = sent_back(reply, model)["tool_calls"]
    assert first == call("c1", provider_specific_fields={"thought_signature": "sig"})
    assert second == call("c2")


def test_the_signature_of_a_text_goes_back() -> None:
    """It is the message's."""
    model = "gemini/gemini-3-pro"
    own = {"thought_signatures": ["sig"], "other": 1}
    raw = message(content="Hm.", provider_specific_fields=own, tool_calls=[call("c1")])
    back = sent_back(LiteLLMChat(model=model).decode(raw), model)
    assert back["provider_specific_fields"] == {"thought_signatures": ["sig"]}


@pytest.mark.parametrize(
    ("model", "goes"), [("deepseek/deepseek-chat", True), ("groq/gpt-oss", False)]
)
def test_reasoning_goes_back_to_those_who_insist(model: str, goes: bool) -> None:
    """Others refuse it."""
    raw = message(reasoning_content="hm", tool_calls=[call("c1")])
    back = sent_back(LiteLLMChat(model=model).decode(raw), model)
    assert back.get("reasoning_content") == ("hm" if goes else None)


def test_a_refusal_is_found_where_the_package_keeps_it() -> None:
    """Among what is the provider's own."""
    reply = LiteLLMChat().decode(message(content=None, provider_specific_fields={"refusal": "No."}))
    assert (reply.text, reply.finish_reason) == ("No.", "refusal")


def test_a_user_speaks_first() -> None:
    """Some of the providers behind the package insist."""
    payload = LiteLLMChat().encode(asked(begun()))
    assert [one["role"] for one in payload["messages"]] == ["system", "user"]


@given(steps)
def test_a_conversation_that_grows_is_written_as_one_that_is_whole(taken: list[Any]) -> None:
    """What is kept from request to request changes nothing."""
    wire, kept = LiteLLMChat(unsupported_media="hint"), dict[str, Any]()
    for history in growing(taken):
        grown = wire.encode(asked(history, kept=kept))
        assert grown == wire.encode(asked(history))


# --- the real package ---

each_way = pytest.mark.parametrize("way", ["whole", "streamed", "whole-async", "streamed-async"])


def adapter_for(strict: StrictServer, model: str, **more: Any) -> LiteLLMAdapter[Any]:
    base = strict.url if model.startswith("anthropic/") else f"{strict.url}/v1"
    return LiteLLMAdapter(model=model, completion_kwargs={"api_base": base, "api_key": "k"}, **more)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("wire", "model", "options"),
    [
        (OpenAIChat(), "openai/gpt-4o", {}),
        (
            AnthropicMessages(),
            CLAUDE,
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048},
        ),
    ],
    ids=["openai", "anthropic"],
)
def test_a_conversation_with_tools_goes_through(
    wire: Wire,
    model: str,
    options: dict[str, Any],
    stream: bool,
    real_litellm: None,
) -> None:
    """A call, its result, an answer; where the model thought, the server checks what it gets."""
    thinking = "hm" if options else None
    first = Answer("Adding.", (Call("add", '{"n": 3}'),), thinking=thinking)
    with StrictServer(wire, replies(first, Answer("It is 3."))) as strict:
        heard: list[str] = []
        adapter = adapter_for(
            strict,
            model,
            request_options=options,
            on_delta=(lambda one: heard.append(one.text)) if stream else None,
        )
        response = adapter.evaluate(prompt_of(tool()), session=quiet())
        assert response.text == "It is 3."
        assert (len(strict.asked), strict.refused) == (2, [])
        if stream:
            assert "".join(heard) == "Adding.It is 3."
        if thinking:
            (said,) = (one for one in strict.bodies[1]["messages"] if one["role"] == "assistant")
            assert said["content"][0]["thinking"] == thinking


def test_structured_output_goes_through(real_litellm: None) -> None:
    """The schema goes out, and the text is read."""
    with StrictServer(OpenAIChat(), replies(Answer('{"total": 4}'))) as strict:
        adapter = adapter_for(strict, "openai/gpt-4o")
        response = adapter.evaluate(prompt_of(output=Sum), session=quiet())
        assert response.output == Sum(4)
        assert strict.bodies[0]["response_format"]["type"] == "json_schema"


def evaluated(strict: StrictServer, way: str) -> tuple[str | None, ModelReplied]:
    """The text of an answer and its reply as recorded, whole or streamed, sync or async."""
    session = quiet()
    adapter = adapter_for(strict, "openai/gpt-4o", stream="streamed" in way)
    if "async" in way:
        response = asyncio.run(_asked(adapter, session))
    else:
        response = adapter.evaluate(prompt_of(), session=session)
    (replied,) = events(session, ModelReplied)
    return response.text, replied


async def _asked(adapter: LiteLLMAdapter[Any], session: Session) -> Any:
    return await run_async(lambda: adapter.evaluate(prompt_of(), session=session))


@each_way
def test_a_real_refusal_is_a_refusal(way: str, real_litellm: None) -> None:
    """Whole, the package moves it; streamed, it drops the pieces."""
    with StrictServer(OpenAIChat(), replies(Answer(refusal="No, I will not."))) as strict:
        text, replied = evaluated(strict, way)
    assert (text, replied.finish_reason) == ("No, I will not.", "refusal")


@each_way
def test_usage_that_was_sent_is_not_an_estimate(way: str, real_litellm: None) -> None:
    """It is what the provider counted."""
    with StrictServer(OpenAIChat(), replies(Answer("Two."))) as strict:
        _, replied = evaluated(strict, way)
    assert replied.usage == TokenUsage(11, 7, 3, 2)


@pytest.mark.parametrize("way", ["streamed", "streamed-async"])
def test_usage_that_the_package_counts_is_estimated(way: str, real_litellm: None) -> None:
    """A stream without usage gets the package's own count, which is marked as such."""
    with StrictServer(OpenAIChat(), _without_usage) as strict:
        text, replied = evaluated(strict, way)
    assert text == "Two and two."
    assert replied.usage.estimated
    assert replied.usage.output_tokens > 0


def _without_usage(asked: Asked) -> Raw:
    sent = OpenAIChat().stream(asked, Answer("Two and two."))
    body = b"".join(event for event in sent if b'"choices": []' not in event)
    return Raw(body, content_type="text/event-stream")


def test_the_package_is_imported_quietly_and_fetches_nothing() -> None:
    """No name is looked up, nothing is written, no warning is raised."""
    script = """
import socket, warnings
warnings.simplefilter("error")
def no(*given, **more): raise SystemExit(f"it wants to reach {given}")
socket.getaddrinfo = socket.socket.connect = no
from turnledger.adapters.providers.litellm import LiteLLMAdapter
import sys
assert "litellm" not in sys.modules
LiteLLMAdapter(model="openai/gpt-4o").client
import litellm
try:
    LiteLLMAdapter(model="unheard-of").client(model="unheard-of", messages=[])
except litellm.BadRequestError:
    print("refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("refused\n", "", 0)
