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


REFUSED: dict[str, list[dict[str, Any]]] = {
    "Unknown parameter: 'top_k'.": [asks(top_k=3)],
    "you must provide a model parameter": [{"messages": [SAID]}],
    "Missing required parameter: 'messages'.": [{"model": "m"}],
    "Invalid 'messages': empty array.": [{"model": "m", "messages": []}],
    "Invalid type for 'messages': expected an array, but got a string instead.": [
        {"model": "m", "messages": "hello"}
    ],
    "Missing required parameter: 'messages[0].role'.": [asks({"content": "a"})],
    "Invalid value: 'robot'. Supported values are: 'developer', 'system', 'user'": [
        asks({"role": "robot", "content": "a"})
    ],
    "Unknown parameter: 'messages[0].mood'.": [asks({**SAID, "mood": "good"})],
    "Unknown parameter: 'messages[0].tool_calls'.": [asks({**SAID, "tool_calls": []})],
    "Invalid value for 'content': expected a string, got null.": [
        asks(SAID, {"role": "assistant", "content": None}),
    ],
    "Missing required parameter: 'messages[0].content'.": [asks({"role": "system"})],
    "content': expected a string, but got null instead.": [
        asks({"role": "user", "content": None}),
        asks(SAID, called("a"), {**result("a"), "content": None}),
    ],
    "Invalid type for 'messages[0].content': expected a string, but got an integer instead.": [
        asks({"role": "user", "content": 3})
    ],
    "Invalid 'messages[0].content': empty array.": [parts()],
    "Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1": [
        asks(SAID, {"role": "assistant", "content": "a", "tool_calls": []})
    ],
    "Invalid type for 'messages[1].tool_calls': expected an array, but got null instead.": [
        asks(SAID, {"role": "assistant", "content": "a", "tool_calls": None})
    ],
    "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.": [
        asks(SAID, result("a"))
    ],
    "must be a response to a preceeding message": [
        asks(SAID, called("a"), result("a"), SAID, result("a"))
    ],
    "'tool_call_id' of 'b' not found in 'tool_calls' of previous message.": [
        asks(SAID, called("a"), result("b"))
    ],
    "Missing required parameter: 'messages[2].tool_call_id'.": [
        asks(SAID, called("a"), {"role": "tool", "content": "b"})
    ],
    "Duplicate value for 'tool_call_id' of 'a', in messages[2] and messages[3].": [
        asks(SAID, called("a"), result("a"), result("a"))
    ],
    "Duplicate value for 'id' of 'a'": [asks(SAID, called("a", "a"), result("a"))],
    "did not have response messages: a, c": [asks(SAID, called("a", "b", "c"), result("b"), SAID)],
    "did not have response messages: a": [asks(SAID, called("a"))],
    "Expected a string with maximum length 40, but got a string with length 41 instead.": [
        asks(SAID, called("a" * 41), result("a" * 41))
    ],
    "tool_calls[0].function.arguments': expected a string, but got an object instead.": [
        asks(
            SAID,
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": {}}}
                ],
            },
            result("a"),
        )
    ],
    "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.": [
        asks(
            SAID,
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f.g", "arguments": ""}}
                ],
            },
            result("a"),
        )
    ],
    "Missing required parameter: 'messages[1].tool_calls[0].type'.": [
        asks(
            SAID,
            {
                "role": "assistant",
                "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}],
            },
            result("a"),
        )
    ],
    "Invalid 'tools': empty array.": [asks(tools=[])],
    "Invalid type for 'tools'": [asks(tools=None)],
    "Missing required parameter: 'tools[0].function.name'.": [
        asks(tools=[{"type": "function", "function": {}}])
    ],
    "Missing required parameter: 'tools[0].function'.": [
        asks(tools=[{"type": "function", "name": "weather", "parameters": SCHEMA}])
    ],
    "Invalid 'tools[0].function.name': string does not match pattern.": [
        asks(tools=[{"type": "function", "function": {"name": "the weather"}}])
    ],
    "Expected a string with maximum length 64": [
        asks(tools=[{"type": "function", "function": {"name": "w" * 65}}])
    ],
    "duplicate function name 'weather'": [asks(tools=[TOOL, TOOL])],
    "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"string\"'.": [
        asks(tools=[tool(parameters={"type": "string"})])
    ],
    "not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.": [
        asks(tools=[tool(parameters={**SCHEMA, "anyOf": []})])
    ],
    "In context=(), object schema missing properties.": [
        asks(tools=[tool(parameters={"type": "object"})])
    ],
    "'text' is not valid under any of the given schemas.": [
        asks(tools=[tool(parameters=nested({"type": "text"}))])
    ],
    "In context=('properties', 'city'), array schema missing items.": [
        asks(tools=[tool(parameters=nested({"type": "array"}))])
    ],
    "In context=(), 'additionalProperties' is required to be supplied and to be false.": [
        strict_tool({**SCHEMA, "additionalProperties": True})
    ],
    "to be an array including every key in properties. Missing 'city'.": [
        strict_tool({**SCHEMA, "required": []})
    ],
    "Extra required key 'land' supplied.": [strict_tool({**SCHEMA, "required": ["city", "land"]})],
    "In context=('properties', 'city'), 'oneOf' is not permitted.": [
        strict_tool(nested({"oneOf": [{"type": "string"}]}))
    ],
    "'default' is not permitted.": [strict_tool(nested({"type": "string", "default": "Bern"}))],
    "schema must have a 'type' key.": [strict_tool(nested({"description": "a city"}))],
    "In context=('properties', 'city'), 'additionalProperties' is required": [
        strict_tool(nested({"type": "object", "properties": {}}))
    ],
    "'uri' is not a valid format.": [strict_tool(nested({"type": "string", "format": "uri"}))],
    "$ref cannot have keywords {'description'}.": [
        strict_tool({**nested({"$ref": "#/$defs/c", "description": "a"}), "$defs": {"c": SCHEMA}})
    ],
    "'#/$defs/c' which was not found in the schema.": [strict_tool(nested({"$ref": "#/$defs/c"}))],
    "'tool_choice' is only allowed when 'tools' are specified.": [asks(tool_choice="auto")],
    "Invalid value: 'any'. Supported values are: 'none', 'auto' or 'required'.": [
        asks(tools=[TOOL], tool_choice="any")
    ],
    "Tool choice 'other' not found in 'tools' parameter.": [
        asks(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "other"}})
    ],
    "Missing required parameter: 'tool_choice.function'.": [
        asks(tools=[TOOL], tool_choice={"type": "function", "name": "weather"})
    ],
    "'parallel_tool_calls' is only allowed when 'tools' are specified.": [
        asks(parallel_tool_calls=False)
    ],
    "Invalid value: 'xml'. Supported values are: 'text', 'json_schema', 'json_object'.": [
        asks(response_format={"type": "xml"})
    ],
    "Missing required parameter: 'response_format.json_schema'.": [
        asks(response_format={"type": "json_schema"})
    ],
    "Invalid 'response_format.json_schema.name': string does not match pattern.": [
        formatted(SCHEMA, name="my report")
    ],
    "Invalid schema for response_format 'report': schema must be a JSON Schema of 'type: ": [
        formatted({"anyOf": [SCHEMA]})
    ],
    "'additionalProperties' is required to be supplied and to be false.": [
        formatted({**SCHEMA, "additionalProperties": True})
    ],
    "Missing 'city'.": [formatted({**SCHEMA, "required": []})],
    "'messages' must contain the word 'json' in some form": [
        asks(response_format={"type": "json_object"})
    ],
    "Invalid value: 'input_text'. Supported values are: 'text', 'image_url'": [
        parts({"type": "input_text", "text": "a"})
    ],
    "Invalid value: 'image_url'. Supported values are: 'text', 'refusal'.": [
        parts(image(PNG), role="assistant")
    ],
    "Invalid value: 'image_url'. Supported values are: 'text'": [
        asks(SAID, called("a"), {**result("a"), "content": [image(PNG)]})
    ],
    "Invalid value: 'input_audio'. Supported values are: 'text'": [
        parts(audio("aGVsbG8=", "wav"), role="system")
    ],
    "Invalid value: 'file'. Supported values are: 'text', 'refusal'.": [
        parts(file(file_id="file-1"), role="assistant")
    ],
    "Invalid image URL: 'messages[0].content[0].image_url.url'. Expected a base64-encoded": [
        parts(image("aGVsbG8="))
    ],
    "but got unsupported MIME type 'image/tiff'.": [
        parts(image("data:image/tiff;base64,aGVsbG8="))
    ],
    "but got an invalid base64-encoded value.": [parts(image("data:image/png;base64,%%%"))],
    "but got empty base64-encoded bytes.": [parts(image("data:image/png;base64,"))],
    "Invalid type for 'messages[0].content[0].image_url': expected an object": [
        parts({"type": "image_url", "image_url": PNG})
    ],
    "Invalid value: 'ogg'. Supported values are: 'wav' or 'mp3'.": [
        parts(audio("aGVsbG8=", "ogg"))
    ],
    "Invalid 'messages[0].content[0].input_audio.data'.": [
        parts(audio("data:audio/wav;base64,aGVsbG8=", "wav"))
    ],
    "but got unsupported MIME type 'text/markdown'.": [
        parts(file(filename="a.md", file_data="data:text/markdown;base64,aGVsbG8="))
    ],
    "Missing required parameter: 'messages[0].content[0].file.filename'.": [
        parts(file(file_data=PDF))
    ],
    "Unknown parameter: 'messages[0].content[0].file.file_url'.": [
        parts(file(file_url="https://example.com/a.pdf"))
    ],
    "The 'stream_options' parameter is only allowed when 'stream' is enabled.": [
        asks(stream_options={"include_usage": True})
    ],
    "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 2.5": [
        asks(temperature=2.5)
    ],
    "decimal below minimum value. Expected a value >= 0": [asks(temperature=-1)],
    "Invalid type for 'temperature': expected a decimal, but got a string instead.": [
        asks(temperature="hot")
    ],
    "integer below minimum value. Expected a value >= 1": [asks(max_tokens=0)],
    "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.": [
        asks(max_tokens=5, max_completion_tokens=5)
    ],
    "array too long.": [asks(stop=list("abcde"))],
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
    "numbers and nothing": asks(temperature=0, top_p=None, seed=7, n=1, stop="end"),
}
