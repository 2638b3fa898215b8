"""OpenAI's Responses, as their server sees them: what a reply looks like, whole and streamed.

What a request may hold is in `openai_responses_requests`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tests.servers.openai_responses_items import is_written, item_id, sealed
from tests.servers.openai_responses_requests import check_body
from tests.servers.openai_shared import CREATED, call_id, check_request, error_body, pieces
from tests.servers.serving import Answer, Asked, Used, Wire

PATHS = ("/v1/responses", "/responses")
# Why an answer is cut short: the word of a script, and OpenAI's.
CUT_SHORT = {
    "length": "max_output_tokens",
    "max_output_tokens": "max_output_tokens",
    "content_filter": "content_filter",
}

Event = dict[str, Any]


class OpenAIResponses(Wire):
    """POST /v1/responses."""

    def check(self, method: str, path: str, headers: dict[str, str], body: Any) -> None:
        check_request(PATHS, method, path, headers, body)
        check_body(body)

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        return body.get("stream") is True

    def turn(self, body: dict[str, Any]) -> int:
        given = body["input"]
        if isinstance(given, str):
            return 1
        written = [False, *map(is_written, given)]
        return 1 + sum(now and not before for before, now in pairwise(written))

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        return _response(asked, answer, done=True)

    def stream(self, asked: Asked, answer: Answer) -> Sequence[bytes]:
        return [
            _sse({**event, "sequence_number": number})
            for number, event in enumerate(_events(asked, answer))
        ]

    def error(
        self, status: int, message: str, kind: str | None = None, **more: Any
    ) -> dict[str, Any]:
        return error_body(status, message, kind, more)


# --- a reply --------------------------------------------------------------------------


def _response(asked: Asked, answer: Answer, *, done: bool) -> dict[str, Any]:
    body = asked.body
    reason = CUT_SHORT.get(answer.finish or "") if done else None
    reasoning = body.get("reasoning") or {}
    wanted = body.get("text") or {}
    ended = "incomplete" if reason else "completed"
    return {
        "id": f"resp_{asked.turn:048d}",
        "object": "response",
        "created_at": CREATED,
        "status": ended if done else "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "model": body["model"],
        "output": _output(asked, answer) if done else [],
        "parallel_tool_calls": _or(body.get("parallel_tool_calls"), True),
        "previous_response_id": None,
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "safety_identifier": body.get("safety_identifier"),
        "service_tier": "default",
        "store": _or(body.get("store"), True),
        "temperature": _or(body.get("temperature"), 1.0),
        "text": {
            "format": wanted.get("format", {"type": "text"}),
            "verbosity": _or(wanted.get("verbosity"), "medium"),
        },
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": [_tool(tool) for tool in body.get("tools", [])],
        "top_logprobs": _or(body.get("top_logprobs"), 0),
        "top_p": _or(body.get("top_p"), 1.0),
        "truncation": _or(body.get("truncation"), "disabled"),
        "usage": _usage(answer.used) if done else None,
        "user": body.get("user"),
        "metadata": _or(body.get("metadata"), {}),
    }


def _or(given: Any, otherwise: Any) -> Any:
    return otherwise if given is None else given


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if tool["type"] != "function":
        return tool
    shown = {"description": None, "parameters": {}, **tool}
    return {**shown, "strict": _or(tool.get("strict"), True)}


def _usage(used: Used) -> dict[str, Any]:
    return {
        "input_tokens": used.input,
        "input_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": 0},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.input + used.output,
    }


def _output(asked: Asked, answer: Answer) -> list[dict[str, Any]]:
    reasoned = answer.thinking is not None
    items = [_reasoning(asked, answer.thinking)] if answer.thinking is not None else []
    content = [
        *([_said(answer.text)] if answer.text is not None else []),
        *([_refused(answer.refusal)] if answer.refusal is not None else []),
    ]
    if content:
        items.append(
            {
                "id": item_id("msg", asked.turn, len(items), reasoned=reasoned),
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": content,
            }
        )
    for index, call in enumerate(answer.calls):
        items.append(
            {
                "id": item_id("fc", asked.turn, len(items), reasoned=reasoned),
                "type": "function_call",
                "status": "completed",
                "call_id": call.call_id or call_id(asked.turn, index),
                "name": call.name,
                "arguments": call.arguments,
            }
        )
    if answer.finish in CUT_SHORT and items and "status" in items[-1]:
        items[-1]["status"] = "incomplete"
    return items


def _reasoning(asked: Asked, thinking: str) -> dict[str, Any]:
    """The thinking itself is shown only as a summary, and that only if it was asked for."""
    given = item_id("rs", asked.turn, 0, reasoned=False)
    shown = (asked.body.get("reasoning") or {}).get("summary") is not None
    item = {
        "id": given,
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": thinking}] if shown else [],
    }
    if "reasoning.encrypted_content" in (asked.body.get("include") or ()):
        item["encrypted_content"] = sealed(given)
    return item


def _said(content: str) -> dict[str, Any]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": content}


def _refused(content: str) -> dict[str, Any]:
    return {"type": "refusal", "refusal": content}


# --- a reply as a stream --------------------------------------------------------------


def _sse(event: Event) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def _events(asked: Asked, answer: Answer) -> Iterator[Event]:
    begun = _response(asked, answer, done=False)
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    ended = _response(asked, answer, done=True)
    for index, item in enumerate(ended["output"]):
        yield {"type": "response.output_item.added", "output_index": index, "item": _empty(item)}
        place = {"item_id": item["id"], "output_index": index}
        yield from INNER_EVENTS[item["type"]](item, place)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{ended['status']}", "response": ended}


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    """An item as it is when it begins."""
    hollow = {"message": {"content": []}, "function_call": {"arguments": ""}}
    begun = {**item, **hollow.get(item["type"], {"summary": []})}
    return begun if item["type"] == "reasoning" else {**begun, "status": "in_progress"}


def _message_events(item: dict[str, Any], place: Event) -> Iterator[Event]:
    for index, part in enumerate(item["content"]):
        here = {**place, "content_index": index}
        field = "text" if part["type"] == "output_text" else "refusal"
        more = {"logprobs": []} if field == "text" else {}
        word = f"response.{'output_text' if field == 'text' else 'refusal'}"
        yield {"type": "response.content_part.added", **here, "part": {**part, field: ""}}
        for piece in pieces(part[field]):
            yield {"type": f"{word}.delta", **here, "delta": piece, **more}
        yield {"type": f"{word}.done", **here, field: part[field], **more}
        yield {"type": "response.content_part.done", **here, "part": part}


def _call_events(item: dict[str, Any], place: Event) -> Iterator[Event]:
    word = "response.function_call_arguments"
    for piece in pieces(item["arguments"]):
        yield {"type": f"{word}.delta", **place, "delta": piece}
    done = {"name": item["name"], "arguments": item["arguments"]}
    yield {"type": f"{word}.done", **place, **done}


def _reasoning_events(item: dict[str, Any], place: Event) -> Iterator[Event]:
    word = "response.reasoning_summary"
    for index, part in enumerate(item["summary"]):
        here = {**place, "summary_index": index}
        yield {"type": f"{word}_part.added", **here, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield {"type": f"{word}_text.delta", **here, "delta": piece}
        yield {"type": f"{word}_text.done", **here, "text": part["text"]}
        yield {"type": f"{word}_part.done", **here, "part": part}


INNER_EVENTS = {
    "message": _message_events,
    "function_call": _call_events,
    "reasoning": _reasoning_events,
}
