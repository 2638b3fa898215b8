"""What a request of OpenAI's Responses may hold beside the items of its input.

Nothing is stored here: a previous response, a conversation or a prompt is never found.
"""

from __future__ import annotations

import json
from typing import Any

from tests.servers.openai_responses_items import check_items, item_limits
from tests.servers.openai_schemas import check_format, check_parameters
from tests.servers.openai_shared import (
    array,
    check_metadata,
    check_types,
    function_name,
    integer,
    limits,
    number,
    refuse,
    refuse_missing,
    string,
)
from tests.servers.serving import Refused

MOVED = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


# --- the body -------------------------------------------------------------------------


def check_body(body: dict[str, Any]) -> None:
    """Refused if OpenAI would refuse it: its types, its limits, then how it goes together."""
    for old, new in MOVED.items():
        if old in body:
            refuse(
                f"Unsupported parameter: '{old}'. In the Responses API, this parameter has moved "
                f"to '{new}'. Try again with the new parameter.",
                old,
                "unsupported_parameter",
            )
    if "model" not in body:
        refuse_missing("model")
    check_types("responses", body)
    LIMITS(body, "")
    _check_stored(body)
    if body.get("input") in (None, []):
        refuse(
            "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be "
            "provided.",
            "input",
            "missing_required_parameter",
        )
    _check_together(body)
    if isinstance(body["input"], list):
        check_items(body["input"], stored=body.get("store") is not False)


def _check_stored(body: dict[str, Any]) -> None:
    given = body.get("previous_response_id")
    if given is not None:
        refuse(
            f"Previous response with id '{given}' not found.",
            "previous_response_id",
            "previous_response_not_found",
        )
    for name in ("conversation", "prompt"):
        if body.get(name) is not None:
            raise Refused(404, f"{name.capitalize()} not found.", param=name)


def _check_together(body: dict[str, Any]) -> None:
    tools = body.get("tools") or []
    names = [tool["name"] for tool in tools if "name" in tool]
    for given in names:
        if names.count(given) > 1:
            refuse(f"Invalid 'tools': duplicate function name '{given}'.", "tools", "invalid_value")
    choice = body.get("tool_choice")
    if choice == "required" and not tools:
        refuse("Tool choice 'required' must be specified with 'tools' parameter.", "tool_choice")
    if isinstance(choice, dict) and choice["type"] in ("function", "custom"):
        wanted = choice["name"]
        if wanted not in names:
            refuse(f"Tool choice '{wanted}' not found in 'tools' parameter.", "tool_choice")
    if body.get("stream_options") is not None and not body.get("stream"):
        refuse(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            "stream_options",
        )
    wanted_format = ((body.get("text") or {}).get("format") or {}).get("type")
    if wanted_format == "json_object" and "json" not in json.dumps(body["input"]).lower():
        refuse(
            "Response input messages must contain the word 'json' in some form to use "
            "'text.format' of type 'json_object'.",
            "input",
        )


# --- tools and formats ----------------------------------------------------------------


def _tool(value: dict[str, Any], path: str) -> None:
    limits(name=function_name)(value, path)
    if value["type"] == "function" and value["parameters"] is not None:
        # Without a word on `strict` OpenAI makes the schema strict itself.
        strict = value["strict"] is True
        check_parameters(value["parameters"], value["name"], f"{path}.parameters", strict=strict)


def _format(value: dict[str, Any], path: str) -> None:
    if value["type"] != "json_schema":
        return
    limits(name=function_name)(value, path)
    strict, where = bool(value.get("strict")), f"{path}.schema"
    check_format(value["schema"], value["name"], where, "invalid_json_schema", strict=strict)


LIMITS = limits(
    input=array(item_limits),
    max_output_tokens=integer(16),
    max_tool_calls=integer(1),
    metadata=check_metadata,
    model=string(least=1),
    temperature=number(0, 2),
    text=limits(format=_format),
    tools=array(_tool, most=128),
    top_logprobs=integer(0, 20),
    top_p=number(0, 1),
)
