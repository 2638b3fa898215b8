"""`OpenAIAdapter`: OpenAI through the `openai` package, by chat completions or by Responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, Unpack

from turnledger.adapters.providers.openai.chat import ChatCompletions, ChatStream
from turnledger.adapters.providers.openai.responses import Responses, ResponsesStream
from turnledger.adapters.providers.sdk import AdapterOptions, SdkAdapter, SdkCall
from turnledger.adapters.providers.wire import WhenUnsupported
from turnledger.ledger import InvalidInputError
from turnledger.ledger.arguments import explain_methods
from turnledger.runtime.agent.models import Sending

OutputT = TypeVar("OutputT")


@explain_methods()
class OpenAIAdapter(SdkAdapter[OutputT]):
    """OpenAI, and every server that speaks its chat completions.

    Args:
        model: The model's name.
        wire_format: "chat" for chat completions, "responses" for the Responses API.
        unsupported_media: "error" refuses media that the format can't take, "hint" sends a line
            of text instead.
        **options: See `AdapterOptions`. A `client` is an `openai.OpenAI`, or an object with
            `chat.completions.create` (`responses.create` for the Responses API).
    """

    name = package = "openai"

    def __init__(
        self,
        *,
        model: str,
        wire_format: Literal["chat", "responses"] = "chat",
        unsupported_media: WhenUnsupported = "error",
        **options: Unpack[AdapterOptions],
    ) -> None:
        if wire_format not in ("chat", "responses"):
            raise InvalidInputError(f"wire_format is 'chat' or 'responses', not {wire_format!r}.")
        kind = ChatCompletions if wire_format == "chat" else Responses
        super().__init__(kind(unsupported_media=unsupported_media), model=model, **options)

    def make_client(self, **kwargs: Any) -> Any:
        from openai import OpenAI

        return OpenAI(**kwargs)

    def make_async_client(self, **kwargs: Any) -> Any:
        from openai import AsyncOpenAI

        return AsyncOpenAI(**kwargs)

    def call(self, client: Any, payload: dict[str, Any], sending: Sending) -> SdkCall:
        client, on_text = self.limited(client, sending.timeout), sending.on_text
        if not isinstance(self.wire, Responses):
            return chat_call(client.chat.completions.create, payload, on_text)
        create = client.responses.create
        if on_text is None:
            return SdkCall(create, payload)
        return SdkCall(create, payload | {"stream": True}, ResponsesStream(on_text))


def chat_call(
    create: Callable[..., Any], payload: dict[str, Any], on_text: Callable[[str], None] | None
) -> SdkCall:
    """The call of a chat completion, streamed if `on_text` is given."""
    if on_text is None:
        return SdkCall(create, payload)
    options = {"include_usage": True, **payload.get("stream_options", {})}
    streamed = payload | {"stream": True, "stream_options": options}
    return SdkCall(create, streamed, ChatStream(on_text))
