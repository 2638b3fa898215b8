"""Requests of Anthropic's Messages API: those that it refuses, with its words, and those it takes.

A request is told by what is in it beside `LEAST`.
"""

from __future__ import annotations

import base64
from typing import Any

from tests.servers.anthropic_rules import signature

HELLO = {"role": "user", "content": "Hello"}
CITED = {
    "type": "char_location",
    "cited_text": "a",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 1,
}
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


REFUSED: dict[str, list[dict[str, Any]]] = {
    "model: Input should be": [{"model": None}],
    "messages: at least one message is required": [{"messages": []}],
    "max_tokens: Input should be a valid integer": [{"max_tokens": "9"}],
    "max_tokens: Input should be greater": [{"max_tokens": 0}],
    "response_format: Extra inputs are not permitted": [{"response_format": {}}],
    "messages.0.content.0.name: Extra inputs are not permitted": [said(user(text(name="x")))],
    "messages.0.name: Extra inputs are not permitted": [said({**HELLO, "name": "x"})],
    "temperature: Extra inputs are not permitted": [{"temperature": 1.0}],
    'messages: Unexpected role "system"': [said({"role": "system", "content": "Be kind"}, HELLO)],
    "messages.0.role: Input should be 'user'": [said({**HELLO, "role": "tool"})],
    'first message must use the "user" role': [said(assistant(text()))],
    'roles must alternate between "user" and "assistant"': [said(HELLO, HELLO)],
    "messages.0: user messages must have non-empty content": [said(user())],
    "messages.1: all messages must have non-empty content": [said(HELLO, assistant(), HELLO)],
    "messages.1.content: Input should be a valid string": [
        said(HELLO, {"role": "assistant", "content": None}, HELLO)
    ],
    "messages: text content blocks must be non-empty": [said(user(text("")))],
    "text content blocks must be non-empty": [
        said({**HELLO, "content": ""}),
        said(HELLO, assistant(use()), user(result(content=[text("")])), tools=[TOOL]),
    ],
    "blocks must contain non-whitespace text": [said(user(text(" \n")))],
    "final assistant content cannot end with trailing whitespace": [
        said(HELLO, assistant(text("Well ")))
    ],
    "This model does not support assistant message prefill.": [
        said(HELLO, assistant(text()), model="claude-opus-4-6")
    ],
    "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'": [
        said(HELLO, assistant(use("a.b")), user(result("a.b")))
    ],
    "messages.3.content.0: `tool_use` ids must be unique": [
        said(HELLO, assistant(use()), user(result()), assistant(use()), user(result()))
    ],
    "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: b.": [
        said(HELLO, assistant(use("a"), use("b")), user(result("a")))
    ],
    "messages.1: `tool_use` ids were found without `tool_result` blocks": [
        said(HELLO, assistant(use())),
        said(HELLO, assistant(use()), user(text(), result())),
    ],
    "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: x.": [
        said(user(result("x")))
    ],
    "messages.4.content.0: unexpected `tool_use_id` found": [
        said(HELLO, assistant(use()), user(result()), assistant(text()), user(result()))
    ],
    "each tool_use must have a single result": [
        said(HELLO, assistant(use()), user(result(), result()))
    ],
    "`tool_use` blocks can only be in `assistant`": [said(user(use()))],
    "`tool_result` blocks can only be in `user`": [said(HELLO, assistant(result()), HELLO)],
    "`image` blocks can only be in `user` messages": [
        said(
            HELLO,
            assistant({"type": "image", "source": {"type": "url", "url": "https://a.b/c"}}),
            HELLO,
        )
    ],
    "`document` blocks can only be in `user` messages": [
        said(
            HELLO,
            assistant({"type": "document", "source": {"type": "url", "url": "https://a.b/c"}}),
            HELLO,
        )
    ],
    "`thinking` blocks can only be in `assistant`": [said(user(thought()))],
    "`citations` are not permitted": [said(user(text(citations=[CITED])))],
    "messages.1.content.0.input: Input should be an object": [
        said(HELLO, assistant(use(input="{}")), user(result()))
    ],
    "messages.0.content.0.source.media_type: Input should be 'image/jpeg'": [
        image(type="base64", media_type="image/bmp", data=PNG)
    ],
    "image.source.base64.data: invalid base64 data": [
        image(type="base64", media_type="image/png", data="!")
    ],
    "Only HTTPS URLs are supported.": [image(type="url", url="http://a.b")],
    "media_type: Input should be 'application/pdf'": [
        said(
            user(
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "text/html", "data": PNG},
                }
            )
        )
    ],
    "messages.0.content.0.type: Input should be 'text', 'image', 'document'": [
        said(user({"type": "audio", "source": {}}))
    ],
    "system: text content blocks must be non-empty": [{"system": ""}],
    "system.0.type: Input should be 'text'": [{"system": [{"type": "image", "source": {}}]}],
    "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'": [
        {"tools": [{**TOOL, "name": "look.at"}]}
    ],
    "tools: Tool names must be unique.": [{"tools": [TOOL, TOOL]}],
    "tools.0.custom.input_schema.type: Input should be 'object'": [
        {"tools": [{"name": "look", "input_schema": {"type": "string"}}]}
    ],
    "tools.0.input_schema: Field required": [
        {"tools": [{"name": "look", "parameters": {"type": "object"}}]}
    ],
    "does not support oneOf, allOf, or anyOf at the top level": [
        {"tools": [{"name": "look", "input_schema": {"type": "object", "anyOf": []}}]}
    ],
    "tools.0.custom: For 'object' type, 'additionalProperties' must be explicitly set to false": [
        {"tools": [{**TOOL, "strict": True}]}
    ],
    "tool_choice may only be specified while providing tools.": [{"tool_choice": {"type": "auto"}}],
    "tool_choice: Input should be": [{"tools": [TOOL], "tool_choice": "auto"}],
    "Tool 'hear' not found in provided tools": [
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "hear"}}
    ],
    "tool_choice.name: Field required": [{"tools": [TOOL], "tool_choice": {"type": "tool"}}],
    "Thinking may not be enabled when tool_choice forces tool use.": [
        {"tools": [TOOL], "tool_choice": {"type": "any"}, "thinking": THINKING, "max_tokens": 2048}
    ],
    "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024": [
        {"thinking": {"type": "enabled", "budget_tokens": 1000}}
    ],
    "`max_tokens` must be greater than `thinking.budget_tokens`": [
        {"thinking": THINKING, "max_tokens": 1024}
    ],
    "content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`": [
        said(HELLO, assistant(use()), user(result()), thinking=THINKING, max_tokens=2048)
    ],
    "messages.1.content.0: Invalid `signature` in `thinking` block": [
        said(HELLO, assistant(thought("Ha", signature("Hm")), text()), HELLO)
    ],
    "Invalid `signature` in `thinking` block": [
        said(HELLO, assistant(thought(signed="x"), text()), HELLO)
    ],
    "messages.1.content.0.signature: Field required": [
        said(HELLO, assistant({"type": "thinking", "thinking": "Hm"}, text()), HELLO)
    ],
    "The final block in an assistant message cannot be `thinking`.": [
        said(HELLO, assistant(text(), thought()), HELLO)
    ],
    "output_config.format.schema: For 'object' type, 'additionalProperties' must be": [
        held_to({"type": "object", "properties": {}})
    ],
    "'additionalProperties' must be explicitly set to false": [
        held_to({"type": "array", "items": {"type": "object"}})
    ],
    "For 'integer' type, properties maximum, minimum are not supported": [
        held_to({"type": "integer", "minimum": 1, "maximum": 2})
    ],
    "output_config.format.schema: Field required": [
        {"output_config": {"format": {"type": "json_schema"}}}
    ],
    "each stop sequence must contain": [{"stop_sequences": [" "]}],
    "A maximum of 4 blocks with cache_control may be provided. Found 5.": [
        {"system": [text(cache_control={"type": "ephemeral"})] * 5}
    ],
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
