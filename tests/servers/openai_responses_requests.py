"""What a request of OpenAI's Responses may hold beside the items of its input.

Nothing is stored here: a previous response, a conversation or a prompt is never found.
"""

from __future__ import annotations

import json
from typing import Any

from tests.servers.openai_responses_items import check_input, check_items
from tests.servers.openai_schemas import check_format, check_parameters
from tests.servers.openai_shared import (
    Check,
    anything,
    array,
    boolean,
    check_fields,
    check_metadata,
    fields,
    function_name,
    integer,
    mapping,
    nullable,
    number,
    one_of,
    refuse,
    refuse_type,
    string,
    text,
)
from tests.servers.serving import Refused

HOSTED = (
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "shell",
    "tool_search",
    "web_search",
    "web_search_preview",
)
MOVED = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


# --- the body -------------------------------------------------------------------------


def check_body(body: dict[str, Any]) -> None:
    """Refused if OpenAI would refuse it: first the fields, then how they go together."""
    for old, new in MOVED.items():
        if old in body:
            refuse(
                f"Unsupported parameter: '{old}'. In the Responses API, this parameter has moved "
                f"to '{new}'. Try again with the new parameter.",
                old,
                "unsupported_parameter",
            )
    check_fields(body, "", FIELDS, ("model",))
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


def _tool(value: Any, path: str) -> None:
    mapping(value, path)
    if "type" not in value:
        where = f"{path}.type"
        refuse(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    kind = value["type"]
    one_of("function", "custom", *HOSTED)(kind, f"{path}.type")
    if kind in HOSTED:
        return
    known: dict[str, Check] = {"type": text, "name": function_name, "description": nullable(text)}
    if kind == "function":
        known |= {
            "parameters": nullable(mapping),
            "strict": nullable(boolean),
            "allowed_callers": anything,
            "defer_loading": boolean,
            "output_schema": anything,
        }
    else:
        known |= {"format": mapping, "allowed_callers": anything, "defer_loading": boolean}
    check_fields(value, path, known, ("name",))
    if value.get("parameters") is not None:
        # Without a word on `strict` OpenAI makes the schema strict itself.
        strict = value.get("strict") is True
        check_parameters(value["parameters"], value["name"], f"{path}.parameters", strict=strict)


def _tool_choice(value: Any, path: str) -> None:
    if isinstance(value, str):
        one_of("none", "auto", "required")(value, path)
        return
    if not isinstance(value, dict):
        refuse_type(value, path, "one of a string or an object")
    if "type" not in value:
        where = f"{path}.type"
        refuse(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    kind = value["type"]
    one_of("function", "custom", "allowed_tools", *HOSTED)(kind, f"{path}.type")
    if kind in ("function", "custom"):
        check_fields(value, path, {"type": text, "name": function_name}, ("name",))


def _text(value: Any, path: str) -> None:
    verbosity = nullable(one_of("low", "medium", "high"))
    fields({"format": mapping, "verbosity": verbosity})(value, path)
    if "format" not in value:
        return
    given, where = value["format"], f"{path}.format"
    kind = given.get("type")
    if kind is None:
        refuse(
            f"Missing required parameter: '{where}.type'.",
            f"{where}.type",
            "missing_required_parameter",
        )
    one_of("text", "json_object", "json_schema")(kind, f"{where}.type")
    if kind != "json_schema":
        check_fields(given, where, {"type": text}, ())
        return
    known = {
        "type": text,
        "name": function_name,
        "schema": mapping,
        "strict": nullable(boolean),
        "description": text,
    }
    check_fields(given, where, known, ("name", "schema"))
    strict = bool(given.get("strict"))
    check_format(
        given["schema"], given["name"], f"{where}.schema", "invalid_json_schema", strict=strict
    )


INCLUDABLE = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
)
summary_kind = nullable(one_of("auto", "concise", "detailed"))
FIELDS: dict[str, Check] = {
    "background": nullable(boolean),
    "context_management": anything,
    "conversation": anything,
    "include": nullable(array(one_of(*INCLUDABLE))),
    "input": check_input,
    "instructions": nullable(text),
    "max_output_tokens": nullable(integer(16)),
    "max_tool_calls": nullable(integer(1)),
    "metadata": nullable(check_metadata),
    "model": string(least=1),
    "moderation": anything,
    "parallel_tool_calls": nullable(boolean),
    "previous_response_id": nullable(text),
    "prompt": nullable(mapping),
    "prompt_cache_key": nullable(text),
    "prompt_cache_options": anything,
    "prompt_cache_retention": nullable(text),
    "reasoning": nullable(
        fields(
            {
                "effort": nullable(
                    one_of("none", "minimal", "low", "medium", "high", "xhigh", "max")
                ),
                "summary": summary_kind,
                "generate_summary": summary_kind,
                "context": anything,
                "mode": anything,
            }
        )
    ),
    "safety_identifier": nullable(text),
    "service_tier": nullable(one_of("auto", "default", "flex", "scale", "priority")),
    "store": nullable(boolean),
    "stream": nullable(boolean),
    "stream_options": nullable(fields({"include_obfuscation": boolean})),
    "temperature": nullable(number(0, 2)),
    "text": _text,
    "tool_choice": _tool_choice,
    "tools": array(_tool, most=128),
    "top_logprobs": nullable(integer(0, 20)),
    "top_p": nullable(number(0, 1)),
    "truncation": nullable(one_of("auto", "disabled")),
    "user": nullable(text),
}
