"""Gemini answers as the REST API spells them: whole, or assembled from chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnledger.adapters.providers.retry import InterruptedStreamError
from turnledger.runtime.agent.models.request import as_data

# What an SDK's answer holds beyond what the provider said.
_NOT_SAID = {"sdk_http_response", "automatic_function_calling_history"}


def rest_data(answer: Any) -> dict[str, Any]:
    """An answer as the REST API spells it: the SDK's object, or data that is so already."""
    data = as_data(answer, by_alias=True, exclude=_NOT_SAID)
    if data is None:
        raise ValueError(f"the answer is not a Gemini response but {type(answer).__name__}")
    return data


class GeminiStream:
    """The chunks of a streamed answer, put together to what it would have been whole."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._answer: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = []

    def add(self, chunk: Any) -> None:
        data = rest_data(chunk)
        candidates = data.pop("candidates", None) or ()
        self._answer |= data
        for candidate in candidates:
            if candidate.get("index", 0) == 0:
                self._take(dict(candidate))

    def _take(self, candidate: dict[str, Any]) -> None:
        content = candidate.pop("content", None) or {}
        self._candidate |= candidate
        for part in content.get("parts") or ():
            self._add(part)
            if part.get("text") and not part.get("thought"):
                self._on_text(part["text"])

    def _add(self, part: dict[str, Any]) -> None:
        """A text goes on in the next part, up to one that is signed: that stands by itself."""
        before = self._parts[-1] if self._parts else {}
        if _goes_on(before) and _goes_on(part) and before.get("thought") == part.get("thought"):
            self._parts[-1] = {**before, "text": before["text"] + part["text"]}
        elif part != {"text": ""}:
            self._parts.append(part)

    def whole(self) -> dict[str, Any]:
        """The answer; InterruptedStreamError if its end never came."""
        if "finishReason" not in self._candidate:
            if (self._answer.get("promptFeedback") or {}).get("blockReason"):
                return dict(self._answer)
            raise InterruptedStreamError("the stream ended before the answer did")
        content = {"role": "model", "parts": self._parts}
        return {**self._answer, "candidates": [{"content": content, **self._candidate}]}


def _goes_on(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("text"), str) and "thoughtSignature" not in part
