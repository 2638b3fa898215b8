"""Gemini's generateContent as its server sees it, whole and streamed, in v1 and v1beta.

What it refuses is in `gemini_shapes` and `gemini_rules`. Replies have no ids for calls unless
the script gives them, and bear signatures as the models do that think.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.servers.gemini_rules import check_rules, signature
from tests.servers.gemini_shapes import shaped
from tests.servers.serving import Answer, Asked, Call, Refused, Wire

STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
PATH = re.compile(
    r"/(?P<version>v1|v1beta)/models/(?P<model>[^/:]+):(?P<method>\w*[gG]enerateContent)"
)


class GeminiContents(Wire):
    """The Gemini Developer API, with any model and any key."""

    def check(self, method: str, path: str, headers: dict[str, str], body: Any) -> None:
        url = urlsplit(path)
        asked = PATH.fullmatch(unquote(url.path))
        if (
            method != "POST"
            or asked is None
            or asked["method"] not in ("generateContent", "streamGenerateContent")
        ):
            raise Refused(404, f"Requested entity was not found: {method} {url.path}")
        query = parse_qs(url.query)
        if not headers.get("x-goog-api-key", "").strip() and not query.get("key"):
            raise Refused(
                403,
                "Method doesn't allow unregistered callers (callers without established "
                "identity). Please use API Key or other form of API consumer identity to call "
                "this API.",
            )
        if self.streams(path, {}) and query.get("alt") != ["sse"]:
            raise Refused(400, "This server streams with alt=sse only.")
        check_rules(shaped({} if body is None else body), asked["model"])

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        return urlsplit(path).path.endswith(":streamGenerateContent")

    def turn(self, body: dict[str, Any]) -> int:
        return 1 + len([one for one in body["contents"] if one.get("role") == "model"])

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        candidates = [_candidate(0, _parts(asked, answer), _finish(answer), answer.refusal)]
        for index, text in enumerate(answer.others, start=1):
            candidates.append(_candidate(index, [{"text": text}], "STOP"))
        return _response(asked, candidates, _usage(answer))

    def stream(self, asked: Asked, answer: Answer) -> Sequence[bytes]:
        so_far = {"promptTokenCount": answer.used.input, "totalTokenCount": answer.used.input}
        texts = [(0, part) for part in _parts(asked, answer)]
        texts += [(index, {"text": text}) for index, text in enumerate(answer.others, start=1)]
        chunks = [
            _response(asked, [_candidate(index, [piece])], so_far)
            for index, part in texts
            for piece in _pieces(part)
        ]
        # The end comes by itself, with a part that has nothing in it.
        ends = [_candidate(0, [{"text": ""}], _finish(answer), answer.refusal)]
        for index in range(1, 1 + len(answer.others)):
            ends.append(_candidate(index, [{"text": ""}], "STOP"))
        chunks.append(_response(asked, ends, _usage(answer)))
        return [f"data: {json.dumps(chunk)}\r\n\r\n".encode() for chunk in chunks]

    def error(
        self, status: int, message: str, kind: str | None = None, **more: Any
    ) -> dict[str, Any]:
        named = kind or STATUSES.get(status, "UNKNOWN")
        return {"error": {"code": status, "message": message, "status": named, **more}}


# --- what an answer looks like ------------------------------------------------------------


def _model(asked: Asked) -> str:
    found = PATH.fullmatch(unquote(urlsplit(asked.path).path))
    assert found is not None
    return found["model"]


def _response(
    asked: Asked, candidates: list[dict[str, Any]], usage: dict[str, int]
) -> dict[str, Any]:
    return {
        "candidates": candidates,
        "usageMetadata": usage,
        "modelVersion": _model(asked),
        "responseId": hashlib.sha256(f"response:{asked.turn}".encode()).hexdigest()[:22],
    }


def _candidate(
    index: int,
    parts: list[dict[str, Any]],
    finish: str | None = None,
    refusal: str | None = None,
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model"}, "index": index}
    if finish is not None:
        candidate["finishReason"] = finish
    if refusal is not None:
        candidate["content"] = {}
        candidate["finishMessage"] = refusal
    elif parts:
        candidate["content"]["parts"] = parts
    return candidate


def _finish(answer: Answer) -> str:
    return answer.finish or ("SAFETY" if answer.refusal is not None else "STOP")


def _parts(asked: Asked, answer: Answer) -> list[dict[str, Any]]:
    if answer.refusal is not None:
        return []
    parts: list[dict[str, Any]] = []
    if answer.thinking is not None:
        parts.append({"text": answer.thinking, "thought": True})
    if answer.text:
        parts.append({"text": answer.text})
    signs = answer.thinking is not None or "gemini-3" in _model(asked)
    for place, call in enumerate(answer.calls):
        made: dict[str, Any] = {"functionCall": _call(call)}
        if signs and place == 0:
            made["thoughtSignature"] = base64.b64encode(signature(asked.turn, call.name)).decode()
        parts.append(made)
    return parts


def _call(call: Call) -> dict[str, Any]:
    try:
        args = json.loads(call.arguments)
    except json.JSONDecodeError:
        args = {}
    made = {"name": call.name, "args": args if isinstance(args, dict) else {}}
    return made if call.call_id is None else {"id": call.call_id, **made}


def _pieces(part: dict[str, Any]) -> list[dict[str, Any]]:
    """A text in about three, which end where they end; a call as a whole."""
    if "text" not in part:
        return [part]
    text = part["text"]
    size = len(text) // 3 + 1
    return [{**part, "text": text[at : at + size]} for at in range(0, len(text), size)]


def _usage(answer: Answer) -> dict[str, int]:
    used = answer.used
    usage = {
        "promptTokenCount": used.input,
        "cachedContentTokenCount": used.cached,
        "candidatesTokenCount": used.output - used.reasoning,
        "thoughtsTokenCount": used.reasoning,
        "totalTokenCount": used.input + used.output,
    }
    # What is nothing is left out, as in all JSON of protocol buffers.
    return {name: count for name, count in usage.items() if count}
