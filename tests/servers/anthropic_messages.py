"""Anthropic's Messages API as its server sees it: `POST /v1/messages`, whole and streamed.

Both versions of the API are known: 2023-06-01, and 2026-10-21, which takes no sampling
parameters. What it refuses is in `anthropic_shapes` and `anthropic_rules`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from tests.servers.anthropic_rules import NEW, breakpoints, check_rules, refuse, signature
from tests.servers.anthropic_shapes import shaped
from tests.servers.sdk_types import violation_of
from tests.servers.serving import Answer, Asked, Call, Refused, Wire

OLD = "2023-06-01"
SAMPLING = ("temperature", "top_p", "top_k")
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicMessages(Wire):
    """The Messages API, with any model and any key."""

    def check(self, method: str, path: str, headers: dict[str, str], body: Any) -> None:
        if urlsplit(path).path != "/v1/messages":
            raise Refused(404, "Not Found")
        if method != "POST":
            raise Refused(405, "Method Not Allowed")
        bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
        if not headers.get("x-api-key", "").strip() and not bearer:
            raise Refused(401, "x-api-key header is required")
        version = headers.get("anthropic-version")
        if version is None:
            refuse("anthropic-version", "header is required")
        if version not in (OLD, NEW):
            refuse("anthropic-version", f'"{version}" is not a valid version')
        self._check_body(body, version)

    def _check_body(self, body: Any, version: str) -> None:
        if not isinstance(body, dict):
            raise Refused(400, "Input should be a valid dictionary")
        for message in body["messages"] if isinstance(body.get("messages"), list) else ():
            if isinstance(message, dict) and message.get("role") == "system":
                refuse(
                    "messages",
                    'Unexpected role "system". The Messages API accepts a top-level `system` '
                    'parameter, not "system" as an input message role.',
                )
        sampling = SAMPLING if version == OLD else ()
        _check_types({name: value for name, value in body.items() if name not in sampling})
        check_rules(shaped(body), version)
        if (found := breakpoints(body)) > 4:
            raise Refused(
                400, f"A maximum of 4 blocks with cache_control may be provided. Found {found}."
            )

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        return bool(body.get("stream"))

    def turn(self, body: dict[str, Any]) -> int:
        return 1 + len([one for one in body["messages"] if one["role"] == "assistant"])

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        return {
            "id": _made_up("msg", asked.turn),
            "type": "message",
            "role": "assistant",
            "model": asked.body["model"],
            "content": _content(asked, answer),
            **_ending(answer),
            "usage": _usage(answer),
        }

    def stream(self, asked: Asked, answer: Answer) -> Sequence[bytes]:
        whole = self.whole(asked, answer)
        start = {**whole, "content": [], "stop_reason": None, "stop_details": None}
        start["usage"] = {**whole["usage"], "output_tokens": 1}
        del start["usage"]["output_tokens_details"]
        events = [_event("message_start", message=start)]
        for index, block in enumerate(whole["content"]):
            arguments = _arguments(answer, index, whole["content"])
            events += _streamed(index, block, arguments)
        events.insert(min(2, len(events)), _event("ping"))
        usage = {name: value for name, value in whole["usage"].items() if name != "service_tier"}
        events.append(_event("message_delta", delta=_ending(answer), usage=usage))
        events.append(_event("message_stop"))
        return events

    def error(
        self, status: int, message: str, kind: str | None = None, **more: Any
    ) -> dict[str, Any]:
        return {
            "type": "error",
            "error": {"type": kind or KINDS.get(status, "api_error"), "message": message},
            "request_id": _made_up("req", status, message),
            **more,
        }


def _check_types(body: dict[str, Any]) -> None:
    """Refused, in Anthropic's words, where the SDK's types for a request refuse it."""
    found = violation_of("anthropic", body)
    if found is not None:
        what = f"Input should be {found.expected}" if found.kind == "value" else found.expected
        refuse(".".join(map(str, found.path)), what)


# --- what an answer looks like ------------------------------------------------------------


def _made_up(kind: str, *of: object) -> str:
    """An id as the real one's look, and always the same for the same."""
    return f"{kind}_01{hashlib.sha256(repr(of).encode()).hexdigest()[:22]}"


def _object(call: Call) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except json.JSONDecodeError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _content(asked: Asked, answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.thinking is not None:
        hidden = (asked.body.get("thinking") or {}).get("display") == "omitted"
        shown = "" if hidden else answer.thinking
        blocks.append({"type": "thinking", "thinking": shown, "signature": signature(shown)})
    if text := (answer.text or "") + (answer.refusal or ""):
        blocks.append({"type": "text", "text": text})
    for index, call in enumerate(answer.calls):
        blocks.append(
            {
                "type": "tool_use",
                "id": call.call_id or _made_up("toolu", asked.turn, index),
                "name": call.name,
                "input": _object(call),
            }
        )
    return blocks


def _arguments(answer: Answer, index: int, content: Sequence[dict[str, Any]]) -> str:
    """The text of a call's arguments as the script wrote it, where it is an object's."""
    if content[index]["type"] != "tool_use":
        return ""
    call = answer.calls[index - (len(content) - len(answer.calls))]
    return call.arguments if _object(call) else "{}"


def _ending(answer: Answer) -> dict[str, Any]:
    usual = "tool_use" if answer.calls else "end_turn"
    reason = answer.finish or ("refusal" if answer.refusal is not None else usual)
    details = {"type": "refusal", "category": None, "explanation": answer.refusal}
    return {
        "stop_reason": reason,
        "stop_sequence": None,
        "stop_details": details if reason == "refusal" else None,
    }


def _usage(answer: Answer) -> dict[str, Any]:
    used = answer.used
    return {
        "input_tokens": used.input - used.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": used.cached,
        "output_tokens": used.output,
        "output_tokens_details": {"thinking_tokens": used.reasoning},
        "service_tier": "standard",
    }


def _event(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def _pieces(text: str) -> list[str]:
    """A text in about three, which end where they end: in a word, in a number, in an escape."""
    size = len(text) // 3 + 1
    return [text[at : at + size] for at in range(0, len(text), size)]


def _streamed(index: int, block: dict[str, Any], arguments: str) -> list[bytes]:
    match block["type"]:
        case "thinking":
            empty = {**block, "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": piece}
                for piece in _pieces(block["thinking"])
            ]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "tool_use":
            empty = {**block, "input": {}}
            deltas = [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in ["", *_pieces(arguments)]
            ]
        case _:
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
    return [
        _event("content_block_start", index=index, content_block=empty),
        *(_event("content_block_delta", index=index, delta=delta) for delta in deltas),
        _event("content_block_stop", index=index),
    ]
