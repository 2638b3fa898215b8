"""What a conversation may be for Anthropic's Messages API: who speaks when, what answers what.

A request is known to have the right shape here. Where the real API is lenient (it joins
neighbours of one role), this is not: who relies on that has built something else than meant.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from tests.servers.anthropic_shapes import (
    Adaptive,
    AnyTool,
    Disabled,
    Message,
    OneTool,
    RedactedThinking,
    Request,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from tests.servers.serving import Refused

# The version of the API that takes no sampling parameters, and no citations from the user.
NEW = "2026-10-21"


def signature(thinking: str) -> str:
    """What this server signs its thinking with; it holds for this text and no other."""
    return base64.b64encode(hashlib.sha256(b"anthropic:" + thinking.encode()).digest()).decode()


def refuse(where: str, what: str) -> NoReturn:
    raise Refused(400, f"{where}: {what}")


def check_rules(request: Request, version: str) -> None:
    """Refused if its parts do not go together."""
    _alternate(request.messages)
    for at, message in enumerate(request.messages):
        _placed(at, message, version)
    _paired(request.messages)
    _written("system", request.system)
    _equipped(request)
    _thinks(request)
    _prefill(request)
    if not all(stop.strip() for stop in request.stop_sequences):
        refuse("stop_sequences", "each stop sequence must contain non-whitespace")
    if request.output_config and request.output_config.format:
        _closed("output_config.format.schema", request.output_config.format.schema_)


def _alternate(messages: Sequence[Message]) -> None:
    if not messages:
        refuse("messages", "at least one message is required")
    if messages[0].role != "user":
        refuse("messages", 'first message must use the "user" role')
    for before, after in pairwise(messages):
        if before.role == after.role:
            refuse(
                "messages",
                'roles must alternate between "user" and "assistant", but found multiple '
                f'"{after.role}" roles in a row',
            )


def _placed(at: int, message: Message, version: str) -> None:
    """Each block is in a message that may hold it."""
    only_in = {
        "tool_use": "assistant",
        "thinking": "assistant",
        "redacted_thinking": "assistant",
        "tool_result": "user",
        "image": "user",
        "document": "user",
    }
    if not message.content:
        if message.role == "user":
            refuse(f"messages.{at}", "user messages must have non-empty content")
        refuse(
            f"messages.{at}",
            "all messages must have non-empty content except for the optional final "
            "assistant message",
        )
    for place, block in enumerate(message.content):
        where = f"messages.{at}.content.{place}"
        role = only_in.get(block.type, message.role)
        if role != message.role:
            refuse(where, f"`{block.type}` blocks can only be in `{role}` messages")
        if isinstance(block, Thinking) and block.signature != signature(block.thinking):
            refuse(where, "Invalid `signature` in `thinking` block")
        inside = block.content if isinstance(block, ToolResult) else [block]
        texts = [text for text in inside if isinstance(text, Text)]
        _written("messages", texts)
        if version == NEW and message.role == "user" and any(text.citations for text in texts):
            refuse(where, "`citations` are not permitted on text blocks in `user` messages")
    if isinstance(message.content[-1], Thinking | RedactedThinking):
        refuse(f"messages.{at}", "The final block in an assistant message cannot be `thinking`.")


def _written(where: str, texts: Sequence[Text]) -> None:
    for block in texts:
        if not block.text:
            refuse(where, "text content blocks must be non-empty")
        if not block.text.strip():
            refuse(where, "text content blocks must contain non-whitespace text")


def _paired(messages: Sequence[Message]) -> None:
    """Each tool use has one result, at the beginning of the message after it."""
    seen: set[str] = set()
    for at, message in enumerate(messages):
        for place, block in enumerate(message.content):
            if isinstance(block, ToolUse):
                if block.id in seen:
                    refuse(f"messages.{at}.content.{place}", "`tool_use` ids must be unique")
                seen.add(block.id)
        if message.role == "assistant":
            _answered(at, message, messages[at + 1] if at + 1 < len(messages) else None)
        else:
            _asked_for(at, message, messages[at - 1] if at else None)


def _uses(message: Message | None) -> list[str]:
    return [block.id for block in message.content if isinstance(block, ToolUse)] if message else []


def _answered(at: int, message: Message, after: Message | None) -> None:
    results = set()
    for block in after.content if after else ():
        if not isinstance(block, ToolResult):
            break
        results.add(block.tool_use_id)
    if missing := [use for use in _uses(message) if use not in results]:
        refuse(
            f"messages.{at}",
            "`tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding "
            "`tool_result` block in the next message.",
        )


def _asked_for(at: int, message: Message, before: Message | None) -> None:
    counted: Counter[str] = Counter()
    for place, block in enumerate(message.content):
        if not isinstance(block, ToolResult):
            continue
        where, use = f"messages.{at}.content.{place}", block.tool_use_id
        if use not in _uses(before):
            refuse(
                where,
                f"unexpected `tool_use_id` found in `tool_result` blocks: {use}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the "
                "previous message.",
            )
        counted[use] += 1
        if counted[use] > 1:
            refuse(
                where,
                "each tool_use must have a single result. Found multiple `tool_result` blocks "
                f"with id: {use}",
            )


def _prefill(request: Request) -> None:
    last = request.messages[-1]
    if last.role != "assistant":
        return
    if re.search(r"claude-[a-z]+-(4-[6-9]|[5-9])", request.model):
        raise Refused(
            400,
            "This model does not support assistant message prefill. The conversation must end "
            "with a user message.",
        )
    end = last.content[-1]
    if isinstance(end, Text) and end.text != end.text.rstrip():
        refuse("messages", "final assistant content cannot end with trailing whitespace")


def _thinks(request: Request) -> None:
    """What goes with thinking, and that a turn that is under way began with it."""
    thinking = request.thinking
    if thinking is None or isinstance(thinking, Disabled):
        return
    if isinstance(request.tool_choice, AnyTool | OneTool):
        raise Refused(400, "Thinking may not be enabled when tool_choice forces tool use.")
    if isinstance(thinking, Adaptive):
        return
    if request.temperature not in (None, 1):
        raise Refused(400, "`temperature` may only be set to 1 when thinking is enabled.")
    if request.top_k is not None:
        raise Refused(400, "`top_k` must be unset when thinking is enabled.")
    if thinking.budget_tokens >= request.max_tokens:
        raise Refused(400, "`max_tokens` must be greater than `thinking.budget_tokens`.")
    asks = [
        at
        for at, message in enumerate(request.messages)
        if message.role == "user"
        and not any(isinstance(block, ToolResult) for block in message.content)
    ]
    began = asks[-1] + 1 if asks else 0
    if began < len(request.messages):
        first = request.messages[began].content[0]
        if not isinstance(first, Thinking | RedactedThinking):
            refuse(
                f"messages.{began}.content.0.type",
                f"Expected `thinking` or `redacted_thinking`, but found `{first.type}`. When "
                "`thinking` is enabled, a final `assistant` message must start with a thinking "
                "block (preceding the lastmost set of `tool_use` and `tool_result` blocks). To "
                "avoid this requirement, disable `thinking`.",
            )


def _equipped(request: Request) -> None:
    """Tools, and the choice among them."""
    names = [tool.name for tool in request.tools]
    if len(set(names)) < len(names):
        refuse("tools", "Tool names must be unique.")
    for at, tool in enumerate(request.tools):
        where = f"tools.{at}.custom"
        more = tool.input_schema.model_extra or {}
        if more.keys() & {"oneOf", "allOf", "anyOf"}:
            refuse(
                f"{where}.input_schema",
                "input_schema does not support oneOf, allOf, or anyOf at the top level",
            )
        if tool.strict:
            _closed(where, tool.input_schema.model_dump(exclude_unset=True))
    if request.tool_choice is not None and not names:
        raise Refused(400, "tool_choice may only be specified while providing tools.")
    if isinstance(request.tool_choice, OneTool) and request.tool_choice.name not in names:
        raise Refused(400, f"Tool '{request.tool_choice.name}' not found in provided tools")


UNSUPPORTED = {
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "string": {"minLength", "maxLength"},
    "array": {"maxItems", "uniqueItems", "contains", "prefixItems"},
    "object": {"minProperties", "maxProperties", "patternProperties", "propertyNames"},
}


def _closed(where: str, schema: Any) -> None:
    """A schema that the output is held to: closed objects, and only what can be held to."""
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if "oneOf" in schema:
        refuse(where, "Schema type 'oneOf' is not supported")
    if kind == "object" and schema.get("additionalProperties") is not False:
        refuse(where, "For 'object' type, 'additionalProperties' must be explicitly set to false")
    if isinstance(kind, str) and (bad := sorted(UNSUPPORTED.get(kind, set()) & schema.keys())):
        refuse(where, f"For '{kind}' type, properties {', '.join(bad)} are not supported")
    if kind == "array" and schema.get("minItems", 0) not in (0, 1):
        refuse(where, "For 'array' type, 'minItems' values other than 0 or 1 are not supported")
    for inner in _inner_schemas(schema):
        _closed(where, inner)


def _inner_schemas(schema: dict[str, Any]) -> Iterator[Any]:
    for several in ("properties", "$defs", "definitions"):
        yield from schema.get(several, {}).values()
    for listed in ("anyOf", "allOf"):
        yield from schema.get(listed, [])
    yield schema.get("items")


def breakpoints(given: Any) -> int:
    """How many blocks are marked for the cache; an input or a schema may use the word freely."""
    if isinstance(given, list):
        return sum(map(breakpoints, given))
    if not isinstance(given, dict):
        return 0
    inner = (
        value for key, value in given.items() if key not in ("input", "input_schema", "schema")
    )
    return (given.get("cache_control") is not None) + sum(map(breakpoints, inner))
