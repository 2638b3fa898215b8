"""Wire format of Anthropic's Messages API; thinking is in `anthropic.thinking`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from turnledger.adapters.providers.anthropic.schemas import fitted
from turnledger.adapters.providers.anthropic.thinking import (
    THINKING,
    arranged,
    can_not_think,
    texts_of,
    thought_in,
)
from turnledger.adapters.providers.media import LoadedMedia
from turnledger.adapters.providers.wire import (
    BOTH,
    Capabilities,
    Page,
    WireFormat,
    arguments_object,
    count_of,
    field_of,
    forced_tool,
)
from turnledger.ledger import TokenUsage
from turnledger.projections import ChatTurn, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock
from turnledger.runtime import Reply, Request, ToolCall
from turnledger.runtime.agent.models import ToolChoice

# The API wants to be told. With more, the SDK refuses to wait for an answer in one piece.
DEFAULT_MAX_TOKENS = 16_000

_CHOICES = {"auto": "auto", "none": "none", "required": "any", "any": "any"}
_NO_REASON = "The tool failed and said nothing."


class AnthropicMessages(WireFormat):
    """Messages of user and assistant, in blocks; the system text stands apart."""

    name: ClassVar[str] = "anthropic"
    capabilities = Capabilities(
        media={"image": BOTH, "document": BOTH},
        mimes={
            "image": ("image/png", "image/jpeg", "image/gif", "image/webp"),
            "document": ("application/pdf", "text/plain"),
        },
    )

    # --- out ---

    def payload(self, request: Request, messages: list[Any]) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "model": request.model,
            "max_tokens": DEFAULT_MAX_TOKENS,
            "messages": _without_trailing_space(messages),
        }
        if request.system.strip():
            payload["system"] = request.system
        if request.tools:
            payload["tools"] = [_tool(spec["function"]) for spec in request.tools]
            payload["tool_choice"] = _choice(request.tool_choice)
        options = dict(request.options)
        if request.response_format is not None:
            schema = fitted(request.response_format["json_schema"]["schema"])
            form = {"format": {"type": "json_schema", "schema": schema}}
            options["output_config"] = {**form, **(options.get("output_config") or {})}
        payload |= options
        if can_not_think(payload):
            # Left out, it would be on where that is the model's default.
            payload["thinking"] = {"type": "disabled"}
        return payload

    def write(self, turn: ChatTurn, page: Page) -> None:
        content = self._assistant(turn, page) if turn.role == "assistant" else _user(turn, page)
        page.out.append({"role": turn.role, "content": content})

    def _assistant(self, turn: ChatTurn, page: Page) -> list[Any]:
        content: list[Any] = []
        kept = page.provider_data
        for block in (arranged(turn, kept) if kept else ()) or turn.blocks:
            if type(block) is TextBlock:
                content.append(_text(block.text))
            elif type(block) is ToolUseBlock:
                name = page.name(block.name)
                content.append(
                    {
                        "type": "tool_use",
                        "id": page.call_id(block.call_id, name),
                        "name": name,
                        "input": arguments_object(block.arguments),
                    }
                )
            elif type(block) is MediaBlock:
                content.append(_text(page.media_said(block)))
            elif isinstance(block, dict):
                content.append(block)
        while content[-1]["type"] in THINKING:
            content.pop()  # a turn must not end with it: the reply was cut off there
        return content

    # --- in ---

    def decode(self, raw: Any) -> Reply:
        content = field_of(raw, "content")
        if content is None:
            raise ValueError("the answer has no content")
        calls = tuple(_call(block) for block in content if field_of(block, "type") == "tool_use")
        text = "".join(texts_of(content))
        finish = str(field_of(raw, "stop_reason", ""))
        if finish == "refusal" and not text:
            text = str(field_of(field_of(raw, "stop_details"), "explanation", ""))
        thought = thought_in(content)
        return Reply(
            text=text or None,
            tool_calls=calls,
            usage=_usage(field_of(raw, "usage")),
            finish_reason=finish,
            model=str(field_of(raw, "model", "")),
            provider_data={self.name: thought} if thought else None,
        )


# --- requests ---------------------------------------------------------------------------


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    tool = {"name": function["name"], "input_schema": function["parameters"]}
    if function.get("description"):
        tool["description"] = function["description"]
    return tool


def _choice(choice: ToolChoice) -> dict[str, Any]:
    """The choice in the provider's words; what is in them already stays as it is."""
    if isinstance(choice, str):
        if choice not in _CHOICES:
            raise ValueError(f'tool_choice is "auto", "none" or "required", not {choice!r}')
        return {"type": _CHOICES[choice]}
    if choice.get("type") in ("auto", "any", "none"):
        return dict(choice)
    if choice.get("type") == "tool" and choice.get("name"):
        return dict(choice)
    return {"type": "tool", "name": forced_tool(choice)}


def _without_trailing_space(messages: list[Any]) -> list[Any]:
    """The messages; an assistant who has the last word does not end with space."""
    if not messages or messages[-1]["role"] != "assistant":
        return messages
    *before, last = messages[-1]["content"]
    if last["type"] != "text":
        return messages
    last = {**last, "text": last["text"].rstrip()}
    return [*messages[:-1], {"role": "assistant", "content": [*before, last]}]


# --- turns -------------------------------------------------------------------------------


def _user(turn: ChatTurn, page: Page) -> list[Any]:
    # Results come first in every history.
    results = [_result(block, page) for block in turn.blocks if type(block) is ToolResultBlock]
    return results + page.said(turn, _text, _media)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _result(block: ToolResultBlock, page: Page) -> dict[str, Any]:
    answers, content = page.result_id(block.call_id), block.content
    # A blank text is refused; no content at all is not, unless it is an error.
    if not content or content.isspace():
        if not block.is_error:
            return {"type": "tool_result", "tool_use_id": answers}
        content = _NO_REASON
    result = {"type": "tool_result", "tool_use_id": answers, "content": content}
    return {**result, "is_error": True} if block.is_error else result


def _media(media: LoadedMedia) -> dict[str, Any] | None:
    if media.url is not None:
        source = {"type": "url", "url": media.url}
    elif media.mime == "text/plain":
        text = (media.data or b"").decode(errors="replace")
        if not text.strip():
            return None
        source = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        source = {"type": "base64", "media_type": media.mime or "", "data": media.base64}
    return {"type": media.modality, "source": source}


# --- answers -----------------------------------------------------------------------------


def _call(block: Any) -> ToolCall:
    given = field_of(block, "input", {})
    if not isinstance(given, str):
        try:
            given = msgspec.json.encode(given).decode()
        except (TypeError, ValueError, OverflowError):
            given = json.dumps(given)  # half of a surrogate pair, say
    return ToolCall(str(field_of(block, "id", "")), str(field_of(block, "name", "")), given)


def _usage(used: Any) -> TokenUsage:
    cached = count_of(used, "cache_read_input_tokens")
    written = count_of(used, "cache_creation_input_tokens")
    return TokenUsage(
        # The provider counts what it read from its cache, or wrote there, apart.
        input_tokens=count_of(used, "input_tokens") + cached + written,
        output_tokens=count_of(used, "output_tokens"),
        cached_tokens=cached,
        reasoning_tokens=count_of(used, "output_tokens_details", "thinking_tokens"),
    )
