"""OpenAI's Chat Completions, as its server sees them: what a reply looks like, whole and streamed.

What a request may hold is in `openai_chat_requests`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from tests.servers.openai_chat_requests import check_body
from tests.servers.openai_shared import CREATED, call_id, check_request, error_body, pieces
from tests.servers.serving import Answer, Asked, Used, Wire

PATHS = ("/v1/chat/completions", "/chat/completions")


class OpenAIChat(Wire):
    """POST /v1/chat/completions."""

    def check(self, method: str, path: str, headers: dict[str, str], body: Any) -> None:
        check_request(PATHS, method, path, headers, body)
        check_body(body)

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        return body.get("stream") is True

    def turn(self, body: dict[str, Any]) -> int:
        return 1 + sum(message["role"] == "assistant" for message in body["messages"])

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        first = _choice(0, _message(asked, answer), _finish(asked, answer))
        others = [
            _choice(index, _said(content), "stop")
            for index, content in enumerate(answer.others, start=1)
        ]
        return {
            **_head(asked, "chat.completion"),
            "choices": [first, *others],
            "usage": _usage(answer.used),
        }

    def stream(self, asked: Asked, answer: Answer) -> Sequence[bytes]:
        counts = bool((asked.body.get("stream_options") or {}).get("include_usage"))
        head = _head(asked, "chat.completion.chunk")
        ends = {"usage": None} if counts else {}
        tracks = [
            [_chunk(0, delta) for delta in _deltas(asked, answer)],
            *([_chunk(i, delta) for delta in _said_deltas(said)] for i, said in _others(answer)),
        ]
        tracks[0].append(_chunk(0, {}, _finish(asked, answer)))
        for index, track in enumerate(tracks[1:], start=1):
            track.append(_chunk(index, {}, "stop"))
        events = [
            _event({**head, "choices": [chunk], **ends})
            for together in zip_longest(*tracks)
            for chunk in together
            if chunk is not None
        ]
        if counts:
            events.append(_event({**head, "choices": [], "usage": _usage(answer.used)}))
        return [*events, b"data: [DONE]\n\n"]

    def error(
        self, status: int, message: str, kind: str | None = None, **more: Any
    ) -> dict[str, Any]:
        return error_body(status, message, kind, more)


# --- parts of a reply -----------------------------------------------------------------


def _head(asked: Asked, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{asked.turn:029d}",
        "object": kind,
        "created": CREATED,
        "model": asked.body["model"],
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
    }


def _choice(index: int, message: dict[str, Any], finish: str) -> dict[str, Any]:
    return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}


def _said(content: str | None, refusal: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "refusal": refusal, "annotations": []}


def _message(asked: Asked, answer: Answer) -> dict[str, Any]:
    message = _said(answer.text, answer.refusal)
    if answer.calls:
        message["tool_calls"] = _calls(asked, answer)
    return message


def _calls(asked: Asked, answer: Answer) -> list[dict[str, Any]]:
    return [
        {
            "id": call.call_id or call_id(asked.turn, index),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for index, call in enumerate(answer.calls)
    ]


def _finish(asked: Asked, answer: Answer) -> str:
    if answer.finish is not None:
        return answer.finish
    # A call that the request named is no decision of the model: OpenAI says `stop` after it.
    named = isinstance(asked.body.get("tool_choice"), dict)
    return "tool_calls" if answer.calls and not named else "stop"


def _usage(used: Used) -> dict[str, Any]:
    return {
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": used.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


# --- a reply as a stream --------------------------------------------------------------


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _chunk(index: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}


def _others(answer: Answer) -> Iterator[tuple[int, str]]:
    return enumerate(answer.others, start=1)


def _said_deltas(content: str) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": "", "refusal": None}
    yield from ({"content": piece} for piece in pieces(content))


def _deltas(asked: Asked, answer: Answer) -> Iterator[dict[str, Any]]:
    opening = None if answer.text is None else ""
    yield {"role": "assistant", "content": opening, "refusal": None}
    yield from ({"content": piece} for piece in pieces(answer.text or ""))
    yield from ({"refusal": piece} for piece in pieces(answer.refusal or ""))
    for index, call in enumerate(_calls(asked, answer)):
        arguments = call["function"]["arguments"]
        begun = {**call, "function": {**call["function"], "arguments": ""}}
        yield {"tool_calls": [{"index": index, **begun}]}
        for piece in pieces(arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
