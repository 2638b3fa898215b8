"""Requests of Anthropic's Messages API: those that it refuses, with its words, and those it takes.

A request is told by what is in it beside `LEAST`.
"""

from __future__ import annotations

import base64
from typing import Any

from tests.servers.anthropic_rules import signature

HELLO = {"role": "user", "content": "Hello"}
LEAST = {"model": "claude-opus-4-5", "max_tokens": 100, "messages": [HELLO]}
TOOL = {
    "name": "look",
    "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
}
THINKING = {"type": "enabled", "budget_tokens": 1024}
PNG = base64.b64encode(b"\x89PNG").decode()


def use(id: str = "toolu_1", **more: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": "tool_use", "id": id, "name": "look", "input": {}, **more}


def result(id: str = "toolu_1", **more: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": "tool_result", "tool_use_id": id, "content": "seen", **more}


def text(words: str = "Well", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def thought(words: str = "Hm", signed: str | None = None) -> dict[str, Any]:
    return {
        "type": "thinking",
        "thinking": words,
        "signature": signature(words) if signed is None else signed,
    }


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def said(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


def held_to(schema: dict[str, Any]) -> dict[str, Any]:
    return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}


def image(**source: Any) -> dict[str, Any]:
    return said(user({"type": "image", "source": source}))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no model": ({"model": None}, "model: "),
    "no messages": ({"messages": []}, "messages: at least one message is required"),
    "max_tokens as text": ({"max_tokens": "9"}, "max_tokens: Input should be a valid integer"),
    "max_tokens of nothing": ({"max_tokens": 0}, "max_tokens: Input should be greater"),
    "unknown field": ({"response_format": {}}, "response_format: Extra inputs are not permitted"),
    "unknown field in a block": (
        said(user(text(name="x"))),
        "messages.0.content.0.text.name: Extra inputs are not permitted",
    ),
    "unknown field in a message": (
        said({**HELLO, "name": "x"}),
        "messages.0.name: Extra inputs are not permitted",
    ),
    "sampling in the new version": (
        {"temperature": 1.0},
        "temperature: Extra inputs are not permitted",
    ),
    "system as a role": (
        said({"role": "system", "content": "Be kind"}, HELLO),
        'messages: Unexpected role "system"',
    ),
    "tool as a role": (said({**HELLO, "role": "tool"}), "messages.0.role: Input should be 'user'"),
    "assistant first": (said(assistant(text())), 'first message must use the "user" role'),
    "user twice": (said(HELLO, HELLO), 'roles must alternate between "user" and "assistant"'),
    "no content": (said(user()), "messages.0: user messages must have non-empty content"),
    "assistant without content": (
        said(HELLO, assistant(), HELLO),
        "messages.1: all messages must have non-empty content",
    ),
    "null content": (
        said(HELLO, {"role": "assistant", "content": None}, HELLO),
        "messages.1.content: Input should be a valid list",
    ),
    "empty text": (said(user(text(""))), "messages: text content blocks must be non-empty"),
    "empty string": (said({**HELLO, "content": ""}), "text content blocks must be non-empty"),
    "only space": (said(user(text(" \n"))), "blocks must contain non-whitespace text"),
    "empty text in a result": (
        said(HELLO, assistant(use()), user(result(content=[text("")])), tools=[TOOL]),
        "text content blocks must be non-empty",
    ),
    "space at the end of a prefill": (
        said(HELLO, assistant(text("Well "))),
        "final assistant content cannot end with trailing whitespace",
    ),
    "prefill for a model without": (
        said(HELLO, assistant(text()), model="claude-opus-4-6"),
        "This model does not support assistant message prefill.",
    ),
    "id of a use": (
        said(HELLO, assistant(use("a.b")), user(result("a.b"))),
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    "an id twice": (
        said(HELLO, assistant(use()), user(result()), assistant(use()), user(result())),
        "messages.3.content.0: `tool_use` ids must be unique",
    ),
    "use without result": (
        said(HELLO, assistant(use("a"), use("b")), user(result("a"))),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: b.",
    ),
    "use at the end": (
        said(HELLO, assistant(use())),
        "messages.1: `tool_use` ids were found without `tool_result` blocks",
    ),
    "text before a result": (
        said(HELLO, assistant(use()), user(text(), result())),
        "messages.1: `tool_use` ids were found without `tool_result` blocks",
    ),
    "result without use": (
        said(user(result("x"))),
        "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: x.",
    ),
    "result too late": (
        said(HELLO, assistant(use()), user(result()), assistant(text()), user(result())),
        "messages.4.content.0: unexpected `tool_use_id` found",
    ),
    "two results": (
        said(HELLO, assistant(use()), user(result(), result())),
        "each tool_use must have a single result",
    ),
    "use by the user": (said(user(use())), "`tool_use` blocks can only be in `assistant`"),
    "result by the assistant": (
        said(HELLO, assistant(result()), HELLO),
        "`tool_result` blocks can only be in `user`",
    ),
    "image by the assistant": (
        said(
            HELLO,
            assistant({"type": "image", "source": {"type": "url", "url": "https://a.b/c"}}),
            HELLO,
        ),
        "`image` blocks can only be in `user` messages",
    ),
    "document by the assistant": (
        said(
            HELLO,
            assistant({"type": "document", "source": {"type": "url", "url": "https://a.b/c"}}),
            HELLO,
        ),
        "`document` blocks can only be in `user` messages",
    ),
    "thinking by the user": (said(user(thought())), "`thinking` blocks can only be in `assistant`"),
    "citations by the user": (
        said(user(text(citations=[{"type": "char_location"}]))),
        "`citations` are not permitted",
    ),
    "input as text": (
        said(HELLO, assistant(use(input="{}")), user(result())),
        "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
    ),
    "image of another kind": (
        image(type="base64", media_type="image/bmp", data=PNG),
        "image.source.base64.media_type: Input should be 'image/jpeg'",
    ),
    "image that is no base64": (
        image(type="base64", media_type="image/png", data="!"),
        "image.source.base64.data: invalid base64 data",
    ),
    "image by http": (image(type="url", url="http://a.b"), "Only HTTPS URLs are supported."),
    "document that is no pdf": (
        said(
            user(
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "text/html", "data": PNG},
                }
            )
        ),
        "media_type: Input should be 'application/pdf'",
    ),
    "audio": (said(user({"type": "audio", "source": {}})), "Input tag 'audio'"),
    "video": (said(user({"type": "video", "source": {}})), "Input tag 'video'"),
    "empty system": ({"system": ""}, "system: text content blocks must be non-empty"),
    "system as an image": (
        {"system": [{"type": "image", "source": {}}]},
        "system.0.type: Input should be 'text'",
    ),
    "name of a tool": (
        {"tools": [{**TOOL, "name": "look.at"}]},
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ),
    "tools of one name": ({"tools": [TOOL, TOOL]}, "tools: Tool names must be unique."),
    "schema of no object": (
        {"tools": [{"name": "look", "input_schema": {"type": "string"}}]},
        "tools.0.custom.input_schema.type: Input should be 'object'",
    ),
    "parameters as OpenAI has them": (
        {"tools": [{"name": "look", "parameters": {"type": "object"}}]},
        "tools.0.custom.input_schema: Field required",
    ),
    "anyOf on top": (
        {"tools": [{"name": "look", "input_schema": {"type": "object", "anyOf": []}}]},
        "does not support oneOf, allOf, or anyOf at the top level",
    ),
    "strict tool that is open": (
        {"tools": [{**TOOL, "strict": True}]},
        "tools.0.custom: For 'object' type, 'additionalProperties' must be explicitly set to false",
    ),
    "choice without tools": (
        {"tool_choice": {"type": "auto"}},
        "tool_choice may only be specified while providing tools.",
    ),
    "choice as text": ({"tools": [TOOL], "tool_choice": "auto"}, "tool_choice: Input should be"),
    "choice of another tool": (
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "hear"}},
        "Tool 'hear' not found in provided tools",
    ),
    "choice without its name": (
        {"tools": [TOOL], "tool_choice": {"type": "tool"}},
        "tool_choice.tool.name: Field required",
    ),
    "thinking that is forced to a tool": (
        {"tools": [TOOL], "tool_choice": {"type": "any"}, "thinking": THINKING, "max_tokens": 2048},
        "Thinking may not be enabled when tool_choice forces tool use.",
    ),
    "too little thinking": (
        {"thinking": {"type": "enabled", "budget_tokens": 1000}},
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
    ),
    "more thinking than tokens": (
        {"thinking": THINKING, "max_tokens": 1024},
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    "loop that began without thinking": (
        said(HELLO, assistant(use()), user(result()), thinking=THINKING, max_tokens=2048),
        "content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`",
    ),
    "thinking that was changed": (
        said(HELLO, assistant(thought("Ha", signature("Hm")), text()), HELLO),
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    "signature that was changed": (
        said(HELLO, assistant(thought(signed="x"), text()), HELLO),
        "Invalid `signature` in `thinking` block",
    ),
    "thinking without signature": (
        said(HELLO, assistant({"type": "thinking", "thinking": "Hm"}, text()), HELLO),
        "messages.1.content.0.thinking.signature: Field required",
    ),
    "thinking at the end": (
        said(HELLO, assistant(text(), thought()), HELLO),
        "The final block in an assistant message cannot be `thinking`.",
    ),
    "output that is open": (
        held_to({"type": "object", "properties": {}}),
        "output_config.format.schema: For 'object' type, 'additionalProperties' must be",
    ),
    "output that is open inside": (
        held_to({"type": "array", "items": {"type": "object"}}),
        "'additionalProperties' must be explicitly set to false",
    ),
    "output with a bound": (
        held_to({"type": "integer", "minimum": 1, "maximum": 2}),
        "For 'integer' type, properties maximum, minimum are not supported",
    ),
    "output without schema": (
        {"output_config": {"format": {"type": "json_schema"}}},
        "output_config.format.schema: Field required",
    ),
    "stop of only space": ({"stop_sequences": [" "]}, "each stop sequence must contain"),
    "five breakpoints": (
        {"system": [text(cache_control={"type": "ephemeral"})] * 5},
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
}

ACCEPTED: dict[str, dict[str, Any]] = {
    "the least": {},
    "blocks": said(
        user(text(), {"type": "image", "source": {"type": "url", "url": "https://a.b"}})
    ),
    "a picture": image(type="base64", media_type="image/png", data=PNG),
    "documents": said(
        user(
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PNG},
                "title": "One",
            },
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "Two"},
            },
        )
    ),
    "a conversation": said(HELLO, {"role": "assistant", "content": "Hi"}, HELLO, system="Be kind"),
    "a prefill": said(HELLO, assistant(text("Well,"))),
    "results, then text": said(
        HELLO,
        assistant(text(), use("a"), use("b")),
        user(result("b"), result("a", is_error=True), text()),
        tools=[TOOL],
    ),
    "results of all kinds": said(
        HELLO,
        assistant(use("a"), use("b"), use("c")),
        user(
            result("a", content=""),
            {"type": "tool_result", "tool_use_id": "b"},
            result(
                "c",
                content=[
                    text(),
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                    },
                ],
            ),
        ),
        tools=[TOOL],
    ),
    "a loop that began with thinking": said(
        HELLO,
        assistant(thought(), use("a")),
        user(result("a")),
        assistant(use("b")),
        user(result("b")),
        tools=[TOOL],
        thinking=THINKING,
        max_tokens=2048,
    ),
    "an older turn without thinking": said(
        HELLO, assistant(text()), HELLO, thinking=THINKING, max_tokens=2048
    ),
    "choices": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look"}},
    "a closed output": held_to(
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        }
    ),
    "the rest": {
        "metadata": {"user_id": "u"},
        "stop_sequences": ["END"],
        "system": [text(cache_control={"type": "ephemeral", "ttl": "1h"})],
        "service_tier": "standard_only",
    },
}
