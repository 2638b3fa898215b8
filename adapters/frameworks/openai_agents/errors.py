"""Errors of the OpenAI SDK, recorded and made again: code takes the same `except` on a resume."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from turnledger.adapters.frameworks.packages import framework
from turnledger.runtime.steps import StepOutcome

with framework("openai", extra="openai-agents", integration="turnledger.openai_agents"):
    import openai

# Nothing is sent to it: an error has to have a request.
_ADDRESS = "https://recorded.invalid"


class OpenAIErrors:
    """The errors that a model over the OpenAI SDK raises."""

    def facts(self, error: Exception) -> tuple[int | None, Any] | None:
        """The status and the body of the answer; of a broken connection neither."""
        if isinstance(error, openai.APIStatusError):
            return error.status_code, error.body
        return (None, None) if isinstance(error, openai.APIConnectionError) else None

    def again(self, outcome: StepOutcome) -> Exception | None:
        """The error of that class, status and body."""
        kind: Any = getattr(openai, outcome.error_type, None)
        if not isinstance(kind, type) or not issubclass(kind, openai.APIError):
            return None
        http = _http()
        request = http.Request("POST", _ADDRESS)
        made: Exception
        try:
            if issubclass(kind, openai.APITimeoutError):
                made = kind(request=request)
            elif issubclass(kind, openai.APIConnectionError):
                made = kind(message=outcome.error_message, request=request)
            else:
                response = http.Response(outcome.status or 500, request=request)
                made = kind(outcome.error_message, response=response, body=outcome.value)
        except TypeError:  # its constructor takes something else
            return None
        return made


def _http() -> Any:
    """The HTTP module of the SDK: httpx, or httpx2 from openai 3 on."""
    packages = [one.__module__.partition(".")[0] for one in openai.DefaultHttpxClient.__mro__]
    return import_module(next(name for name in packages if name.startswith("httpx")))
