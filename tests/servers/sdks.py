"""Each provider's own SDK as a client of its strict server: the same methods for all of them.

What differs between providers is told here as data: the SDK's errors, words and counts. What
every server must do is in `test_strict_servers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import anthropic
import httpx
import httpx2
import openai
from google import genai
from google.genai import errors, types

from tests.servers import anthropic_cases, gemini_cases, openai_chat_cases, openai_responses_cases
from tests.servers.anthropic_messages import OLD, AnthropicMessages
from tests.servers.anthropic_rules import NEW
from tests.servers.gemini_contents import GeminiContents
from tests.servers.openai_chat import OpenAIChat
from tests.servers.openai_responses import OpenAIResponses
from tests.servers.serving import Answer, Call, Scripted, Status, StrictServer, Used, Wire, replies

LOOK = Call("look", '{"at": "sk\\u00fd", "deep": {"n": [1, 2.5, null]}}')
ANSWERS = {
    "text": Answer("Grüße aus Zürich ☃"),
    "nothing": Answer(""),
    "calls": Answer(calls=(LOOK, Call("look"), Call("later", "", "call_own"))),
    "no JSON": Answer(calls=(Call("look", "no json", "my-id"),)),
    "refusal": Answer(refusal="I will not do that"),
    "several": Answer("the first", others=("the second", "a third that is longer")),
    "thinking": Answer("It is", (Call("look"),), thinking="first this, then that"),
    "everything": Answer("I look.", (LOOK, Call("look")), "Where is it?", used=Used(50, 20, 30, 5)),
}

Cases = Mapping[str, list[dict[str, Any]]]


class Sent(NamedTuple):
    """A request as it is sent, and its answer; what is None is as the server wants it."""

    status: int
    kind: str | None = None
    words: str = ""
    path: str | None = None
    headers: dict[str, str] | None = None
    method: str = "POST"
    body: Any = None


class Sdk(ABC):
    """A client that tries once. A history is a list of what the SDK takes as one."""

    wire: type[Wire]
    path: str
    key: dict[str, str]
    hello: Any
    least: ClassVar[dict[str, Any]] = {}
    # Words of a refusal, and the requests that get it.
    refused: Cases
    # Of some refusals: the parameter that an error names, and its code.
    params: ClassVar[dict[str, tuple[str | None, str | None]]] = {}
    refusal: tuple[type[Exception], str]
    accepted: Mapping[str, dict[str, Any]]
    requests: tuple[Sent, ...]
    # A scripted status, the SDK's error for it, its type, and its code if there are any.
    statuses: tuple[tuple[Status, type[Exception], str, str | None], ...]
    timeout: type[Exception]
    cut_body: tuple[type[Exception], ...]
    cut_stream: tuple[type[Exception], ...]
    # Of "Hello, world": how many events are sent, how many the SDK tells, and their text.
    half: tuple[int, int, str]
    # The word for a reply that was cut, and why each kind ended: said, called, cut, refused.
    cut: str
    finishes: tuple[str, str, str, str]
    # What is told of 50 tokens in (30 of them cached) and 20 out (5 of them reasoning).
    counts: tuple[int, ...]

    def __init__(self, server: StrictServer, client: Any) -> None:
        self.server = server
        self.client = client

    def tells(self, *answers: Scripted) -> None:
        """What the server answers from here on, turn by turn."""
        self.server.script = replies(*answers)

    @abstractmethod
    def send(self, body: dict[str, Any]) -> Any:
        """Any body, and the reply as JSON; the SDK's error if it is refused."""

    @abstractmethod
    def told(self, error: Any) -> tuple[int, str, str | None, str]:
        """Status, type, code and message of an SDK's error, whose body has the right shape."""

    @abstractmethod
    def said(self, reply: Any) -> str:
        """The text of a reply as JSON."""

    @abstractmethod
    def reply(self, *history: Any) -> Any: ...

    @abstractmethod
    def events(self, *history: Any) -> list[Any]: ...

    @abstractmethod
    def streamed(self) -> Any:
        """What the SDK makes of a stream, to be compared with what was `seen` of the whole."""

    @abstractmethod
    def seen(self, reply: Any) -> Any: ...

    @abstractmethod
    def text(self, reply: Any) -> str | None: ...

    @abstractmethod
    def heard(self, events: list[Any]) -> tuple[str, bool]:
        """The text of events, and whether the reply's end is among them."""

    @abstractmethod
    def finish(self, reply: Any) -> str: ...

    @abstractmethod
    def used(self, reply: Any) -> tuple[int, ...]: ...

    @abstractmethod
    def following(self, reply: Any) -> list[Any]:
        """A reply as the SDK gave it, and the results of its calls: how the history goes on."""


class _Stainless(Sdk):
    """OpenAI's and Anthropic's SDKs come from one generator."""

    def send(self, body: dict[str, Any]) -> Any:
        return self.client.post(self.path.removeprefix("/v1"), body=body, cast_to=object)


# --- OpenAI -----------------------------------------------------------------------------


class _OpenAI(_Stainless):
    key: ClassVar = {"authorization": "Bearer test"}
    refusal = (openai.BadRequestError, "invalid_request_error")
    requests = (
        *(
            Sent(401, "invalid_request_error", "API key", headers=headers)
            for headers in ({}, {"authorization": "Bearer"}, {"authorization": "Basic a"})
        ),
        Sent(404, "invalid_request_error", path="/v1/completions"),
        Sent(405, "invalid_request_error", method="GET"),
        Sent(
            400,
            "invalid_request_error",
            "only accepts 'application/json'",
            headers={**key, "content-type": "text/plain"},
        ),
    )
    statuses = (
        (Status(400), openai.BadRequestError, "invalid_request_error", None),
        (
            Status(400, kind="context_length_exceeded"),
            openai.BadRequestError,
            "invalid_request_error",
            "context_length_exceeded",
        ),
        (
            Status(401),
            openai.AuthenticationError,
            "invalid_request_error",
            "invalid_api_key",
        ),
        (Status(429), openai.RateLimitError, "rate_limit_error", "rate_limit_exceeded"),
        (
            Status(429, kind="insufficient_quota"),
            openai.RateLimitError,
            "insufficient_quota",
            "insufficient_quota",
        ),
        (Status(500), openai.InternalServerError, "server_error", None),
        (Status(503, kind="overloaded_error"), openai.APIStatusError, "overloaded_error", None),
    )
    timeout = openai.APITimeoutError
    cut_body = (openai.APIConnectionError, httpx.TransportError)
    cut_stream = cut_body
    cut = "length"
    counts = (50, 20, 70, 30, 5)

    def __init__(self, server: StrictServer, timeout: float | None = None) -> None:
        options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        client = openai.OpenAI(
            api_key="test", base_url=f"{server.url}/v1", max_retries=0, **options
        )
        super().__init__(server, client)

    def told(self, error: Any) -> tuple[int, str, str | None, str]:
        assert set(error.body) == {"message", "type", "param", "code"}
        return error.status_code, error.type, error.code, error.body["message"]


class Chat(_OpenAI):
    wire = OpenAIChat
    path = "/v1/chat/completions"
    hello = openai_chat_cases.SAID
    refused = openai_chat_cases.REFUSED
    params: ClassVar = {
        "Unknown parameter: 'top_k'.": ("top_k", "unknown_parameter"),
        "Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1": (
            "messages[1].tool_calls",
            "empty_array",
        ),
        "Expected a string with maximum length 40, but got a string with length 41 instead.": (
            "messages[1].tool_calls[0].id",
            "string_above_max_length",
        ),
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.": (
            "messages.[1].role",
            None,
        ),
        "did not have response messages: a, c": ("messages.[3].role", None),
        "Invalid value for 'content': expected a string, got null.": ("messages.[1].content", None),
        "In context=(), 'additionalProperties' is required to be supplied and to be false.": (
            "tools[0].function.parameters",
            "invalid_function_parameters",
        ),
        "'additionalProperties' is required to be supplied and to be false.": (
            "response_format",
            None,
        ),
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 2.5": (
            "temperature",
            "decimal_above_max_value",
        ),
        "Unknown parameter: 'messages[0].mood'.": ("messages[0].mood", "unknown_parameter"),
    }
    accepted = openai_chat_cases.ACCEPTED
    requests = (
        *_OpenAI.requests,
        Sent(200, path="/chat/completions"),
        Sent(200, path="/v1/chat/completions?a=b"),
    )
    half = (3, 3, "Hello,")
    finishes = ("stop", "tool_calls", "length", "stop")

    def said(self, reply: Any) -> str:
        return str(reply["choices"][0]["message"]["content"])

    def reply(self, *history: Any, **more: Any) -> Any:
        return self.client.chat.completions.create(**openai_chat_cases.asks(*history, **more))

    def events(self, *history: Any, **more: Any) -> list[Any]:
        with self.reply(*history, stream=True, **more) as stream:
            return list(stream)

    def streamed(self) -> Any:
        body = openai_chat_cases.asks(stream_options={"include_usage": True})
        with self.client.chat.completions.stream(**body) as stream:
            try:
                return self.seen(stream.get_final_completion())
            except openai.LengthFinishReasonError as cut:
                return self.seen(cut.completion)

    def seen(self, reply: Any) -> Any:
        return [*map(_choice, reply.choices)], reply.usage, reply.id, reply.created

    def text(self, reply: Any) -> str | None:
        return str(reply.choices[0].message.content)

    def heard(self, events: list[Any]) -> tuple[str, bool]:
        choices = [chunk.choices[0] for chunk in events]
        text = "".join(choice.delta.content or "" for choice in choices)
        return text, any(choice.finish_reason for choice in choices)

    def finish(self, reply: Any) -> str:
        return str(reply.choices[0].finish_reason)

    def used(self, reply: Any) -> tuple[int, ...]:
        usage = reply.usage
        cached = usage.prompt_tokens_details.cached_tokens
        thought = usage.completion_tokens_details.reasoning_tokens
        total = usage.total_tokens
        return usage.prompt_tokens, usage.completion_tokens, total, cached, thought

    def following(self, reply: Any) -> list[Any]:
        message = reply.choices[0].message
        results = [openai_chat_cases.result(call.id) for call in message.tool_calls or ()]
        # The SDK's type of a message that is sent has no annotations.
        return [message.model_dump(exclude={"annotations"}, exclude_none=True), *results]


def _choice(choice: Any) -> tuple[Any, ...]:
    calls = [
        (call.id, call.type, call.function.name, call.function.arguments)
        for call in choice.message.tool_calls or ()
    ]
    said = (choice.message.content or "", choice.message.refusal or "")
    return choice.index, choice.finish_reason, *said, calls


class Responses(_OpenAI):
    wire = OpenAIResponses
    path = "/v1/responses"
    hello = openai_responses_cases.SAID
    refused = openai_responses_cases.REFUSED
    params: ClassVar = {
        "Unknown parameter: 'top_k'.": ("top_k", "unknown_parameter"),
        "Unsupported parameter: 'messages'. In the Responses API, this parameter has moved to": (
            "messages",
            "unsupported_parameter",
        ),
        "No tool call found for function call output with call_id a.": ("input", None),
        "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64": (
            "input[1].call_id",
            "string_above_max_length",
        ),
        "Invalid 'input[1].id': 'call_a'. Expected an ID that begins with 'fc'.": (
            "input[1].id",
            "invalid_value",
        ),
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.": (
            "input",
            None,
        ),
        "The encrypted content for item rs_1 could not be verified.": (
            None,
            "invalid_encrypted_content",
        ),
        "In context=(), 'additionalProperties' is required to be supplied and to be false.": (
            "tools[0].parameters",
            "invalid_function_parameters",
        ),
        "Invalid schema for response_format 'report': schema must be a JSON Schema of 'type: ": (
            "text.format.schema",
            "invalid_json_schema",
        ),
        "Previous response with id 'resp_1' not found.": (
            "previous_response_id",
            "previous_response_not_found",
        ),
    }
    accepted = openai_responses_cases.ACCEPTED
    requests = (*_OpenAI.requests, Sent(200, path="/responses"))
    half = (6, 6, "Hello,")
    finishes = ("completed", "completed", "max_output_tokens", "completed")

    def said(self, reply: Any) -> str:
        return "".join(part["text"] for item in reply["output"] for part in item["content"])

    def reply(self, *history: Any, **more: Any) -> Any:
        return self.client.responses.create(**openai_responses_cases.asks(*history, **more))

    def events(self, *history: Any, **more: Any) -> list[Any]:
        with self.reply(*history, stream=True, **more) as stream:
            return list(stream)

    def streamed(self) -> Any:
        return self.events()[-1].response

    def seen(self, reply: Any) -> Any:
        return reply

    def text(self, reply: Any) -> str | None:
        return str(reply.output_text)

    def heard(self, events: list[Any]) -> tuple[str, bool]:
        deltas = [one.delta for one in events if one.type == "response.output_text.delta"]
        return "".join(deltas), any(one.type == "response.completed" for one in events)

    def finish(self, reply: Any) -> str:
        return str(reply.incomplete_details.reason if reply.incomplete_details else reply.status)

    def used(self, reply: Any) -> tuple[int, ...]:
        usage = reply.usage
        cached = usage.input_tokens_details.cached_tokens
        thought = usage.output_tokens_details.reasoning_tokens
        return usage.input_tokens, usage.output_tokens, usage.total_tokens, cached, thought

    def following(self, reply: Any) -> list[Any]:
        calls = [item for item in reply.output if item.type == "function_call"]
        return [*reply.output, *(openai_responses_cases.result(call.call_id) for call in calls)]


# --- Anthropic ----------------------------------------------------------------------------


class Anthropic(_Stainless):
    wire = AnthropicMessages
    path = "/v1/messages"
    key: ClassVar = {"x-api-key": "test", "anthropic-version": NEW}
    hello = anthropic_cases.HELLO
    least = anthropic_cases.LEAST
    refused = anthropic_cases.REFUSED
    refusal = (anthropic.BadRequestError, "invalid_request_error")
    accepted = anthropic_cases.ACCEPTED
    requests = (
        Sent(
            401,
            "authentication_error",
            "x-api-key header is required",
            headers={"anthropic-version": NEW},
        ),
        Sent(
            400,
            "invalid_request_error",
            "anthropic-version: header is required",
            headers={"x-api-key": "k"},
        ),
        Sent(
            400,
            "invalid_request_error",
            'anthropic-version: "2024-01-01" is not a valid version',
            headers={"x-api-key": "k", "anthropic-version": "2024-01-01"},
        ),
        Sent(404, "not_found_error", path="/v1/complete"),
        *(
            Sent(
                400,
                "invalid_request_error",
                f"{name}: Field required",
                body={key: value for key, value in anthropic_cases.LEAST.items() if key != name},
            )
            for name in anthropic_cases.LEAST
        ),
        # The older version takes a temperature, up to 1.
        Sent(
            200,
            headers={**key, "anthropic-version": OLD},
            body={**anthropic_cases.LEAST, "temperature": 1},
        ),
        Sent(
            400,
            "invalid_request_error",
            "temperature: Input should be less than",
            headers={**key, "anthropic-version": OLD},
            body={**anthropic_cases.LEAST, "temperature": 1.5},
        ),
    )
    statuses = (
        (Status(429), anthropic.RateLimitError, "rate_limit_error", None),
        (Status(500), anthropic.InternalServerError, "api_error", None),
        (Status(529), anthropic.APIStatusError, "overloaded_error", None),
        (Status(401), anthropic.AuthenticationError, "authentication_error", None),
    )
    timeout = anthropic.APITimeoutError
    cut_body = (anthropic.APIConnectionError,)
    # A stream that breaks is the transport's error, not one of the client's.
    cut_stream = (httpx2.TransportError,)
    # The SDK keeps a ping to itself.
    half = (4, 3, "Hello")
    cut = "max_tokens"
    finishes = ("end_turn", "tool_use", "max_tokens", "refusal")
    counts = (20, 20, 30, 0)

    def __init__(self, server: StrictServer, timeout: float | None = None) -> None:
        options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        client = anthropic.Anthropic(api_key="test", base_url=server.url, max_retries=0, **options)
        super().__init__(server, client)

    def send(self, body: dict[str, Any]) -> Any:
        return self.client.post(self.path, body=body, cast_to=object)

    def told(self, error: Any) -> tuple[int, str, str | None, str]:
        body = error.body
        assert (body["type"], body["request_id"][:4]) == ("error", "req_")
        return error.status_code, body["error"]["type"], None, body["error"]["message"]

    def said(self, reply: Any) -> str:
        (block,) = reply["content"]
        assert block == anthropic_cases.text(block["text"])
        return str(block["text"])

    def body(self, *history: Any, **more: Any) -> dict[str, Any]:
        said = {"messages": list(history or [self.hello]), "tools": [anthropic_cases.TOOL]}
        thinking = {"thinking": anthropic_cases.THINKING, "max_tokens": 2048}
        return {**self.least, **said, **thinking, **more}

    def reply(self, *history: Any, **more: Any) -> Any:
        return self.client.messages.create(**self.body(*history, **more))

    def events(self, *history: Any) -> list[Any]:
        with self.reply(*history, stream=True) as stream:
            return list(stream)

    def streamed(self) -> Any:
        with self.client.messages.stream(**self.body()) as stream:
            return self.seen(stream.get_final_message())

    def seen(self, reply: Any) -> Any:
        return _without(reply.to_dict(), {"service_tier", "parsed_output"})

    def text(self, reply: Any) -> str | None:
        return "".join(block.text for block in reply.content if block.type == "text")

    def heard(self, events: list[Any]) -> tuple[str, bool]:
        deltas = [event.delta for event in events if event.type == "content_block_delta"]
        ended = any(event.type in ("message_delta", "message_stop") for event in events)
        return "".join(delta.text for delta in deltas), ended

    def finish(self, reply: Any) -> str:
        return str(reply.stop_reason)

    def used(self, reply: Any) -> tuple[int, ...]:
        usage = reply.usage
        cached, created = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        return usage.input_tokens, usage.output_tokens, cached, created

    def following(self, reply: Any) -> list[Any]:
        uses = [block for block in reply.content if block.type == "tool_use"]
        results = anthropic_cases.user(*(anthropic_cases.result(block.id) for block in uses))
        said = {"role": "assistant", "content": reply.content}
        return [said, results] if uses else [said]


def _without(given: Any, names: set[str]) -> Any:
    if isinstance(given, dict):
        return {key: _without(one, names) for key, one in given.items() if key not in names}
    return [_without(one, names) for one in given] if isinstance(given, list) else given


# --- Gemini -------------------------------------------------------------------------------


class Gemini(Sdk):
    wire = GeminiContents
    model = "gemini-2.5-flash"
    path = f"/v1beta/models/{model}:generateContent"
    key: ClassVar = {"x-goog-api-key": "test"}
    hello = types.Content(role="user", parts=[types.Part(text="Hello")])
    least = gemini_cases.LEAST
    refused = gemini_cases.REFUSED
    refusal = (errors.ClientError, "INVALID_ARGUMENT")
    accepted = gemini_cases.ACCEPTED
    requests = (
        Sent(403, "PERMISSION_DENIED", "unregistered callers", headers={}),
        Sent(404, "NOT_FOUND", path=f"/v1beta/models/{model}:countTokens?key=k"),
        Sent(200, path=f"/v1beta/models/{model}:generateContent?key=k", headers={}),
        Sent(200, path=f"/v1/models/{model}:generateContent?key=k", headers={}),
        Sent(403, "PERMISSION_DENIED", path=f"/v1/models/{model}:generateContent", headers={}),
    )
    statuses = (
        (Status(429), errors.ClientError, "RESOURCE_EXHAUSTED", None),
        (Status(500), errors.ServerError, "INTERNAL", None),
        (Status(503), errors.ServerError, "UNAVAILABLE", None),
    )
    timeout = httpx2.TimeoutException
    cut_body = cut_stream = (httpx2.TransportError,)
    half = (2, 2, "Hello, wor")
    cut = "MAX_TOKENS"
    finishes = ("STOP", "STOP", "MAX_TOKENS", "SAFETY")
    counts = (50, 15, 70, 30, 5)

    def __init__(self, server: StrictServer, timeout: float | None = None) -> None:
        once = types.HttpRetryOptions(attempts=1)
        limit = None if timeout is None else int(timeout * 1000)
        options = types.HttpOptions(base_url=server.url, retry_options=once, timeout=limit)
        super().__init__(server, genai.Client(api_key="test", http_options=options))

    def send(self, body: dict[str, Any]) -> Any:
        # There is no TLS here, and its certificates take their time to load.
        response = httpx.post(
            self.server.url + self.path, json=body, headers=self.key, verify=False
        )
        errors.APIError.raise_for_response(response)
        return response.json()

    def told(self, error: Any) -> tuple[int, str, str | None, str]:
        assert error.details["error"]["code"] == error.code
        return error.code, error.status, None, error.message

    def said(self, reply: Any) -> str:
        content = reply["candidates"][0]["content"]
        assert content == gemini_cases.model(*content["parts"])
        return str(content["parts"][0]["text"])

    def asks(self, *history: Any, **more: Any) -> dict[str, Any]:
        function = types.FunctionDeclaration(name="look", parameters_json_schema={"type": "object"})
        config = types.GenerateContentConfig(
            system_instruction="Be kind",
            tools=[types.Tool(function_declarations=[function])],
            thinking_config=types.ThinkingConfig(include_thoughts=True),
        )
        contents = list(history or [self.hello])
        return {"model": self.model, "contents": contents, "config": config, **more}

    def reply(self, *history: Any, **more: Any) -> Any:
        return self.client.models.generate_content(**self.asks(*history, **more))

    def events(self, *history: Any, **more: Any) -> list[Any]:
        return list(self.client.models.generate_content_stream(**self.asks(*history, **more)))

    def streamed(self) -> Any:
        chunks = self.events()
        assert all(chunk.candidates[0].finish_reason is None for chunk in chunks[:-1])
        return _gathered(chunks)

    def seen(self, reply: Any) -> Any:
        return _gathered([reply])

    def text(self, reply: Any) -> str | None:
        return str(reply.text)

    def heard(self, events: list[Any]) -> tuple[str, bool]:
        ended = any(chunk.candidates[0].finish_reason for chunk in events)
        return "".join(chunk.text or "" for chunk in events), ended

    def finish(self, reply: Any) -> str:
        return str(reply.candidates[0].finish_reason.value)

    def used(self, reply: Any) -> tuple[int, ...]:
        used = reply.usage_metadata
        cached, thought = used.cached_content_token_count, used.thoughts_token_count
        total = used.total_token_count
        return used.prompt_token_count, used.candidates_token_count, total, cached, thought

    def following(self, reply: Any) -> list[Any]:
        told = {"output": "seen"}
        results = [
            types.FunctionResponse(id=one.id, name=one.name, response=told)
            for one in reply.function_calls or ()
        ]
        parts = [types.Part(function_response=one) for one in results]
        said = reply.candidates[0].content
        return [said, types.Content(role="user", parts=parts)] if parts else [said]


class NewerGemini(Gemini):
    """A model that signs its calls, and wants the signatures back."""

    model = "gemini-3-pro"


def _gathered(chunks: list[Any]) -> dict[str, Any]:
    """What a client takes from chunks, or from one whole answer."""
    parts = [
        part
        for chunk in chunks
        for one in chunk.candidates
        if one.index == 0
        for part in (one.content.parts or [])
    ]
    return {
        "text": "".join(part.text or "" for part in parts if not part.thought),
        "thought": "".join(part.text or "" for part in parts if part.thought),
        "calls": [part.function_call for part in parts if part.function_call],
        "signatures": [part.thought_signature for part in parts if part.thought_signature],
        "finish": chunks[-1].candidates[0].finish_reason,
        "used": chunks[-1].usage_metadata,
        "id": chunks[-1].response_id,
    }


SDKS: tuple[type[Sdk], ...] = (Chat, Responses, Anthropic, Gemini)


@contextmanager
def connected(kind: type[Sdk], *answers: Scripted) -> Iterator[Any]:
    """An SDK and its server, which gives these answers, or says "fine"."""
    script = replies(*answers) if answers else lambda asked: Answer("fine")
    with StrictServer(kind.wire(), script) as server:
        sdk = kind(server)  # type: ignore[call-arg]
        yield sdk
        sdk.client.close()
