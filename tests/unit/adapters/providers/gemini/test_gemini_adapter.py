"""`GeminiAdapter` through the real SDK, against the strict server: what goes over the wire."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tests.servers.gemini_contents import GeminiContents as GeminiServer
from tests.servers.gemini_rules import signature
from tests.servers.gemini_shapes import decoded, shaped
from tests.servers.serving import (
    Answer,
    Call,
    Hang,
    Raw,
    Scripted,
    Status,
    StrictServer,
    replies,
)
from tests.unit.runtime.evaluations import Add, Sum, adding, again, calls, events, prompt_of, tool
from tests.unit.runtime.evaluations import Scripted as ScriptedModel
from turnledger.adapters.providers.gemini.adapter import GeminiAdapter
from turnledger.adapters.providers.gemini.contents import GeminiContents
from turnledger.adapters.providers.gemini.signatures import NO_SIGNATURE
from turnledger.ledger import ModelCalled, ModelReplied
from turnledger.projections import MediaBlock, MessageHistory
from turnledger.runtime import (
    Deadline,
    PromptEvaluationError,
    Reply,
    Request,
    Session,
    ThrottlePolicy,
    ToolContext,
)
from turnledger.runtime.agent.models import Sending

TWO = Answer(text="Adding.", calls=(Call("add", '{"n": 1}'), Call("add", '{"n": 2}')))
AT_ONCE = ThrottlePolicy(base_delay=timedelta(0))
NEW, OLD = "gemini-3-pro-preview", "gemini-2.5-flash"


class Gemini:
    """Servers and the adapters that ask them; all are closed in the end."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def server(self, *answers: Scripted) -> StrictServer:
        return self._stack.enter_context(StrictServer(GeminiServer(), replies(*answers)))

    def adapter(self, server: StrictServer, model: str = NEW, **more: Any) -> GeminiAdapter[Any]:
        options = {"base_url": server.url, **more.pop("http_options", {})}
        adapter: GeminiAdapter[Any] = GeminiAdapter(
            model=model,
            client_kwargs={"api_key": "k", "http_options": options},
            throttle=more.pop("throttle", AT_ONCE),
            **more,
        )
        self._stack.callback(adapter.close)
        return adapter


@pytest.fixture
def gemini() -> Iterator[Gemini]:
    with ExitStack() as stack:
        yield Gemini(stack)


def body(server: StrictServer, number: int = -1) -> dict[str, Any]:
    """A request as it arrived, its names all in snake_case and its bytes decoded."""
    return shaped(server.bodies[number])


def raw(status: int, *details: dict[str, Any]) -> Raw:
    error = {"code": status, "message": "no", "status": "NO", "details": list(details)}
    return Raw(json.dumps({"error": error}).encode(), status)


class Killed(BaseException):
    """What ends a process in a test."""


def dying_at(number: int, ids: list[str]) -> Callable[..., Any]:
    """A handler that dies in its call of this number, and remembers the ids of all."""

    def handler(params: Add, *, context: ToolContext) -> Any:
        ids.append(context.call_id)
        if len(ids) == number:
            raise Killed
        return adding(params, context=context)

    return handler


# --- whole runs ------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [OLD, NEW])
@pytest.mark.parametrize("stream", [False, True])
def test_a_run_with_two_tools_at_once(gemini: Gemini, model: str, stream: bool) -> None:
    """The strict server takes every request of it, and the answer is the model's last word."""
    server = gemini.server(TWO, Answer(text="It is 3."))
    adapter = gemini.adapter(server, model, stream=stream)
    session = Session()
    response = adapter.evaluate(prompt_of(tool()), session=session)
    assert response.text == "It is 3."
    assert [one.total for one in session.select_all(Sum)] == [1, 2]
    assert server.refused == []
    assert [asked.streams for asked in server.asked] == [stream, stream]
    told = body(server)["contents"][-1]["parts"]
    assert [one["function_response"]["name"] for one in told] == ["add", "add"]
    assert "Added 1." in told[0]["function_response"]["response"]["output"]
    replied = events(session, ModelReplied)
    assert [one.model for one in replied] == [model, model]
    assert (replied[0].usage.input_tokens, replied[0].usage.output_tokens) == (11, 7)
    assert (replied[0].usage.cached_tokens, replied[0].usage.reasoning_tokens) == (3, 2)


@pytest.mark.parametrize("stream", [False, True])
def test_signatures_are_sent_back_byte_for_byte(gemini: Gemini, stream: bool) -> None:
    """The first call of each reply bears in every later request what it came with."""
    server = gemini.server(TWO, TWO, Answer(text="6"))
    gemini.adapter(server, stream=stream).evaluate(prompt_of(tool()), session=Session())
    model_turns = [one for one in body(server)["contents"] if one["role"] == "model"]
    found = [
        [one.get("thought_signature") for one in turn["parts"] if "function_call" in one]
        for turn in model_turns
    ]
    assert found == [[signature(1, "add"), None], [signature(2, "add"), None]]
    assert model_turns[0]["parts"][0] == {"text": "Adding."}


def test_calls_keep_their_ids_when_another_adapter_goes_on(gemini: Gemini) -> None:
    """A run that died in its second tool is resumed by a new adapter, with ids and signature."""
    server = gemini.server(TWO, Answer(text="3"))
    session, ids = Session(), list[str]()
    prompt = prompt_of(tool(dying_at(2, ids)))
    with pytest.raises(Killed):
        gemini.adapter(server).evaluate(prompt, session=session)
    response = gemini.adapter(server).evaluate(prompt, session=again(session), resume=True)
    assert response.text == "3"
    assert ids[1] == ids[2]
    assert [one[-4:] for one in ids] == ["_1_1", "_1_2", "_1_2"]
    assert len(server.asked) == 2
    assert body(server)["contents"][1]["parts"][1]["thought_signature"] == signature(1, "add")


def test_ids_that_gemini_gives_are_the_calls_ids(gemini: Gemini) -> None:
    """They are in the record, and go back with the calls and the results."""
    server = gemini.server(Answer(calls=(Call("add", "{}", "g-1"),)), Answer(text="0"))
    ids: list[str] = []
    gemini.adapter(server).evaluate(prompt_of(tool(dying_at(0, ids))), session=Session())
    _, model, user = body(server)["contents"]
    assert ids == ["g-1"]
    assert model["parts"][0]["function_call"]["id"] == "g-1"
    assert user["parts"][0]["function_response"]["id"] == "g-1"


def test_a_conversation_of_another_provider_goes_on_with_gemini(gemini: Gemini) -> None:
    """Its calls were signed by nobody: the documented word for that arrives as it stands."""
    session, ids = Session(), list[str]()
    prompt = prompt_of(tool(dying_at(1, ids)))
    foreign = calls(("toolu_1", "add", '{"n": 1}'), ("toolu_2", "add", '{"n": 2}'))
    with pytest.raises(Killed):
        ScriptedModel([foreign]).evaluate(prompt, session=session)
    # The server counts the model's turns: the first reply was the other provider's.
    server = gemini.server(Status(500), Answer(text="3"))
    gemini.adapter(server).evaluate(prompt, session=again(session), resume=True)
    first, second = server.bodies[0]["contents"][1]["parts"]
    assert first["thoughtSignature"] == NO_SIGNATURE
    assert "thoughtSignature" not in second


# --- structured output ------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "native"), [(OLD, False), (NEW, True)])
def test_structured_output_beside_tools(gemini: Gemini, model: str, native: bool) -> None:
    """S4-18: where the model can't enforce the schema beside tools, it is told the schema."""
    server = gemini.server(Answer(calls=(Call("add"),)), Answer(text='{"total": 3}'))
    response = gemini.adapter(server, model).evaluate(
        prompt_of(tool(), output=Sum), session=Session()
    )
    assert response.output == Sum(3)
    assert server.refused == []
    sent = body(server)
    config = sent.get("generation_config", {})
    assert ("response_json_schema" in config) is native
    assert ('"total"' in sent["system_instruction"]["parts"][0]["text"]) is not native


# --- the wire --------------------------------------------------------------------------------


def asked_of(history: MessageHistory, **more: Any) -> Request:
    return Request(
        evaluation_id="e", turn=1, prompt_name="p", system=history.system, history=history, **more
    )


def test_what_is_sent_is_what_was_meant(gemini: Gemini) -> None:
    """Apart from how names and bytes are spelled, the SDK sends the format's own payload."""
    data = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    schema = {"type": "object", "properties": {"a_b": {"enum": ["x", None], "default": None}}}
    function = {"name": "look", "description": "Looks.", "parameters": schema}
    history = MessageHistory.new("Be brief.").add_user(
        MediaBlock("image", blob="b"), MediaBlock("document", url="https://x.org/a.pdf")
    )
    request = asked_of(
        history,
        tools=({"type": "function", "function": function},),
        tool_choice={"type": "function", "function": {"name": "look"}},
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
        options={"temperature": 0.5, "thinking_config": {"include_thoughts": True}},
        blob=lambda name: data,
    )
    server = gemini.server(Answer(text="{}"))
    adapter = gemini.adapter(server)
    payload = adapter.encode(request)
    adapter.send(payload, Sending())
    assert body(server) == shaped(payload)
    sent = server.bodies[0]["contents"][0]["parts"][1]["inlineData"]["data"]
    assert decoded(sent) == data


def test_an_answer_of_the_sdk_reads_like_the_same_as_data(gemini: Gemini) -> None:
    """Whole, streamed or as plain data, an answer is one and the same reply."""
    answer = Answer(text="Well.", thinking="Hm.", calls=(Call("add", '{"n_m": null}'),))
    server = gemini.server(answer)
    adapter = gemini.adapter(server)
    payload = adapter.encode(asked_of(MessageHistory.new().add_user_text("Go.")))
    whole = adapter.decode(adapter.send(payload, Sending()))
    heard: list[str] = []
    streamed = adapter.decode(adapter.send(payload, Sending(on_text=heard.append)))
    plain = GeminiContents().decode(GeminiServer().whole(server.asked[0], answer))
    assert "".join(heard) == "Well."
    assert [_said(one) for one in (whole, streamed)] == [_said(plain), _said(plain)]
    assert whole.tool_calls[0].arguments == '{"n_m":null}'


def _said(reply: Reply) -> Any:
    """A reply, without how base64 is spelled in it."""
    kept = [
        {**part, "signature": decoded(part["signature"])} if "signature" in part else part
        for part in reply.provider_data["gemini"]["parts"]
    ]
    return reply.text, reply.tool_calls, reply.usage, reply.finish_reason, reply.model, kept


# --- failures --------------------------------------------------------------------------------


def test_retries_are_the_loops_also_where_the_user_asks_the_sdk_for_them(gemini: Gemini) -> None:
    """The loop records each attempt: the SDK makes no request of its own."""
    server = gemini.server()
    server.script = lambda asked: Status(503) if asked.attempt == 1 else Answer(text="3")
    session = Session()
    adapter = gemini.adapter(server, http_options={"retry_options": {"attempts": 5}})
    assert adapter.evaluate(prompt_of(), session=session).text == "3"
    assert len(server.asked) == len(events(session, ModelCalled)) == 2


@pytest.mark.parametrize(
    ("fault", "retryable", "seconds"),
    [
        (raw(429, {"@type": "x/google.rpc.RetryInfo", "retryDelay": "17.5s"}), True, 17.5),
        (raw(503, {"@type": "x/google.rpc.RetryInfo", "retryDelay": "soon"}), True, None),
        (Status(429, headers={"retry-after": "3"}), True, 3),
        (raw(429, {"violations": [{"quotaId": "RequestsPerDayPerProject"}]}), False, None),
        (raw(429, {"violations": [{"quotaId": "RequestsPerMinute"}]}), True, None),
        (raw(400, {"retryDelay": "1s"}), False, None),
        (Raw(b"<html>", 502), True, None),
    ],
)
def test_what_an_error_says_about_trying_again(
    gemini: Gemini, fault: Scripted, retryable: bool, seconds: float | None
) -> None:
    """The wait stands in a header or in the details; a day's quota does not fill by waiting."""
    adapter = gemini.adapter(gemini.server(fault))
    payload = adapter.encode(asked_of(MessageHistory.new().add_user_text("Go.")))
    with pytest.raises(Exception) as caught:
        adapter.send(payload, Sending())
    advice = adapter.advise(caught.value)
    wait = None if seconds is None else timedelta(seconds=seconds)
    assert (advice.retryable, advice.retry_after) == (retryable, wait)


@pytest.mark.parametrize("stream", [False, True])
def test_no_answer_ends_with_the_deadline(gemini: Gemini, stream: bool) -> None:
    """The SDK is told how much time is left, whatever its own timeout is."""
    server = gemini.server(Hang())
    adapter = gemini.adapter(server, stream=stream, http_options={"timeout": 600_000})
    deadline = Deadline(expires_at=datetime.now(UTC) + timedelta(seconds=0.5))
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(prompt_of(), session=Session(), deadline=deadline)
    assert caught.value.phase == "request"
    assert len(server.asked) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_an_error_that_names_the_reason(gemini: Gemini, stream: bool) -> None:
    """An answer that was held back is no answer; of why it was, the SDK keeps one word."""
    server = gemini.server(Answer(refusal="Not this."))
    with pytest.raises(PromptEvaluationError, match="the model gave no answer: SAFETY") as caught:
        gemini.adapter(server, stream=stream).evaluate(prompt_of(), session=Session())
    assert caught.value.phase == "response"


@pytest.mark.parametrize("stream", [False, True])
def test_a_blocked_prompt_is_an_error_that_names_the_reason(gemini: Gemini, stream: bool) -> None:
    """There is no candidate then, only why there is none."""
    blocked = json.dumps({"promptFeedback": {"blockReason": "BLOCKLIST"}})
    said = f"data: {blocked}\n\n" if stream else blocked
    kind = "text/event-stream" if stream else "application/json"
    server = gemini.server(Raw(said.encode(), content_type=kind))
    with pytest.raises(PromptEvaluationError, match="the prompt was blocked: BLOCKLIST"):
        gemini.adapter(server, stream=stream).evaluate(prompt_of(), session=Session())


# --- clients ---------------------------------------------------------------------------------


class Plain:
    """A client that is nobody's SDK: it answers with data, and remembers how it was called."""

    def __init__(self, *chunks: dict[str, Any]) -> None:
        self.called: list[dict[str, Any]] = []
        self.chunks = list(chunks)
        self.models = self

    def generate_content(self, **call: Any) -> dict[str, Any]:
        self.called.append(call)
        return self.chunks[0]

    def generate_content_stream(self, **call: Any) -> list[dict[str, Any]]:
        self.called.append(call)
        return self.chunks


@pytest.mark.parametrize("stream", [False, True])
def test_anything_that_generates_content_is_a_client(stream: bool) -> None:
    """It is told to call no functions, to make no request twice, and how long it has."""
    content = {"role": "model", "parts": [{"text": "3"}]}
    client = Plain({"candidates": [{"content": content, "finishReason": "STOP"}]})
    adapter: GeminiAdapter[Any] = GeminiAdapter(model=NEW, client=client, stream=stream)
    deadline = Deadline(expires_at=datetime.now(UTC) + timedelta(minutes=5))
    assert adapter.evaluate(prompt_of(), session=Session(), deadline=deadline).text == "3"
    (call,) = client.called
    assert call["model"] == NEW
    assert call["config"]["automatic_function_calling"] == {"disable": True}
    assert call["config"]["http_options"]["retry_options"] == {"attempts": 1}
    assert 200_000 < call["config"]["http_options"]["timeout"] <= 300_000


def test_a_stream_is_closed_when_nobody_hears_it_any_more() -> None:
    """Whoever fails at a piece of text does not leave the connection open."""
    ended: list[str] = []

    def chunks(**call: Any) -> Iterator[dict[str, Any]]:
        try:
            while True:
                yield {"candidates": [{"content": {"parts": [{"text": "more"}]}}]}
        finally:
            ended.append("closed")

    def fail(text: str) -> None:
        raise LookupError(text)

    client = SimpleNamespace(models=SimpleNamespace(generate_content_stream=chunks))
    adapter: GeminiAdapter[Any] = GeminiAdapter(model=NEW, client=client)
    with pytest.raises(LookupError) as caught:
        adapter.send({"contents": []}, Sending(on_text=fail))
    # The error's frames still hold the stream: it did not end by itself.
    assert (str(caught.value), ended) == ("more", ["closed"])


def test_signatures_in_either_alphabet_arrive_as_the_same_bytes(gemini: Gemini) -> None:
    """The SDK spells base64 its own way; the bytes are what was signed."""
    signed = bytes(range(200, 256))
    made = {"functionCall": {"name": "add", "args": {}}}
    said = {"role": "model", "parts": [{**made, "thoughtSignature": b64encode(signed).decode()}]}
    told = {"functionResponse": {"name": "add", "response": {"output": "0"}}}
    contents = [
        {"role": "user", "parts": [{"text": "Go."}]},
        said,
        {"role": "user", "parts": [told]},
        {"role": "model", "parts": [{"text": "0"}]},
        {"role": "user", "parts": [{"text": "Again."}]},
    ]
    server = gemini.server(Status(500), Status(500), Answer(text="0"))
    gemini.adapter(server).send({"contents": contents}, Sending())
    assert body(server)["contents"][1]["parts"][0]["thought_signature"] == signed
