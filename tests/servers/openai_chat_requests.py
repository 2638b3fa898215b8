"""What a request of OpenAI's Chat Completions may hold, and in which order its messages stand."""

from __future__ import annotations

import json
from typing import Any

from tests.servers.openai_schemas import check_format, check_parameters
from tests.servers.openai_shared import (
    Check,
    anything,
    array,
    boolean,
    check_data_url,
    check_fields,
    check_image_url,
    check_metadata,
    either,
    fields,
    function_name,
    integer,
    is_base64,
    mapping,
    nullable,
    number,
    one_of,
    refuse,
    refuse_type,
    refuse_value,
    string,
    text,
)

ROLES = ("system", "assistant", "user", "tool", "developer")
PARTS = ("text", "image_url", "input_audio", "refusal", "file")
# The parts that only a user sends, and how OpenAI calls them in the plural.
FROM_USERS = {"image_url": "Image URLs", "input_audio": "Audio inputs", "file": "Files"}
PDF = "an application/pdf MIME type (e.g. 'data:application/pdf;base64,SGVsbG8sIFdvcmxkIQ==')"
speaker = string(least=1, most=64, pattern=r"[^\s<|\\/>]+")
tool_call_id = string(least=1, most=40)


def check_body(body: dict[str, Any]) -> None:
    """Refused if OpenAI would refuse it: first the fields, then how they go together."""
    unknown = [name for name in body if name not in FIELDS]
    if unknown:
        plural = "s" if len(unknown) > 1 else ""
        refuse(f"Unrecognized request argument{plural} supplied: {', '.join(sorted(unknown))}")
    if not body.get("model"):
        refuse("you must provide a model parameter")
    check_fields(body, "", FIELDS, ("messages",))
    _check_together(body)
    _check_order(body["messages"])


# --- messages -------------------------------------------------------------------------


def _message(value: Any, path: str) -> None:
    mapping(value, path)
    if "role" not in value:
        where = f"{path}.role"
        refuse(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    role = value["role"]
    one_of(*ROLES)(role, f"{path}.role")
    check_fields(value, path, MESSAGES[role], ())
    dotted = path.replace("[", ".[")
    spoken = any(value.get(name) for name in ("tool_calls", "function_call", "refusal", "audio"))
    if value.get("content") is None and not spoken:
        refuse("Invalid value for 'content': expected a string, got null.", f"{dotted}.content")
    if role == "tool" and "tool_call_id" not in value:
        refuse(
            "Missing parameter 'tool_call_id': messages with role 'tool' must have a "
            "'tool_call_id'.",
            f"{dotted}.tool_call_id",
        )


def _content(role: str) -> Check:
    def check(value: Any, path: str) -> None:
        if isinstance(value, str) or value is None:
            return
        if not isinstance(value, list):
            refuse_type(value, path, "one of a string or array of objects")
        array(_part(role), least=1)(value, path)

    return check


def _part(role: str) -> Check:
    def check(value: Any, path: str) -> None:
        mapping(value, path)
        if "type" not in value:
            where = f"{path}.type"
            refuse(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
        kind = value["type"]
        one_of(*PARTS)(kind, f"{path}.type")
        if kind in FROM_USERS and role != "user":
            message = path.partition(".")[0]
            one = {"image_url": "an image URL", "input_audio": "an audio input"}.get(kind, "a file")
            refuse(
                f"Invalid '{message}'. {FROM_USERS[kind]} are only allowed for messages with role "
                f"'user', but this message with role '{role}' contains {one}.",
                message,
                "invalid_value",
            )
        if kind == "refusal" and role != "assistant":
            refuse_value(kind, f"{path}.type", tuple(sorted({"text", *FROM_USERS})))
        known = {"type": text, "prompt_cache_breakpoint": anything, kind: PART_VALUES[kind]}
        check_fields(value, path, known, (kind,))

    return check


def _image(value: Any, path: str) -> None:
    fields({"url": text, "detail": one_of("auto", "low", "high")}, "url")(value, path)
    where = f"{path}.url"
    check_image_url(value["url"], f"Invalid image URL: '{where}'.", where)


def _audio(value: Any, path: str) -> None:
    fields({"data": text, "format": one_of("wav", "mp3")}, "data", "format")(value, path)
    if not is_base64(value["data"]):
        where = f"{path}.data"
        refuse(
            f"Invalid '{where}'. Expected base64-encoded audio, but got an invalid "
            "base64-encoded value.",
            where,
            "invalid_value",
        )


def _file(value: Any, path: str) -> None:
    fields({"file_data": text, "filename": text, "file_id": text})(value, path)
    if "file_id" in value and "file_data" in value:
        refuse(
            f"Mutually exclusive parameters: '{path}'. Ensure you are only providing one of: "
            "'file_id' or 'file_data'.",
            path,
            "mutually_exclusive_parameters",
        )
    if "file_id" in value:
        return
    for name in ("file_data", "filename"):
        if not value.get(name):
            where = f"{path}.{name}"
            refuse(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    where = f"{path}.file_data"
    opening = f"Invalid file data: '{where}'."
    check_data_url(value["file_data"], opening, where, PDF, "application/pdf".__eq__)


def _tool_call(value: Any, path: str) -> None:
    known = {
        "id": tool_call_id,
        "type": one_of("function", "custom"),
        "function": fields({"name": function_name, "arguments": text}, "name", "arguments"),
        "custom": fields({"name": function_name, "input": text}, "name", "input"),
    }
    mapping(value, path)
    kind = value.get("type", "function")
    check_fields(value, path, known, ("id", "type", str(kind)))


PART_VALUES: dict[str, Check] = {
    "text": text,
    "refusal": text,
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
}
MESSAGES: dict[str, dict[str, Check]] = {
    "system": {"role": text, "content": _content("system"), "name": speaker},
    "developer": {"role": text, "content": _content("developer"), "name": speaker},
    "user": {"role": text, "content": _content("user"), "name": speaker},
    "assistant": {
        "role": text,
        "content": _content("assistant"),
        "name": speaker,
        "refusal": nullable(text),
        "tool_calls": array(_tool_call, least=1),
        "function_call": nullable(mapping),
        "audio": nullable(fields({"id": text}, "id")),
        "annotations": array(mapping),
    },
    "tool": {
        "role": text,
        "content": _content("tool"),
        "tool_call_id": tool_call_id,
        "name": speaker,
    },
}


def _check_order(messages: list[dict[str, Any]]) -> None:
    """Calls and their results: all of them, once each, and right after the message that calls."""
    asked: list[str] = []
    answered: dict[str, int] = {}
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            _check_result(index, message["tool_call_id"], asked, answered)
            answered[message["tool_call_id"]] = index
            continue
        _check_answered(index, asked, answered)
        asked = [call["id"] for call in message.get("tool_calls", ())]
        answered = {}
        for given in asked:
            if asked.count(given) > 1:
                refuse(
                    f"Invalid parameter: Duplicate value for 'id' of '{given}' in 'tool_calls'.",
                    f"messages.[{index}].tool_calls",
                )
    _check_answered(len(messages) - 1, asked, answered)


def _check_result(index: int, given: str, asked: list[str], answered: dict[str, int]) -> None:
    if not asked:
        refuse(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
            "message with 'tool_calls'.",
            f"messages.[{index}].role",
        )
    where = f"messages.[{index}].tool_call_id"
    if given not in asked:
        refuse(
            f"Invalid parameter: 'tool_call_id' of '{given}' not found in 'tool_calls' of "
            "previous message.",
            where,
        )
    if given in answered:
        refuse(
            f"Invalid parameter: Duplicate value for 'tool_call_id' of '{given}', in "
            f"messages[{answered[given]}] and messages[{index}].",
            where,
        )


def _check_answered(index: int, asked: list[str], answered: dict[str, int]) -> None:
    left = [given for given in asked if given not in answered]
    if left:
        refuse(
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            f"{', '.join(left)}",
            f"messages.[{index}].role",
        )


# --- tools and formats ----------------------------------------------------------------


def _tool(value: Any, path: str) -> None:
    mapping(value, path)
    known: dict[str, Check] = {
        "type": one_of("function", "custom"),
        "function": _function,
        "custom": _custom,
    }
    check_fields(value, path, known, ("type", str(value.get("type", "function"))))


def _function(value: Any, path: str) -> None:
    known = {
        "name": function_name,
        "description": string(most=1024),
        "parameters": mapping,
        "strict": nullable(boolean),
    }
    fields(known, "name")(value, path)
    if "parameters" in value or value.get("strict"):
        strict = bool(value.get("strict"))
        parameters = value.get("parameters")
        check_parameters(parameters, value["name"], f"{path}.parameters", strict=strict)


def _custom(value: Any, path: str) -> None:
    known = {"name": function_name, "description": text, "format": mapping}
    fields(known, "name")(value, path)


def _tool_choice(value: Any, path: str) -> None:
    if isinstance(value, str):
        one_of("none", "auto", "required")(value, path)
        return
    if not isinstance(value, dict):
        refuse_type(value, path, "one of a string or an object")
    named = fields({"name": function_name}, "name")
    known = {
        "type": one_of("function", "custom", "allowed_tools"),
        "function": named,
        "custom": named,
        "allowed_tools": mapping,
    }
    check_fields(value, path, known, ("type",))
    check_fields(value, path, known, (value["type"],))


def _response_format(value: Any, path: str) -> None:
    known = {"type": one_of("json_object", "json_schema", "text"), "json_schema": mapping}
    fields(known, "type")(value, path)
    if value["type"] != "json_schema":
        return
    check_fields(value, path, known, ("json_schema",))
    given = value["json_schema"]
    inner = {
        "name": function_name,
        "description": text,
        "schema": mapping,
        "strict": nullable(boolean),
    }
    check_fields(given, f"{path}.json_schema", inner, ("name", "schema"))
    check_format(given["schema"], given["name"], path, None, strict=bool(given.get("strict")))


def _check_together(body: dict[str, Any]) -> None:
    tools = body.get("tools", [])
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body and not tools:
            refuse(
                f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.",
                name,
            )
    names = [tool[tool["type"]]["name"] for tool in tools]
    for given in names:
        if names.count(given) > 1:
            refuse(f"Invalid 'tools': duplicate function name '{given}'.", "tools", "invalid_value")
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice["type"] != "allowed_tools":
        wanted = choice[choice["type"]]["name"]
        if wanted not in names:
            refuse(f"Tool choice '{wanted}' not found in 'tools' parameter.", "tool_choice")
    if body.get("stream_options") is not None and not body.get("stream"):
        refuse(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            "stream_options",
        )
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        refuse(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            "max_tokens",
            "invalid_parameter_combination",
        )
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        refuse("Invalid value for 'top_logprobs': 'logprobs' must be set to true.", "top_logprobs")
    json_mode = body.get("response_format", {}).get("type") == "json_object"
    if json_mode and "json" not in json.dumps(body["messages"]).lower():
        refuse(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of "
            "type 'json_object'.",
            "messages",
        )


FIELDS: dict[str, Check] = {
    "audio": nullable(mapping),
    "frequency_penalty": nullable(number(-2, 2)),
    # The older way to give tools: known to OpenAI, but not looked into here.
    "function_call": anything,
    "functions": anything,
    "logit_bias": nullable(mapping),
    "logprobs": nullable(boolean),
    "max_completion_tokens": nullable(integer(1)),
    "max_tokens": nullable(integer(1)),
    "messages": array(_message, least=1),
    "metadata": nullable(check_metadata),
    "modalities": nullable(array(one_of("text", "audio"), least=1)),
    "model": text,
    "moderation": anything,
    "n": nullable(integer(1, 128)),
    "parallel_tool_calls": boolean,
    "prediction": nullable(mapping),
    "presence_penalty": nullable(number(-2, 2)),
    "prompt_cache_key": nullable(text),
    "prompt_cache_options": nullable(mapping),
    "prompt_cache_retention": nullable(text),
    "reasoning_effort": nullable(
        one_of("none", "minimal", "low", "medium", "high", "xhigh", "max")
    ),
    "response_format": _response_format,
    "safety_identifier": nullable(text),
    "seed": nullable(integer(-(2**63), 2**63 - 1)),
    "service_tier": nullable(one_of("auto", "default", "flex", "scale", "priority")),
    "stop": nullable(either(array(text, least=1, most=4), text, lambda v: isinstance(v, list))),
    "store": nullable(boolean),
    "stream": nullable(boolean),
    "stream_options": nullable(fields({"include_usage": boolean, "include_obfuscation": boolean})),
    "temperature": nullable(number(0, 2)),
    "tool_choice": _tool_choice,
    "tools": array(_tool, least=1, most=128),
    "top_logprobs": nullable(integer(0, 20)),
    "top_p": nullable(number(0, 1)),
    "user": nullable(text),
    "verbosity": nullable(one_of("low", "medium", "high")),
    "web_search_options": mapping,
}
