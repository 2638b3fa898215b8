"""Requests of Responses: those that OpenAI refuses, with its words, and those it takes."""

from __future__ import annotations

from typing import Any

from tests.servers.openai_responses_items import item_id, sealed

PNG = "data:image/png;base64,aW1nIGJ5dGVzIGhlcmU="
PDF = "data:application/pdf;base64,SGVsbG8sIFdvcmxkIQ=="
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}
SAID = {"role": "user", "content": "hello"}


def asks(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "gpt-test", "input": list(items) or "hello", **more}


def heard(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return asks({"type": "message", "role": role, "content": list(parts)})


def called(given: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": given,
        "name": "weather",
        "arguments": "{}",
        **more,
    }


def result(given: str, output: Any = "sunny") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": given, "output": output}


def thought(given: str = "rs_1", **more: Any) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": given,
        "summary": [],
        "encrypted_content": sealed(given),
        **more,
    }


def told(text: str = "fine", **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content, **more}


def formatted(schema: Any, name: str = "report") -> dict[str, Any]:
    given = {"type": "json_schema", "name": name, "schema": schema, "strict": True}
    return asks(text={"format": given})


def without(item: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in names}


REASONED = item_id("fc", 1, 1, reasoned=True)

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown field": (asks(top_k=3), "Unknown parameter: 'top_k'."),
    "messages": (
        {"model": "m", "messages": [SAID]},
        "Unsupported parameter: 'messages'. In the Responses API, this parameter has moved to",
    ),
    "the limit of chat": (asks(max_tokens=20), "has moved to 'max_output_tokens'."),
    "the format of chat": (asks(response_format={}), "has moved to 'text.format'."),
    "no model": ({"input": "hello"}, "Missing required parameter: 'model'."),
    "no input": ({"model": "m"}, 'One of "input" or "previous_response_id"'),
    "empty input": ({"model": "m", "input": []}, 'One of "input" or "previous_response_id"'),
    "a number as input": ({"model": "m", "input": 3}, "Invalid type for 'input'"),
    "an item that is a string": (
        {"model": "m", "input": ["hello"]},
        "Invalid type for 'input[0]': expected an object, but got a string instead.",
    ),
    "an unknown item": (
        asks({"type": "note", "text": "a"}),
        "Invalid value: 'note'. Supported values are: 'message', 'function_call'",
    ),
    "an unknown field of an item": (
        asks(SAID, called("a", parsed_arguments={}), result("a")),
        "Unknown parameter: 'input[1].parsed_arguments'.",
    ),
    "an unknown field of a message": (
        asks({**SAID, "tool_calls": []}),
        "Unknown parameter: 'input[0].tool_calls'.",
    ),
    "the role of a tool": (
        asks({"role": "tool", "content": "a"}),
        "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and",
    ),
    "no content": (asks({"role": "user"}), "Missing required parameter: 'input[0].content'."),
    "null content": (
        asks({"role": "assistant", "content": None}),
        "expected one of an array of objects or string, but got null instead.",
    ),
    "the parts of chat": (
        heard({"type": "text", "text": "a"}),
        "Invalid value: 'text'. Supported values are: 'input_text', 'input_image', 'output_text'",
    ),
    "a user that says what a model says": (
        heard({"type": "output_text", "text": "a"}),
        "Supported values are: 'input_text', 'input_image', and 'input_file'.",
    ),
    "a model that says what a user says": (
        heard({"type": "input_text", "text": "a"}, role="assistant"),
        "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
    ),
    "sound": (
        heard({"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "wav"}}),
        "Invalid value: 'input_audio'. Supported values are: 'input_text'",
    ),
    "an image in the form of chat": (
        heard({"type": "input_image", "image_url": {"url": PNG}}),
        "Invalid type for 'input[0].content[0].image_url': expected a string, but got an object",
    ),
    "no image": (
        heard({"type": "input_image"}),
        "Missing required parameter: 'input[0].content[0].image_url'.",
    ),
    "an image of an unknown kind": (
        heard({"type": "input_image", "image_url": PDF}),
        "but got unsupported MIME type 'application/pdf'.",
    ),
    "an image in no base64": (
        heard({"type": "input_image", "image_url": "data:image/png;base64,a"}),
        "Invalid 'input[0].content[0].image_url'. Expected a base64-encoded data URL with an image",
    ),
    "a file without a name": (
        heard({"type": "input_file", "file_data": PDF}),
        "Missing required parameter: 'input[0].content[0].filename'.",
    ),
    "a file of an unknown kind": (
        heard({"type": "input_file", "filename": "a", "file_data": PNG}),
        "but got unsupported MIME type 'image/png'.",
    ),
    "a file that is two": (
        heard({"type": "input_file", "file_id": "file-1", "file_url": "https://a.b/c"}),
        "Mutually exclusive parameters",
    ),
    "a file at no address": (
        heard({"type": "input_file", "file_url": "c.pdf"}),
        "Invalid 'input[0].content[0].file_url'. Expected a valid URL",
    ),
    "no file": (heard({"type": "input_file"}), "Missing required parameter"),
    "an output without a call": (
        asks(SAID, result("a")),
        "No tool call found for function call output with call_id a.",
    ),
    "an output before its call": (
        asks(SAID, result("a"), called("a")),
        "No tool call found for function call output with call_id a.",
    ),
    "a call without an output": (
        asks(SAID, called("a"), called("b"), result("a")),
        "No tool output found for function call b.",
    ),
    "two outputs of a call": (
        asks(SAID, called("a"), result("a"), result("a")),
        "Duplicate function call output found with call_id a.",
    ),
    "two calls with one id": (
        asks(SAID, called("a"), called("a"), result("a")),
        "Duplicate function call found with call_id a.",
    ),
    "a call id that is too long": (
        asks(SAID, called("a" * 65), result("a" * 65)),
        "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64",
    ),
    "a call with the id of the call": (
        asks(SAID, called("call_a", id="call_a"), result("call_a")),
        "Invalid 'input[1].id': 'call_a'. Expected an ID that begins with 'fc'.",
    ),
    "a message with another id": (
        asks(SAID, told(id="rs_1"), SAID),
        "Invalid 'input[1].id': 'rs_1'. Expected an ID that begins with 'msg'.",
    ),
    "arguments that are no string": (
        asks(SAID, called("a", arguments={}), result("a")),
        "Invalid type for 'input[1].arguments': expected a string, but got an object instead.",
    ),
    "a call without a name": (
        asks(SAID, without(called("a"), "name"), result("a")),
        "Missing required parameter: 'input[1].name'.",
    ),
    "an output that is an object": (
        asks(SAID, called("a"), result("a", {"sky": "blue"})),
        "Invalid type for 'input[2].output'",
    ),
    "an output without a value": (
        asks(SAID, called("a"), without(result("a"), "output")),
        "Missing required parameter: 'input[2].output'.",
    ),
    "reasoning at the end": (
        asks(SAID, thought()),
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    ),
    "reasoning before a user": (
        asks(SAID, thought(), SAID),
        "was provided without its required following item.",
    ),
    "named reasoning before an item without an id": (
        asks(SAID, without(thought(), "encrypted_content"), called("a"), result("a")),
        "was provided without its required following item.",
    ),
    "reasoning without a summary": (
        asks(SAID, without(thought(), "summary"), told()),
        "Missing required parameter: 'input[1].summary'.",
    ),
    "reasoning with another id": (
        asks(SAID, thought("msg_1"), told()),
        "Invalid 'input[1].id': 'msg_1'. Expected an ID that begins with 'rs'.",
    ),
    "reasoning that was changed": (
        asks(SAID, thought(encrypted_content=sealed("rs_2")), told()),
        "The encrypted content for item rs_1 could not be verified.",
    ),
    "a call without its reasoning": (
        asks(SAID, called("a", id=REASONED), result("a")),
        f"Item '{REASONED}' of type 'function_call' was provided without its required 'reasoning'",
    ),
    "one id twice": (
        asks(SAID, told(id="msg_1"), SAID, told(id="msg_1"), SAID),
        "Duplicate item found with id msg_1. Remove duplicate items from your input and try again.",
    ),
    "a previous response": (
        asks(previous_response_id="resp_1"),
        "Previous response with id 'resp_1' not found.",
    ),
    "a tool in the form of chat": (
        asks(tools=[{"type": "function", "function": {"name": "weather"}}]),
        "Missing required parameter: 'tools[0].name'.",
    ),
    "an unknown tool": (asks(tools=[{"type": "magic"}]), "Invalid value: 'magic'."),
    "two tools of one name": (asks(tools=[TOOL, TOOL]), "duplicate function name 'weather'"),
    "a name with a dot": (
        asks(tools=[{**TOOL, "name": "weather.now"}]),
        "Invalid 'tools[0].name': string does not match pattern.",
    ),
    "parameters that are no object": (
        asks(tools=[{**TOOL, "parameters": {"type": "array", "items": {}}}]),
        "Invalid schema for function 'weather': schema must be a JSON Schema of 'type: \"object\"'",
    ),
    "strict, but open": (
        asks(tools=[{**TOOL, "parameters": without(SCHEMA, "additionalProperties")}]),
        "In context=(), 'additionalProperties' is required to be supplied and to be false.",
    ),
    "strict, but optional": (
        asks(tools=[{**TOOL, "parameters": without(SCHEMA, "required")}]),
        "Missing 'city'.",
    ),
    "a choice of an unknown tool": (
        asks(tools=[TOOL], tool_choice={"type": "function", "name": "other"}),
        "Tool choice 'other' not found in 'tools' parameter.",
    ),
    "a choice in the form of chat": (
        asks(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "weather"}}),
        "Missing required parameter: 'tool_choice.name'.",
    ),
    "a call that must be, without tools": (
        asks(tool_choice="required"),
        "Tool choice 'required' must be specified with 'tools' parameter.",
    ),
    "a format in the form of chat": (
        asks(text={"format": {"type": "json_schema", "json_schema": {"name": "a"}}}),
        "Missing required parameter: 'text.format.name'.",
    ),
    "a format that is a choice": (
        formatted({"anyOf": [SCHEMA]}),
        "Invalid schema for response_format 'report': schema must be a JSON Schema of 'type: ",
    ),
    "a format with an optional field": (formatted({**SCHEMA, "required": []}), "Missing 'city'."),
    "a format with a bad name": (
        formatted(SCHEMA, "my report"),
        "Invalid 'text.format.name': string does not match pattern.",
    ),
    "JSON without the word": (
        asks(text={"format": {"type": "json_object"}}),
        "must contain the word 'json' in some form to use 'text.format'",
    ),
    "something unknown to include": (
        asks(include=["reasoning"]),
        "Invalid value: 'reasoning'. Supported values are: 'file_search_call.results'",
    ),
    "too few tokens": (
        asks(max_output_tokens=5),
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16",
    ),
    "the options of a chat stream": (
        asks(stream=True, stream_options={"include_usage": True}),
        "Unknown parameter: 'stream_options.include_usage'.",
    ),
    "an unknown effort": (asks(reasoning={"effort": "huge"}), "Invalid value: 'huge'."),
    "instructions that are a list": (asks(instructions=[SAID]), "Invalid type for 'instructions'"),
    "too hot": (asks(temperature=3), "decimal above maximum value. Expected a value <= 2"),
}

ACCEPTED: dict[str, dict[str, Any]] = {
    "a text": asks(),
    "every role": asks(
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": [{"type": "input_text", "text": "be kind"}]},
        SAID,
        {"role": "assistant", "content": "hm"},
        told(id="msg_1", status="completed"),
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        SAID,
    ),
    "every part": heard(
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": PNG, "detail": "auto"},
        {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
        {"type": "input_file", "filename": "a.md", "file_data": "data:text/markdown;base64,YQ=="},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        {"type": "input_file", "file_id": "file-1"},
    ),
    "calls": asks(
        SAID,
        called("a", id="fc_1"),
        called("b"),
        result("b"),
        result("a", [{"type": "input_text", "text": "sun"}]),
    ),
    "reasoning": asks(SAID, thought("rs_1"), thought("rs_2"), told(), called("a"), result("a")),
    "reasoning that is not stored": asks(SAID, thought(), told(), SAID, store=False),
    "named reasoning": asks(
        SAID, without(thought(), "encrypted_content"), called("a", id="fc_1"), result("a")
    ),
    "a call whose reasoning is not stored": asks(
        SAID, called("a", id=REASONED), result("a"), store=False
    ),
    "tools": asks(
        tools=[TOOL, {"type": "function", "name": "now", "parameters": None, "strict": None}],
        tool_choice={"type": "function", "name": "now"},
        parallel_tool_calls=False,
    ),
    "a tool that says nothing of strict": asks(
        tools=[without({**TOOL, "parameters": without(SCHEMA, "required")}, "strict")]
    ),
    "no tools": asks(tools=[], tool_choice="auto", parallel_tool_calls=True),
    "a tool of OpenAI": asks(tools=[{"type": "web_search"}]),
    "a strict format": formatted(SCHEMA),
    "all the rest": asks(
        instructions="be brief",
        include=["reasoning.encrypted_content"],
        store=False,
        max_output_tokens=16,
        temperature=0.5,
        reasoning={"effort": "low", "summary": "auto"},
        metadata={"run": "1"},
        truncation="auto",
    ),
}
