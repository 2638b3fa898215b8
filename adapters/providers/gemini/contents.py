"""Wire format of Gemini's generateContent, as its REST API spells it.

Results have the names of their calls, in the calls' order. They have ids where Gemini itself
gave the calls ids, and the calls then bear them too; ids of other providers are never sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from turnledger.adapters.providers.gemini.signatures import (
    as_they_came,
    kept_of,
    read,
    sign_first_call,
    text_of,
)
from turnledger.adapters.providers.gemini.stream import rest_data
from turnledger.adapters.providers.media import LoadedMedia
from turnledger.adapters.providers.wire import (
    BOTH,
    Capabilities,
    Page,
    WhenUnsupported,
    WireFormat,
    arguments_object,
    count_of,
    forced_tool,
)
from turnledger.ledger import TokenUsage
from turnledger.projections import ChatTurn, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock
from turnledger.runtime import Reply, Request
from turnledger.runtime.agent.models import ToolChoice

_BEFORE_3 = re.compile(r"gemini-(?:[a-z]+-)*[12](?!\d)")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}")
_NONE: frozenset[Any] = frozenset()
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
# Fields of a request that are not in its generationConfig.
_OUTSIDE = frozenset(
    {"systemInstruction", "tools", "toolConfig", "safetySettings", "cachedContent"}
    | {"labels", "serviceTier", "store"}
)
_REFUSALS = frozenset(
    {"SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION", "IMAGE_SAFETY"}
)
# The type that media at a URL has by the URL's ending, and by its modality if that says nothing.
_ENDINGS = {
    "image": {"png": "png", "webp": "webp", "heic": "heic", "heif": "heif"},
    "audio": {"wav": "wav", "ogg": "ogg", "flac": "flac", "aac": "aac", "aiff": "aiff"},
    "video": {"webm": "webm", "mov": "quicktime", "mpeg": "mpeg", "mpg": "mpeg", "3gp": "3gpp"},
}
_DOCUMENTS = {"txt": "plain", "md": "markdown", "html": "html", "htm": "html", "csv": "csv"}
_USUAL = {"image": "image/jpeg", "audio": "audio/mpeg", "video": "video/mp4"}


class GeminiContents(WireFormat):
    """Contents of user and model; the system text and the tools stand beside them.

    `model` is the one that it is written for. Models before Gemini 3 take no JSON type together
    with functions: the schema is then asked for in the system text. Later ones refuse calls
    that bear no signature: those that no Gemini model made get the one that stands for none.
    """

    name: ClassVar[str] = "gemini"
    longest_id = 256
    id_pattern = re.compile(r"[\x21-\x7e]+")
    name_pattern = _NAME
    capabilities = Capabilities(
        media={"image": BOTH, "audio": BOTH, "video": BOTH, "document": BOTH},
        mimes={"image": ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")},
    )

    def __init__(self, *, model: str = "", unsupported_media: WhenUnsupported = "error") -> None:
        super().__init__(unsupported_media=unsupported_media)
        self._is_before_3 = _BEFORE_3.search(model) is not None

    # --- out ---

    def payload(self, request: Request, messages: list[Any]) -> dict[str, Any]:
        payload: dict[str, Any] = {"contents": messages}
        system, generation = request.system, {}
        if request.response_format is not None:
            schema = request.response_format["json_schema"]["schema"]
            if request.tools and self._is_before_3:
                system = f"{system}\n\n{_asked_for(schema)}".lstrip()
            else:
                generation["responseMimeType"] = "application/json"
                generation["responseJsonSchema"] = schema
        if system:
            payload["systemInstruction"] = {"parts": [{"text": system}]}
        if request.tools:
            payload["tools"] = [
                {"functionDeclarations": [_declaration(tool["function"]) for tool in request.tools]}
            ]
            payload["toolConfig"] = {"functionCallingConfig": _calling(request.tool_choice)}
        if generation:
            payload["generationConfig"] = generation
        return _with_options(payload, request.options)

    def write(self, turn: ChatTurn, page: Page) -> None:
        if turn.role == "assistant":
            page.out.append({"role": "model", "parts": self._model(turn, page)})
            return
        # Only what Gemini itself gave is sent back: without provider data there is nothing.
        given = _ids(page.out[-1]["parts"]) if page.has_provider_data and page.out else _NONE
        # Results come first in every history.
        results = [_result(one, page, given) for one in turn.blocks if type(one) is ToolResultBlock]
        said = page.said(turn, lambda text: {"text": text}, _media)
        page.out.append({"role": "user", "parts": results + said})

    def _model(self, turn: ChatTurn, page: Page) -> list[dict[str, Any]]:
        order = kept_of(page.provider_data, turn)
        given = {one["call"] for one in order if "id" in one} if order else _NONE
        parts: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        for block in turn.blocks:
            if type(block) is TextBlock:
                parts.append({"text": block.text})
            elif type(block) is ToolUseBlock:
                name = page.name(block.name)
                call_id = page.call_id(block.call_id, name)
                call = {"name": name, "args": arguments_object(block.arguments)}
                if len(calls) in given:
                    call["id"] = call_id
                calls.append({"functionCall": call})
                parts.append(calls[-1])
            elif type(block) is MediaBlock:
                parts.append({"text": page.media_said(block)})
        if order is not None:
            parts = as_they_came(order, text_of(turn), calls)
        if not self._is_before_3:
            sign_first_call(parts)
        return parts

    # --- in ---

    def decode(self, raw: Any) -> Reply:
        data = rest_data(raw)
        candidates = data.get("candidates")
        if not candidates:
            raise ValueError(_why_nothing(data))
        # The first candidate is the answer; others are not looked at.
        candidate = candidates[0]
        found = read((candidate.get("content") or {}).get("parts") or ())
        finish = str(candidate.get("finishReason") or "")
        parsed = None if found.text else data.get("parsed")
        if not found.text and not found.calls and parsed is None and finish not in ("", "STOP"):
            said = candidate.get("finishMessage")
            raise ValueError(f"the model gave no answer: {finish}" + (f", {said}" if said else ""))
        kept = found.to_keep
        return Reply(
            text=found.text or None,
            tool_calls=tuple(found.calls),
            usage=_usage(data.get("usageMetadata")),
            finish_reason="refusal" if finish in _REFUSALS else finish,
            model=str(data.get("modelVersion") or ""),
            parsed=parsed,
            provider_data=None if kept is None else {self.name: kept},
            payload=data,
        )


# --- pieces of requests -----------------------------------------------------------------


def _asked_for(schema: dict[str, Any]) -> str:
    text = msgspec.json.encode(schema).decode()
    return (
        "When you call no function, answer with JSON and nothing before or after it. "
        f"It has to fit this JSON schema:\n\n{text}"
    )


def _declaration(function: Mapping[str, Any]) -> dict[str, Any]:
    if not _NAME.fullmatch(function["name"]):
        raise ValueError(
            f"Gemini takes no tool named {function['name']!r}: a name begins with a letter or an "
            "underscore."
        )
    declaration = {"name": function["name"], "description": function.get("description", "")}
    if function.get("parameters") is not None:
        declaration["parametersJsonSchema"] = function["parameters"]
    return declaration


def _calling(choice: ToolChoice) -> dict[str, Any]:
    name = forced_tool(choice)
    if name is not None:
        return {"mode": "ANY", "allowedFunctionNames": [name]}
    mode = _MODES.get(str(choice))
    if mode is None:
        raise ValueError(f"tool_choice is 'auto', 'none' or 'required', not {choice!r}")
    return {"mode": mode}


def _with_options(payload: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The request with what the caller adds: a field of it, or one of its generationConfig."""
    for given, value in options.items():
        name = re.sub(r"_([a-z])", lambda found: found[1].upper(), given)
        if name == "generationConfig":
            payload[name] = {**payload.get(name, {}), **value}
        elif name == "tools":
            payload[name] = [*payload.get(name, ()), *value]
        elif name in _OUTSIDE:
            payload[name] = value
        else:
            payload["generationConfig"] = {**payload.get("generationConfig", {}), name: value}
    return payload


def _ids(parts: list[dict[str, Any]]) -> frozenset[str]:
    """The ids that calls bear on the wire."""
    calls = (part["functionCall"] for part in parts if "functionCall" in part)
    return frozenset(call["id"] for call in calls if "id" in call)


def _result(block: ToolResultBlock, page: Page, given: frozenset[str]) -> dict[str, Any]:
    told = {"error" if block.is_error else "output": block.content}
    name = page.result_name(block.call_id)
    if given and (call_id := page.result_id(block.call_id)) in given:
        return {"functionResponse": {"name": name, "response": told, "id": call_id}}
    return {"functionResponse": {"name": name, "response": told}}


def _media(media: LoadedMedia) -> dict[str, Any]:
    if media.data is not None:
        return {"inlineData": {"mimeType": media.mime, "data": media.base64}}
    return {"fileData": {"mimeType": _type_at(media), "fileUri": media.url}}


def _type_at(media: LoadedMedia) -> str:
    """The type of media at a URL, which Gemini wants to be told."""
    if media.mime:
        return media.mime
    ending = urlsplit(media.url or "").path.rpartition(".")[2].lower()
    if media.modality == "document":
        found = _DOCUMENTS.get(ending)
        return f"text/{found}" if found else "application/pdf"
    found = _ENDINGS[media.modality].get(ending)
    return f"{media.modality}/{found}" if found else _USUAL[media.modality]


# --- pieces of answers ---------------------------------------------------------------------


def _why_nothing(data: Mapping[str, Any]) -> str:
    feedback = data.get("promptFeedback") or {}
    reason, said = feedback.get("blockReason"), feedback.get("blockReasonMessage")
    if not reason:
        return "the answer has no candidates"
    return f"the prompt was blocked: {reason}" + (f", {said}" if said else "")


def _usage(used: Any) -> TokenUsage:
    thoughts = count_of(used, "thoughtsTokenCount")
    return TokenUsage(
        input_tokens=count_of(used, "promptTokenCount") + count_of(used, "toolUsePromptTokenCount"),
        output_tokens=count_of(used, "candidatesTokenCount") + thoughts,
        cached_tokens=count_of(used, "cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )
