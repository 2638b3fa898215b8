"""`AnthropicAdapter`: Anthropic through the `anthropic` package, by its Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, Unpack

from turnledger.adapters.providers.anthropic.messages import DEFAULT_MAX_TOKENS, AnthropicMessages
from turnledger.adapters.providers.anthropic.stream import MessageStream, streamed_error
from turnledger.adapters.providers.sdk import AdapterOptions, SdkAdapter, SdkCall
from turnledger.adapters.providers.wire import WhenUnsupported, field_of
from turnledger.ledger import InvalidInputError
from turnledger.ledger.arguments import explain_methods
from turnledger.runtime.agent.models import Sending

OutputT = TypeVar("OutputT")

# The SDK waits for no more than this in one piece: it reckons with 128,000 tokens an hour, and
# with ten minutes at the most.
_MOST_IN_ONE_PIECE = 128_000 // 6


@explain_methods()
class AnthropicAdapter(SdkAdapter[OutputT]):
    """Anthropic's models.

    Thinking is left out of a request that the API would refuse with it: one whose `tool_choice`
    forces a call and, with a budget, one that goes on with an answer that began without thinking.
    What the provider can't enforce of an output's schema is told in words, and an output with
    open keys is an error.

    Args:
        model: The model's name.
        max_tokens: The most that a reply may have, its thinking included; where that is too much
            for an answer in one piece, it is streamed.
        thinking: As the API spells it: `{"type": "adaptive"}`, or
            `{"type": "enabled", "budget_tokens": 4096}`.
        unsupported_media: "error" refuses media that the format can't take, "hint" sends a line
            of text instead.
        **options: See `AdapterOptions`. A `client` is an `anthropic.Anthropic`, or an object with
            `messages.create`.
    """

    name = package = "anthropic"

    def __init__(
        self,
        *,
        model: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        thinking: Mapping[str, Any] | None = None,
        unsupported_media: WhenUnsupported = "error",
        **options: Unpack[AdapterOptions],
    ) -> None:
        if type(max_tokens) is not int or max_tokens < 1:
            raise InvalidInputError(f"max_tokens is a whole number from 1, not {max_tokens!r}.")
        if thinking is not None and not isinstance(thinking, Mapping):
            raise InvalidInputError(f'thinking is like {{"type": "adaptive"}}, not {thinking!r}.')
        # Among the request's options both are part of its digest.
        sent: dict[str, Any] = {"max_tokens": max_tokens}
        if thinking is not None:
            sent["thinking"] = dict(thinking)
        options["request_options"] = {**sent, **(options.get("request_options") or {})}
        wire = AnthropicMessages(unsupported_media=unsupported_media)
        super().__init__(wire, model=model, **options)

    def make_client(self, **kwargs: Any) -> Any:
        from anthropic import Anthropic

        return Anthropic(**kwargs)

    def make_async_client(self, **kwargs: Any) -> Any:
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(**kwargs)

    def call(self, client: Any, payload: dict[str, Any], sending: Sending) -> SdkCall:
        create = self.limited(client, sending.timeout).messages.create
        if sending.on_text is None and payload["max_tokens"] <= _MOST_IN_ONE_PIECE:
            return SdkCall(create, payload)
        answer = MessageStream(sending.on_text or (lambda text: None))
        return SdkCall(create, payload | {"stream": True}, answer)

    def streamed_error(self, error: Exception) -> Exception:
        if not _is_in_the_stream(error):
            return error
        return streamed_error(getattr(error, "body", None))


def _is_in_the_stream(error: Exception) -> bool:
    """Whether this is what the SDK makes of an error event: an error whose status is a success."""
    status = getattr(error, "status_code", None)
    return type(status) is int and status < 400 and field_of(error, "body") is not None
