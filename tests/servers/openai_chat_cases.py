"""Requests of Chat Completions: those that OpenAI refuses, with its words, and those it takes."""

from __future__ import annotations

from typing import Any

PNG = "data:image/png;base64,aW1nIGJ5dGVzIGhlcmU="
PDF = "data:application/pdf;base64,SGVsbG8sIFdvcmxkIQ=="
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
SAID = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


def called(*ids: str, **more: Any) -> dict[str, Any]:
    """An assistant message that calls `weather` once for each id."""
    function = {"name": "weather", "arguments": "{}"}
    calls = [{"id": given, "type": "function", "function": function} for given in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(given: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": given, "content": "sunny"}


def asks(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "gpt-test", "messages": list(messages) or [SAID], **more}


def parts(*given: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return asks({"role": role, "content": list(given)})


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def file(**given: str) -> dict[str, Any]:
    return {"type": "file", "file": given}


def audio(data: str, kind: str) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": data, "format": kind}}


def tool(strict: bool | None = None, **given: Any) -> dict[str, Any]:
    more = {} if strict is None else {"strict": strict}
    return {"type": "function", "function": {"name": "weather", **given, **more}}


def strict_tool(schema: Any) -> dict[str, Any]:
    return asks(tools=[tool(strict=True, parameters=schema)])


def formatted(schema: Any, name: str = "report", strict: bool = True) -> dict[str, Any]:
    given = {"name": name, "schema": schema, "strict": strict}
    return asks(response_format={"type": "json_schema", "json_schema": given})


def nested(inner: Any) -> dict[str, Any]:
    """A strict schema with one property."""
    return {**SCHEMA, "properties": {"city": inner}}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown field": (asks(top_k=3), "Unrecognized request argument supplied: top_k"),
    "unknown fields": (asks(b=1, a=2), "Unrecognized request arguments supplied: a, b"),
    "no model": ({"messages": [SAID]}, "you must provide a model parameter"),
    "no messages": ({"model": "m"}, "Missing required parameter: 'messages'."),
    "empty messages": ({"model": "m", "messages": []}, "Invalid 'messages': empty array."),
    "messages of a wrong type": (
        {"model": "m", "messages": "hello"},
        "Invalid type for 'messages': expected an array, but got a string instead.",
    ),
    "no role": (asks({"content": "a"}), "Missing required parameter: 'messages[0].role'."),
    "unknown role": (
        asks({"role": "robot", "content": "a"}),
        "Invalid value: 'robot'. Supported values are: 'system', 'assistant'",
    ),
    "unknown field of a message": (
        asks({**SAID, "mood": "good"}),
        "Unknown parameter: 'messages[0].mood'.",
    ),
    "calls of a user": (
        asks({**SAID, "tool_calls": []}),
        "Unknown parameter: 'messages[0].tool_calls'.",
    ),
    "null content of a user": (
        asks({"role": "user", "content": None}),
        "Invalid value for 'content': expected a string, got null.",
    ),
    "no content of a system message": (asks({"role": "system"}), "expected a string, got null."),
    "null content of a tool": (
        asks(SAID, called("a"), {**result("a"), "content": None}),
        "expected a string, got null.",
    ),
    "number as content": (
        asks({"role": "user", "content": 3}),
        "expected one of a string or array of objects, but got an integer instead.",
    ),
    "empty content": (parts(), "Invalid 'messages[0].content': empty array."),
    "an assistant that says nothing": (
        asks(SAID, {"role": "assistant", "content": None}),
        "Invalid value for 'content': expected a string, got null.",
    ),
    "no calls": (
        asks(SAID, {"role": "assistant", "content": "a", "tool_calls": []}),
        "Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1",
    ),
    "null calls": (
        asks(SAID, {"role": "assistant", "content": "a", "tool_calls": None}),
        "Invalid type for 'messages[1].tool_calls': expected an array, but got null instead.",
    ),
    "a result without a call": (
        asks(SAID, result("a")),
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
    ),
    "a result after other words": (
        asks(SAID, called("a"), result("a"), SAID, result("a")),
        "must be a response to a preceeding message",
    ),
    "a result of another call": (
        asks(SAID, called("a"), result("b")),
        "'tool_call_id' of 'b' not found in 'tool_calls' of previous message.",
    ),
    "a result without an id": (
        asks(SAID, called("a"), {"role": "tool", "content": "b"}),
        "Missing parameter 'tool_call_id'",
    ),
    "two results of a call": (
        asks(SAID, called("a"), result("a"), result("a")),
        "Duplicate value for 'tool_call_id' of 'a', in messages[2] and messages[3].",
    ),
    "two calls with one id": (
        asks(SAID, called("a", "a"), result("a")),
        "Duplicate value for 'id' of 'a'",
    ),
    "calls without results": (
        asks(SAID, called("a", "b", "c"), result("b"), SAID),
        "did not have response messages: a, c",
    ),
    "calls at the end": (asks(SAID, called("a")), "did not have response messages: a"),
    "an id that is too long": (
        asks(SAID, called("a" * 41), result("a" * 41)),
        "Expected a string with maximum length 40, but got a string with length 41 instead.",
    ),
    "arguments that are no string": (
        asks(
            SAID,
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": {}}}
                ],
            },
            result("a"),
        ),
        "tool_calls[0].function.arguments': expected a string, but got an object instead.",
    ),
    "a called name with a dot": (
        asks(
            SAID,
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f.g", "arguments": ""}}
                ],
            },
            result("a"),
        ),
        "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
    ),
    "a call without a type": (
        asks(
            SAID,
            {
                "role": "assistant",
                "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}],
            },
            result("a"),
        ),
        "Missing required parameter: 'messages[1].tool_calls[0].type'.",
    ),
    "no tools": (asks(tools=[]), "Invalid 'tools': empty array."),
    "null tools": (asks(tools=None), "Invalid type for 'tools'"),
    "a tool without a name": (
        asks(tools=[{"type": "function", "function": {}}]),
        "Missing required parameter: 'tools[0].function.name'.",
    ),
    "a tool in the form of Responses": (
        asks(tools=[{"type": "function", "name": "weather", "parameters": SCHEMA}]),
        "Missing required parameter: 'tools[0].function'.",
    ),
    "a name with a space": (
        asks(tools=[{"type": "function", "function": {"name": "the weather"}}]),
        "Invalid 'tools[0].function.name': string does not match pattern.",
    ),
    "a name that is too long": (
        asks(tools=[{"type": "function", "function": {"name": "w" * 65}}]),
        "Expected a string with maximum length 64",
    ),
    "two tools of one name": (asks(tools=[TOOL, TOOL]), "duplicate function name 'weather'"),
    "parameters that are no object": (
        asks(tools=[tool(parameters={"type": "string"})]),
        "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"string\"'.",
    ),
    "parameters with a choice at the root": (
        asks(tools=[tool(parameters={**SCHEMA, "anyOf": []})]),
        "not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.",
    ),
    "parameters without properties": (
        asks(tools=[tool(parameters={"type": "object"})]),
        "In context=(), object schema missing properties.",
    ),
    "parameters with an unknown type": (
        asks(tools=[tool(parameters=nested({"type": "text"}))]),
        "'text' is not valid under any of the given schemas.",
    ),
    "an array of nothing": (
        asks(tools=[tool(parameters=nested({"type": "array"}))]),
        "In context=('properties', 'city'), array schema missing items.",
    ),
    "strict, but open": (
        strict_tool({**SCHEMA, "additionalProperties": True}),
        "In context=(), 'additionalProperties' is required to be supplied and to be false.",
    ),
    "strict, but optional": (
        strict_tool({**SCHEMA, "required": []}),
        "to be an array including every key in properties. Missing 'city'.",
    ),
    "strict, but required without a property": (
        strict_tool({**SCHEMA, "required": ["city", "land"]}),
        "Extra required key 'land' supplied.",
    ),
    "strict, but with oneOf": (
        strict_tool(nested({"oneOf": [{"type": "string"}]})),
        "In context=('properties', 'city'), 'oneOf' is not permitted.",
    ),
    "strict, but with a default": (
        strict_tool(nested({"type": "string", "default": "Bern"})),
        "'default' is not permitted.",
    ),
    "strict, but without a type": (
        strict_tool(nested({"description": "a city"})),
        "schema must have a 'type' key.",
    ),
    "strict, but an open object within": (
        strict_tool(nested({"type": "object", "properties": {}})),
        "In context=('properties', 'city'), 'additionalProperties' is required",
    ),
    "strict, with an unknown format": (
        strict_tool(nested({"type": "string", "format": "uri"})),
        "'uri' is not a valid format.",
    ),
    "strict, with words beside a reference": (
        strict_tool({**nested({"$ref": "#/$defs/c", "description": "a"}), "$defs": {"c": SCHEMA}}),
        "$ref cannot have keywords {'description'}.",
    ),
    "strict, with a reference to nothing": (
        strict_tool(nested({"$ref": "#/$defs/c"})),
        "'#/$defs/c' which was not found in the schema.",
    ),
    "a choice without tools": (
        asks(tool_choice="auto"),
        "'tool_choice' is only allowed when 'tools' are specified.",
    ),
    "an unknown choice": (
        asks(tools=[TOOL], tool_choice="any"),
        "Invalid value: 'any'. Supported values are: 'none', 'auto', and 'required'.",
    ),
    "a choice of an unknown tool": (
        asks(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "other"}}),
        "Tool choice 'other' not found in 'tools' parameter.",
    ),
    "a choice in the form of Responses": (
        asks(tools=[TOOL], tool_choice={"type": "function", "name": "weather"}),
        "Unknown parameter: 'tool_choice.name'.",
    ),
    "parallel calls without tools": (
        asks(parallel_tool_calls=False),
        "'parallel_tool_calls' is only allowed when 'tools' are specified.",
    ),
    "an unknown format": (
        asks(response_format={"type": "xml"}),
        "Invalid value: 'xml'. Supported values are: 'json_object', 'json_schema', and 'text'.",
    ),
    "a format without a schema": (
        asks(response_format={"type": "json_schema"}),
        "Missing required parameter: 'response_format.json_schema'.",
    ),
    "a format with a bad name": (
        formatted(SCHEMA, name="my report"),
        "Invalid 'response_format.json_schema.name': string does not match pattern.",
    ),
    "a format that is a choice": (
        formatted({"anyOf": [SCHEMA]}),
        "Invalid schema for response_format 'report': schema must be a JSON Schema of 'type: ",
    ),
    "a format that is open": (
        formatted({**SCHEMA, "additionalProperties": True}),
        "'additionalProperties' is required to be supplied and to be false.",
    ),
    "a format with an optional field": (
        formatted({**SCHEMA, "required": []}),
        "Missing 'city'.",
    ),
    "JSON without the word": (
        asks(response_format={"type": "json_object"}),
        "'messages' must contain the word 'json' in some form",
    ),
    "an unknown part": (
        parts({"type": "input_text", "text": "a"}),
        "Invalid value: 'input_text'. Supported values are: 'text', 'image_url'",
    ),
    "an image of an assistant": (
        parts(image(PNG), role="assistant"),
        "Image URLs are only allowed for messages with role 'user', but this message with role",
    ),
    "an image of a tool": (
        asks(SAID, called("a"), {**result("a"), "content": [image(PNG)]}),
        "this message with role 'tool' contains an image URL.",
    ),
    "sound of a system message": (
        parts(audio("aGVsbG8=", "wav"), role="system"),
        "Audio inputs are only allowed for messages with role 'user'",
    ),
    "a file of an assistant": (
        parts(file(file_id="file-1"), role="assistant"),
        "Files are only allowed for messages with role 'user'",
    ),
    "an image without an address": (
        parts(image("aGVsbG8=")),
        "Invalid image URL: 'messages[0].content[0].image_url.url'. Expected a base64-encoded",
    ),
    "an image of an unknown kind": (
        parts(image("data:image/tiff;base64,aGVsbG8=")),
        "but got unsupported MIME type 'image/tiff'.",
    ),
    "an image in no base64": (
        parts(image("data:image/png;base64,%%%")),
        "but got an invalid base64-encoded value.",
    ),
    "an empty image": (
        parts(image("data:image/png;base64,")),
        "but got empty base64-encoded bytes.",
    ),
    "an image as a string": (
        parts({"type": "image_url", "image_url": PNG}),
        "Invalid type for 'messages[0].content[0].image_url': expected an object",
    ),
    "sound of an unknown kind": (
        parts(audio("aGVsbG8=", "ogg")),
        "Invalid value: 'ogg'. Supported values are: 'wav' and 'mp3'.",
    ),
    "sound in no base64": (
        parts(audio("data:audio/wav;base64,aGVsbG8=", "wav")),
        "Invalid 'messages[0].content[0].input_audio.data'.",
    ),
    "a file of an unknown kind": (
        parts(file(filename="a.md", file_data="data:text/markdown;base64,aGVsbG8=")),
        "but got unsupported MIME type 'text/markdown'.",
    ),
    "a file without a name": (
        parts(file(file_data=PDF)),
        "Missing required parameter: 'messages[0].content[0].file.filename'.",
    ),
    "a file by its address": (
        parts(file(file_url="https://example.com/a.pdf")),
        "Unknown parameter: 'messages[0].content[0].file.file_url'.",
    ),
    "options of a stream without one": (
        asks(stream_options={"include_usage": True}),
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    ),
    "too hot": (
        asks(temperature=2.5),
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 2.5",
    ),
    "too cold": (asks(temperature=-1), "decimal below minimum value. Expected a value >= 0"),
    "temperature of a wrong type": (
        asks(temperature="hot"),
        "Invalid type for 'temperature': expected a decimal, but got a string instead.",
    ),
    "no tokens": (asks(max_tokens=0), "integer below minimum value. Expected a value >= 1"),
    "two limits": (
        asks(max_tokens=5, max_completion_tokens=5),
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
    ),
    "too many stops": (asks(stop=list("abcde")), "array too long."),
}

ACCEPTED: dict[str, dict[str, Any]] = {
    "the same role twice": asks(SAID, SAID, {"role": "assistant", "content": "a"}, SAID),
    "every role": asks(
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": [{"type": "text", "text": "be kind"}]},
        SAID,
        called("a", "b", content="I look"),
        result("b"),
        {**result("a"), "content": [{"type": "text", "text": "rain"}]},
    ),
    "calls without content": asks(
        SAID, {k: v for k, v in called("a").items() if k != "content"}, result("a")
    ),
    "a refusal": asks(SAID, {"role": "assistant", "content": None, "refusal": "no"}, SAID),
    "one id in two turns": asks(SAID, called("a"), result("a"), called("a"), result("a")),
    "every part": parts(
        {"type": "text", "text": "look"},
        image(PNG),
        image("https://example.com/a.png"),
        audio("aGVsbG8=", "mp3"),
        file(filename="a.pdf", file_data=PDF),
        file(file_id="file-1"),
    ),
    "tools": asks(
        tools=[TOOL, {"type": "function", "function": {"name": "now"}}],
        tool_choice={"type": "function", "function": {"name": "now"}},
        parallel_tool_calls=False,
    ),
    "a strict tool": strict_tool(
        {
            **nested({"anyOf": [{"$ref": "#/$defs/place"}, {"type": ["string", "null"]}]}),
            "$defs": {"place": SCHEMA},
        }
    ),
    "a tool with optional and free fields": asks(
        tools=[
            tool(
                parameters={
                    "type": "object",
                    "properties": {"a": {"type": "object"}, "b": {}, "c": {"default": 1}},
                }
            )
        ]
    ),
    "a strict format": formatted(SCHEMA),
    "JSON": asks({"role": "user", "content": "in JSON"}, response_format={"type": "json_object"}),
    "numbers and nothing": asks(temperature=0, top_p=None, seed=7, n=1, stop="end", user=None),
}
