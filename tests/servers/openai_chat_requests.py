"""What a request of OpenAI's Chat Completions may hold, and in which order its messages stand."""

from __future__ import annotations

import json
from typing import Any

from tests.servers.openai_schemas import check_format, check_parameters
from tests.servers.openai_shared import (
    array,
    check_data_url,
    check_image_url,
    check_metadata,
    check_types,
    function_name,
    integer,
    is_base64,
    limits,
    number,
    refuse,
    refuse_missing,
    string,
)

PDF = "an application/pdf MIME type (e.g. 'data:application/pdf;base64,SGVsbG8sIFdvcmxkIQ==')"
speaker = string(least=1, most=64, pattern=r"[^\s<|\\/>]+")
tool_call_id = string(least=1, most=40)


def check_body(body: dict[str, Any]) -> None:
    """Refused if OpenAI would refuse it: its types, its limits, then how it goes together."""
    if not body.get("model"):
        refuse("you must provide a model parameter")
    check_types("chat", body)
    LIMITS(body, "")
    _check_together(body)
    _check_order(body["messages"])


# --- messages -------------------------------------------------------------------------


def _message(value: dict[str, Any], path: str) -> None:
    MESSAGE(value, path)
    spoken = any(value.get(name) for name in ("tool_calls", "function_call", "refusal", "audio"))
    if value.get("content") is None and not spoken:
        where = f"{path.replace('[', '.[')}.content"
        refuse("Invalid value for 'content': expected a string, got null.", where)


def _image(value: dict[str, Any], path: str) -> None:
    where = f"{path}.url"
    check_image_url(value["url"], f"Invalid image URL: '{where}'.", where)


def _audio(value: dict[str, Any], path: str) -> None:
    if not is_base64(value["data"]):
        where = f"{path}.data"
        refuse(
            f"Invalid '{where}'. Expected base64-encoded audio, but got an invalid "
            "base64-encoded value.",
            where,
            "invalid_value",
        )


def _file(value: dict[str, Any], path: str) -> None:
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
            refuse_missing(f"{path}.{name}")
    where = f"{path}.file_data"
    opening = f"Invalid file data: '{where}'."
    check_data_url(value["file_data"], opening, where, PDF, "application/pdf".__eq__)


PART = limits(image_url=_image, input_audio=_audio, file=_file)
NAMED = limits(name=function_name)
MESSAGE = limits(
    content=array(PART, least=1),
    name=speaker,
    tool_calls=array(limits(id=tool_call_id, function=NAMED, custom=NAMED), least=1),
    tool_call_id=tool_call_id,
)


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


def _function(value: dict[str, Any], path: str) -> None:
    limits(name=function_name, description=string(most=1024))(value, path)
    if "parameters" in value or value.get("strict"):
        strict = bool(value.get("strict"))
        parameters = value.get("parameters")
        check_parameters(parameters, value["name"], f"{path}.parameters", strict=strict)


def _response_format(value: dict[str, Any], path: str) -> None:
    if value["type"] != "json_schema":
        return
    given = value["json_schema"]
    NAMED(given, f"{path}.json_schema")
    if "schema" not in given:
        refuse_missing(f"{path}.json_schema.schema")
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


LIMITS = limits(
    frequency_penalty=number(-2, 2),
    max_completion_tokens=integer(1),
    max_tokens=integer(1),
    messages=array(_message, least=1),
    metadata=check_metadata,
    modalities=array(least=1),
    n=integer(1, 128),
    presence_penalty=number(-2, 2),
    response_format=_response_format,
    seed=integer(-(2**63), 2**63 - 1),
    stop=array(least=1, most=4),
    temperature=number(0, 2),
    tools=array(limits(function=_function, custom=NAMED), least=1, most=128),
    top_logprobs=integer(0, 20),
    top_p=number(0, 1),
)
