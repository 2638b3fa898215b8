"""`GeminiAdapter`: Google's Gemini through the `google-genai` package."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from math import ceil
from typing import Any, TypeVar

from turnledger.adapters.providers.gemini.contents import GeminiContents
from turnledger.adapters.providers.gemini.stream import GeminiStream
from turnledger.adapters.providers.sdk import SdkAdapter, require
from turnledger.adapters.providers.wire import WhenUnsupported
from turnledger.runtime import TextReceived, ThrottlePolicy
from turnledger.runtime.agent.models import RetryAdvice, Sending, ToolChoice

OutputT = TypeVar("OutputT")

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


class GeminiAdapter(SdkAdapter[OutputT]):
    """Gemini, by its developer API or by Vertex AI.

    `client` is a `google.genai.Client`, or anything with `models.generate_content` (and
    `models.generate_content_stream` for streaming); without one, `client_factory`, by default
    `google.genai.Client`, is called with `client_kwargs` at the first request.
    `use_native_response_format` has the provider enforce the output's schema; models before
    Gemini 3 can't do that while there are tools, and are told the schema instead.
    `request_options` are fields of the request as the REST API spells them, and all others go
    into its generationConfig (`{"temperature": 0}`). `stream` has the text sent as it comes:
    `on_delta` hears of it, and the bus. `unsupported_media="hint"` sends a line of text for
    media that the format can't take, where "error" refuses.
    """

    name = "gemini"

    def __init__(
        self,
        *,
        model: str,
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
        super().__init__(
            GeminiContents(model=model, unsupported_media=unsupported_media),
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
        require("google.genai", "gemini")

    def make_client(self, **kwargs: Any) -> Any:
        from google.genai import Client

        return Client(**kwargs)

    def send(self, payload: dict[str, Any], sending: Sending) -> Any:
        models = self.client.models
        call = {
            "model": self.model,
            "contents": payload["contents"],
            "config": sdk_config(payload, sending.timeout),
        }
        if sending.on_text is None:
            return models.generate_content(**call)
        answer = GeminiStream(sending.on_text)
        stream = models.generate_content_stream(**call)
        try:
            for chunk in stream:
                answer.add(chunk)
        finally:
            close = getattr(stream, "close", None)
            if close is not None:
                close()
        return answer.whole()

    def advise(self, error: Exception) -> RetryAdvice:
        """As for other providers; the wait that Gemini asks for stands in the error's details.

        Not again after a quota for the day: that does not fill by waiting.
        """
        advice = super().advise(error)
        if not advice.retryable:
            return advice
        wait = advice.retry_after
        for detail in _details(error):
            violations = detail.get("violations")
            for violation in violations if isinstance(violations, list) else ():
                if isinstance(violation, dict) and "PerDay" in str(violation.get("quotaId")):
                    return RetryAdvice(False)
            said = _SECONDS.fullmatch(str(detail.get("retryDelay")))
            if said is not None and wait is None:
                wait = timedelta(seconds=float(said[1]))
        return RetryAdvice(True, wait)


def sdk_config(payload: Mapping[str, Any], timeout: float | None) -> dict[str, Any]:
    """A payload of the REST API as the SDK's `config`, which has all but the contents in one.

    The SDK takes the REST API's names, and base64 for bytes. It is to call no functions and to
    make no request twice: both are the loop's. Its timeouts are in milliseconds.
    """
    config = {name: value for name, value in payload.items() if name != "contents"}
    config |= config.pop("generationConfig", {})
    http: dict[str, Any] = {"retry_options": {"attempts": 1}}
    if timeout is not None:
        http["timeout"] = max(1, ceil(timeout * 1000))
    return {**config, "automatic_function_calling": {"disable": True}, "http_options": http}


def _details(error: Exception) -> Iterator[dict[str, Any]]:
    """The details of a Google error: what they are about is in their `@type`."""
    body: Any = getattr(error, "details", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    details = inner.get("details") if isinstance(inner, dict) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            yield detail
