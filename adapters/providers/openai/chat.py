"""Wire format of OpenAI's chat completions, which many other providers speak too."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from turnledger.adapters.providers.media import LoadedMedia
from turnledger.adapters.providers.retry import InterruptedStreamError
from turnledger.adapters.providers.wire import (
    BOTH,
    BYTES,
    Capabilities,
    Page,
    WireFormat,
    count_of,
    field_of,
    forced_tool,
    is_strict,
)
from turnledger.ledger import TokenUsage
from turnledger.projections import ChatTurn, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock
from turnledger.runtime import Reply, Request, ToolCall
from turnledger.runtime.agent.models.request import as_data
from turnledger.runtime.agent.schema import to_plain

_AUDIO = {"audio/wav": "wav", "audio/mpeg": "mp3"}


class ChatCompletions(WireFormat):
    """Messages of system, user, assistant and tool; results are messages of their own."""

    name: ClassVar[str] = "openai-chat"
    longest_id = 40
    id_pattern: ClassVar[re.Pattern[str] | None] = None
    needs_lead = False
    capabilities = Capabilities(
        media={"image": BOTH, "audio": BYTES, "document": BYTES},
        mimes={
            "image": ("image/png", "image/jpeg", "image/gif", "image/webp"),
            "audio": tuple(_AUDIO),
            "document": ("application/pdf",),
        },
    )

    # --- out ---

    def payload(self, request: Request, messages: list[Any]) -> dict[str, Any]:
        payload: dict[str, Any] = {"model": request.model, "messages": messages}
        if request.tools:
            payload["tools"] = list(request.tools)
            payload["tool_choice"] = self._choice(request)
        if request.response_format is not None:
            payload["response_format"] = _strict_where_possible(request.response_format)
        return payload | dict(request.options)

    def lead(self, request: Request) -> list[Any]:
        return [{"role": "system", "content": request.system}] if request.system else []

    def _choice(self, request: Request) -> Any:
        name = forced_tool(request.tool_choice)
        if name is None:
            return request.tool_choice
        return {"type": "function", "function": {"name": name}}

    def write(self, turn: ChatTurn, page: Page) -> None:
        if turn.role == "assistant":
            page.out.append(self._assistant(turn, page))
            return
        for block in turn.blocks:
            if type(block) is ToolResultBlock:
                answers = page.result_id(block.call_id)
                result = {"role": "tool", "tool_call_id": answers, "content": block.content}
                page.out.append(result)
        if said := page.said(turn, _text_part, _media):
            only_text = len(said) == 1 and said[0]["type"] == "text"
            content = said[0]["text"] if only_text else said
            page.out.append({"role": "user", "content": content})

    def _assistant(self, turn: ChatTurn, page: Page) -> dict[str, Any]:
        texts: list[str] = []
        calls: list[Any] = []
        for block in turn.blocks:
            if type(block) is TextBlock:
                texts.append(block.text)
            elif type(block) is ToolUseBlock:
                name = page.name(block.name)
                calls.append(
                    {
                        "id": page.call_id(block.call_id, name),
                        "type": "function",
                        "function": {"name": name, "arguments": block.arguments or "{}"},
                    }
                )
            elif type(block) is MediaBlock:
                texts.append(page.media_said(block))
        content: Any = texts[0] if len(texts) == 1 else None
        if len(texts) > 1:
            content = [_text_part(text) for text in texts]
        if calls:
            return {"role": "assistant", "content": content, "tool_calls": calls}
        return {"role": "assistant", "content": content}

    # --- in ---

    def decode(self, raw: Any) -> Reply:
        choices = field_of(raw, "choices", ())
        if not choices:
            raise ValueError("the answer has no choices")
        # The first choice is the answer; others are not looked at.
        choice = choices[0]
        message = field_of(choice, "message")
        if message is None:
            raise ValueError("the first choice has no message")
        refusal = field_of(message, "refusal")
        parsed = field_of(message, "parsed")
        finish = field_of(choice, "finish_reason", "")
        return Reply(
            text=_text(field_of(message, "content")) or refusal,
            tool_calls=tuple(_call(one) for one in field_of(message, "tool_calls", ())),
            usage=_usage(field_of(raw, "usage")),
            finish_reason="refusal" if refusal else str(finish),
            model=str(field_of(raw, "model", "")),
            parsed=None if parsed is None else to_plain(parsed),
            provider_data=self.beyond(message),
        )

    def beyond(self, message: Any) -> Any:
        """What of an answer has to go back with the next request; None if nothing."""
        return None


def _strict_where_possible(given: dict[str, Any]) -> dict[str, Any]:
    asked = given["json_schema"]
    if not is_strict(asked["schema"]):
        return given
    return {**given, "json_schema": {**asked, "strict": True}}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _media(media: LoadedMedia) -> dict[str, Any]:
    if media.modality == "image":
        return {"type": "image_url", "image_url": {"url": media.url or media.data_url}}
    if media.modality == "audio":
        sound = {"data": media.base64, "format": _AUDIO[media.mime or ""]}
        return {"type": "input_audio", "input_audio": sound}
    return {"type": "file", "file": {"filename": media.filename, "file_data": media.data_url}}


def _text(content: Any) -> str | None:
    if content is None or isinstance(content, str):
        return content
    return "".join(str(field_of(part, "text", "")) for part in content) or None


def _call(call: Any) -> ToolCall:
    function = field_of(call, "function")
    if function is None:
        raise ValueError(f"a call of a kind that was not offered: {field_of(call, 'type')!r}")
    return ToolCall(
        str(field_of(call, "id", "")),
        str(field_of(function, "name", "")),
        field_of(function, "arguments") or "{}",
    )


def _usage(used: Any) -> TokenUsage:
    return TokenUsage(
        input_tokens=count_of(used, "prompt_tokens"),
        output_tokens=count_of(used, "completion_tokens"),
        cached_tokens=count_of(used, "prompt_tokens_details", "cached_tokens"),
        reasoning_tokens=count_of(used, "completion_tokens_details", "reasoning_tokens"),
    )


class ChatStream:
    """The chunks of a streamed answer, put together to what it would have been whole."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._head: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant"}
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: str | None = None
        self._usage: Any = None

    def add(self, chunk: Any) -> None:
        data = as_data(chunk) or {}
        self._head = self._head or {key: data.get(key) for key in ("id", "created", "model")}
        self._usage = data.get("usage") or self._usage
        for choice in data.get("choices") or ():
            if choice.get("index", 0) == 0:
                self._take(choice)

    def _take(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or {}
        for name, value in delta.items():
            if name == "tool_calls":
                for call in value or ():
                    self._call(call)
            elif name != "role" and value is not None:
                self._grow(self._message, name, value)
        if delta.get("content"):
            self._on_text(delta["content"])
        self._finish = choice.get("finish_reason") or self._finish

    def _call(self, piece: dict[str, Any]) -> None:
        call = self._calls.setdefault(piece.get("index", 0), {"type": "function", "function": {}})
        call["id"] = piece.get("id") or call.get("id")
        for name, value in (piece.get("function") or {}).items():
            if isinstance(value, str):
                self._grow(call["function"], name, value)
        for name, value in piece.items():
            if name not in ("index", "id", "type", "function") and value is not None:
                self._grow(call, name, value)

    @staticmethod
    def _grow(thing: dict[str, Any], name: str, value: Any) -> None:
        known = thing.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            thing[name] = known | value
            return
        grows = isinstance(known, str | list) and type(known) is type(value)
        thing[name] = known + value if grows else value

    def whole(self) -> dict[str, Any]:
        """The answer; InterruptedStreamError if its end never came."""
        if self._finish is None:
            raise InterruptedStreamError("the stream ended before the answer did")
        message = dict(self._message)
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return {**self._head, "choices": [choice], "usage": self._usage}
