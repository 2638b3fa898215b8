"""`OpenAIAdapter`: OpenAI through the `openai` package, by chat completions or by Responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Literal, TypeVar

from turnledger.adapters.providers.openai.chat import ChatCompletions, ChatStream
from turnledger.adapters.providers.openai.responses import Responses, ResponsesStream
from turnledger.adapters.providers.sdk import SdkAdapter, require
from turnledger.adapters.providers.wire import WhenUnsupported
from turnledger.ledger import InvalidInputError
from turnledger.runtime import TextReceived, ThrottlePolicy
from turnledger.runtime.agent.models import Sending, ToolChoice

OutputT = TypeVar("OutputT")


class OpenAIAdapter(SdkAdapter[OutputT]):
    """OpenAI, and every server that speaks its chat completions.

    `client` is an `openai.OpenAI`, or anything with `chat.completions.create` (with
    `responses.create` for `wire_format="responses"`); without one, `client_factory`, by default
    `openai.OpenAI`, is called with `client_kwargs` at the first request.
    `use_native_response_format` has the provider enforce the output's schema.
    `request_options` go into every request as they are (`{"temperature": 0}`). `stream` has the
    text sent as it comes: `on_delta` hears of it, and the bus. `unsupported_media="hint"` sends
    a line of text for media that the format can't take, where "error" refuses.
    """

    name = "openai"

    def __init__(
        self,
        *,
        model: str,
        tool_choice: ToolChoice = "auto",
        client: Any = None,
        client_factory: Callable[..., Any] | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
        use_native_response_format: bool = True,
        wire_format: Literal["chat", "responses"] = "chat",
        parallel_tools: int = 1,
        throttle: ThrottlePolicy | None = None,
        request_options: Mapping[str, Any] | None = None,
        stream: bool = False,
        on_delta: Callable[[TextReceived], None] | None = None,
        unsupported_media: WhenUnsupported = "error",
    ) -> None:
        if wire_format not in ("chat", "responses"):
            raise InvalidInputError(f"wire_format is 'chat' or 'responses', not {wire_format!r}.")
        kind = ChatCompletions if wire_format == "chat" else Responses
        super().__init__(
            kind(unsupported_media=unsupported_media),
            model=model,
            client=client,
            client_factory=client_factory,
            client_kwargs=client_kwargs,
            tool_choice=tool_choice,
            parallel_tools=parallel_tools,
            throttle=throttle,
            use_native_response_format=use_native_response_format,
            request_options=request_options,
            stream=stream,
            on_delta=on_delta,
        )

    def check_installed(self) -> None:
        require("openai", "openai")

    def make_client(self, **kwargs: Any) -> Any:
        from openai import OpenAI

        return OpenAI(**kwargs)

    def send(self, payload: dict[str, Any], sending: Sending) -> Any:
        client = self.limited(sending.timeout)
        if isinstance(self.wire, Responses):
            return _responses(client.responses.create, payload, sending.on_text)
        return send_chat(client.chat.completions.create, payload, sending.on_text)


def send_chat(
    create: Callable[..., Any], payload: dict[str, Any], on_text: Callable[[str], None] | None
) -> Any:
    """The answer of a chat completion, streamed if somebody hears it."""
    if on_text is None:
        return create(**payload)
    options = {"include_usage": True, **payload.get("stream_options", {})}
    answer = ChatStream(on_text)
    with closing(create(**payload | {"stream": True, "stream_options": options})) as stream:
        for chunk in stream:
            answer.add(chunk)
    return answer.whole()


def _responses(
    create: Callable[..., Any], payload: dict[str, Any], on_text: Callable[[str], None] | None
) -> Any:
    if on_text is None:
        return create(**payload)
    answer = ResponsesStream(on_text)
    with closing(create(**payload, stream=True)) as stream:
        for event in stream:
            answer.add(event)
    return answer.whole()
