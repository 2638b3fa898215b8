"""`GeminiAdapter`: Google's Gemini through the `google-genai` package."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from math import ceil
from typing import Any, TypeVar, Unpack

from turnledger.adapters.providers.gemini.contents import GeminiContents
from turnledger.adapters.providers.gemini.stream import GeminiStream
from turnledger.adapters.providers.sdk import AdapterOptions, SdkAdapter, SdkCall
from turnledger.adapters.providers.wire import WhenUnsupported
from turnledger.ledger.arguments import explain_methods
from turnledger.runtime.agent.models import RetryAdvice, Sending

OutputT = TypeVar("OutputT")

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


@explain_methods()
class GeminiAdapter(SdkAdapter[OutputT]):
    """Gemini, by its developer API or by Vertex AI.

    Models before Gemini 3 can't enforce an output's schema while there are tools; they are told
    the schema in words. `request_options` are fields of the request as the REST API spells them;
    all others go into its generationConfig.

    Args:
        model: The model's name.
        unsupported_media: "error" refuses media that the format can't take, "hint" sends a line
            of text instead.
        **options: See `AdapterOptions`. A `client` is a `google.genai.Client`, or an object with
            `models.generate_content` (and `models.generate_content_stream` for streaming).
    """

    name = "gemini"
    package = "google.genai"

    def __init__(
        self,
        *,
        model: str,
        unsupported_media: WhenUnsupported = "error",
        **options: Unpack[AdapterOptions],
    ) -> None:
        wire = GeminiContents(model=model, unsupported_media=unsupported_media)
        super().__init__(wire, model=model, **options)

    def make_client(self, **kwargs: Any) -> Any:
        from google.genai import Client

        return Client(**kwargs)

    def make_async_client(self, **kwargs: Any) -> Any:
        from google.genai import Client

        return Client(**kwargs).aio

    def call(self, client: Any, payload: dict[str, Any], sending: Sending) -> SdkCall:
        arguments = {
            "model": self.model,
            "contents": payload["contents"],
            "config": sdk_config(payload, sending.timeout),
        }
        if sending.on_text is None:
            return SdkCall(client.models.generate_content, arguments)
        stream = client.models.generate_content_stream
        return SdkCall(stream, arguments, GeminiStream(sending.on_text))

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
