"""`AnthropicAdapter`: Anthropic through the `anthropic` package, by its Messages API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, TypeVar

from turnledger.adapters.providers.anthropic.messages import DEFAULT_MAX_TOKENS, AnthropicMessages
from turnledger.adapters.providers.anthropic.stream import MessageStream, streamed_error
from turnledger.adapters.providers.sdk import SdkAdapter, require
from turnledger.adapters.providers.wire import WhenUnsupported, field_of
from turnledger.ledger import InvalidInputError
from turnledger.runtime import TextReceived, ThrottlePolicy
from turnledger.runtime.agent.models import Sending, ToolChoice

OutputT = TypeVar("OutputT")

# The SDK waits for no more than this in one piece: it reckons with 128,000 tokens an hour, and
# with ten minutes at the most.
_MOST_IN_ONE_PIECE = 128_000 // 6


class AnthropicAdapter(SdkAdapter[OutputT]):
    """Anthropic's models.

    `client` is an `anthropic.Anthropic`, or anything with `messages.create`; without one,
    `client_factory`, by default `anthropic.Anthropic`, is called with `client_kwargs` at the
    first request. `max_tokens` is the most that a reply may have, its thinking included; where
    that is too much for an answer in one piece, it is streamed.

    `thinking` is what the API calls so: `{"type": "adaptive"}`, or
    `{"type": "enabled", "budget_tokens": 4096}`. It is off for a request that the API would
    refuse with it: one whose `tool_choice` forces a call and, with a budget, one that goes on
    with an answer that began without thinking. After a forced call that is all of the answer.

    `use_native_response_format` has the provider enforce the output's schema; what it can't
    enforce is told in words, and an output with open keys is an error. `request_options` go
    into every request as they are (`{"output_config": {"effort": "low"}}`). `stream` has the
    text sent as it comes: `on_delta` hears of it, and the bus. `unsupported_media="hint"`
    sends a line of text for media that the format can't take, where "error" refuses.
    """

    name = "anthropic"

    def __init__(
        self,
        *,
        model: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        thinking: Mapping[str, Any] | None = None,
        tool_choice: ToolChoice = "auto",
        client: Any = None,
        client_factory: Callable[..., Any] | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
        use_native_response_format: bool = True,
        parallel_tools: int = 1,
        throttle: ThrottlePolicy | None = None,
        request_options: Mapping[str, Any] | None = None,
        stream: bool = False,
        on_delta: Callable[[TextReceived], None] | None = None,
        unsupported_media: WhenUnsupported = "error",
    ) -> None:
        if type(max_tokens) is not int or max_tokens < 1:
            raise InvalidInputError(f"max_tokens is a whole number from 1, not {max_tokens!r}.")
        if thinking is not None and not isinstance(thinking, Mapping):
            raise InvalidInputError(f'thinking is like {{"type": "adaptive"}}, not {thinking!r}.')
        # Among the options both are part of a request's digest.
        options: dict[str, Any] = {"max_tokens": max_tokens}
        if thinking is not None:
            options["thinking"] = dict(thinking)
        super().__init__(
            AnthropicMessages(unsupported_media=unsupported_media),
            model=model,
            client=client,
            client_factory=client_factory,
            client_kwargs=client_kwargs,
            tool_choice=tool_choice,
            parallel_tools=parallel_tools,
            throttle=throttle,
            use_native_response_format=use_native_response_format,
            request_options={**options, **(request_options or {})},
            stream=stream,
            on_delta=on_delta,
        )

    def check_installed(self) -> None:
        require("anthropic", "anthropic")

    def make_client(self, **kwargs: Any) -> Any:
        from anthropic import Anthropic

        return Anthropic(**kwargs)

    def send(self, payload: dict[str, Any], sending: Sending) -> Any:
        create = self.limited(sending.timeout).messages.create
        if sending.on_text is None and payload["max_tokens"] <= _MOST_IN_ONE_PIECE:
            return create(**payload)
        answer = MessageStream(sending.on_text or _unheard)
        try:
            with closing(create(**payload, stream=True)) as events:
                for event in events:
                    answer.add(event)
        except Exception as error:
            if not _is_in_the_stream(error):
                raise
            raise streamed_error(getattr(error, "body", None)) from error
        return answer.whole()


def _unheard(text: str) -> None:
    pass


def _is_in_the_stream(error: Exception) -> bool:
    """Whether this is what the SDK makes of an error event: an error whose status is a success."""
    status = getattr(error, "status_code", None)
    return type(status) is int and status < 400 and field_of(error, "body") is not None
