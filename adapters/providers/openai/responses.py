"""Wire format of OpenAI's Responses API: a conversation is a list of items, with `store` off.

Reasoning goes back with later requests, encrypted as it came: the ledger is the only memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from turnledger.adapters.providers.media import LoadedMedia
from turnledger.adapters.providers.openai.reasoning import (
    as_it_came,
    reasoning_of,
    said_items,
    texts_of,
)
from turnledger.adapters.providers.retry import PASSING, InterruptedStreamError
from turnledger.adapters.providers.wire import (
    BOTH,
    Capabilities,
    Page,
    WireFormat,
    count_of,
    field_of,
    forced_tool,
    is_strict,
)
from turnledger.ledger import TokenUsage, TurnledgerError
from turnledger.projections import ChatTurn, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock
from turnledger.runtime import Reply, Request, ToolCall

_SEALED = "reasoning.encrypted_content"
# Models that reason. The others refuse to be asked for sealed reasoning, and so do the chat ones.
_REASONING = re.compile(r"(o\d|gpt-([5-9]|\d\d)|codex)(?!.*chat)")
# Calls that need a result from here; hosted tools answer theirs themselves.
_CALLS = frozenset(
    {"custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"}
)
_STATUS = {"server_error": 500, "rate_limit_exceeded": 429}


class FailedResponseError(TurnledgerError):
    """The provider began an answer and says that it failed; `code` is its word for why."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.code = code
        self.status_code = _STATUS.get(code or "")
        self.retryable = code in PASSING


class Responses(WireFormat):
    """Items: messages, calls, their outputs, and reasoning right before what it led to.

    Items go back without ids (nothing is stored that they would name), except for reasoning,
    which is sent as it came. Sealed reasoning is asked for if `request_options` say anything
    about `reasoning`, or if the model is one that is known to reason; an `include` of the
    options' own is taken as it is.
    """

    name: ClassVar[str] = "openai-responses"
    id_pattern = None
    needs_lead = False
    capabilities = Capabilities(
        media={"image": BOTH, "document": BOTH},
        mimes={
            "image": ("image/png", "image/jpeg", "image/gif", "image/webp"),
            "document": ("application/pdf",),
        },
    )

    # --- out ---

    def payload(self, request: Request, messages: list[Any]) -> dict[str, Any]:
        payload: dict[str, Any] = {"model": request.model, "input": messages, "store": False}
        options = dict(request.options)
        if options.get("reasoning") or _REASONING.match(request.model.rpartition("/")[2]):
            payload["include"] = [_SEALED]
        if request.tools:
            # Unless it is told otherwise OpenAI makes every schema strict, and with it every
            # parameter required. Those that are left out have defaults here, so: not strict.
            payload["tools"] = [
                {"type": "function", "strict": False, **tool["function"]} for tool in request.tools
            ]
            payload["tool_choice"] = _choice(request)
        if request.response_format is not None:
            asked = request.response_format["json_schema"]
            form = {"type": "json_schema", "strict": is_strict(asked["schema"]), **asked}
            payload["text"] = {**(options.pop("text", None) or {}), "format": form}
        return payload | options

    def lead(self, request: Request) -> list[Any]:
        if not request.system:
            return []
        return [{"type": "message", "role": "system", "content": request.system}]

    def write(self, turn: ChatTurn, page: Page) -> None:
        if turn.role == "assistant":
            page.out += self._assistant(turn, page)
            return
        for block in turn.blocks:
            if type(block) is ToolResultBlock:
                answers, kind = page.result_id(block.call_id), "function_call_output"
                page.out.append({"type": kind, "call_id": answers, "output": block.content})
        if said := page.said(turn, _text_part, _media):
            only_text = len(said) == 1 and said[0]["type"] == "input_text"
            content = said[0]["text"] if only_text else said
            page.out.append({"type": "message", "role": "user", "content": content})

    def _assistant(self, turn: ChatTurn, page: Page) -> list[Any]:
        items: list[Any] = []
        spoken: list[str] = []
        said: list[str] = []
        calls: dict[str, Any] = {}
        for block in turn.blocks:
            if type(block) is TextBlock or type(block) is MediaBlock:
                text = block.text if type(block) is TextBlock else page.media_said(block)
                said.append(text)
                spoken.append(text)
            elif type(block) is ToolUseBlock:
                items += said_items(said)
                said = []
                name = page.name(block.name)
                calls[block.call_id] = {
                    "type": "function_call",
                    "call_id": page.call_id(block.call_id, name),
                    "name": name,
                    "arguments": block.arguments or "{}",
                }
                items.append(calls[block.call_id])
        items += said_items(said)
        return as_it_came(page.provider_data, "".join(spoken), calls) or items

    # --- in ---

    def decode(self, raw: Any) -> Reply:
        status = str(field_of(raw, "status", "completed"))
        if status not in ("completed", "incomplete"):
            raise _failure(field_of(raw, "error"), f"the response is {status}")
        output = field_of(raw, "output", ())
        text = "".join(texts_of(output)) or None
        refusal = "".join(texts_of(output, "refusal"))
        kept = reasoning_of(output)
        cut_short = field_of(field_of(raw, "incomplete_details"), "reason")
        return Reply(
            text=text or refusal or None,
            tool_calls=_calls(output),
            usage=_usage(field_of(raw, "usage")),
            finish_reason="refusal" if refusal else str(cut_short or status),
            model=str(field_of(raw, "model", "")),
            provider_data=None if kept is None else {self.name: kept},
        )


# --- pieces of requests ---------------------------------------------------------------


def _choice(request: Request) -> Any:
    name = forced_tool(request.tool_choice)
    return request.tool_choice if name is None else {"type": "function", "name": name}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _media(media: LoadedMedia) -> dict[str, Any]:
    if media.modality == "image":
        url = media.url or media.data_url
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if media.url is not None:
        return {"type": "input_file", "file_url": media.url}
    return {"type": "input_file", "filename": media.filename, "file_data": media.data_url}


# --- pieces of answers ----------------------------------------------------------------


def _calls(output: Iterable[Any]) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for item in output:
        kind = field_of(item, "type")
        if kind in _CALLS:
            raise ValueError(f"a call of a kind that was not offered: {kind!r}")
        if kind == "function_call":
            name = str(field_of(item, "name", ""))
            arguments = field_of(item, "arguments") or "{}"
            calls.append(ToolCall(str(field_of(item, "call_id", "")), name, arguments))
    return tuple(calls)


def _usage(used: Any) -> TokenUsage:
    return TokenUsage(
        input_tokens=count_of(used, "input_tokens"),
        output_tokens=count_of(used, "output_tokens"),
        cached_tokens=count_of(used, "input_tokens_details", "cached_tokens"),
        reasoning_tokens=count_of(used, "output_tokens_details", "reasoning_tokens"),
    )


def _failure(error: Any, otherwise: str) -> FailedResponseError:
    code = field_of(error, "code")
    message = str(field_of(error, "message", otherwise))
    return FailedResponseError(message, None if code is None else str(code))


class ResponsesStream:
    """The events of a streamed answer: its text as it comes, and in the end all of it."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._response: Any = None

    def add(self, event: Any) -> None:
        """Take an event; FailedResponseError if it says that the answer failed."""
        kind = field_of(event, "type")
        if kind == "response.output_text.delta":
            self._on_text(field_of(event, "delta", ""))
        elif kind in ("response.completed", "response.incomplete"):
            self._response = field_of(event, "response")
        elif kind == "response.failed":
            error = field_of(field_of(event, "response"), "error")
            raise _failure(error, "the response failed")
        elif kind == "error":
            raise _failure(field_of(event, "error", event), "the stream failed")

    def whole(self) -> Any:
        """The answer; InterruptedStreamError if its end never came."""
        if self._response is None:
            raise InterruptedStreamError("the stream ended before the answer did")
        return self._response
