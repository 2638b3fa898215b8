"""`LiteLLMAdapter`: any provider that the `litellm` package reaches, by its chat completions."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, ClassVar, TypeVar, Unpack

import msgspec

from turnledger.adapters.providers.openai.adapter import chat_call
from turnledger.adapters.providers.openai.chat import ChatCompletions
from turnledger.adapters.providers.retry import InterruptedStreamError
from turnledger.adapters.providers.sdk import ModelOptions, SdkAdapter, SdkCall
from turnledger.adapters.providers.wire import Page, WhenUnsupported, WireFormat, field_of
from turnledger.ledger import InvalidInputError
from turnledger.ledger.arguments import explain_methods
from turnledger.projections import ChatTurn, ToolUseBlock
from turnledger.runtime import Reply
from turnledger.runtime.agent.models import Sending
from turnledger.runtime.agent.models.request import as_data
from turnledger.runtime.agent.schema import to_plain

OutputT = TypeVar("OutputT")

# Providers that refuse a call without the reasoning that led to it. Others refuse the reasoning.
_WANT_REASONING = ("deepseek/", "moonshot/")
# The mark of usage that LiteLLM counted itself.
_ESTIMATED = "estimated"
# What LiteLLM puts between a call's id and Gemini's signature of it.
_SIGNED = "__thought__"


@explain_methods()
class LiteLLMAdapter(SdkAdapter[OutputT]):
    """A model by its name in LiteLLM: "anthropic/claude-...", "gemini/gemini-...".

    The deadline, and that nothing is retried behind the loop's back, is told to
    `litellm.completion` only: a completion that is given, or made by a factory, is called with
    the request alone.

    Args:
        model: The model's name in LiteLLM.
        completion: `litellm.completion`, or a function that is called like it.
        completion_factory: Makes the completion at the first request.
        completion_kwargs: Arguments for the factory, or else for `litellm.completion`.
        require_structured_output_text: Read a structured reply from its text, which it must then
            have, and not from what a provider parsed.
        unsupported_media: "error" refuses media that the format can't take, "hint" sends a line
            of text instead.
        **options: See `ModelOptions`.
    """

    name = package = "litellm"

    def __init__(
        self,
        *,
        model: str,
        completion: Callable[..., Any] | None = None,
        completion_factory: Callable[..., Any] | None = None,
        completion_kwargs: Mapping[str, Any] | None = None,
        require_structured_output_text: bool = True,
        unsupported_media: WhenUnsupported = "error",
        **options: Unpack[ModelOptions],
    ) -> None:
        if completion is not None and (completion_factory or completion_kwargs) is not None:
            raise InvalidInputError("Give a completion, or how to make one, not both.")
        super().__init__(
            LiteLLMChat(
                model=model,
                reads_parsed=not require_structured_output_text,
                unsupported_media=unsupported_media,
            ),
            model=model,
            client=completion,
            client_factory=completion_factory,
            client_kwargs=completion_kwargs,
            **options,
        )
        self.require_structured_output_text = require_structured_output_text
        self._is_litellm = completion is None and completion_factory is None

    def make_client(self, **kwargs: Any) -> Any:
        litellm = _litellm()
        if _lacks_mcp():
            kwargs = {"_skip_mcp_handler": True, **kwargs}
        return partial(litellm.completion, **kwargs)

    def make_async_client(self, **kwargs: Any) -> Any:
        """`litellm.acompletion`; LiteLLM keeps the connections of an event loop itself."""
        completion = self.make_client(**kwargs)
        acompletion = partial(_litellm().acompletion, **completion.keywords)

        async def create(**said: Any) -> Any:
            answer = await acompletion(**said)
            return _to_its_end_async(answer) if said.get("stream") else answer

        return create

    def call(self, client: Any, payload: dict[str, Any], sending: Sending) -> SdkCall:
        if self._is_litellm:
            payload = payload | {"num_retries": 0, "max_retries": 0}
            timeout = _shorter(payload.get("timeout", self._kwargs.get("timeout")), sending.timeout)
            if timeout is not None:
                payload["timeout"] = timeout
        create = client if iscoroutinefunction(client) else partial(_create, client)
        return chat_call(create, payload, sending.on_text)


def _create(completion: Callable[..., Any], **said: Any) -> Any:
    answer = completion(**said)
    return _to_its_end(answer) if said.get("stream") else answer


def _litellm() -> Any:
    """The package, imported so that it keeps quiet and fetches nothing."""
    # Otherwise the prices of all models, and Anthropic's beta headers, are fetched.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import litellm

        # Its models of answers are made when they are first used, and warn then.
        for name in ("ModelResponse", "ModelResponseStream", "Message", "Delta", "Usage"):
            if (kind := getattr(litellm.utils, name, None)) is not None:
                kind.model_rebuild(raise_errors=False)
    # No advice on standard output beside an error, no tokenizer fetched to count with.
    litellm.suppress_debug_info = True
    litellm.disable_hf_tokenizer_download = True
    return litellm


def _lacks_mcp() -> bool:
    """Whether a request with tools would fail for want of `mcp`, which LiteLLM does not require.

    It looks for tools of its own gateway first, unless it is told that there are none.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import_module("litellm.responses.mcp.chat_completions_handler")
    except ModuleNotFoundError as missing:
        return not (missing.name or "litellm").startswith("litellm")
    return False


def _shorter(own: Any, left: float | None) -> Any:
    """The user's own timeout, unless there is less time left."""
    if left is None or own is None:
        return own if left is None else left
    return min(own, left) if isinstance(own, int | float) else left


def _to_its_end(stream: Any) -> Iterator[Any]:
    """The chunks of a stream, and a last one with what LiteLLM dropped of it.

    InterruptedStreamError if its end is one that LiteLLM made up: it ends every stream with a
    reason, also one that broke off; only the stream itself knows whether a reason came.
    """
    dropped = _Dropped(stream)
    try:
        for piece in stream:
            dropped.handed_on(piece)
            yield piece
    finally:
        close = getattr(getattr(stream, "completion_stream", stream), "close", None)
        if close is not None:
            close()
    _check_end(stream)
    yield dropped.chunk()


async def _to_its_end_async(stream: Any) -> AsyncIterator[Any]:
    """The same for a stream of `litellm.acompletion`."""
    dropped = _Dropped(stream)
    try:
        async for piece in stream:
            dropped.handed_on(piece)
            yield piece
    finally:
        inner = getattr(stream, "completion_stream", stream)
        close = getattr(inner, "aclose", None) or getattr(inner, "close", None)
        if close is not None:
            await close()
    _check_end(stream)
    yield dropped.chunk()


def _check_end(stream: Any) -> None:
    came = [
        getattr(stream, name, True)
        for name in ("received_finish_reason", "intermittent_finish_reason")
    ]
    if came == [None, None]:
        raise InterruptedStreamError("the stream ended before the answer did")


class _Dropped:
    """What LiteLLM drops of a stream: a refusal, and that it counted the tokens itself.

    Its `chunk_creator` gets every chunk that the provider sent; `chunks` has those that it took.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._refusal = ""
        self._handed_on = ""
        self._usage: Any = None
        create = getattr(stream, "chunk_creator", None)
        if create is not None:
            stream.chunk_creator = partial(self._sent, create)

    def _sent(self, create: Callable[..., Any], chunk: Any) -> Any:
        self._refusal += _refusal_in(chunk)
        return create(chunk=chunk)

    def handed_on(self, chunk: Any) -> None:
        self._handed_on += _refusal_in(chunk)
        self._usage = field_of(chunk, "usage") or self._usage

    def chunk(self) -> dict[str, Any]:
        """A chunk that brings it."""
        found: dict[str, Any] = {}
        if lost := self._refusal.removeprefix(self._handed_on):
            found["choices"] = [{"index": 0, "delta": {"refusal": lost}}]
        took = getattr(self._stream, "chunks", None)
        if took and self._usage and not any(field_of(one, "usage") for one in took):
            found["usage"] = {**(as_data(self._usage) or {}), _ESTIMATED: True}
        return found


def _refusal_in(piece: Any) -> str:
    """The piece of a refusal that a chunk brings of the first choice."""
    choices = [one for one in field_of(piece, "choices", ()) if not field_of(one, "index", 0)]
    return "".join(str(field_of(field_of(one, "delta"), "refusal", "")) for one in choices)


class LiteLLMChat(ChatCompletions):
    """Chat completions as LiteLLM speaks them for all providers.

    What a model thought goes back to it where its provider checks that: signed thinking
    (Anthropic), signatures of calls and texts (Gemini), reasoning before calls (DeepSeek,
    Moonshot). It goes to the model that it came from, and to no other.
    """

    name: ClassVar[str] = "litellm"
    # Who is behind LiteLLM is not known here: the strictest ids, and a user who speaks first.
    id_pattern = WireFormat.id_pattern
    needs_lead = True

    def __init__(
        self,
        *,
        model: str = "",
        reads_parsed: bool = False,
        unsupported_media: WhenUnsupported = "error",
    ) -> None:
        super().__init__(unsupported_media=unsupported_media)
        self._model = model
        self._reads_parsed = reads_parsed

    def _assistant(self, turn: ChatTurn, page: Page) -> dict[str, Any]:
        message = super()._assistant(turn, page)
        kept = page.provider_data
        if not isinstance(kept, dict) or kept.get("model") != self._model:
            return message
        for name in ("thinking_blocks", "reasoning_content"):
            if name in kept:
                message[name] = kept[name]
        if "thought_signatures" in kept:
            message["provider_specific_fields"] = {"thought_signatures": kept["thought_signatures"]}
        signatures = kept.get("signatures", {})
        asked = (block.call_id for block in turn.blocks if type(block) is ToolUseBlock)
        for call_id, call in zip(asked, message.get("tool_calls", ()), strict=True):
            if call_id in signatures:
                call["provider_specific_fields"] = {"thought_signature": signatures[call_id]}
        return message

    def decode(self, raw: Any) -> Reply:
        reply = super().decode(raw)
        message = field_of(field_of(raw, "choices")[0], "message")
        calls = tuple(replace(one, call_id=_unsigned(one.call_id)) for one in reply.tool_calls)
        reply = replace(reply, tool_calls=calls)
        if not self._reads_parsed:
            reply = replace(reply, parsed=None)
        # LiteLLM keeps a refusal among what is the provider's own.
        refusal = field_of(field_of(message, "provider_specific_fields"), "refusal")
        if refusal:
            reply = replace(reply, text=reply.text or str(refusal), finish_reason="refusal")
        if field_of(field_of(raw, "usage"), _ESTIMATED) is True:
            reply = replace(reply, usage=msgspec.structs.replace(reply.usage, estimated=True))
        return reply

    def beyond(self, message: Any) -> Any:
        kept: dict[str, Any] = {}
        if thinking := _signed_thinking(field_of(message, "thinking_blocks", ())):
            kept["thinking_blocks"] = thinking
        calls = field_of(message, "tool_calls", ())
        reasoning = field_of(message, "reasoning_content")
        if reasoning and calls and self._model.startswith(_WANT_REASONING):
            kept["reasoning_content"] = str(reasoning)
        own = field_of(message, "provider_specific_fields")
        if signatures := field_of(own, "thought_signatures"):
            kept["thought_signatures"] = to_plain(signatures)
        signed = {_unsigned(str(field_of(one, "id", ""))): _signature(one) for one in calls}
        if signed := {call_id: found for call_id, found in signed.items() if found}:
            kept["signatures"] = signed
        return {self.name: {"model": self._model, **kept}} if kept else None


def _unsigned(call_id: str) -> str:
    return call_id.partition(_SIGNED)[0]


def _signature(call: Any) -> str | None:
    """Gemini's signature of a call: a field of it, or the end of its id."""
    own = field_of(call, "provider_specific_fields")
    found = field_of(own, "thought_signature")
    return str(found) if found else str(field_of(call, "id", "")).partition(_SIGNED)[2] or None


def _signed_thinking(pieces: Any) -> list[dict[str, Any]]:
    """The blocks of thinking, put together where they came in pieces: a signature ends one.

    What is not signed is not kept: no provider takes it back.
    """
    blocks: list[dict[str, Any]] = []
    thought = ""
    for piece in pieces:
        if field_of(piece, "type") == "redacted_thinking":
            blocks.append({"type": "redacted_thinking", "data": field_of(piece, "data", "")})
            continue
        thought += field_of(piece, "thinking", "")
        if signature := field_of(piece, "signature"):
            blocks.append({"type": "thinking", "thinking": thought, "signature": signature})
            thought = ""
    return blocks
